//! Confidence sequences: intervals that hold at all times at once. A measurement may be read after
//! each sample, and stopped by its own result.

/// Samples at which the sequence is tightest.
const TUNED_FOR: f64 = 300.0;

/// Half-width of the confidence sequence of a mean, from its standard error after `samples`
/// samples.
///
/// With probability `1 - alpha` the true value never leaves the interval, however often it is read.
/// An interval for one reading, `1.96 * standard_error` at 0.05, does not have this property.
/// Source: normal mixture (Robbins, *Statistical methods related to the law of the iterated
/// logarithm*, 1970), with the variance estimated.
///
/// Infinite without samples.
pub fn sequence_margin(standard_error: f64, samples: f64, alpha: f64) -> f64 {
    if samples <= 0.0 {
        return f64::INFINITY;
    }
    let ratio = (samples + TUNED_FOR) / samples;
    let log = ((samples + TUNED_FOR) / (TUNED_FOR * alpha * alpha)).ln();
    standard_error * (ratio * log).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugepilot_testkit::Rng;

    #[test]
    fn the_margin_is_wider_than_that_of_one_reading() {
        for samples in [10.0, 300.0, 1e4, 1e6] {
            let margin = sequence_margin(1.0, samples, 0.05);
            assert!((2.6..15.0).contains(&margin), "{samples}: {margin}");
        }
        assert!(sequence_margin(1.0, 0.0, 0.05).is_infinite());
    }

    /// A fair walk that is read after each step leaves the interval in at most 5 % of the runs; the
    /// interval of one reading is left by most.
    #[test]
    fn reading_at_all_times_is_allowed() {
        let mut rng = Rng::new(7);
        let (mut outside, mut outside_fixed) = (0, 0);
        const RUNS: u32 = 400;
        for _ in 0..RUNS {
            let (mut sum, mut left, mut left_fixed) = (0.0, false, false);
            for step in 1..=3000_u32 {
                let n = f64::from(step);
                sum += rng.normal();
                let error = 1.0 / n.sqrt();
                left |= (sum / n).abs() > sequence_margin(error, n, 0.05);
                left_fixed |= (sum / n).abs() > 1.96 * error;
            }
            outside += u32::from(left);
            outside_fixed += u32::from(left_fixed);
        }
        assert!(outside <= RUNS / 20, "{outside}");
        assert!(outside_fixed > RUNS / 3, "{outside_fixed}");
    }
}
