//! Report of a session.

use std::collections::BTreeMap;

use hugepilot_kernel::perf::counters::{CounterReading, Counters};
use hugepilot_kernel::{Process, Target};
use hugepilot_policy::Share;
use hugepilot_profiler::ProcessView;
use hugepilot_record::tune::{
    Activity, Performance, SCHEMA, SamplerReport, SelectedRegion, TargetInfo, TuneReport,
    TuneWarning,
};
use hugepilot_record::{Journal, Outcome, Plan, Snapshot, Stop};
use hugepilot_stats::Spread;
use hugepilot_units::Nanos;

use super::{METRIC_VALUES, Session};
use crate::tune::{TuneOptions, is_alive, no_verdict, warnings};

impl Session<'_> {
    /// Values of the progress metric between two times; `None` without a progress metric.
    pub(super) fn metric(&self, from: Nanos, to: Nanos) -> Option<Vec<f64>> {
        // A value that arrives at `to` counts.
        self.progress.as_ref().map(|progress| progress.between(from, to + Nanos::new(1)))
    }

    /// Notes whether the process given by `-p` has ended.
    pub fn note_end(&mut self) {
        if !is_alive(&self.process) {
            self.report.target_ended = true;
            self.report.stopped.get_or_insert(Stop::TargetGone);
        }
    }

    /// Returns the complete report.
    pub fn report(mut self) -> TuneReport {
        let pid = self.report.target.pid;
        if let Ok(target) = self.target(pid)
            && self.spaces.known(target.id()).is_some()
            && let Ok(mappings) = target.mappings()
        {
            self.report.huge_bytes_after = Some(mappings.iter().map(|m| m.huge).sum());
        }
        self.report
            .selected
            .sort_by(|a, b| b.heat_ratio.total_cmp(&a.heat_ratio).then(a.start.cmp(&b.start)));
        let first_act = self.first_act.unwrap_or(self.now());
        let performance = |values: Option<Vec<f64>>| {
            let progress = Spread::of(&values?)?;
            Some(Performance { progress: Some(progress), ..Performance::default() })
        };
        let before = self.metric(Nanos::ZERO, first_act);
        self.report.baseline =
            performance(before.map(|f| f[f.len().saturating_sub(METRIC_VALUES)..].to_vec()));
        if let Some(settled) = self.last_act {
            let after = self.metric(settled, self.now());
            self.report.tuned = performance(after.map(|f| f.into_iter().skip(1).collect()));
            self.report.last_promotion_seconds = Some((settled - self.begun).as_seconds());
        }
        self.report.sampler = self.sampler_report();
        if (self.interrupted)() && self.report.selected.is_empty() {
            self.report.stopped.get_or_insert(Stop::Interrupted);
        }
        self.report.no_verdict = no_verdict::no_verdict(&self.report, &self.process);
        self.report.conclude(self.options.larger_is_better);
        self.report.warnings =
            warnings::warnings(&self.report, self.share, self.chosen.samples_time);
        let hidden = self.hidden_limit.map(|cgroup| TuneWarning::HiddenMemoryLimit { cgroup });
        self.report.warnings.extend(hidden);
        self.report
    }

    fn sampler_report(&self) -> SamplerReport {
        // MachineCalibration for the CPU clock only.
        let cost = Some(self.options.sample_cost)
            .filter(|&cost| cost > Nanos::ZERO && self.chosen.samples_time);
        let counts = self.chosen.source.counts();
        let better = self.chosen.unavailable.iter();
        let mut unavailable: BTreeMap<_, _> =
            better.map(|sampler| (sampler.name.to_owned(), sampler.cause.to_string())).collect();
        if let Err(reason) = &self.counters {
            unavailable.insert("hardware counters".to_owned(), reason.to_string());
        }
        SamplerReport {
            source: self.chosen.source.name().to_owned(),
            overhead_ratio: cost
                .filter(|_| counts.total() > 0)
                .map(|cost| cost.as_seconds() * f64::from(self.options.rate_hz)),
            sample_cost_ns: cost,
            unavailable,
            ..SamplerReport::default()
        }
        .with_counts(&counts)
    }

    /// Makes `target` the target of the report, except for the sums over all processes.
    pub(super) fn note_plan(&mut self, target: &Process, seen: &Snapshot, plan: &Plan) {
        self.hidden_limit = target.unseen_cgroup();
        let tuned = self.spaces.of(target.id());
        let report = &mut self.report;
        report.target = TargetInfo { pid: target.id().pid, command: target.id().command.clone() };
        report.footprint_bytes = Some(seen.resident());
        report.budget_bytes = Some(self.options.budget.of(seen.resident()));
        report.skipped = plan.skipped.clone();
        report.eligible_regions = Some(tuned.verified() + plan.eligible);
        report.huge_bytes_before = Some(tuned.huge_before);
        report.huge_bytes_after = Some(super::huge_bytes(seen));
        report.predicted_speedup = tuned.predicted;
        report.coverage_ratio = Some(tuned.heat_ratio());
        report.before.stall_ratio = tuned.untouched.ratio();
        if self.first_act.is_none()
            && let Ok(counters) = &self.counters
        {
            count(counters, &mut self.counted, &mut report.before);
        }
    }

    pub(super) fn note_selected(
        &mut self,
        target: &Process,
        plan: &Plan,
        journal: Option<&Journal>,
    ) {
        let outcomes: BTreeMap<_, _> = journal
            .iter()
            .flat_map(|journal| &journal.acts)
            .map(|act| (act.region, act.outcome))
            .collect();
        let tuned = self.spaces.of(target.id());
        for pick in &plan.picks {
            let outcome = outcomes.get(&pick.region).copied();
            if journal.is_some() && outcome.is_none() {
                continue;
            }
            tuned.note(pick, outcome);
            self.report.selected.push(SelectedRegion {
                start: pick.region.range(target.sizes()).start,
                mapping: pick.mapping.clone(),
                heat_ratio: pick.heat_ratio,
                sampled_pages: pick.sampled_pages,
                verified: outcome.map(|outcome| outcome == Outcome::Verified),
            });
        }
        self.report.coverage_ratio = Some(tuned.heat_ratio());
    }

    pub(super) fn note_journal(&mut self, target: &Process, journal: &Journal) {
        let report = &mut self.report;
        report.attempted_regions += journal.attempted();
        report.verified_regions += journal.verified();
        // If the target ends before it is read again, this value stays.
        let made = target.sizes().huge.times(journal.verified());
        report.huge_bytes_after = report.huge_bytes_after.map(|huge| huge + made);
        report.promotion_seconds += journal.took().as_seconds();
        for (errno, count) in journal.failed() {
            *report.failed.entry(errno).or_insert(0) += count;
        }
        for (&reason, &count) in &journal.skipped {
            *report.skipped.entry(reason).or_insert(0) += count;
        }
    }
}

