//! Reports of a finished session. Pure: each part is made once, from the facts.

#[cfg(test)]
mod tests;

use hugepilot_policy::trial::{StallShares, TrialRules};
use hugepilot_policy::tune::{Policy, ProcessState, TrialResult};
use hugepilot_record::{Obstacle, Prediction, Stop};
use hugepilot_reports::tune::{
    Activity, Forecast, Measured, Metric, NoVerdict, Performance, PredictedBy, Runs, SCHEMA,
    ScheduleReport, TargetInfo, TrialReport, TrialVerdict, TuneActs, TunePlan, TuneReport,
    cause_of_end, judge_load,
};
use hugepilot_stats::Spread;
use hugepilot_units::{Bytes, Nanos};

use super::finished::{Finished, TargetEnd, TargetFacts};
use super::no_verdict::no_verdict;

impl Finished {
    /// Returns the report of each target.
    pub fn reports(&self) -> Vec<TuneReport> {
        self.targets.iter().map(|target| self.report(target)).collect()
    }

    fn report(&self, target: &TargetFacts) -> TuneReport {
        let (fold, goal) = (&target.fold, &self.options.goal);
        let shown = fold.shown().map(|shown| &shown.id);
        let report = TuneReport {
            schema: SCHEMA.to_owned(),
            target: shown.map_or_else(
                || target.named.clone(),
                |id| TargetInfo { pid: id.pid, command: id.command.clone() },
            ),
            dry_run: self.options.dry_run,
            policy: goal.policy.name(),
            obstacles: self.obstacles(target),
            ..TuneReport::default()
        };
        let Some(end) = &target.end else {
            let no_verdict = target.unreadable.clone().map(NoVerdict::Excluded);
            let (plan, acts) = (self.plan(target, false), self.acts(target, &TargetEnd::default()));
            return TuneReport { plan, acts, no_verdict, ..report };
        };
        let target_ended = end.sampled.has_ended && target.was_given();
        let stopped = cause_of_end(fold.stopped, target_ended, self.is_interrupted);
        let no_verdict = self.no_verdict(target, end, stopped);
        let has_verdict = no_verdict.is_none();
        // Unknown samples would make the stalls zero, and the predictions of the model from them.
        let knows_stalls = has_verdict && !end.sampler.is_mostly_unknown();
        let report = TuneReport {
            sampler: end.sampler.clone(),
            schedule: self.schedule(target),
            plan: self.plan(target, has_verdict),
            acts: self.acts(target, end),
            forecast: self.forecast(target, stopped, has_verdict, knows_stalls),
            measured: self.measured(target, end, knows_stalls),
            stopped,
            no_verdict,
            target_ended,
            ..report
        };
        TuneReport { warnings: self.warnings(target, end, &report), ..report }
    }

    /// Obstacles of a process. Samples of a virtual machine are an obstacle only to policies that
    /// need samples.
    fn obstacles(&self, target: &TargetFacts) -> Vec<Obstacle> {
        let needs_samples = self.options.goal.policy.needs_samples();
        let all = target.obstacles.iter();
        all.filter(|&one| needs_samples || *one != Obstacle::KvmGuest).cloned().collect()
    }

    fn plan(&self, target: &TargetFacts, has_verdict: bool) -> TunePlan {
        let mut selected: Vec<_> = target.fold.selected().cloned().collect();
        selected.sort_by(|a, b| b.heat_ratio.total_cmp(&a.heat_ratio).then(a.start.cmp(&b.start)));
        let shown = target.fold.shown();
        let skipped_stalls = shown.map(|shown| &shown.skipped_stall_ratio);
        let budget_bytes = self.budget(target);
        TunePlan {
            footprint_bytes: target.footprint(),
            budget_bytes,
            budget_of_others_bytes: budget_bytes.and_then(|_| self.got_by_others(target)),
            selected,
            skipped: shown.map(|shown| shown.skipped.clone()).unwrap_or_default(),
            skipped_stall_ratio: skipped_stalls
                .filter(|_| has_verdict)
                .cloned()
                .unwrap_or_default(),
            eligible_regions: shown.map(|shown| shown.eligible),
        }
    }

