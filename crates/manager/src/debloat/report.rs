//! Report of a debloating.

use std::collections::BTreeSet;

use hugepilot_record::{Mapping, Split, SplitPlan, Stop};
use hugepilot_reports::debloat::{BACKEND, DebloatReport, DebloatWarning, ProcessDebloat, SCHEMA};
use hugepilot_units::{Bytes, Nanos, Region};

use super::{Run, eligible, scaled, stand_for, warnings};
use crate::act::split::count;
use crate::engine::splits::SplitProcess;

impl Run {
    pub(super) fn report(&self) -> DebloatReport {
        let plan = self.estimated_plan();
        let enough = plan.enough_for(self.splits.wanted);
        let mut report = self.head();
        let (mut resident_before, mut resident_after) = (Bytes::ZERO, Bytes::ZERO);
        let mut lost: Vec<&Split> = Vec::new();
        for (index, one) in self.splits.survey.processes.iter().enumerate() {
            let (considered, gone) = if self.options.dry_run {
                (&plan.splits[..enough], None)
            } else {
                // Later splits count as well: they replace failed ones.
                (&plan.splits[..], Some(one.split_regions()))
            };
            let is_gone =
                |split: &&Split| gone.as_ref().is_none_or(|gone| gone.contains(&split.region));
            let mine: Vec<&Split> =
                considered.iter().filter(|split| split.process == index).filter(is_gone).collect();
            let before = &one.mappings;
            // Memory that a process frees when it ends or executes another program does not count.
            let after = gone.as_ref().and_then(|_| one.mappings_now());
            let process = summary(one, self.options.dry_run, &mine, after.as_deref());
            resident_before += before.iter().map(|mapping| mapping.resident).sum();
            resident_after +=
                after.as_ref().unwrap_or(before).iter().map(|mapping| mapping.resident).sum();
            report.recollapsed += gone.as_ref().map_or(0, |gone| recollapsed(one, gone));
            count_acts(one, &mut report);
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
        let processes = &self.splits.survey.processes;
        let risk = self.root.as_ref().and_then(|root| warnings::risk_for(root, processes));
        report.warnings.extend(self.warnings.iter().cloned());
        let excluded = processes.iter().filter(|one| one.stopped().is_some()).count();
        warnings::add(&mut report, risk, &self.options, excluded);
        report
    }

    /// Returns the plan; in a dry run, each split stands for others that were not read.
    fn estimated_plan(&self) -> SplitPlan {
        let mut plan = self.splits.plan.clone();
        if self.options.dry_run {
            let stands = |split: &Split| stand_for(&self.splits.survey.processes[split.process]);
            plan.splits.iter_mut().for_each(|split| *split = scaled(split, stands(split)));
        }
        plan
    }

    /// Fills in the facts that do not belong to single processes.
    fn head(&self) -> DebloatReport {
        let policy = self.options.policy;
        let split_time = if self.options.dry_run { Nanos::ZERO } else { self.splits.took };
        let estimates = eligible(&self.splits.survey).map(|one| one.census.estimate());
        let (bloat, squares) = estimates.fold((Bytes::ZERO, 0.0), |sum, (bloat, error)| {
            (sum.0 + bloat, sum.1 + error.as_f64().powi(2))
        });
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let error = Bytes::new(squares.sqrt() as u64);
        let scans = || self.splits.survey.processes.iter().map(|one| &one.census);
        DebloatReport {
            schema: SCHEMA.to_owned(),
            backend: BACKEND.to_owned(),
            order: policy.order.name().to_owned(),
            fairness: policy.fairness.name().to_owned(),
            quantum: policy.quantum as u64,
            dry_run: self.options.dry_run,
            bloat_bytes: bloat,
            stranded_bytes: eligible(&self.splits.survey)
                .filter_map(|one| one.census.stranded_bytes())
                .reduce(|sum, more| sum + more),
            bloat_error_bytes: error,
            requested_bytes: self.splits.wanted,
            unread_huge_pages: scans().map(|census| census.unread_pages).sum(),
            scanned_bytes: scans().map(|census| census.scanned()).sum(),
            scan_seconds: scans().map(|census| census.took.as_seconds()).sum(),
            split_seconds: split_time.as_seconds(),
            skipped: self
                .splits
                .plan
                .skipped
                .iter()
                .map(|(reason, &n)| (reason.to_string(), n))
                .collect(),
            stopped: self.interrupted.then_some(Stop::Interrupted),
            ..DebloatReport::default()
        }
    }
}

/// Summarises a process. `gone` are its huge pages that were split, or would be; of a sample, each
/// stands for several. `after` are its mappings now, if known.
fn summary(
    one: &SplitProcess,
    dry_run: bool,
    gone: &[&Split],
    after: Option<&[Mapping]>,
) -> ProcessDebloat {
    let id = one.target.id();
    let (bloat, _) = one.census.estimate();
    let given: Bytes = gone.iter().map(|split| split.frees).sum();
    let of_huge = gone.iter().filter(|split| !split.stranded).map(|split| split.frees).sum();
    let each = if dry_run { stand_for(one) } else { 1.0 };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    let split = (gone.len() as f64 * each).round() as u64;
    // By smaps, with those that may not be split.
    let huge_pages = |mappings: &[Mapping]| {
        let huge: Bytes = mappings.iter().map(|mapping| mapping.huge).sum();
        huge.get() / one.census.sizes.huge.get()
    };
    let before = huge_pages(&one.mappings);
    ProcessDebloat {
        pid: id.pid,
        command: id.command.clone(),
        bloat_bytes_before: bloat,
        bloat_bytes_after: bloat - of_huge,
        stranded_bytes: one.census.stranded_bytes(),
        freed_bytes: if dry_run { given } else { one.freed() },
        huge_pages_split: split,
        huge_pages_before: before,
        huge_pages_after: after.map_or(before.saturating_sub(split), huge_pages),
        split_heat_ratio: heat_of(one, gone),
    }
}

/// Returns the expected share of the process's samples on the `gone` huge pages; `None` without
/// samples. The samples counted there would be biased, because they chose these pages.
#[allow(clippy::cast_precision_loss)]
fn heat_of(one: &SplitProcess, gone: &[&Split]) -> Option<f64> {
    let samples =
        one.stalls.as_ref().map(|stalls| stalls.samples).filter(|&samples| samples > 0)?;
    // The sum of none is −0.0.
    Some(gone.iter().map(|split| split.stalls).fold(0.0, std::ops::Add::add) / samples as f64)
}

/// Counts split regions that were re-collapsed.
fn recollapsed(one: &SplitProcess, regions: &BTreeSet<Region>) -> u64 {
    let is_huge =
        |&&region: &&Region| one.target.region_pages(region).is_ok_and(|pages| pages.huge);
    regions.iter().filter(is_huge).count() as u64
}

/// Adds skipped and failed splits to the counts of `report`.
fn count_acts(one: &SplitProcess, report: &mut DebloatReport) {
    for act in one.splits() {
        report.split_call_seconds += act.took.as_seconds();
        count(act.outcome, &mut report.skipped, &mut report.failed);
    }
    if let Some(stop) = one.stopped() {
        let id = one.target.id();
        let (pid, command) = (id.pid, id.command.clone());
        report.warnings.push(DebloatWarning::ProcessExcluded { pid, command, stop });
    }
}
