//! Report of a session.

use std::collections::BTreeMap;
use std::rc::Rc;

use hugepilot_kernel::perf::counters::{CounterReading, Counters};
use hugepilot_kernel::{Process, Target, access_error};
use hugepilot_policy::trial::StallShares;
use hugepilot_policy::tune::{Policy, ProcessState, TrialResult};
use hugepilot_profiler::ProgressReader;
use hugepilot_record::tune::{
    Activity, FoundMetric, Metric, NoMetric, NoVerdict, Performance, PredictedBy, SamplerReport,
    ScheduleReport, TargetInfo, TrialReport, TrialVerdict, TuneReport, TuneWarning,
};
use hugepilot_record::{Mapping, Obstacle, Stop};
use hugepilot_stats::Spread;
use hugepilot_units::{Bytes, Nanos};

use super::budget::note_others;
use super::target::SessionTarget;
use super::{METRIC_VALUES, Session};
use crate::act::unreadable;
use crate::engine::World;
use crate::tune::no_verdict::Sampled;
use crate::tune::{TuneOptions, is_alive, no_verdict, open, warnings};

impl Session<'_> {
    /// Values of the progress metric between two times; `None` without a progress metric.
    pub(super) fn metric(&self, from: Nanos, to: Nanos) -> Option<Vec<f64>> {
        let progress = self.engine.world.progress.as_ref();
        // A value that arrives at `to` counts.
        progress.map(|progress| progress.between(from, to + Nanos::new(1)))
    }

    /// Notes which running targets have ended.
    pub fn note_end(&mut self) {
        for target in self.targets.iter_mut().filter(|target| !target.is_excluded()) {
            if !is_alive(&target.process) {
                target.report.target_ended = true;
                target.fold.stopped.get_or_insert(Stop::TargetGone);
            }
        }
    }

    /// Returns the complete report of a single target.
    ///
    /// # Panics
    /// Never: a session has a target.
    pub fn report(self) -> TuneReport {
        self.reports().swap_remove(0)
    }

    /// Returns the complete report of each target, in the order given; of a single one of whose
    /// processes several were decided about, the report of each of these.
    pub fn reports(mut self) -> Vec<TuneReport> {
        self.divide();
        let mut targets = std::mem::take(&mut self.targets);
        for target in targets.iter_mut().filter(|target| !target.is_excluded()) {
            self.complete(target);
        }
        let is_given = targets.iter().all(|target| target.budget_base.is_none());
        let huge = targets.first().map_or(Bytes::ZERO, |target| target.process.sizes().huge);
        let mut reports: Vec<TuneReport> = targets.into_iter().map(|one| one.report).collect();
        if reports.len() > 1 && is_given {
            self.share_budget(&mut reports);
        }
        note_others(&mut reports, huge);
        reports
    }

    fn complete(&self, target: &mut SessionTarget) {
        self.note_unreadable(target);
        let now = self.now();
        let world = &self.engine.world;
        let SessionTarget { report, fold, .. } = target;
        fold.read_end(&|pid| world.process(pid).map(|process| process as Rc<dyn Target>));
        report.selected = fold.selected().cloned().collect();
        report
            .selected
            .sort_by(|a, b| b.heat_ratio.total_cmp(&a.heat_ratio).then(a.start.cmp(&b.start)));
        let (counts, acts) = (fold.counts(), fold.acts());
        report.attempted_regions = counts.attempted;
        report.untried_regions = fold.untried();
        report.verified_regions = counts.verified;
        report.demoted_regions = counts.demoted;
        report.lost_regions = counts.lost;
        (report.promotions, report.demotions) = (acts.promotions, acts.demotions);
        report.freed_by = counts.freed_by();
        let added = fold.added();
        (report.added_bytes, report.lazily_freed_bytes) = (added.total, added.lazily_freed);
        report.exec = fold.exec;
        report.promotion_seconds = acts.promotion.as_seconds();
        report.acts_seconds = acts.first.map(|_| acts.promoting.as_seconds());
        let since_begin = |time: Nanos| (time - self.begun).as_seconds();
        report.last_promotion_seconds = acts.last.map(since_begin);
        report.most_promoted_seconds = fold.most_promoted().map(since_begin);
        (report.failed, report.stopped) = (acts.failed, fold.stopped);
        if world.is_interrupted() {
            report.note_interruption();
        }
        self.add_process(target);
        self.add_schedule(target);
        self.add_performance(target, now);
        self.add_load(target);
        target.report.sampler = self.sampler_report(target);
        let SessionTarget { report, fold, process, .. } = target;
        // Only policies that need samples miss them.
        if report.no_verdict.is_none() && self.engine.goal().policy.needs_samples() {
            let is_own = |pid| target.with_children || pid == process.id().pid;
            let times = world.sampling.observation().sampled().iter();
            let times = times.filter(|&(&pid, _)| is_own(pid)).map(|(_, &time)| time);
            let sampled = Sampled {
                time: now - self.begun,
                // Of several targets, each may end at any time.
                is_whole_life: target.with_children,
                processes: times.clone().count() as u64,
                longest: times.max().unwrap_or_default(),
                required: self.options.first_decision(),
                is_judged: fold.shown().is_some_and(|shown| self.is_judged(&shown.state)),
            };
            report.no_verdict = no_verdict::no_verdict(report, process, &sampled);
        }
        report.remove_unknown();
        report.conclude(self.options.larger_is_better);
        self.add_warnings(target);
    }

    /// Adds the doubts about a complete report.
    fn add_warnings(&self, target: &mut SessionTarget) {
        let world = &self.engine.world;
        let SessionTarget { report, fold, .. } = target;
        let observation = world.sampling.observation();
        // Of several targets, each is sampled by itself.
        let shown = fold.shown.filter(|_| target.with_children);
        let share = shown.and_then(|pid| observation.share_of(pid)).unwrap_or(1.0);
        report.warnings = warnings::warnings(report, share, world.sampling.samples_time());
        report.warnings.extend(warnings::contradiction(fold, report, &self.options.goal));
        let may_fork = target.may_fork && report.forks == 0;
        report.warnings.extend(may_fork.then_some(TuneWarning::MayFork));
        let hidden = target.hidden_limit.take();
        report.warnings.extend(hidden.map(|cgroup| TuneWarning::HiddenMemoryLimit { cgroup }));
        let progress = world.progress.as_ref();
        report.warnings.extend(progress.map_or_else(Vec::new, ProgressReader::warnings));
    }

    /// Notes that one of several targets could not be read any more.
    fn note_unreadable(&self, target: &mut SessionTarget) {
        let Some(error) = self.engine.world.unreadable(target.pid()) else { return };
        if target.fold.shown.is_none() {
            target.report.no_verdict = Some(NoVerdict::Excluded(access_error(error)));
        }
        target.fold.stopped = Some(unreadable(error));
    }

    /// Adds what is known of the process that the report is about.
    fn add_process(&self, target: &mut SessionTarget) {
        let Some(shown) = target.fold.shown() else { return };
        let report = &mut target.report;
        report.target = TargetInfo { pid: shown.id.pid, command: shown.id.command.clone() };
        report.forks = self.engine.world.sampling.forks_of(shown.id.pid);
        report.footprint_bytes = Some(shown.resident);
        let base = target.budget_base.unwrap_or(shown.resident);
        report.budget_bytes = self.options.goal.budget_of(base);
        report.skipped = shown.skipped.clone();
        report.skipped_stall_ratio = shown.skipped_stall_ratio.clone();
        report.eligible_regions = Some(shown.eligible);
        report.huge_bytes_before = Some(shown.huge_before);
        report.huge_bytes_after = Some(shown.huge_after);
        if let Ok(target) = open(shown.id.pid)
            && target.id().start_ticks == shown.id.start_ticks
            && let Ok(mappings) = target.mappings()
        {
            report.huge_bytes_after = Some(huge_now(&mappings, shown.huge_after));
            report.obstacles = obstacles(&target, &self.options);
        }
        report.coverage_ratio = shown.stall_ratio.map(|_| shown.coverage());
        report.before = Activity { stall_ratio: shown.stall_ratio, ..target.before };
        report.no_trial = shown.state.no_trial;
        report.eligible_speedup = shown.expected.map(|expected| expected.eligible);
        report.blocked_speedup = shown.blocked(&self.options.goal.calibration);
        let trial = shown.state.trial;
        report.trial = trial.map(|trial| trial_report(&trial, &self.engine.goal().trial));
        // No region is left to which a speedup could refer.
        let is_freed = report.lost_regions > 0 && report.lost_regions == report.verified_regions;
        // A void trial measured another phase of the program, a stopped one too little.
        let is_valid = |trial: &TrialResult| {
            let is_cut = trial.verdict == TrialVerdict::Open && report.kept_regions() == 0;
            trial.confirmed != Some(false) && !(is_cut && report.stopped.is_some()) && !is_freed
        };
        let bracket = trial.filter(is_valid).and_then(|trial| {
            // Without a gain, nothing stays selected: the bracket is that of all eligible memory.
            let covered = shown.coverage();
            let eligible = if covered > 0.0 { covered } else { trial.shares.eligible };
            let shares = StallShares { eligible, ..trial.shares };
            Some(self.engine.goal().trial.bracket(&trial.estimate?, shares))
        });
        let goal = &self.options.goal;
        report.predicted_speedup = bracket.or_else(|| shown.predicted(&goal.calibration));
        report.predicted_by = report
            .predicted_speedup
            .map(|_| if bracket.is_some() { PredictedBy::Trial } else { PredictedBy::Model });
    }

    /// Adds the events of a schedule.
    fn add_schedule(&self, target: &mut SessionTarget) {
        let goal = self.engine.goal();
        let Policy::Schedule(rules) = &goal.policy else { return };
        let unseen = ProcessState::default();
        let past = target.fold.shown().map_or(&unseen, |shown| &shown.state);
        let counted = past.schedule.report(rules, past, goal);
        let planned = std::mem::take(&mut target.planned);
        target.report.schedule = Some(ScheduleReport { planned, ..counted });
    }

    fn add_performance(&self, target: &mut SessionTarget, now: Nanos) {
        let performance = |values: Vec<f64>| {
            let progress = Some(Spread::of(&values)?);
            let values = values.len() as u64;
            Some(Performance { progress, values, ..Performance::default() })
        };
        if matches!(target.report.no_metric, Some(NoMetric::OfProgram { .. })) {
            return;
        }
        let own = target.fold.acts();
        let (first_act, last_act) = target.program_acts.unwrap_or((own.first, own.last));
        let first_act = first_act.unwrap_or(now);
        let Some(before) = self.metric(Nanos::ZERO, first_act) else {
            return self.add_found(target);
        };
        let report = &mut target.report;
        report.baseline =
            performance(before[before.len().saturating_sub(METRIC_VALUES)..].to_vec());
        if let Some(settled) = last_act {
            let after = self.metric(settled, now).unwrap_or_default();
            report.tuned = performance(after.into_iter().skip(1).collect());
        }
        report.metric = report.baseline.or(report.tuned).map(|_| Metric::Given);
    }

    /// Adds the performance by a metric that the kernel counts, if regions were promoted and it is
    /// steady.
    fn add_found(&self, target: &mut SessionTarget) {
        let pid = target.pid();
        let SessionTarget { report, fold, is_close, .. } = target;
        let acts = fold.acts();
        let acts = acts.first.zip(acts.last);
        let Some((work, (first_act, last_act))) = self.engine.world.work.get(&pid).zip(acts) else {
            return;
        };
        let found = match fold.shown {
            Some(shown) if shown != pid => Err(NoMetric::OtherProcess),
            _ => {
                // Readings at the same rate of samples as before, if there are enough.
                let measured = self.measured.filter(|_| *is_close);
                let close = measured.map(|since| work.found(first_act, since));
                close
                    .filter(|found| !matches!(found, Err(NoMetric::FewWindows { .. })))
                    .unwrap_or_else(|| work.found(first_act, last_act))
            }
        };
        enter_found(report, found);
    }

    fn sampler_report(&self, target: &SessionTarget) -> SamplerReport {
        let sampling = &self.engine.world.sampling;
        // Calibrated for the CPU clock only.
        let cost = Some(self.options.sample_cost)
            .filter(|&cost| cost > Nanos::ZERO && sampling.samples_time());
        let own = sampling.counts_of(target.pid()).filter(|_| !target.with_children);
        let counts = own.unwrap_or_else(|| sampling.counts());
        let better = sampling.unavailable().iter();
        let mut unavailable: BTreeMap<_, _> =
            better.map(|sampler| (sampler.name.to_owned(), sampler.cause.to_string())).collect();
        if let Some(Err(reason)) = &target.counters {
            unavailable.insert("hardware counters".to_owned(), reason.to_string());
        }
        SamplerReport {
            source: sampling.name(),
            overhead_ratio: cost
                .zip(sampling.observation().mean_rate_hz())
                .map(|(cost, rate_hz)| cost.as_seconds() * rate_hz),
            sample_cost_ns: cost,
            unavailable,
            ..SamplerReport::default()
        }
        .with_counts(&counts)
    }
}