    /// Budget of a target: a share of its memory, or of that of its program or of all targets.
    fn budget(&self, target: &TargetFacts) -> Option<Bytes> {
        let all = self.targets.iter().filter(|one| !one.is_excluded());
        let base = match target.program {
            Some(program) => program.resident,
            None if self.targets.len() > 1 => all.filter_map(TargetFacts::footprint).sum(),
            None => target.footprint()?,
        };
        self.options.goal.budget_of(base)
    }

    /// Huge pages that the other targets got, or would get; `None` if there is no other.
    fn got_by_others(&self, target: &TargetFacts) -> Option<Bytes> {
        let got = |one: &TargetFacts| match self.options.dry_run {
            true => one.fold.selected().count() as u64,
            false => one.fold.counts().kept,
        };
        let all: u64 = self.targets.iter().map(got).sum();
        (self.targets.len() > 1).then(|| self.huge.times(all - got(target)))
    }

    fn acts(&self, target: &TargetFacts, end: &TargetEnd) -> TuneActs {
        let (fold, shown) = (&target.fold, target.fold.shown());
        let (counts, acts, added) = (fold.counts(), fold.acts(), fold.added());
        let since_begin = |time: Nanos| (time - self.begun).as_seconds();
        let first = target.first.map(|(_, huge)| huge);
        let last = shown.map(|shown| shown.huge_after);
        TuneActs {
            attempted_regions: counts.attempted,
            untried_regions: fold.untried(),
            verified_regions: counts.verified,
            demoted_regions: counts.demoted,
            lost_regions: counts.lost,
            promotions: acts.promotions,
            demotions: acts.demotions,
            forks: end.forks,
            freed_by: counts.freed_by(),
            exec: fold.exec,
            failed: acts.failed,
            huge_bytes_before: shown.map(|shown| shown.huge_before).or(first),
            huge_bytes_after: end.huge.or(last).or(first),
            added_bytes: added.total,
            lazily_freed_bytes: added.lazily_freed,
            promotion_seconds: acts.promotion.as_seconds(),
            acts_seconds: acts.first.map(|_| acts.promoting.as_seconds()),
            last_promotion_seconds: acts.last.map(since_begin),
            most_promoted_seconds: fold.most_promoted().map(since_begin),
        }
    }

    /// Cause why there is no verdict.
    fn no_verdict(
        &self,
        target: &TargetFacts,
        end: &TargetEnd,
        stopped: Option<Stop>,
    ) -> Option<NoVerdict> {
        let (fold, goal) = (&target.fold, &self.options.goal);
        if target.is_excluded() {
            return target.unreadable.clone().map(NoVerdict::Excluded);
        }
        let has_acted = fold.counts().attempted > 0 || fold.selected().next().is_some();
        // Only policies that need samples miss them.
        if has_acted || stopped.is_some() || !goal.policy.needs_samples() {
            return None;
        }
        // Samples of the host show neither the work nor the stalls of the guest.
        if target.obstacles.contains(&Obstacle::KvmGuest) {
            return Some(NoVerdict::KvmGuest);
        }
        no_verdict(target.named.pid, &end.sampler, &end.sampled)
    }

