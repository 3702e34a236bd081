//! Report of a shrink, from the usage before and after.

use hugepilot_kernel::cgroup::{GroupMemory, Reclaim};
use hugepilot_kernel::{Root, Target, recollapse_risk, thp};
use hugepilot_record::{Errno, Stop};
use hugepilot_reports::debloat::SCHEMA;
use hugepilot_reports::settings::ChangedSetting;
use hugepilot_reports::shrink::{
    BACKEND, ProcessShrink, SettingReport, ShrinkReport, ShrinkWarning, Shrinker,
};
use hugepilot_units::Bytes;

use super::usage::{GroupUsage, ProcessUsage};
use super::{ReclaimOutcome, Request};
use crate::setting_warning;

/// Memory below which a difference of use is none.
const LEAST_UNMAPPED: Bytes = Bytes::mib(4);

impl Request {
    /// Reports the request and its `outcome`; `None` for a dry run.
    pub(super) fn report(
        &self,
        root: &Root,
        planned: Vec<ChangedSetting>,
        outcome: Option<ReclaimOutcome>,
    ) -> ShrinkReport {
        let before = &self.before;
        let after = outcome.as_ref().and_then(|outcome| outcome.after.as_ref());
        let processes: Vec<ProcessShrink> =
            before.processes.iter().map(|one| self.process(one, after)).collect();
        let split = after.and_then(|after| Some(after.splits?.saturating_sub(before.splits?)));
        let drop = after.map(|_| processes.iter().map(rss_drop).sum::<i64>());
        let freed = drop.zip(after).map(|(drop, after)| {
            let freed = Bytes::new(u64::try_from(drop).unwrap_or(0));
            // Memory that a program freed itself meanwhile does not count.
            let mapped = split.map_or(freed, |split| freed.min(self.sizes.huge.times(split)));
            mapped + unmapped(&before.group, &after.group, drop)
        });
        let failed = outcome.iter().filter_map(|outcome| outcome.failed);
        let interrupted = outcome.as_ref().is_some_and(|outcome| outcome.interrupted);
        let mut report = ShrinkReport {
            schema: SCHEMA.to_owned(),
            backend: BACKEND.to_owned(),
            dry_run: outcome.is_none(),
            requested_bytes: match self.reclaim {
                Reclaim::ForceEmpty => None,
                Reclaim::Amount { bytes, .. } => Some(bytes),
            },
            freed_bytes: freed,
            rss_drop_bytes: drop,
            huge_pages_split: split,
            huge_pages_before: self.huge_pages(before.group.anon_huge),
            huge_pages_after: after.and_then(|after| self.huge_pages(after.group.anon_huge)),
            split_seconds: outcome.as_ref().and_then(|outcome| outcome.reclaim_seconds),
            failed: failed.map(|errno: Errno| (errno.to_string(), 1)).collect(),
            processes,
            stopped: interrupted.then_some(Stop::Interrupted),
            shrinker: self.shrinker(after, planned, outcome.as_ref()),
            ..ShrinkReport::default()
        };
        report.warnings = match &outcome {
            Some(outcome) => self.warnings(root, outcome, &report),
            None => self.dry_run_warnings(),
        };
        report.warnings.extend(before.excluded.clone().map(ShrinkWarning::Excluded));
        report
    }

    fn process(&self, before: &ProcessUsage, after: Option<&GroupUsage>) -> ProcessShrink {
        let id = before.process.id();
        let now = after.and_then(|after| after.memory_of(before));
        ProcessShrink {
            pid: id.pid,
            command: id.command.clone(),
            bloat_bytes_before: (),
            bloat_bytes_after: (),
            stranded_bytes: (),
            freed_bytes: now.map(|now| before.memory.anon - now.anon),
            huge_pages_split: (),
            huge_pages_before: self.huge_pages(before.memory.huge),
            huge_pages_after: now.and_then(|now| self.huge_pages(now.huge)),
            anon_bytes_before: before.memory.anon,
            anon_bytes_after: now.map(|now| now.anon),
        }
    }

    fn huge_pages(&self, bytes: Option<Bytes>) -> Option<u64> {
        bytes.map(|bytes| bytes.get() / self.sizes.huge.get())
    }

    fn shrinker(
        &self,
        after: Option<&GroupUsage>,
        planned: Vec<ChangedSetting>,
        outcome: Option<&ReclaimOutcome>,
    ) -> Shrinker {
        let restored = |setting: &ChangedSetting| {
            let outcomes = &outcome?.settings;
            outcomes.iter().find(|(one, _)| one == setting).map(|(_, outcome)| outcome.clone())
        };
        let settings = planned.into_iter().map(|setting| {
            let restored = restored(&setting);
            SettingReport { setting, restored }
        });
        Shrinker {
            cgroup: self.options.cgroup.display().to_string(),
            asked_by: self.reclaim.file().to_owned(),
            max_ptes_none: self.max_ptes_none,
            settings: settings.collect(),
            usage_bytes_before: Some(self.before.group.used),
            usage_bytes_after: after.map(|after| after.group.used),
            cache_bytes_before: self.before.group.cache,
            cache_bytes_after: after.and_then(|after| after.group.cache),
        }
    }

