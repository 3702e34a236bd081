//! Change points: the times at which the mean of a series changes.
//!
//! Optimal partitioning (Jackson et al., *An algorithm for optimal partitioning of data on an
//! interval*, IEEE Signal Processing Letters 2005): of all partitions it finds the one with the
//! least sum of squared deviations plus a penalty for each segment. Several series have their
//! change points in common.

/// Share of the differences of neighbours that are the smallest: the others may be changes.
const USUAL: f64 = 0.95;
/// Standard deviation of normal noise over the root mean square of these.
const NORMAL_OVER_USUAL: f64 = 1.148;
/// Factor of the logarithm in the penalty. The Bayesian criterion has 1 for each parameter; more
/// makes up for noise that is not independent from slice to slice.
const PENALTY: f64 = 4.0;

/// Indices at which a new segment of `series` begins, in ascending order, without 0.
///
/// All series have the same length. Each is scaled by its noise, estimated from the differences of
/// neighbours, so the units do not matter. Segments have at least `min_length` values. Time is
/// quadratic in the length.
#[allow(clippy::cast_precision_loss)]
pub fn change_points(series: &[Vec<f64>], min_length: usize) -> Vec<usize> {
    let scaled: Vec<Vec<f64>> = series.iter().filter_map(|values| scaled(values)).collect();
    let Some(length) = scaled.first().map(Vec::len) else { return Vec::new() };
    let penalty = PENALTY * scaled.len() as f64 * (length as f64).ln();
    partition(&scaled, min_length, penalty)
}

/// `values` in units of their noise; `None` for a constant.
fn scaled(values: &[f64]) -> Option<Vec<f64>> {
    let noise = noise(values)?;
    Some(values.iter().map(|value| value / noise).collect())
}

/// Standard deviation of the noise. Differences of neighbours have twice its variance. The largest
/// ones are excluded, so that few changes of the mean do not affect it. Their median would be too
/// small for times that are counted in ticks, of which most differ by less than a tick.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn noise(values: &[f64]) -> Option<f64> {
    let mut squares: Vec<f64> = values.windows(2).map(|pair| (pair[1] - pair[0]).powi(2)).collect();
    squares.sort_by(f64::total_cmp);
    let mean = |squares: &[f64]| squares.iter().sum::<f64>() / squares.len() as f64;
    let usual = mean(&squares[..(squares.len() as f64 * USUAL) as usize]).sqrt();
    // All usual values may repeat exactly.
    let deviation = if usual > 0.0 { usual * NORMAL_OVER_USUAL } else { mean(&squares).sqrt() };
    (deviation > 0.0 && deviation.is_finite()).then(|| deviation / 2.0_f64.sqrt())
}

/// Prefix sums of a series and of its squares.
struct Sums(Vec<(f64, f64)>);

impl Sums {
    fn of(values: &[f64]) -> Self {
        // Around the first value, so that squares lose no digits.
        let origin = values.first().copied().unwrap_or(0.0);
        let mut sums = vec![(0.0, 0.0)];
        let (mut sum, mut squares) = (0.0, 0.0);
        for value in values.iter().map(|value| value - origin) {
            sum += value;
            squares += value * value;
            sums.push((sum, squares));
        }
        Self(sums)
    }

    /// Sum of the squared deviations from the mean of the values from `start` to `end`.
    #[allow(clippy::cast_precision_loss)]
    fn cost(&self, start: usize, end: usize) -> f64 {
        let ((s0, q0), (s1, q1)) = (self.0[start], self.0[end]);
        let sum = s1 - s0;
        (q1 - q0 - sum * sum / (end - start) as f64).max(0.0)
    }
}

/// The partition of least cost plus `penalty` for each segment after the first.
fn partition(series: &[Vec<f64>], min_length: usize, penalty: f64) -> Vec<usize> {
    let sums: Vec<Sums> = series.iter().map(|values| Sums::of(values)).collect();
    let cost = |start, end| sums.iter().map(|sums| sums.cost(start, end)).sum::<f64>();
    let (length, shortest) = (series[0].len(), min_length.max(1));
    // Least cost of the values before an index, and the begin of the last segment in it.
    let mut best = vec![(f64::INFINITY, 0_usize); length + 1];
    best[0] = (-penalty, 0);
    for end in shortest..=length {
        for start in 0..=end - shortest {
            let total = best[start].0 + penalty + cost(start, end);
            if total < best[end].0 {
                best[end] = (total, start);
            }
        }
    }
    let mut points = Vec::new();
    let mut at = best[length].1;
    while at > 0 {
        points.push(at);
        at = best[at].1;
    }
    points.reverse();
    points
}

