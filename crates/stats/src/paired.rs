//! Ratios of two variants, taken within each round.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::interval::median_interval;
use crate::{Spread, sorted};

/// Ratios of two variants, one for each round, in ascending order.
///
/// Each ratio is taken within its round, so drift of the machine affects both variants alike.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratios(Vec<f64>);

impl Ratios {
    /// Takes the ratios of all rounds.
    pub fn of(ratios: impl IntoIterator<Item = f64>) -> Self {
        Self(sorted(ratios))
    }

    /// Number of rounds.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Median; `None` without rounds.
    pub fn median(&self) -> Option<f64> {
        crate::median(self.0.iter().copied())
    }

    /// Median and range; `None` without rounds, or if a ratio is not finite.
    pub fn spread(&self) -> Option<Spread> {
        Spread::of(&self.0)
    }

    /// 95 % confidence interval of the median; `None` below six rounds.
    pub fn interval(&self) -> Option<(f64, f64)> {
        median_interval(&self.0)
    }

    /// The ratios times a positive `factor`.
    #[must_use]
    pub fn times(&self, factor: f64) -> Self {
        Self(self.0.iter().map(|ratio| ratio * factor).collect())
    }
}

/// Speedup of one variant over another in interleaved rounds; above 1 is faster. A summary of
/// [`Ratios`] for reports.
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
        let ratios = Ratios::of(times.into_iter().map(|(base, variant)| base / variant));
        let Spread { median, min, max } = ratios.spread()?;
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Some(Self {
            low: min,
            median,
            high: max,
            rounds: count(ratios.count()),
            faster_rounds: count(ratios.0.iter().filter(|&&ratio| ratio > 1.0).count()),
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
