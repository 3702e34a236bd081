//! Expected speedups of a decision, by the calibrated model.

use hugepilot_record::{Expected, ProcessMemory, Window};
use hugepilot_units::HugePages;

use super::allowance::Allowance;
use super::{Candidates, MIN_SAMPLES, TuneGoal};
use crate::{PredictionInput, predict};

/// Speedups if all candidates are promoted, and if those are that `allowance` suffices for in all
/// rounds together. `None` without a calibration, with few samples, or if samples are not time.
#[allow(clippy::cast_precision_loss)]
pub(super) fn expected(
    goal: &TuneGoal,
    memory: &ProcessMemory,
    window: &Window,
    candidates: &Candidates,
    allowance: Allowance,
) -> Option<Expected> {
    let mut allowance = allowance.of_all_rounds();
    let affordable: u64 = candidates
        .regions
        .iter()
        .filter(|one| allowance.take(memory, one.added).is_ok())
        .map(|one| u64::from(one.stalls))
        .sum();
    let hot = HugePages::new(candidates.hot).bytes(memory.sizes);
    let stalls = window.chased() + window.stalled();
    let chased_ratio = window.chased() as f64 / stalls.max(1) as f64;
    let predicted = |stalls: u64| {
        let heat_ratio = stalls as f64 / window.samples.max(1) as f64;
        let input = PredictionInput { heat_ratio, samples: window.samples, hot, chased_ratio };
        let is_known = window.cpu.is_some() && window.samples >= MIN_SAMPLES;
        predict(input, &goal.calibration).filter(|_| is_known)
    };
    let (eligible, chosen) = predicted(candidates.stalls()).zip(predicted(affordable))?;
    Some(Expected { eligible, chosen })
}