#[cfg(test)]
mod tests {
    use hugepilot_testkit::Rng;
    use proptest::prelude::*;

    use super::*;

    fn steps(levels: &[(f64, usize)], noise: f64) -> Vec<f64> {
        let mut rng = Rng::new(11);
        let values = levels.iter().flat_map(|&(level, count)| vec![level; count]);
        values.map(|level| level + noise * rng.normal()).collect()
    }

    #[test]
    fn steps_in_noise_are_found_where_they_are() {
        let series = steps(&[(1.0, 60), (4.0, 50), (2.0, 90)], 0.3);
        let points = change_points(&[series], 5);
        assert_eq!(points.len(), 2, "{points:?}");
        assert!(points[0].abs_diff(60) <= 1 && points[1].abs_diff(110) <= 1, "{points:?}");
        let exact = steps(&[(0.0, 30), (7.0, 30)], 0.0);
        assert_eq!(change_points(&[exact], 5), [30]);
    }

    #[test]
    fn noise_and_constants_have_no_change() {
        assert!(change_points(&[steps(&[(3.0, 400)], 1.0)], 5).is_empty());
        assert!(change_points(&[vec![2.0; 50]], 5).is_empty());
        assert!(change_points(&[], 5).is_empty());
        assert!(change_points(&[Vec::new()], 5).is_empty());
    }

    /// CPU time of a busy thread: slices of 100 ms, give or take 0.3 ms, in ticks of 10 ms, of
    /// which one in five is counted in the slice after.
    #[test]
    fn times_in_ticks_have_no_change() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let mut late = 0.0;
            let mut slice = |_| {
                let next = if rng.normal() > 0.84 { 0.01 } else { 0.0 };
                let busy = 0.1 + std::mem::replace(&mut late, next) - next;
                busy / (0.1 + 0.0003 * rng.normal())
            };
            let points = change_points(&[(0..400).map(&mut slice).collect()], 5);
            assert!(points.is_empty(), "{points:?}");
        }
    }

    #[test]
    fn units_do_not_matter_and_series_share_their_changes() {
        let calm = steps(&[(5.0, 120)], 0.2);
        let step = steps(&[(1.0, 70), (3.0, 50)], 0.2);
        let bytes: Vec<f64> = step.iter().map(|value| value * 1e9).collect();
        let points = change_points(&[calm, bytes], 5);
        assert!(points.len() == 1 && points[0].abs_diff(70) <= 1, "{points:?}");
    }

    /// The cost of the partition by definition.
    fn total(series: &[f64], points: &[usize], penalty: f64) -> f64 {
        let bounds: Vec<usize> =
            [0].into_iter().chain(points.iter().copied()).chain([series.len()]).collect();
        let cost = |part: &[f64]| {
            let mean = part.iter().sum::<f64>() / part.len() as f64;
            part.iter().map(|value| (value - mean).powi(2)).sum::<f64>()
        };
        let costs: f64 = bounds.windows(2).map(|pair| cost(&series[pair[0]..pair[1]])).sum();
        costs + penalty * points.len() as f64
    }

    proptest! {
        /// Oracle: all partitions.
        #[test]
        fn no_partition_is_better(
            series in prop::collection::vec((0_u8..6).prop_map(f64::from), 2..11),
            penalty in 0.1_f64..8.0,
            min_length in 1_usize..3,
        ) {
            let found = partition(std::slice::from_ref(&series), min_length, penalty);
            let cost = total(&series, &found, penalty);
            for set in 0_u32..1 << (series.len() - 1) {
                let points: Vec<usize> =
                    (1..series.len()).filter(|at| set >> (at - 1) & 1 == 1).collect();
                let mut bounds = vec![0];
                bounds.extend(&points);
                bounds.push(series.len());
                if bounds.windows(2).all(|pair| pair[1] - pair[0] >= min_length) {
                    prop_assert!(cost <= total(&series, &points, penalty) + 1e-9);
                }
            }
        }
    }
}