    fn forecast(
        &self,
        target: &TargetFacts,
        stopped: Option<Stop>,
        has_verdict: bool,
        knows_stalls: bool,
    ) -> Forecast {
        let Some(shown) = target.fold.shown() else { return Forecast::default() };
        let goal = &self.options.goal;
        let by_trial = self.by_trial(target, stopped);
        let by_model = || shown.predicted(&goal.calibration).filter(|_| knows_stalls);
        let by = if by_trial.is_some() { PredictedBy::Trial } else { PredictedBy::Model };
        let predicted_speedup = by_trial.or_else(by_model);
        let eligible = shown.expected.map(|expected| expected.eligible);
        let coverage = shown.stall_ratio.map(|_| shown.coverage());
        let stall_ratio = shown.stall_ratio.filter(|_| knows_stalls);
        Forecast {
            coverage_ratio: coverage.filter(|_| has_verdict),
            trial: shown.state.trial.map(|trial| trial_report(&trial, &goal.trial)),
            no_trial: shown.state.no_trial.filter(|_| has_verdict),
            predicted_speedup,
            predicted_by: predicted_speedup.map(|_| by),
            eligible_speedup: eligible.filter(|_| knows_stalls),
            blocked_speedup: shown.blocked(&goal.calibration).filter(|_| knows_stalls),
            before: Activity { stall_ratio, ..target.before },
        }
    }

    /// Speedup of the selected regions by the trial.
    fn by_trial(&self, target: &TargetFacts, stopped: Option<Stop>) -> Option<Prediction> {
        let shown = target.fold.shown()?;
        let counts = target.fold.counts();
        // No region is left to which a speedup could refer.
        let is_freed = counts.lost > 0 && counts.lost == counts.verified;
        // A void trial measured another phase of the program, a stopped one too little.
        let is_valid = |trial: &TrialResult| {
            let is_cut = trial.verdict == TrialVerdict::Open && counts.kept == 0;
            trial.confirmed != Some(false) && !(is_cut && stopped.is_some()) && !is_freed
        };
        let trial = shown.state.trial.filter(is_valid)?;
        // Without a gain, nothing stays selected: the bracket is that of all eligible memory.
        let covered = shown.coverage();
        let eligible = if covered > 0.0 { covered } else { trial.shares.eligible };
        let shares = StallShares { eligible, ..trial.shares };
        Some(self.options.goal.trial.bracket(&trial.estimate?, shares))
    }

    /// Events of a schedule.
    fn schedule(&self, target: &TargetFacts) -> Option<ScheduleReport> {
        let goal = &self.options.goal;
        let Policy::Schedule(rules) = &goal.policy else { return None };
        let unseen = ProcessState::default();
        let past = target.fold.shown().map_or(&unseen, |shown| &shown.state);
        let counted = past.schedule.report(rules, past, goal);
        Some(ScheduleReport { planned: target.planned.clone(), ..counted })
    }

    fn measured(&self, target: &TargetFacts, end: &TargetEnd, knows_stalls: bool) -> Measured {
        let after = target.after.map(|after| Activity {
            stall_ratio: after.stall_ratio.filter(|_| knows_stalls),
            ..after
        });
        let measured = Measured { after, ..Measured::default() };
        let found = match &end.metric {
            None => return measured,
            Some(Err(cause)) => return Measured { no_metric: Some(cause.clone()), ..measured },
            Some(Ok(found)) => found,
        };
        let [baseline, tuned] = [&found.before, &found.after].map(|values| {
            let (spread, values) = (Some(Spread::of(values)?), values.len() as u64);
            let none = Performance { values, ..Performance::default() };
            Some(match found.metric {
                Metric::Given => Performance { progress: spread, ..none },
                _ => Performance { work_per_cpu_second: spread, ..none },
            })
        });
        let (first_act, last_act) = target.act_times();
        let both = baseline.and(tuned).and(first_act).zip(last_act);
        let load = both.zip(self.load.as_deref());
        let load = load.map(|((first, last), readings)| judge_load(readings, first, last));
        let metric = baseline.or(tuned).map(|_| found.metric);
        let runs = Runs::by_medians(baseline, tuned, None, self.options.larger_is_better);
        Measured { metric, load, ..measured }.with_runs(runs)
    }
}

/// Describes a trial that ended.
pub(crate) fn trial_report(trial: &TrialResult, rules: &TrialRules) -> TrialReport {
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
