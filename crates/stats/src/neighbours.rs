//! Shrinkage of counts towards the mean of their neighbours.
//!
//! Memory is often hot in runs: where a neighbour was sampled, a region without a sample of its own
//! is probably hot, too. How far that holds differs between mappings, so the counts themselves
//! decide. Each count is drawn towards the mean of its `reach` neighbours on either side, with the
//! weight of `weight` observations. Both numbers have the greatest leave-one-out likelihood: of all
//! counts, given only their neighbours, under a Poisson law whose rate has a gamma prior
//! (negative binomial). A uniformly hot mapping gets the largest reach and weight, a mapping with
//! scattered hot regions a small weight, which leaves the counts as they are.
//!
//! Each count has an exposure: a region that is counted at half of its rate, as a huge page may be,
//! has 0.5. Rates are those at an exposure of 1.

/// Neighbours on either side. [`usize::MAX`] stands for the whole mapping.
const REACHES: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, usize::MAX];
/// Observations that the neighbours are worth.
const WEIGHTS: [f64; 10] = [0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0];
/// Sum of neighbours that were all counted as zero: half an event.
const UNSEEN: f64 = 0.5;

/// Fitted shrinkage of the counts of one mapping, in address order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NeighbourShrinkage {
    /// Neighbours on either side; [`usize::MAX`] for all.
    pub reach: usize,
    /// Observations that the mean of the neighbours is worth.
    pub weight: f64,
}

impl NeighbourShrinkage {
    /// Fits reach and weight to `counts` with these positive `exposures`; `None` for fewer than two
    /// counts, or if all are zero.
    ///
    /// Cost: 80 passes over the counts.
    pub fn fit(counts: &[u32], exposures: &[f64]) -> Option<Self> {
        if counts.len() < 2 || counts.iter().all(|&count| count == 0) {
            return None;
        }
        let sums = prefix_sums(counts, exposures);
        let candidates = REACHES.into_iter().flat_map(|reach| {
            let means = means(&sums, reach);
            let likelihood = |weight| likelihood(counts, exposures, &means, weight);
            WEIGHTS.map(|weight| (likelihood(weight), Self { reach, weight }))
        });
        candidates.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, fitted)| fitted)
    }

    /// Expected count of each region at an exposure of 1.
    pub fn expected(&self, counts: &[u32], exposures: &[f64]) -> Vec<f64> {
        let means = means(&prefix_sums(counts, exposures), self.reach);
        let shrunken = |((&count, &exposure), mean): ((&u32, &f64), f64)| {
            (f64::from(count) + self.weight * mean) / (exposure + self.weight)
        };
        counts.iter().zip(exposures).zip(means).map(shrunken).collect()
    }
}

/// `sums[i]` has the sums of the first `i` counts and of their exposures.
fn prefix_sums(counts: &[u32], exposures: &[f64]) -> Vec<[f64; 2]> {
    let mut sums = Vec::with_capacity(counts.len() + 1);
    let mut sum = [0.0, 0.0];
    sums.push(sum);
    for (&count, &exposure) in counts.iter().zip(exposures) {
        sum = [sum[0] + f64::from(count), sum[1] + exposure];
        sums.push(sum);
    }
    sums
}

/// Mean of the neighbours of each region, without the region itself. Above zero: neighbours without
/// an event count as half an event.
fn means(sums: &[[f64; 2]], reach: usize) -> Vec<f64> {
    let between = |from: usize, to: usize| [0, 1].map(|of| sums[to][of] - sums[from][of]);
    let count = sums.len() - 1;
    let mean = |i: usize| {
        let from = i.saturating_sub(reach);
        let to = i.saturating_add(reach).saturating_add(1).min(count);
        let ([before, exposed_before], [after, exposed_after]) =
            (between(from, i), between(i + 1, to));
        (before + after).max(UNSEEN) / (exposed_before + exposed_after)
    };
    (0..count).map(mean).collect()
}

