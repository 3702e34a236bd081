//! Certainty: whether a measured speedup can be chance.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Performance;

/// Fewest values of each kind that can make a speedup certain: with five of each, all of one kind
/// exceed all of the other by chance once in 252.
const ENOUGH: u64 = 5;

/// Confidence interval of a measured value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

impl Interval {
    /// Widest interval of a share that is not uncertain.
    const WIDEST: f64 = 0.2;

    /// Whether a share with this interval is known well enough to be compared with others.
    pub fn is_narrow(self) -> bool {
        self.high - self.low <= Self::WIDEST
    }
}

/// Certainty of a measured speedup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    /// The confidence interval excludes 1; without an interval, all tuned values are better than
    /// all others, or all are worse.
    Certain,
    /// The values overlap, or the interval includes 1.
    Uncertain,
    /// There are fewer than five values of a kind: they prove nothing.
    FewValues,
}

impl Certainty {
    /// Certainty of the speedup of `tuned` over `base`. `interval`: its confidence interval, if
    /// there is one.
    pub fn of(base: Performance, tuned: Performance, interval: Option<Interval>) -> Self {
        let is_certain = match interval {
            Some(interval) => interval.low > 1.0 || interval.high < 1.0,
            None if base.values.min(tuned.values) < ENOUGH => return Self::FewValues,
            None => are_apart(tuned, base),
        };
        if is_certain { Self::Certain } else { Self::Uncertain }
    }
}

/// Whether the values do not overlap.
fn are_apart(this: Performance, other: Performance) -> bool {
    this.common(other).is_some_and(|(this, other)| this.max < other.min || other.max < this.min)
}

#[cfg(test)]
mod tests {
    use hugepilot_stats::Spread;

    use super::*;

    fn certainty(base: &[f64], tuned: &[f64]) -> Certainty {
        let performance = |values: &[f64]| Performance {
            progress: Spread::of(values),
            values: values.len() as u64,
            ..Performance::default()
        };
        Certainty::of(performance(base), performance(tuned), None)
    }

    #[test]
    fn five_values_without_an_overlap_are_certain() {
        let base = [1.0, 1.1, 1.2, 1.3, 1.4];
        let better = base.map(|value| value + 1.0);
        assert_eq!(certainty(&base, &better), Certainty::Certain);
        assert_eq!(certainty(&better, &base), Certainty::Certain, "it is slower");
        assert_eq!(certainty(&base, &[1.4, 1.5, 1.6, 1.7, 1.8]), Certainty::Uncertain);
        assert_eq!(certainty(&base, &[9.0]), Certainty::FewValues);
        assert_eq!(certainty(&base[..4], &better), Certainty::FewValues);
    }

    #[test]
    fn an_interval_decides_where_there_is_one() {
        let one = Performance { progress: Spread::of(&[1.0]), ..Performance::default() };
        let certainty = |low, high| Certainty::of(one, one, Some(Interval { low, high }));
        assert_eq!(certainty(1.01, 1.2), Certainty::Certain);
        assert_eq!(certainty(0.8, 0.99), Certainty::Certain);
        assert_eq!(certainty(0.99, 1.2), Certainty::Uncertain);
    }
}
