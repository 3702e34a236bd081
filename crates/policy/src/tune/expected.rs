//! Expected speedups of a decision, by the calibrated model.

use hugepilot_record::{Expected, ProcessMemory, Window};
use hugepilot_units::{HugePages, PageSizes};

use super::allowance::Allowance;
use super::{Candidates, MIN_SAMPLES, TuneGoal};
use crate::{PredictionInput, predict};

/// Facts about the samples of a window, for a plan of no region. `None` with few samples, or if
/// samples are not time.
#[allow(clippy::cast_precision_loss)]
pub fn prediction_input(window: &Window, sizes: PageSizes) -> Option<PredictionInput> {
    if window.cpu.is_none() || window.samples < MIN_SAMPLES {
        return None;
    }
    let stalls = window.chased() + window.stalled();
    let chased_ratio = window.chased() as f64 / stalls.max(1) as f64;
    let hot = HugePages::new(window.all_stalls().len() as u64).bytes(sizes);
    Some(PredictionInput { heat_ratio: 0.0, samples: window.samples, hot, chased_ratio })
}

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
    let input = prediction_input(window, memory.sizes)?;
    let predicted = |stalls: u64| {
        let heat_ratio = stalls as f64 / window.samples.max(1) as f64;
        predict(PredictionInput { heat_ratio, ..input }, &goal.calibration)
    };
    let (eligible, chosen) = predicted(candidates.stalls()).zip(predicted(affordable))?;
    Some(Expected { eligible, chosen })
}
