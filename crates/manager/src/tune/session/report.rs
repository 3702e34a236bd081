//! Report of a session.

use std::collections::BTreeMap;

use hugepilot_kernel::perf::counters::{CounterReading, Counters};
use hugepilot_kernel::{Process, Target};
use hugepilot_policy::trial::StallShares;
use hugepilot_policy::tune::TrialResult;
use hugepilot_record::Stop;
use hugepilot_record::tune::{
    Activity, Performance, PredictedBy, SCHEMA, SamplerReport, TargetInfo, TrialReport, TuneReport,
    TuneWarning,
};
use hugepilot_stats::Spread;
use hugepilot_units::Nanos;

use super::{METRIC_VALUES, Session};
use crate::engine::World;
use crate::progress::ProgressReader;
use crate::tune::{TuneOptions, is_alive, no_verdict, open, warnings};

impl Session<'_> {
    /// Values of the progress metric between two times; `None` without a progress metric.
    pub(super) fn metric(&self, from: Nanos, to: Nanos) -> Option<Vec<f64>> {
        let progress = self.engine.world.progress.as_ref();
        // A value that arrives at `to` counts.
        progress.map(|progress| progress.between(from, to + Nanos::new(1)))
    }

    /// Notes whether the process given by `-p` has ended.
    pub fn note_end(&mut self) {
        if !is_alive(&self.engine.world.process) {
            self.report.target_ended = true;
            self.fold.stopped.get_or_insert(Stop::TargetGone);
        }
    }

    /// Returns the complete report.
    pub fn report(mut self) -> TuneReport {
        self.add_process();
        let now = self.now();
        let world = &self.engine.world;
        let report = &mut self.report;
        report.selected = std::mem::take(&mut self.fold.selected);
        report
            .selected
            .sort_by(|a, b| b.heat_ratio.total_cmp(&a.heat_ratio).then(a.start.cmp(&b.start)));
        report.attempted_regions = self.fold.attempted;
        report.verified_regions = self.fold.verified;
        report.demoted_regions = self.fold.demoted;
        report.failed = std::mem::take(&mut self.fold.failed);
        report.promotion_seconds = self.fold.promotion.as_seconds();
        report.last_promotion_seconds =
            self.fold.last_act.map(|settled| (settled - self.begun).as_seconds());
        report.stopped = self.fold.stopped;
        if world.is_interrupted() && report.selected.is_empty() {
            report.stopped.get_or_insert(Stop::Interrupted);
        }
        self.add_performance(now);
        self.report.sampler = self.sampler_report();
        let world = &self.engine.world;
        // Without a need for samples, their lack is no obstacle.
        let needs_samples = self.engine.goal().policy.needs_samples();
        self.report.no_verdict =
            no_verdict::no_verdict(&self.report, &world.process).filter(|_| needs_samples);
        self.report.conclude(self.options.larger_is_better);
        let share = self.fold.shown.and_then(|pid| world.observation.share_of(pid)).unwrap_or(1.0);
        self.report.warnings = warnings::warnings(&self.report, share, world.chosen.samples_time);
        let hidden = self.hidden_limit.map(|cgroup| TuneWarning::HiddenMemoryLimit { cgroup });
        self.report.warnings.extend(hidden);
        let progress = self.engine.world.progress.as_ref();
        self.report.warnings.extend(progress.map_or_else(Vec::new, ProgressReader::warnings));
        self.report
    }

    /// Adds what is known of the process that the report is about.
    fn add_process(&mut self) {
        let Some(shown) = self.fold.shown() else { return };
        let report = &mut self.report;
        report.target = TargetInfo { pid: shown.id.pid, command: shown.id.command.clone() };
        report.footprint_bytes = Some(shown.resident);
        report.budget_bytes = self.options.goal.budget.map(|budget| budget.of(shown.resident));
        report.skipped = shown.skipped.clone();
        report.skipped_stall_ratio = shown.skipped_stall_ratio.clone();
        report.eligible_regions = Some(shown.eligible);
        report.huge_bytes_before = Some(shown.huge_before);
        report.huge_bytes_after = Some(shown.huge_after);
        if let Ok(target) = open(shown.id.pid)
            && target.id().start_ticks == shown.id.start_ticks
            && let Ok(mappings) = target.mappings()
        {
            report.huge_bytes_after = Some(mappings.iter().map(|m| m.huge).sum());
        }
        report.coverage_ratio = Some(shown.coverage());
        report.before = Activity { stall_ratio: shown.stall_ratio, ..self.before };
        report.no_trial = shown.state.no_trial;
        report.eligible_speedup = shown.expected.map(|expected| expected.eligible);
        let trial = shown.state.trial;
        report.trial = trial.map(|trial| trial_report(&trial, &self.engine.goal().trial));
        let bracket = trial.and_then(|trial| {
            // Without a gain, nothing stays selected: the bracket is that of all eligible memory.
            let covered = shown.coverage();
            let eligible = if covered > 0.0 { covered } else { trial.shares.eligible };
            let shares = StallShares { eligible, ..trial.shares };
            Some(self.engine.goal().trial.bracket(&trial.estimate?, shares))
        });
        report.predicted_speedup = bracket.or(shown.expected.map(|expected| expected.chosen));
        report.predicted_by = report
            .predicted_speedup
            .map(|_| if bracket.is_some() { PredictedBy::Trial } else { PredictedBy::Model });
    }

    fn add_performance(&mut self, now: Nanos) {
        let performance = |values: Option<Vec<f64>>| {
            let progress = Spread::of(&values?)?;
            Some(Performance { progress: Some(progress), ..Performance::default() })
        };
        let first_act = self.fold.first_act.unwrap_or(now);
        let before = self.metric(Nanos::ZERO, first_act);
        self.report.baseline =
            performance(before.map(|f| f[f.len().saturating_sub(METRIC_VALUES)..].to_vec()));
        if let Some(settled) = self.fold.last_act {
            let after = self.metric(settled, now);
            self.report.tuned = performance(after.map(|f| f.into_iter().skip(1).collect()));
        }
    }

    fn sampler_report(&self) -> SamplerReport {
        // MachineCalibration for the CPU clock only.
        let cost = Some(self.options.sample_cost)
            .filter(|&cost| cost > Nanos::ZERO && self.engine.world.chosen.samples_time);
        let counts = self.engine.world.chosen.source.counts();
        let better = self.engine.world.chosen.unavailable.iter();
        let mut unavailable: BTreeMap<_, _> =
            better.map(|sampler| (sampler.name.to_owned(), sampler.cause.to_string())).collect();
        if let Err(reason) = &self.counters {
            unavailable.insert("hardware counters".to_owned(), reason.to_string());
        }
        SamplerReport {
            source: self.engine.world.chosen.source.name().to_owned(),
            overhead_ratio: cost
                .filter(|_| counts.total() > 0)
                .map(|cost| cost.as_seconds() * f64::from(self.options.rate_hz)),
            sample_cost_ns: cost,
            unavailable,
            ..SamplerReport::default()
        }
        .with_counts(&counts)
    }
}

