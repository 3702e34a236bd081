//! End of a session: the last facts are read.

use std::rc::Rc;

use hugepilot_kernel::{Target, access_error};
use hugepilot_profiler::ProgressReader;
use hugepilot_record::{Obstacle, Stop};
use hugepilot_reports::tune::{FoundMetric, Metric, NoMetric, SamplerReport};
use hugepilot_units::{Bytes, Nanos};

use super::target::SessionTarget;
use super::{METRIC_VALUES, Session, is_judged};
use crate::act::unreadable;
use crate::engine::World;
use crate::tune::finished::{Finished, TargetEnd, TargetFacts};
use crate::tune::no_verdict::Sampled;
use crate::tune::{TuneOptions, is_alive, open};

/// End of the addresses of 32-bit programs.
const END_OF_32_BITS: u64 = 1 << 32;

impl Session<'_> {
    /// Values of the progress metric between two times; `None` without a progress metric.
    pub(super) fn metric(&self, from: Nanos, to: Nanos) -> Option<Vec<f64>> {
        let progress = self.engine.world.progress.as_ref();
        // A value that arrives at `to` counts.
        progress.map(|progress| progress.between(from, to + Nanos::new(1)))
    }

    /// Reads the last facts, and ends the session.
    pub fn finish(mut self) -> Finished {
        self.divide();
        let targets = std::mem::take(&mut self.targets);
        let huge = targets.first().map_or(Bytes::ZERO, |target| target.process.sizes().huge);
        let targets = targets.into_iter().map(|target| self.facts(target)).collect();
        let world = &self.engine.world;
        let progress = world.progress.as_ref();
        Finished {
            begun: self.begun,
            is_interrupted: world.is_interrupted(),
            samples_time: world.sampling.samples_time(),
            progress_doubts: progress.map_or_else(Vec::new, ProgressReader::warnings),
            load: world.load.as_ref().map(|load| load.readings().to_vec()),
            huge,
            targets,
            options: TuneOptions { goal: self.engine.goal().clone(), ..self.options },
        }
    }

    /// Facts about a target, with those at the end unless it is excluded.
    fn facts(&self, mut target: SessionTarget) -> TargetFacts {
        if target.is_excluded() {
            return target.facts;
        }
        let (world, pid, now) = (&self.engine.world, target.pid(), self.now());
        let sampled = self.sampled(&target, now);
        let facts = &mut target.facts;
        if sampled.has_ended && facts.was_given() {
            facts.fold.stopped.get_or_insert(Stop::TargetGone);
        }
        if let Some(error) = world.unreadable(pid) {
            facts.unreadable = Some(access_error(error));
            facts.fold.stopped = Some(unreadable(error));
        }
        facts.fold.read_end(&|pid| world.process(pid).map(|process| process as Rc<dyn Target>));
        let mut huge = None;
        if let Some((now, obstacles)) = read_end(facts) {
            (huge, facts.obstacles) = (now, obstacles);
        }
        let shown = facts.fold.shown;
        // Of several targets, each is sampled by itself.
        let share = shown.filter(|_| facts.with_children);
        let share = share.and_then(|pid| world.sampling.observation().share_of(pid));
        let end = TargetEnd {
            sampler: self.sampler(&target),
            sampled,
            share: share.unwrap_or(1.0),
            forks: shown.map_or(0, |pid| world.sampling.forks_of(pid)),
            huge,
            metric: self.metric_of(&target, now),
        };
        TargetFacts { end: Some(end), ..target.facts }
    }

    fn sampled(&self, target: &SessionTarget, now: Nanos) -> Sampled {
        let (process, pid) = (&target.process, target.pid());
        let times = self.engine.world.sampling.observation().sampled().iter();
        let own = times.filter(|&(&sampled, _)| target.facts.with_children || sampled == pid);
        let ends = process.layout().unwrap_or_default().into_iter().map(|one| one.range.end.get());
        let policy = &self.engine.goal().policy;
        let shown = target.facts.fold.shown();
        Sampled {
            time: now - self.begun,
            processes: own.clone().count() as u64,
            longest: own.map(|(_, &time)| time).max().unwrap_or_default(),
            has_ended: !is_alive(process),
            is_stopped: process.stat().ok().map(|stat| stat.is_stopped()),
            is_32_bit: ends.max().is_some_and(|end| end <= END_OF_32_BITS),
            // Of several targets, each may end at any time.
            is_whole_life: target.facts.with_children,
            required: self.options.first_decision(),
            is_judged: shown.is_some_and(|shown| is_judged(policy, &shown.state)),
        }
    }

    fn sampler(&self, target: &SessionTarget) -> SamplerReport {
        let sampling = &self.engine.world.sampling;
        // Calibrated for the CPU clock only.
        let cost = Some(self.options.sample_cost)
            .filter(|&cost| cost > Nanos::ZERO && sampling.samples_time());
        let own = sampling.counts_of(target.pid()).filter(|_| !target.facts.with_children);
        let better = sampling.unavailable().iter();
        let better = better.map(|sampler| (sampler.name.to_owned(), sampler.cause.to_string()));
        let counters = target.counters.as_ref().and_then(|counters| counters.as_ref().err());
        let counters = counters.map(|cause| ("hardware counters".to_owned(), cause.to_string()));
        SamplerReport {
            source: sampling.name(),
            overhead_ratio: cost
                .zip(sampling.observation().mean_rate_hz())
                .map(|(cost, rate_hz)| cost.as_seconds() * rate_hz),
            sample_cost_ns: cost,
            unavailable: better.chain(counters).collect(),
            ..SamplerReport::default()
        }
        .with_counts(&own.unwrap_or_else(|| sampling.counts()))
    }

    /// Values of the progress metric, or else of a metric that the kernel counts.
    fn metric_of(
        &self,
        target: &SessionTarget,
        now: Nanos,
    ) -> Option<Result<FoundMetric, NoMetric>> {
        if let Some(pid) = target.facts.program.and_then(|program| program.measured_in) {
            return Some(Err(NoMetric::OfProgram { pid }));
        }
        let (first_act, last_act) = target.facts.act_times();
        let Some(before) = self.metric(Nanos::ZERO, first_act.unwrap_or(now)) else {
            return self.found(target);
        };
        let before = before[before.len().saturating_sub(METRIC_VALUES)..].to_vec();
        let after = last_act.and_then(|settled| self.metric(settled, now)).unwrap_or_default();
        // The first value after settling spans the promotions.
        let after = after.into_iter().skip(1).collect();
        Some(Ok(FoundMetric { metric: Metric::Given, before, after }))
    }

    /// Finds a metric among the counts of the kernel; `None` if nothing was promoted, or if no work
    /// was read.
    fn found(&self, target: &SessionTarget) -> Option<Result<FoundMetric, NoMetric>> {
        let (pid, acts) = (target.pid(), target.facts.fold.acts());
        let work = self.engine.world.work.get(&pid)?;
        let (first_act, last_act) = acts.first.zip(acts.last)?;
        if target.facts.fold.shown.is_some_and(|shown| shown != pid) {
            return Some(Err(NoMetric::OtherProcess));
        }
        // Readings at the same rate of samples as before, if there are enough.
        let measured = self.measured.filter(|_| target.is_close);
        let close = measured.map(|since| work.found(first_act, since));
        let close = close.filter(|found| !matches!(found, Err(NoMetric::FewWindows { .. })));
        Some(close.unwrap_or_else(|| work.found(first_act, last_act)))
    }
}

/// Reads the memory on huge pages, if it is mapped, and the obstacles of the process of the report,
/// if that still exists.
fn read_end(facts: &TargetFacts) -> Option<(Option<Bytes>, Vec<Obstacle>)> {
    let shown = facts.fold.shown()?;
    let process = open(shown.id.pid).ok()?;
    let is_same = process.id().start_ticks == shown.id.start_ticks;
    let mappings = process.mappings().ok().filter(|_| is_same)?;
    let huge = mappings.iter().map(|mapping| mapping.huge).reduce(|sum, huge| sum + huge);
    Some((huge, process.obstacles()))
}
