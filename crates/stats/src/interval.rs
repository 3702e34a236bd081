//! Confidence intervals.

/// 95 % confidence interval of the median of `sorted` values; `None` below six values.
///
/// Order statistics: whether a value lies above or below the median is the toss of a coin, whatever
/// the distribution.
pub(crate) fn median_interval(sorted: &[f64]) -> Option<(f64, f64)> {
    let n = sorted.len();
    // P(fewer than `rank` heads in `n` tosses), built up term by term.
    let (mut term, mut below, mut rank) = (0.5_f64.powi(i32::try_from(n).ok()?), 0.0, 0);
    while below + term <= 0.025 {
        below += term;
        #[allow(clippy::cast_precision_loss)]
        let next = (n - rank) as f64 / (rank + 1) as f64;
        term *= next;
        rank += 1;
    }
    (rank > 0).then(|| (sorted[rank - 1], sorted[n - rank]))
}

/// Two standard errors of a `share` (0 to 1) estimated from `samples` draws.
#[allow(clippy::cast_precision_loss)]
pub fn share_margin(share: f64, samples: u64) -> f64 {
    2.0 * (share * (1.0 - share) / samples.max(1) as f64).max(0.0).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_has_the_ranks_of_published_sign_test_tables() {
        for (n, rank) in [(6_u32, 1), (10, 2), (20, 6), (25, 8), (50, 18)] {
            let values: Vec<f64> = (1..=n).map(f64::from).collect();
            let ranks = Some((f64::from(rank), f64::from(n + 1 - rank)));
            assert_eq!(median_interval(&values), ranks, "{n}");
        }
        assert_eq!(median_interval(&[1.0; 5]), None);
    }

    #[test]
    fn the_margin_of_a_share_shrinks_with_the_root_of_the_samples() {
        assert!((share_margin(0.5, 100) - 0.1).abs() < 1e-12);
        assert!((share_margin(0.5, 10_000) - 0.01).abs() < 1e-12);
        assert_eq!((share_margin(0.0, 10), share_margin(1.0, 0)), (0.0, 0.0));
    }
}
