//! Facts about this machine, which promotion needs.

use std::sync::Arc;

use hugepilot_policy::Calibration;

use crate::trial_guard::TrialGuard;

/// Facts about this machine, for promotion.
#[derive(Clone, Debug)]
pub struct MachineFacts {
    /// Model of this machine, for processes in which no trial is possible.
    pub calibration: Calibration,
    /// Samples per second of each thread's CPU time, outside of trials.
    pub rate_hz: u32,
    /// Base pages that the TLB holds.
    pub tlb_entries: u32,
    /// Guard that returns the regions of a trial if this program is killed.
    pub trial_guard: Option<Arc<TrialGuard>>,
}

/// Source of facts that are measured when they are first needed.
pub trait FactsSource {
    /// Returns the facts if they are known. The first call begins to measure them, in another
    /// process, and so does one after they grew old.
    fn facts(&self) -> Option<MachineFacts>;
    /// Ends a measurement; the next call of [`FactsSource::facts`] begins again.
    fn stop(&self);
}