fn trial_report(trial: &TrialResult, rules: &hugepilot_policy::trial::TrialRules) -> TrialReport {
    let interval = trial.estimate.map(|estimate| estimate.interval(rules.alpha));
    TrialReport {
        verdict: trial.verdict,
        ratio: trial.estimate.map(|estimate| estimate.ratio()),
        low_ratio: interval.map(|(low, _)| low),
        high_ratio: interval.map(|(_, high)| high),
        pairs: trial.estimate.map_or(0, |estimate| estimate.pairs),
        samples: trial.estimate.map_or(0, |estimate| estimate.samples),
        seconds: trial.took.as_seconds(),
        confirmed: trial.confirmed,
    }
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
        policy: options.goal.policy.name(),
        footprint_bytes: None,
        budget_bytes: None,
        selected: Vec::new(),
        skipped: BTreeMap::new(),
        skipped_stall_ratio: BTreeMap::new(),
        eligible_regions: None,
        attempted_regions: 0,
        verified_regions: 0,
        demoted_regions: 0,
        failed: BTreeMap::new(),
        huge_bytes_before: None,
        huge_bytes_after: None,
        promotion_seconds: 0.0,
        last_promotion_seconds: None,
        coverage_ratio: None,
        trial: None,
        no_trial: None,
        predicted_speedup: None,
        predicted_by: None,
        eligible_speedup: None,
        before: Activity::default(),
        after: None,
        baseline: None,
        tuned: None,
        all_huge: None,
        speedup: None,
        speedup_interval: None,
        all_huge_speedup: None,
        all_huge_speedup_interval: None,
        all_huge_gain_ratio: None,
        all_huge_gain_interval: None,
        stopped: None,
        no_verdict: None,
        target_ended: false,
        warnings: Vec::new(),
    }
}
