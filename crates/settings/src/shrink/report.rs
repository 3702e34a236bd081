//! The report of a shrink, from what was seen before and after.

use hugepilot_kernel::cgroup::Reclaim;
use hugepilot_kernel::{Root, Target, thp};
use hugepilot_record::debloat::SCHEMA;
use hugepilot_record::settings::ChangedSetting;
use hugepilot_record::shrink::{BACKEND, ProcessShrink, SettingReport, ShrinkReport, Shrinker};
use hugepilot_record::{Errno, Stop};
use hugepilot_units::Bytes;

use super::look::{DebloatProcess, Look};
use super::{Done, Request};
use crate::not_restored;
use hugepilot_kernel::KhugepagedRisk;

impl Request {
    /// `done` is what came of it; `None` when nothing was to be done.
    pub(super) fn report(
        &self,
        root: &Root,
        planned: Vec<ChangedSetting>,
        done: Option<Done>,
    ) -> ShrinkReport {
        let (before, after) = (&self.before, done.as_ref().and_then(|done| done.after.as_ref()));
        let processes: Vec<ProcessShrink> =
            before.members.iter().map(|member| self.process(member, after)).collect();
        let split = after.and_then(|after| Some(after.splits?.saturating_sub(before.splits?)));
        let drop = after.map(|_| processes.iter().map(rss_drop).sum::<i64>());
        let freed = drop.map(|drop| {
            let freed = Bytes::new(u64::try_from(drop).unwrap_or(0));
            // What a program gave back by itself meanwhile is none of our doing.
            split.map_or(freed, |split| freed.min(self.sizes.huge.times(split)))
        });
        let mut report = ShrinkReport {
            schema: SCHEMA.to_owned(),
            backend: BACKEND.to_owned(),
            dry_run: done.is_none(),
            requested_bytes: match self.reclaim {
                Reclaim::ForceEmpty => None,
                Reclaim::Amount { bytes, .. } => Some(bytes),
            },
            freed_bytes: freed,
            rss_drop_bytes: drop,
            huge_pages_split: split,
            huge_pages_before: self.huge_pages(before.group.anon_huge),
            huge_pages_after: after.and_then(|after| self.huge_pages(after.group.anon_huge)),
            split_seconds: done.as_ref().and_then(|done| done.reclaim_seconds),
            failed: done
                .iter()
                .filter_map(|done| done.failed)
                .map(|errno: Errno| (errno.to_string(), 1))
                .collect(),
            processes,
            stopped: done
                .as_ref()
                .filter(|done| done.interrupted)
                .map(|_| Stop::Interrupted.to_string()),
            shrinker: self.shrinker(after, planned, done.as_ref()),
            ..ShrinkReport::default()
        };
        match &done {
            Some(done) => self.warn(root, done, &mut report),
            None => report.warnings = self.forewarnings(),
        }
        report.warnings.extend(before.left_out.clone());
        report
    }

    fn process(&self, member: &DebloatProcess, after: Option<&Look>) -> ProcessShrink {
        let id = member.process.id();
        let now = after.and_then(|after| after.used_by(member));
        ProcessShrink {
            pid: id.pid,
            command: id.command.clone(),
            bloat_bytes_before: (),
            bloat_bytes_after: (),
            freed_bytes: now.map(|now| member.memory.anon - now.anon),
            huge_pages_split: (),
            huge_pages_before: self.huge_pages(member.memory.huge),
            huge_pages_after: now.and_then(|now| self.huge_pages(now.huge)),
            anon_bytes_before: member.memory.anon,
            anon_bytes_after: now.map(|now| now.anon),
        }
    }

    fn huge_pages(&self, bytes: Option<Bytes>) -> Option<u64> {
        bytes.map(|bytes| bytes.get() / self.sizes.huge.get())
    }

    fn shrinker(
        &self,
        after: Option<&Look>,
        planned: Vec<ChangedSetting>,
        done: Option<&Done>,
    ) -> Shrinker {
        let restored = |setting: &ChangedSetting| {
            let outcomes = &done?.settings;
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

    /// What a dry run says beforehand.
    fn forewarnings(&self) -> Vec<String> {
        let mut warnings = vec![
            "how much that would free is not known: it takes reading memory (`--backend split --dry-run`)".to_owned(),
            "max_ptes_none is one for the whole system: meanwhile khugepaged goes by it everywhere, and other cgroups under \
             reclaim may lose underused huge pages as well"
                .to_owned(),
        ];
        if let Some(cache) = self.before.group.cache.filter(|&cache| cache > Bytes::ZERO) {
            warnings
                .push(format!("page cache of the cgroup may be reclaimed, too: it has {cache}"));
        }
        warnings
    }

    fn warn(&self, root: &Root, done: &Done, report: &mut ShrinkReport) {
        let mut warnings = Vec::new();
        for (setting, outcome) in &done.settings {
            warnings.extend(not_restored(setting, outcome));
        }
        let shrinker = &report.shrinker;
        if let (Some(before), Some(after)) =
            (shrinker.cache_bytes_before, shrinker.cache_bytes_after)
            && after < before
        {
            warnings.push(format!(
                "{} of the page cache of the cgroup were reclaimed, too; what of it is needed is read from disk again",
                before - after
            ));
        }
        if done.settings.iter().any(|(setting, _)| setting.name == thp::MAX_PTES_NONE) {
            warnings.push(format!(
                "max_ptes_none is one for the whole system: for {:.2} s khugepaged went by it everywhere, and other cgroups \
                 under reclaim may have lost underused huge pages as well",
                done.changed_seconds
            ));
        }
        if report.huge_pages_split == Some(0) && done.reclaim_seconds.is_some() {
            warnings.push(self.why_nothing(report));
        }
        if report.huge_pages_split.is_some_and(|split| split > 0) {
            let cause = KhugepagedRisk::now(root, self.before.is_advised()).cause();
            warnings.extend(
                cause.map(|cause| format!("khugepaged may make these pages huge again, {cause}")),
            );
        }
        report.warnings = warnings;
    }

    /// Why the kernel split nothing, as far as its ways tell.
    fn why_nothing(&self, report: &ShrinkReport) -> String {
        let unqueued =
            report.shrinker.settings.iter().any(|one| one.setting.name == thp::SHRINK_UNDERUSED);
        let unqueued = if unqueued {
            ", nor one that was made while shrink_underused was 0, as it is set"
        } else {
            ""
        };
        format!(
            "the kernel found no huge page with more than {} zero-filled pages among those it looks at: it looks at each only \
             once, at the first reclaim after it was made, so none that an earlier reclaim kept{unqueued}; where memory may \
             be read, `--backend split` finds them all",
            self.max_ptes_none
        )
    }
}

/// By how much less anonymous memory a process has; 0 where that is not known.
fn rss_drop(process: &ProcessShrink) -> i64 {
    let signed = |bytes: Bytes| i64::try_from(bytes.get()).unwrap_or(i64::MAX);
    process.anon_bytes_after.map_or(0, |after| signed(process.anon_bytes_before) - signed(after))
}
