//! Options of a tune, and its events.

use hugepilot_policy::Calibration;
use hugepilot_record::tune::Prediction;
use hugepilot_record::{Pid, Plan};
use hugepilot_units::{Amount, Nanos, Share};

use crate::act::Guard;

/// Options of a tune.
#[derive(Clone, Debug)]
pub struct TuneOptions {
    /// Samples per second of each thread's CPU time.
    pub rate_hz: u32,
    /// Sampling time before the first plan, and again after the last promotion.
    pub observe: Nanos,
    /// Sampling time between two rounds.
    pub round: Nanos,
    /// Longest time of all rounds together.
    pub total: Nanos,
    /// Limit of huge pages: bytes, or a share of the resident memory.
    pub budget: Amount,
    /// Whether to plan only, and change nothing.
    pub dry_run: bool,
    /// Smallest predicted gain to act on: 0.01 is 1 %.
    pub min_gain: f64,
    /// Limits that end a round.
    pub guard: Guard,
    /// Gain of huge pages on this machine; without it, there is no prediction.
    pub calibration: Calibration,
    /// Cost of one sample to the target.
    pub sample_cost: Nanos,
    /// Base pages that the TLB of this machine holds.
    pub tlb_entries: u32,
    /// Longest wait for the progress metric, before and after.
    pub progress_wait: Nanos,
    /// Whether a larger progress metric is better.
    pub larger_is_better: bool,
}

impl Default for TuneOptions {
    fn default() -> Self {
        Self {
            rate_hz: 500,
            observe: Nanos::seconds(3),
            round: Nanos::seconds(2),
            total: Nanos::seconds(10),
            budget: Amount::Share(Share::percent(15.0)),
            dry_run: false,
            min_gain: 0.01,
            guard: Guard::default(),
            calibration: Calibration::default(),
            sample_cost: Nanos::ZERO,
            tlb_entries: 1536,
            progress_wait: Nanos::seconds(60),
            larger_is_better: false,
        }
    }
}

/// Event of a tune, for display.
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
        /// Samples per second; `None` for a sampler that counts events, not time.
        rate_hz: Option<u32>,
    },
    /// Sampling continues.
    Observing {
        /// Samples so far.
        samples: u64,
    },
    /// A plan was made.
    Planned {
        /// The plan.
        plan: &'a Plan,
        /// Predicted gain.
        prediction: Option<Prediction>,
    },
    /// A region was tried.
    Acted {
        /// Regions tried so far.
        done: usize,
        /// Regions of the plan.
        all: usize,
    },
    /// Waiting for values of the progress metric.
    AwaitingMetric {
        /// Values so far.
        found: usize,
        /// Whether these are values after tuning.
        after: bool,
    },
}