/// Logarithm of the probability of all counts, each given the mean of its neighbours, up to a term
/// that depends on the counts and exposures alone.
fn likelihood(counts: &[u32], exposures: &[f64], means: &[f64], weight: f64) -> f64 {
    let logs = |exposure: f64| {
        let all = weight + exposure;
        ((weight / all).ln(), (1.0 / all).ln())
    };
    let whole = logs(1.0);
    let of_one = |((&count, &exposure), &mean): ((&u32, &f64), &f64)| {
        let shape = weight * mean;
        // Gamma(shape + count) / Gamma(shape), as a product.
        let rises: f64 = (0..count).map(|step| (shape + f64::from(step)).ln()).sum();
        let (none, one) = if exposure < 1.0 { logs(exposure) } else { whole };
        rises + shape * none + f64::from(count) * one
    };
    counts.iter().zip(exposures).zip(means).map(of_one).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use hugepilot_testkit::Rng;

    fn fit_and_expect(counts: &[u32]) -> (NeighbourShrinkage, Vec<f64>) {
        let exposures = vec![1.0; counts.len()];
        let fitted = NeighbourShrinkage::fit(counts, &exposures).unwrap();
        (fitted, fitted.expected(counts, &exposures))
    }

    #[test]
    fn a_uniformly_hot_mapping_is_hot_everywhere() {
        let mut rng = Rng::new(1);
        let counts: Vec<u32> = (0..2000).map(|_| rng.poisson(0.3)).collect();
        let (fitted, expected) = fit_and_expect(&counts);
        assert!(fitted.weight >= 30.0, "{fitted:?}");
        assert!(expected.iter().all(|&rate| (0.2..0.4).contains(&rate)), "{fitted:?}");
    }

    #[test]
    fn scattered_hot_regions_do_not_heat_their_neighbours() {
        let mut rng = Rng::new(2);
        let hot: Vec<bool> = (0..2000).map(|_| rng.unit() < 0.06).collect();
        let counts: Vec<u32> =
            hot.iter().map(|&hot| if hot { rng.poisson(6.0) } else { 0 }).collect();
        let (fitted, expected) = fit_and_expect(&counts);
        assert!(fitted.weight <= 1.0, "{fitted:?}");
        let cold = expected.iter().zip(&hot).filter(|(_, hot)| !**hot);
        assert!(cold.clone().all(|(&rate, _)| rate < 0.5 * 6.0), "{fitted:?}");
    }

    #[test]
    fn a_run_of_hot_regions_fills_its_gaps() {
        let mut rng = Rng::new(3);
        let rate = |i: usize| if (400..800).contains(&i) { 1.0 } else { 0.0 };
        let counts: Vec<u32> = (0..2000).map(|i| rng.poisson(rate(i))).collect();
        let (fitted, expected) = fit_and_expect(&counts);
        assert!(fitted.reach < 400, "{fitted:?}");
        assert!(expected[410..790].iter().all(|&rate| rate > 0.3));
        assert!(expected[..300].iter().chain(&expected[900..]).all(|&rate| rate < 0.1));
    }

    #[test]
    fn nothing_is_fitted_to_nothing() {
        assert_eq!(NeighbourShrinkage::fit(&[], &[]), None);
        assert_eq!(NeighbourShrinkage::fit(&[7], &[1.0]), None);
        assert_eq!(NeighbourShrinkage::fit(&[0; 9], &[1.0; 9]), None);
    }

    /// Half of the regions are counted at a fifth of their rate.
    #[test]
    fn regions_of_one_rate_are_expected_alike_whatever_their_exposure() {
        let mut rng = Rng::new(4);
        let exposures: Vec<f64> = (0..800).map(|i| if i % 2 == 0 { 1.0 } else { 0.2 }).collect();
        let counts: Vec<u32> = exposures.iter().map(|share| rng.poisson(5.0 * share)).collect();
        let fitted = NeighbourShrinkage::fit(&counts, &exposures).unwrap();
        let expected = fitted.expected(&counts, &exposures);
        assert!(fitted.weight >= 10.0, "{fitted:?}");
        assert!(expected.iter().all(|rate| (4.0..6.0).contains(rate)), "{fitted:?}");
        let (_, of_counts) = fit_and_expect(&counts);
        assert!(of_counts.iter().any(|rate| *rate < 3.0));
    }

    /// The likelihood of a count of at most 3, written as the closed forms of the first moments.
    #[test]
    fn probabilities_of_a_count_sum_to_one() {
        let (mean, weight) = (1.3, 2.0);
        for exposure in [1.0, 0.3_f64] {
            let (mut factorial, mut sum) = (1.0, 0.0);
            for count in 0..60_u32 {
                factorial *= f64::from(count.max(1));
                let of_counts = exposure.powf(f64::from(count)) / factorial;
                sum += likelihood(&[count], &[exposure], &[mean], weight).exp() * of_counts;
            }
            assert!((sum - 1.0).abs() < 1e-9, "{exposure}: {sum}");
        }
    }

    proptest! {
        #[test]
        fn expectations_lie_between_count_and_neighbours(
            counts in prop::collection::vec(0_u32..40, 2..80),
        ) {
            let exposures = vec![1.0; counts.len()];
            let fitted = NeighbourShrinkage::fit(&counts, &exposures);
            let Some(fitted) = fitted else { return Ok(()) };
            let means = means(&prefix_sums(&counts, &exposures), fitted.reach);
            let expected = fitted.expected(&counts, &exposures);
            for ((&count, mean), rate) in counts.iter().zip(means).zip(expected) {
                let (low, high) = (mean.min(f64::from(count)), mean.max(f64::from(count)));
                prop_assert!((low - 1e-9..=high + 1e-9).contains(&rate));
            }
        }
    }
}