    fn dry_run_warnings(&self) -> Vec<ShrinkWarning> {
        let cache = self.before.group.cache.filter(|&cache| cache > Bytes::ZERO);
        let mut warnings =
            vec![ShrinkWarning::FreedUnknown, ShrinkWarning::GlobalThreshold { seconds: None }];
        warnings.extend(cache.map(|cache_bytes| ShrinkWarning::CacheAtRisk { cache_bytes }));
        warnings
    }

    fn warnings(
        &self,
        root: &Root,
        outcome: &ReclaimOutcome,
        report: &ShrinkReport,
    ) -> Vec<ShrinkWarning> {
        let settings = outcome.settings.iter();
        let mut warnings: Vec<ShrinkWarning> = settings
            .filter_map(|(setting, restored)| setting_warning(setting, restored))
            .map(ShrinkWarning::Setting)
            .collect();
        let shrinker = &report.shrinker;
        if let (Some(before), Some(after)) =
            (shrinker.cache_bytes_before, shrinker.cache_bytes_after)
            && after < before
        {
            warnings.push(ShrinkWarning::CacheReclaimed { reclaimed_bytes: before - after });
        }
        let is_changed = |name| outcome.settings.iter().any(|(setting, _)| setting.name == name);
        if is_changed(thp::MAX_PTES_NONE) {
            let seconds = Some(outcome.changed_seconds);
            warnings.push(ShrinkWarning::GlobalThreshold { seconds });
        }
        match report.huge_pages_split {
            Some(0)
                if outcome.reclaim_seconds.is_some()
                    && report.freed_bytes.is_none_or(|freed| freed == Bytes::ZERO) =>
            {
                let max_ptes_none = self.max_ptes_none;
                let was_off =
                    shrinker.settings.iter().any(|one| one.setting.name == thp::SHRINK_UNDERUSED);
                warnings.push(ShrinkWarning::NothingFound { max_ptes_none, was_off });
            }
            None | Some(0) => {}
            Some(_) => {
                let risk = recollapse_risk(root, self.before.is_advised());
                warnings.extend(risk.map(ShrinkWarning::RecollapseRisk));
            }
        }
        warnings
    }
}

/// Memory that large pages held and no process mapped, as far as the cgroup got it back: what it
/// uses less, without page cache, beyond the decrease of what its processes map.
fn unmapped(before: &GroupMemory, after: &GroupMemory, drop: i64) -> Bytes {
    let Some((cache_before, cache_after)) = before.cache.zip(after.cache) else {
        return Bytes::ZERO;
    };
    let anonymous = |group: &GroupMemory, cache: Bytes| signed(group.used) - signed(cache);
    let returned = anonymous(before, cache_before) - anonymous(after, cache_after) - drop;
    let returned = Bytes::new(u64::try_from(returned).unwrap_or(0));
    // The kernel accounts in batches of some hundred KiB on each CPU.
    if returned < LEAST_UNMAPPED { Bytes::ZERO } else { returned }
}

fn signed(bytes: Bytes) -> i64 {
    i64::try_from(bytes.get()).unwrap_or(i64::MAX)
}

/// Returns the decrease of a process's anonymous memory; 0 if it is unknown.
fn rss_drop(process: &ProcessShrink) -> i64 {
    process.anon_bytes_after.map_or(0, |after| signed(process.anon_bytes_before) - signed(after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_no_process_mapped_is_what_the_cgroup_got_back_besides() {
        let group = |used: u64, cache: Option<u64>| GroupMemory {
            used: Bytes::mib(used),
            cache: cache.map(Bytes::mib),
            anon_huge: None,
        };
        let of = |before, after, drop_mib: i64| unmapped(&before, &after, drop_mib << 20);
        let before = group(641, Some(5));
        assert_eq!(of(before, group(21, Some(5)), 0), Bytes::mib(620));
        assert_eq!(of(before, group(21, Some(5)), 600), Bytes::mib(20), "the rest was mapped");
        assert_eq!(of(before, group(600, Some(0)), 0), Bytes::mib(36), "5 MiB were page cache");
        assert_eq!(of(before, group(638, Some(5)), 0), Bytes::ZERO, "noise");
        assert_eq!(of(before, group(700, Some(5)), 0), Bytes::ZERO, "it grew");
        assert_eq!(of(before, group(21, None), 0), Bytes::ZERO);
    }
}
