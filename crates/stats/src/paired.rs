//! Ratio of two variants, taken within each round.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Spread;

/// Speedup of one variant over another in interleaved rounds; above 1 is faster.
///
/// The ratio is taken within each round, so drift of the machine affects both variants alike.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PairedRatio {
    /// Smallest ratio.
    pub low: f64,
    /// Median ratio.
    pub median: f64,
    /// Largest ratio.
    pub high: f64,
    /// Rounds.
    #[serde(default)]
    pub rounds: u32,
    /// Rounds with a ratio above 1.
    #[serde(default)]
    pub faster_rounds: u32,
}

impl PairedRatio {
    /// Speedup from pairs `(time of the baseline, time of the variant)`; `None` without pairs, or
    /// if a ratio is not finite.
    pub fn of(times: impl IntoIterator<Item = (f64, f64)>) -> Option<Self> {
        let ratios: Vec<f64> = times.into_iter().map(|(base, variant)| base / variant).collect();
        let Spread { median, min, max } = Spread::of(&ratios)?;
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Some(Self {
            low: min,
            median,
            high: max,
            rounds: count(ratios.len()),
            faster_rounds: count(ratios.iter().filter(|&&ratio| ratio > 1.0).count()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_taken_within_each_round() {
        // The machine becomes 10 times slower half-way; the variant takes half as long throughout.
        let times = [(2.0, 1.0), (2.0, 1.25), (20.0, 10.0), (20.0, 8.0), (1.0, 2.0)];
        let ratio = PairedRatio::of(times).unwrap();
        assert_eq!((ratio.low, ratio.median, ratio.high), (0.5, 2.0, 2.5));
        assert_eq!((ratio.rounds, ratio.faster_rounds), (5, 4));
    }

    #[test]
    fn no_rounds_and_no_time_have_no_ratio() {
        assert_eq!(PairedRatio::of([]), None);
        assert_eq!(PairedRatio::of([(1.0, 0.0)]), None);
    }
}
