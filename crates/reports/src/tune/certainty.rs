//! Certainty: whether a measured speedup can be chance.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LoadReport, Performance};

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

/// Ratio of two speeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpeedRatio {
    /// Median, or the ratio of the medians.
    pub median: f64,
    /// Its 95 % confidence interval; `None` if the values are too few, or are not paired.
    pub interval: Option<Interval>,
}

/// Certainty of a measured speedup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    /// The confidence interval excludes 1; without an interval, all tuned values are better than
    /// all others, or all are worse, and they are interleaved, or `load` is known and did not
    /// change.
    Certain,
    /// The values overlap, or the interval includes 1.
    Uncertain,
    /// The values do not overlap, but all of one side precede the others, and the load of the
    /// machine changed meanwhile: `load` has the number.
    LoadChanged,
    /// The same, and the load of a side is unknown.
    LoadUnknown,
    /// There are fewer than five values of a kind: they prove nothing.
    FewValues,
}

impl Certainty {
    /// Certainty of the speedup of `tuned` over `base`. `interval`: its confidence interval, if
    /// there is one. `load`: that of both sides; `None` if these are interleaved.
    pub fn of(
        base: Performance,
        tuned: Performance,
        interval: Option<Interval>,
        load: Option<&LoadReport>,
    ) -> Self {
        let is_apart = match interval {
            Some(interval) => interval.low > 1.0 || interval.high < 1.0,
            None if base.values.min(tuned.values) < ENOUGH => return Self::FewValues,
            None => are_apart(tuned, base),
        };
        match load {
            _ if !is_apart => Self::Uncertain,
            Some(load) if load.changed.is_some() => Self::LoadChanged,
            Some(load) if !load.is_alike() => Self::LoadUnknown,
            _ => Self::Certain,
        }
    }
}

/// Whether the values do not overlap.
fn are_apart(this: Performance, other: Performance) -> bool {
    let both = this.common(other, true);
    both.is_some_and(|(this, other, _)| this.max < other.min || other.max < this.min)
}

#[cfg(test)]
mod tests {
    use hugepilot_stats::Spread;

    use super::super::{Load, LoadNumber};
    use super::*;

    fn certainty(base: &[f64], tuned: &[f64]) -> Certainty {
        let performance = |values: &[f64]| Performance {
            progress: Spread::of(values),
            values: values.len() as u64,
            ..Performance::default()
        };
        Certainty::of(performance(base), performance(tuned), None, None)
    }

    #[test]
    fn values_that_precede_the_others_are_certain_only_under_the_same_load() {
        let performance = |values: &[f64]| Performance {
            progress: Spread::of(values),
            values: values.len() as u64,
            ..Performance::default()
        };
        let (base, better) = ([1.0, 1.1, 1.2, 1.3, 1.4], [2.0, 2.1, 2.2, 2.3, 2.4]);
        let of = |tuned: &[f64], load| {
            Certainty::of(performance(&base), performance(tuned), None, Some(&load))
        };
        let known = Some(Load::default());
        let alike = LoadReport { before: known, after: known, changed: None };
        let changed = LoadReport { changed: Some(LoadNumber::OtherCpus), ..alike };
        let unknown = LoadReport { before: None, ..alike };
        assert_eq!(of(&better, alike), Certainty::Certain);
        assert_eq!(of(&better, changed), Certainty::LoadChanged);
        assert_eq!(of(&better, unknown), Certainty::LoadUnknown);
        assert_eq!(of(&base, changed), Certainty::Uncertain, "they overlap");
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
        let certainty = |low, high| Certainty::of(one, one, Some(Interval { low, high }), None);
        assert_eq!(certainty(1.01, 1.2), Certainty::Certain);
        assert_eq!(certainty(0.8, 0.99), Certainty::Certain);
        assert_eq!(certainty(0.99, 1.2), Certainty::Uncertain);
    }
}
