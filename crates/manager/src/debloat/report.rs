//! Report of a debloating.

use std::collections::BTreeSet;

use hugepilot_kernel::{Target, TargetState};
use hugepilot_policy::Priority;
use hugepilot_record::debloat::{BACKEND, DebloatReport, DebloatWarning, ProcessDebloat, SCHEMA};
use hugepilot_record::{Mapping, Split, SplitOutcome, Stop};
use hugepilot_units::{Bytes, Region};

use super::warnings;
use super::{DebloatProcess, Run};
use crate::act::split::count;

impl Run {
    pub(super) fn report(self) -> DebloatReport {
        let enough = self.plan.enough_for(self.wanted);
        let mut report = self.head();
        let (mut resident_before, mut resident_after) = (Bytes::ZERO, Bytes::ZERO);
        let mut lost: Vec<&Split> = Vec::new();
        for (index, one) in self.processes.iter().enumerate() {
            let (considered, gone) = if self.options.dry_run {
                (&self.plan.splits[..enough], None)
            } else {
                // Later splits count as well: they replace failed ones.
                (&self.plan.splits[..], Some(one.split_regions()))
            };
            let is_gone =
                |split: &&Split| gone.as_ref().is_none_or(|gone| gone.contains(&split.region));
            let mine: Vec<&Split> =
                considered.iter().filter(|split| split.process == index).filter(is_gone).collect();
            let before = &one.scan.mappings;
            // Memory that a process frees when it ends or executes another program does not count.
            let after = gone.as_ref().and_then(|_| one.mappings_now());
            let process = one.summary(self.options.dry_run, &mine, after.as_deref());
            resident_before += before.iter().map(|mapping| mapping.resident).sum();
            resident_after +=
                after.as_ref().unwrap_or(before).iter().map(|mapping| mapping.resident).sum();
            report.recollapsed += gone.as_ref().map_or(0, |gone| one.recollapsed(gone));
            one.count(&mut report);
            report.freed_bytes += process.freed_bytes;
            report.huge_pages_split += process.huge_pages_split;
            report.huge_pages_before += process.huge_pages_before;
            report.huge_pages_after += process.huge_pages_after;
            report.processes.push(process);
            lost.extend(mine);
        }
        let signed = |bytes: Bytes| i64::try_from(bytes.get()).unwrap_or(i64::MAX);
        report.rss_drop_bytes = signed(resident_before) - signed(resident_after);
        report.predicted_slowdown = self.slowdown(&lost);
        let risk = warnings::risk_for(&self.processes);
        report.warnings.extend(self.warnings);
        let excluded = self.processes.iter().filter(|one| one.splits.ended().is_some()).count();
        warnings::add(&mut report, risk, &self.options, excluded);
        report
    }

    /// Fills in the facts that do not belong to single processes.
    fn head(&self) -> DebloatReport {
        let policy = self.options.policy;
        let eligible =
            self.processes.iter().filter(|one| one.target.priority != Priority::Protected);
        let estimates = eligible.map(|one| one.scan.census.estimate());
        let (bloat, squares) = estimates.fold((Bytes::ZERO, 0.0), |sum, (bloat, error)| {
            (sum.0 + bloat, sum.1 + error.as_f64().powi(2))
        });
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let error = Bytes::new(squares.sqrt() as u64);
        let scans = || self.processes.iter().map(|one| &one.scan.census);
        DebloatReport {
            schema: SCHEMA.to_owned(),
            backend: BACKEND.to_owned(),
            order: policy.order.name().to_owned(),
            fairness: policy.fairness.name().to_owned(),
            quantum: policy.quantum as u64,
            dry_run: self.options.dry_run,
            bloat_bytes: bloat,
            bloat_error_bytes: error,
            requested_bytes: self.wanted,
            unread_huge_pages: scans().map(|census| census.unread_pages).sum(),
            scanned_bytes: scans().map(|census| census.scanned()).sum(),
            scan_seconds: scans().map(|census| census.took.as_seconds()).sum(),
            split_seconds: self.split_time.as_seconds(),
            skipped: self.plan.skipped.iter().map(|(reason, &n)| (reason.to_string(), n)).collect(),
            stopped: self.interrupted.then_some(Stop::Interrupted),
            ..DebloatReport::default()
        }
    }
}

impl DebloatProcess {
    /// Summarises the process. `gone` are its huge pages that were split, or would be; of a sample,
    /// each stands for several. `after` are its mappings now, if known.
    fn summary(&self, dry_run: bool, gone: &[&Split], after: Option<&[Mapping]>) -> ProcessDebloat {
        let id = self.target.process.id();
        let (bloat, _) = self.scan.census.estimate();
        let given: Bytes = gone.iter().map(|split| split.frees).sum();
        let each = if dry_run { self.stand_for() } else { 1.0 };
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss
        )]
        let split = (gone.len() as f64 * each).round() as u64;
        let before = self.huge_pages(&self.scan.mappings);
        ProcessDebloat {
            pid: id.pid,
            command: id.command.clone(),
            bloat_bytes_before: bloat,
            bloat_bytes_after: bloat - given,
            freed_bytes: if dry_run { given } else { self.splits.freed() },
            huge_pages_split: split,
            huge_pages_before: before,
            huge_pages_after: after
                .map_or(before.saturating_sub(split), |now| self.huge_pages(now)),
            split_heat_ratio: self.heat_of(gone),
        }
    }

    /// Returns the expected share of the process's samples on the `gone` huge pages; `None` without
    /// samples. The samples counted there would be biased, because they chose these pages.
    #[allow(clippy::cast_precision_loss)]
    fn heat_of(&self, gone: &[&Split]) -> Option<f64> {
        let samples =
            self.stalls.as_ref().map(|stalls| stalls.samples).filter(|&samples| samples > 0)?;
        // The sum of none is −0.0.
        Some(gone.iter().map(|split| split.stalls).fold(0.0, std::ops::Add::add) / samples as f64)
    }

    /// Reads the mappings; `None` if the process ended or executed another program.
    fn mappings_now(&self) -> Option<Vec<Mapping>> {
        let mappings = self.target.process.mappings().ok()?;
        matches!(self.target.process.state(), Ok(TargetState::Alive)).then_some(mappings)
    }

    /// Counts huge pages by smaps, including those that may not be split.
    fn huge_pages(&self, mappings: &[Mapping]) -> u64 {
        let huge: Bytes = mappings.iter().map(|mapping| mapping.huge).sum();
        huge.get() / self.scan.census.sizes.huge.get()
    }

    /// Counts split regions that were re-collapsed.
    fn recollapsed(&self, regions: &BTreeSet<Region>) -> u64 {
        let is_huge = |&&region: &&Region| {
            self.target.process.region_pages(region).is_ok_and(|pages| pages.huge)
        };
        regions.iter().filter(is_huge).count() as u64
    }

    /// Lists regions with a verified split.
    fn split_regions(&self) -> BTreeSet<Region> {
        let split =
            self.splits.acts.iter().filter(|act| matches!(act.outcome, SplitOutcome::Freed(_)));
        split.map(|act| act.region).collect()
    }

    /// Adds skipped and failed splits to the counts of `report`.
    fn count(&self, report: &mut DebloatReport) {
        for act in &self.splits.acts {
            report.split_call_seconds += act.took.as_seconds();
            count(act.outcome, &mut report.skipped, &mut report.failed);
        }
        if let Some(stop) = self.splits.ended() {
            let id = self.target.process.id();
            let (pid, command) = (id.pid, id.command.clone());
            report.warnings.push(DebloatWarning::ProcessExcluded { pid, command, stop });
        }
    }
}