/// Samples that stall on scattered memory.
pub(super) fn share(view: &ProcessView) -> Share {
    Share { scattered: view.scattered, all: view.counts.total() }
}

/// Writes the counts since `last` into `activity`.
pub(super) fn count(counters: &Counters, last: &mut CounterReading, activity: &mut Activity) {
    let Ok(now) = counters.read() else { return };
    #[allow(clippy::cast_precision_loss)]
    let since =
        |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then.unwrap_or(0)) as f64);
    let instructions = since(now.instructions, last.instructions).filter(|&n| n > 0.0);
    let cycles = since(now.cycles, last.cycles).filter(|&n| n > 0.0);
    let walks = since(now.walks, last.walks);
    activity.instructions_per_cycle =
        instructions.zip(cycles).map(|(instructions, cycles)| instructions / cycles);
    activity.walks_per_kiloinstruction =
        walks.zip(instructions).map(|(walks, instructions)| walks * 1000.0 / instructions);
    *last = now;
}

pub(super) fn empty_report(process: &Process, options: &TuneOptions) -> TuneReport {
    TuneReport {
        schema: SCHEMA.to_owned(),
        target: TargetInfo { pid: process.id().pid, command: process.id().command.clone() },
        sampler: SamplerReport::default(),
        ground_truth: None,
        dry_run: options.dry_run,
        footprint_bytes: None,
        budget_bytes: None,
        selected: Vec::new(),
        skipped: BTreeMap::new(),
        eligible_regions: None,
        attempted_regions: 0,
        verified_regions: 0,
        failed: BTreeMap::new(),
        huge_bytes_before: None,
        huge_bytes_after: None,
        promotion_seconds: 0.0,
        last_promotion_seconds: None,
        coverage_ratio: None,
        predicted_speedup: None,
        sampled_speedup: None,
        before: Activity::default(),
        after: None,
        baseline: None,
        tuned: None,
        all_huge: None,
        speedup: None,
        all_huge_speedup: None,
        all_huge_gain_ratio: None,
        stopped: None,
        no_verdict: None,
        target_ended: false,
        warnings: Vec::new(),
    }
}
