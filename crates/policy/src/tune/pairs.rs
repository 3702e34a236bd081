//! Pairs of a trial, with the stalls before it.

use hugepilot_record::{ProcessMemory, Window};
use hugepilot_units::Region;

use super::ProcessState;
use crate::trial::{Estimate, Pair, PairCounts};

/// Pair with the stalls of both regions before the trial: the promoted one, then the control.
pub(super) type CountedPair = (Pair, [u32; 2]);

/// Number of pairs with stalls before the trial.
pub(super) fn with_stalls(pairs: &[CountedPair]) -> u64 {
    pairs.iter().filter(|(_, counts)| *counts != [0, 0]).count() as u64
}

/// The pairs that still compare a huge page with base pages. Promotions fail, the program frees
/// memory, and others promote regions, too. Both regions were wholly resident when the trial began:
/// freed memory has no stalls, so neither arm may keep it.
pub(super) fn compared(
    pairs: &[CountedPair],
    past: &ProcessState,
    memory: &ProcessMemory,
) -> Vec<CountedPair> {
    let is_base = |region: Region| match memory.pages.get(&region) {
        Some(pages) => !pages.huge && pages.kept() >= memory.sizes.base_per_huge(),
        // Of a mapping that was not read.
        None => memory.mapping_of(region).is_some(),
    };
    let compares = |pair: &Pair| past.is_still_huge(pair.promoted, memory) && is_base(pair.control);
    pairs.iter().filter(|(pair, _)| compares(pair)).copied().collect()
}

/// The pairs of which both regions were promoted and still are huge.
pub(super) fn whole(
    pairs: &[CountedPair],
    past: &ProcessState,
    memory: &ProcessMemory,
) -> Vec<CountedPair> {
    let is_huge = |region| past.is_still_huge(region, memory);
    let is_whole = |pair: &Pair| is_huge(pair.promoted) && is_huge(pair.control);
    pairs.iter().filter(|(pair, _)| is_whole(pair)).copied().collect()
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
