//! Empirical distributions: quantiles, the cumulative distribution function, burstiness, and the
//! distance of two distributions.

use crate::sorted;

/// Share of the peak above which a value counts as near it.
const NEAR_PEAK: f64 = 0.8;

/// Finite values in ascending order.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    sorted: Vec<f64>,
}

/// How far the values of a metric are from their average.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Burstiness {
    /// Mean.
    pub mean: f64,
    /// Largest value.
    pub peak: f64,
    /// Peak divided by the mean; 1 for a constant. `None` unless the mean is positive.
    pub peak_over_mean: Option<f64>,
    /// Share of the values above 80 % of the peak. `None` unless the peak is positive.
    pub near_peak_ratio: Option<f64>,
}

impl Distribution {
    /// Sorts the finite ones of `values`; `None` without any.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let sorted = sorted(values.into_iter().filter(|value| value.is_finite()));
        (!sorted.is_empty()).then_some(Self { sorted })
    }

    /// Number of values.
    pub fn count(&self) -> usize {
        self.sorted.len()
    }

    /// Value below or at which the share `q` of the values lies: the smallest such value.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    pub fn quantile(&self, q: f64) -> f64 {
        let rank = (q.clamp(0.0, 1.0) * self.sorted.len() as f64).ceil() as usize;
        self.sorted[rank.saturating_sub(1).min(self.sorted.len() - 1)]
    }

    /// Mean, peak, and the share of the values near the peak.
    #[allow(clippy::cast_precision_loss)]
    pub fn burstiness(&self) -> Burstiness {
        let count = self.sorted.len() as f64;
        let mean = self.sorted.iter().sum::<f64>() / count;
        let peak = self.quantile(1.0);
        let below = self.sorted.partition_point(|&value| value <= NEAR_PEAK * peak);
        Burstiness {
            mean,
            peak,
            peak_over_mean: (mean > 0.0).then(|| peak / mean),
            near_peak_ratio: (peak > 0.0).then(|| 1.0 - below as f64 / count),
        }
    }

    /// Points of the cumulative distribution function: a value, and the share of the values up to
    /// it. At most `limit` points, evenly spread over the shares, both ends included.
    #[allow(clippy::cast_precision_loss)]
    pub fn cdf(&self, limit: usize) -> Vec<(f64, f64)> {
        let count = self.sorted.len();
        let steps: Vec<(f64, f64)> = (0..count)
            .filter(|&at| at + 1 == count || self.sorted[at + 1] > self.sorted[at])
            .map(|at| (self.sorted[at], (at + 1) as f64 / count as f64))
            .collect();
        let limit = limit.max(2);
        if steps.len() <= limit {
            return steps;
        }
        (0..limit).map(|at| steps[at * (steps.len() - 1) / (limit - 1)]).collect()
    }

    /// Largest difference between the cumulative distribution functions of both: 0 for the same
    /// distribution, 1 for distributions without overlap (the statistic of Kolmogorov and Smirnov).
    #[allow(clippy::cast_precision_loss)]
    pub fn distance(&self, other: &Self) -> f64 {
        let (a, b) = (&self.sorted, &other.sorted);
        let (mut i, mut j, mut largest) = (0, 0, 0.0_f64);
        while i < a.len() && j < b.len() {
            let value = a[i].min(b[j]);
            i += a[i..].iter().take_while(|&&next| next <= value).count();
            j += b[j..].iter().take_while(|&&next| next <= value).count();
            let difference = i as f64 / a.len() as f64 - j as f64 / b.len() as f64;
            largest = largest.max(difference.abs());
        }
        largest
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[f64]) -> Distribution {
        Distribution::of(values.iter().copied()).unwrap()
    }

    #[test]
    fn quantiles_and_points_are_those_of_the_definition() {
        let four = of(&[4.0, 1.0, 2.0, 2.0]);
        let quantiles = [0.0, 0.25, 0.5, 0.75, 0.76, 1.0].map(|q| four.quantile(q));
        assert_eq!(quantiles, [1.0, 1.0, 2.0, 2.0, 4.0, 4.0]);
        assert_eq!(four.cdf(9), [(1.0, 0.25), (2.0, 0.75), (4.0, 1.0)]);
        assert_eq!(four.cdf(2), [(1.0, 0.25), (4.0, 1.0)]);
        assert_eq!(Distribution::of([f64::NAN, f64::INFINITY]), None);
    }

    #[test]
    fn a_burst_is_far_above_the_mean_and_short() {
        let calm = of(&[5.0; 10]).burstiness();
        assert_eq!((calm.peak_over_mean, calm.near_peak_ratio), (Some(1.0), Some(1.0)));
        let mut values = [1.0; 10];
        values[3] = 11.0;
        let burst = of(&values).burstiness();
        assert_eq!((burst.mean, burst.peak, burst.peak_over_mean), (2.0, 11.0, Some(5.5)));
        assert!((burst.near_peak_ratio.unwrap() - 0.1).abs() < 1e-12);
        let zero = of(&[0.0, 0.0]).burstiness();
        assert_eq!((zero.peak_over_mean, zero.near_peak_ratio), (None, None));
    }

    /// The distance by its definition: over all values of both.
    fn slow_distance(a: &[f64], b: &[f64]) -> f64 {
        let share = |values: &[f64], at: f64| {
            values.iter().filter(|&&value| value <= at).count() as f64 / values.len() as f64
        };
        a.iter().chain(b).map(|&at| (share(a, at) - share(b, at)).abs()).fold(0.0, f64::max)
    }

    proptest! {
        #[test]
        fn the_distance_is_that_of_its_definition(
            a in prop::collection::vec((0_u8..9).prop_map(f64::from), 1..20),
            b in prop::collection::vec((0_u8..9).prop_map(f64::from), 1..20),
        ) {
            let distance = of(&a).distance(&of(&b));
            prop_assert!((distance - slow_distance(&a, &b)).abs() < 1e-12);
            prop_assert!((of(&b).distance(&of(&a)) - distance).abs() < 1e-12);
            prop_assert_eq!(of(&a).distance(&of(&a)), 0.0);
        }
    }
}
