//! Median and range.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Median and range of repeated measurements.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Spread {
    /// Median.
    pub median: f64,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
}

impl Spread {
    /// Summarises `values`; `None` if there are none or one is not finite.
    pub fn of(values: &[f64]) -> Option<Self> {
        let sorted = sorted(values.iter().copied());
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let finite = min.is_finite() && max.is_finite();
        finite.then(|| Self { median: middle(&sorted), min, max })
    }
}

/// Median of `values`: the mean of the middle two if their number is even. `None` if empty.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let sorted = sorted(values);
    (!sorted.is_empty()).then(|| middle(&sorted))
}

/// Median of counts, the lower of the middle two if their number is even; `None` if there are none.
pub fn lower_median(counts: impl IntoIterator<Item = u64>) -> Option<u64> {
    let mut sorted: Vec<u64> = counts.into_iter().collect();
    sorted.sort_unstable();
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}

/// `values` in ascending order, NaN last.
pub fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

/// Median of sorted values, of which there is at least one.
fn middle(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[half] } else { f64::midpoint(sorted[half - 1], sorted[half]) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_the_mean_of_the_middle_two() {
        let spread = |values: &[f64]| Spread::of(values);
        assert_eq!(spread(&[3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(spread(&[4.0, 1.0]).unwrap().median, 2.5);
        assert_eq!(median([4.0, 1.0, 2.0, 9.0]), Some(3.0));
        assert_eq!(lower_median([4, 1, 2, 9]), Some(2));
    }

    #[test]
    fn no_values_have_no_median() {
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[1.0, f64::NAN]), None);
        assert_eq!((median([]), lower_median([])), (None, None));
    }

    proptest! {
        #[test]
        fn half_of_the_values_lie_on_each_side(values in prop::collection::vec(-1e6..1e6, 1..50)) {
            let spread = Spread::of(&values).unwrap();
            let below = values.iter().filter(|&&value| value < spread.median).count();
            let above = values.iter().filter(|&&value| value > spread.median).count();
            prop_assert!(below * 2 <= values.len() && above * 2 <= values.len());
            prop_assert!(spread.min <= spread.median && spread.median <= spread.max);
        }
    }
}
