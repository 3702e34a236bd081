//! Pairs of a trial, with the stalls before it.

use hugepilot_record::Window;

use crate::trial::{Estimate, Pair, PairCounts};

/// Pair with the stalls of both regions before the trial: the promoted one, then the control.
pub(super) type CountedPair = (Pair, [u32; 2]);

/// Number of pairs with stalls before the trial.
pub(super) fn with_stalls(pairs: &[CountedPair]) -> u64 {
    pairs.iter().filter(|(_, counts)| *counts != [0, 0]).count() as u64
}

/// Estimate from the window since the promotion.
pub(super) fn estimate(pairs: &[CountedPair], window: &Window) -> Option<Estimate> {
    let stalls = |region| window.stalls.get(&region).copied().unwrap_or(0);
    let counts: Vec<PairCounts> = pairs
        .iter()
        .map(|(pair, before)| PairCounts {
            promoted_before: before[0],
            control_before: before[1],
            promoted_after: stalls(pair.promoted),
            control_after: stalls(pair.control),
        })
        .collect();
    Estimate::of(&counts)
}