/// Enters the performance by a metric that was found, or the cause why there is none.
fn enter_found(report: &mut TuneReport, found: Result<FoundMetric, NoMetric>) {
    let performance = |values: &[f64]| Performance {
        work_per_cpu_second: Spread::of(values),
        values: values.len() as u64,
        ..Performance::default()
    };
    match found {
        Ok(FoundMetric { metric, before, after }) => {
            report.metric = Some(metric);
            (report.baseline, report.tuned) =
                (Some(performance(&before)), Some(performance(&after)));
        }
        Err(cause) => report.no_metric = Some(cause),
    }
}

/// Describes a trial that ended.
pub(crate) fn trial_report(
    trial: &TrialResult,
    rules: &hugepilot_policy::trial::TrialRules,
) -> TrialReport {
    let interval = trial.estimate.map(|estimate| estimate.interval(rules.alpha));
    TrialReport {
        verdict: trial.verdict,
        ratio: trial.estimate.map(|estimate| estimate.ratio()),
        low_ratio: interval.map(|(low, _)| low),
        high_ratio: interval.map(|(_, high)| high),
        high_speedup: trial.estimate.map(|estimate| rules.bracket(&estimate, trial.shares).high),
        pairs: trial.estimate.map(|estimate| estimate.pairs).or(trial.pairs),
        samples: trial.estimate.map(|estimate| estimate.samples),
        seconds: trial.took.as_seconds(),
        confirmed: trial.confirmed,
    }
}

