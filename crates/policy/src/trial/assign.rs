//! Assignment of candidates to the arms of a trial.

use hugepilot_stats::mix;
use hugepilot_units::Region;
use serde::{Deserialize, Serialize};

/// Two regions of similar heat, one of which is promoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// Region to promote.
    pub promoted: Region,
    /// Region that stays on base pages until the trial ends.
    pub control: Region,
}

/// Pairs neighbours in the order of heat, ties at random, and tosses a coin for each pair. An odd
/// candidate is left without a pair.
///
/// Deterministic: the same candidates, in any order, and the same seed give the same pairs.
pub fn assign(candidates: &[(Region, f64)], seed: u64) -> Vec<Pair> {
    let mut ranked: Vec<_> = candidates
        .iter()
        .map(|&(region, heat)| (heat, mix(seed ^ mix(region.get())), region))
        .collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
    ranked.chunks_exact(2).map(|pair| toss(pair[0].2, pair[1].2, seed)).collect()
}

fn toss(first: Region, second: Region, seed: u64) -> Pair {
    let coin = mix(mix(seed.wrapping_add(1)) ^ mix(first.get()) ^ mix(second.get()));
    if coin & 1 == 0 {
        Pair { promoted: first, control: second }
    } else {
        Pair { promoted: second, control: first }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn candidates(heat: impl Fn(u64) -> f64, count: u64) -> Vec<(Region, f64)> {
        (0..count).map(|i| (Region::new(1000 + i), heat(i))).collect()
    }

    #[test]
    fn each_candidate_is_in_one_arm_of_one_pair_of_similar_heat() {
        let all = candidates(|i| f64::from(u32::try_from(i % 10).unwrap()), 101);
        let pairs = assign(&all, 42);
        assert_eq!(pairs.len(), 50);
        let regions: BTreeSet<_> =
            pairs.iter().flat_map(|pair| [pair.promoted, pair.control]).collect();
        assert_eq!(regions.len(), 100);
        let heat = |region: Region| (region.get() - 1000) % 10;
        assert!(pairs.iter().all(|pair| heat(pair.promoted).abs_diff(heat(pair.control)) <= 1));
    }

    #[test]
    fn the_order_of_candidates_does_not_matter_and_the_seed_does() {
        let all = candidates(|_| 1.0, 64);
        let reversed: Vec<_> = all.iter().rev().copied().collect();
        assert_eq!(assign(&all, 1), assign(&reversed, 1));
        assert_ne!(assign(&all, 1), assign(&all, 2));
        assert!(assign(&all[..1], 1).is_empty() && assign(&[], 1).is_empty());
    }

    /// Neither the hotter region of a pair nor the lower address wins more than chance allows.
    #[test]
    fn the_coin_is_fair() {
        let all = candidates(|i| -f64::from(u32::try_from(i).unwrap()), 100);
        let (mut hotter, mut tosses) = (0_u32, 0_u32);
        for seed in 0..400 {
            for pair in assign(&all, seed) {
                hotter += u32::from(pair.promoted < pair.control);
                tosses += 1;
            }
        }
        // Five standard deviations of 20,000 tosses.
        assert_eq!(tosses, 20_000);
        assert!(hotter.abs_diff(tosses / 2) < 354, "{hotter}");
    }
}
