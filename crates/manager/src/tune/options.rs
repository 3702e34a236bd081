//! What a user may set, and what a listener hears.

use hugepilot_policy::Calibration;
use hugepilot_record::tune::Prediction;
use hugepilot_record::{Pid, Plan};
use hugepilot_units::{Amount, Nanos, Share};

use crate::act::Guard;

/// How to tune.
#[derive(Clone, Debug)]
pub struct TuneOptions {
    /// Samples per second of each thread's CPU time.
    pub rate_hz: u32,
    /// How long to look before the first plan, and again after the last.
    pub observe: Nanos,
    /// How long to look between two rounds.
    pub round: Nanos,
    /// How long all rounds may take together.
    pub total: Nanos,
    /// Huge pages that may be made: bytes, or a share of the resident memory.
    pub budget: Amount,
    /// Plan, but change nothing.
    pub dry_run: bool,
    /// Nothing is done for a smaller predicted gain: 0.01 means a hundredth.
    pub min_gain: f64,
    /// When to stop acting.
    pub guard: Guard,
    /// What huge pages save on this machine; without it nothing is predicted.
    pub calibration: Calibration,
    /// What one sample costs the target.
    pub sample_cost: Nanos,
    /// Base pages that the TLB of this machine holds.
    pub tlb_entries: u32,
    /// How long to wait for the program's own figures, before and after.
    pub progress_wait: Nanos,
    /// Whether a larger figure is better.
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

/// What happens, for whoever shows progress.
#[derive(Debug)]
pub enum Event<'a> {
    /// Sampling began.
    Attached {
        /// Name of the source.
        source: &'a str,
        /// The process.
        pid: Pid,
        /// Its name.
        command: &'a str,
        /// Samples per second; `None` for a source that counts events, not time.
        rate_hz: Option<u32>,
    },
    /// Still looking.
    Observing {
        /// Samples so far.
        samples: u64,
    },
    /// A plan was made.
    Planned {
        /// The plan.
        plan: &'a Plan,
        /// What it should gain.
        prediction: Option<Prediction>,
    },
    /// A region was tried.
    Acted {
        /// How many of this plan.
        done: usize,
        /// How many there are.
        all: usize,
    },
    /// Waiting for the program to print figures.
    AwaitingFigures {
        /// Figures so far.
        found: usize,
        /// Whether they are those after tuning.
        after: bool,
    },
}