/// Writes the counts since `last` into `activity`.
pub(super) fn count(counters: &Counters, last: &mut CounterReading, activity: &mut Activity) {
    let now = counters.read();
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

/// Obstacles of a process. Samples of a virtual machine are an obstacle only to policies that need
/// samples.
fn obstacles(process: &Process, options: &TuneOptions) -> Vec<Obstacle> {
    let mut obstacles = process.obstacles();
    let needs_samples = options.goal.policy.needs_samples();
    obstacles.retain(|one| needs_samples || *one != Obstacle::KvmGuest);
    obstacles
}

pub(crate) fn empty_report(process: &Process, options: &TuneOptions) -> TuneReport {
    let target = TargetInfo { pid: process.id().pid, command: process.id().command.clone() };
    let obstacles = obstacles(process, options);
    TuneReport {
        obstacles,
        ..TuneReport::empty(target, options.dry_run, options.goal.policy.name())
    }
}

/// Memory on huge pages; the `last` value read, if the process has ended and has no mapping.
fn huge_now(mappings: &[Mapping], last: Bytes) -> Bytes {
    if mappings.is_empty() { last } else { mappings.iter().map(|mapping| mapping.huge).sum() }
}

#[cfg(test)]
mod tests {
    use hugepilot_record::Pid;
    use hugepilot_record::tune::Certainty;
    use hugepilot_units::{AddrRange, VirtAddr};

    use super::*;

    #[test]
    fn a_found_metric_gives_the_speedup_and_its_certainty() {
        let own = open(Pid(std::process::id().cast_signed())).unwrap();
        let speedup = |before: [f64; 5], after: [f64; 5]| {
            let mut report = empty_report(&own, &TuneOptions::default());
            let (before, after) = (before.to_vec(), after.to_vec());
            enter_found(&mut report, Ok(FoundMetric { metric: Metric::IoCalls, before, after }));
            // The flag is about given metrics: more work is better.
            report.conclude(false);
            assert_eq!((report.metric, &report.no_metric), (Some(Metric::IoCalls), &None));
            (report.speedup.unwrap(), report.speedup_certainty.unwrap())
        };
        let before = [10.0, 11.0, 10.0, 9.0, 10.0];
        assert_eq!(speedup(before, [12.0; 5]), (1.2, Certainty::Certain));
        assert_eq!(speedup(before, [12.0, 12.0, 12.0, 11.0, 12.0]), (1.2, Certainty::Uncertain));
        let mut report = empty_report(&own, &TuneOptions::default());
        enter_found(&mut report, Err(NoMetric::FewEvents));
        report.conclude(false);
        assert_eq!((report.metric, report.speedup), (None, None));
        assert_eq!(report.no_metric, Some(NoMetric::FewEvents));
    }

    #[test]
    fn a_program_that_ended_keeps_the_last_value_before_its_end() {
        let (last, huge) = (Bytes::mib(10), Bytes::mib(4));
        let range = AddrRange::at(VirtAddr::new(1 << 30), Bytes::mib(8));
        let mapping = Mapping { huge, ..Mapping::anonymous(range) };
        assert_eq!(huge_now(&[mapping], last), huge);
        assert_eq!(huge_now(&[], last), last);
    }

    #[test]
    fn a_trial_without_a_reading_has_its_pairs_and_no_samples() {
        let trial = TrialResult {
            verdict: TrialVerdict::Open,
            estimate: None,
            shares: StallShares::default(),
            pairs: Some(64),
            took: Nanos::millis(400),
            confirmed: None,
        };
        let report = trial_report(&trial, &TuneOptions::default().goal.trial);
        assert_eq!((report.pairs, report.samples, report.ratio), (Some(64), None, None));
    }
}
