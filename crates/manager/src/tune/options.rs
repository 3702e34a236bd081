//! Options of a tune, and its events.

use std::sync::Arc;

use hugepilot_policy::Guard;
use hugepilot_policy::round::Round;
use hugepilot_policy::tune::{MIN_SAMPLES, State, TuneGoal};
use hugepilot_record::{AccessError, Pid};
use hugepilot_reports::tune::TuneWarning;
use hugepilot_units::Nanos;

use crate::trial_guard::TrialGuard;

/// Options of a tune.
#[derive(Clone, Debug)]
pub struct TuneOptions {
    /// Goal and its limits.
    pub goal: TuneGoal,
    /// Samples per second of each thread's CPU time.
    pub rate_hz: u32,
    /// The same, during a trial.
    pub trial_rate_hz: u32,
    /// Longest time of all rounds together.
    pub total: Nanos,
    /// Whether to decide only, and change nothing.
    pub dry_run: bool,
    /// Limits that end a round.
    pub guard: Guard,
    /// Cost of one sample to the target.
    pub sample_cost: Nanos,
    /// Base pages that the TLB of this machine holds.
    pub tlb_entries: u32,
    /// Longest wait for the progress metric, before and after.
    pub progress_wait: Nanos,
    /// Whether a larger progress metric is better.
    pub larger_is_better: bool,
    /// Whether to find a metric among the counts of the kernel, if a running process has no
    /// progress metric.
    pub find_metric: bool,
    /// Whether runs of the unchanged program alternate with this one. A change of the load is in
    /// both, and is not read.
    pub interleaved: bool,
    /// Guard that returns the regions of a trial if this program is killed.
    pub trial_guard: Option<Arc<TrialGuard>>,
}

impl Default for TuneOptions {
    fn default() -> Self {
        Self {
            goal: TuneGoal::default(),
            rate_hz: 500,
            trial_rate_hz: 2000,
            total: Nanos::seconds(15),
            dry_run: false,
            guard: Guard::default(),
            sample_cost: Nanos::ZERO,
            tlb_entries: 1536,
            progress_wait: Nanos::seconds(60),
            larger_is_better: false,
            find_metric: true,
            interleaved: false,
            trial_guard: None,
        }
    }
}

impl TuneOptions {
    /// Returns the least time of sampling from which a first decision about a thread follows that
    /// runs half of the time.
    pub(super) fn first_decision(&self) -> Nanos {
        let samples = Nanos::new(MIN_SAMPLES * 2_000_000_000 / u64::from(self.rate_hz.max(1)));
        self.goal.observe.max(samples)
    }

    /// Returns the goal that decides the rounds. `launched`: whether the tune lasts from the start
    /// of a program to its end. `has_metric`: whether the program has a progress metric.
    pub fn round_goal(&self, launched: bool, has_metric: bool) -> TuneGoal {
        // The first seconds of a program differ from the rest. A progress metric may come seldom,
        // so its values before and after the promotions are read at the usual rate of samples.
        let is_whole = launched || has_metric;
        let enough_addresses = self.goal.enough_addresses.filter(|_| !is_whole);
        let (model_only, persistent) = (self.dry_run, launched);
        TuneGoal { model_only, persistent, enough_addresses, ..self.goal.clone() }
    }
}

/// Event of a tune, for display and for journals.
#[derive(Debug)]
pub enum Event<'a> {
    /// Sampling started.
    Attached {
        /// Name of the sampler.
        source: &'a str,
        /// The process.
        pid: Pid,
        /// Its name.
        command: &'a str,
        /// Samples per second, usual and at most; `None` for a sampler that counts events.
        rates_hz: Option<(u32, u32)>,
    },
    /// A process, one of several, is excluded.
    Excluded {
        /// The process.
        pid: Pid,
        /// Its name.
        command: &'a str,
        /// Cause.
        cause: &'a AccessError,
    },
    /// Sampling continues.
    Observing {
        /// Samples so far.
        samples: u64,
    },
    /// A round ended.
    Round {
        /// The round.
        round: &'a Round,
        /// State after it.
        state: &'a State,
    },
    /// A region was tried.
    Acted {
        /// The process.
        pid: Pid,
        /// Regions tried so far.
        done: usize,
        /// Regions of the decision.
        all: usize,
    },
    /// A step of the demonstration.
    Demonstrating {
        /// The step.
        step: &'a str,
        /// Time until its end, if known.
        left: Option<Nanos>,
    },
    /// Waiting for values of the progress metric.
    AwaitingMetric {
        /// Values so far.
        found: usize,
        /// Whether these are values after tuning.
        after: bool,
        /// Time waited so far.
        waited: Nanos,
        /// Longest wait.
        longest: Nanos,
        /// Warnings about the pattern and what it found so far.
        warnings: Vec<TuneWarning>,
    },
}
