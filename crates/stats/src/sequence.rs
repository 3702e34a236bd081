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

/// Whether the `first` of two kinds of events comes at more than `odds` times the rate of the
/// `second`, by the counts of both in the same time.
///
/// With probability `1 - alpha` it never says so falsely, however often the counts are read: a
/// uniform mixture of all alternatives exceeds `1 / alpha` times the likelihood at `odds`. Exact
/// for Poisson counts, also small ones. Cost: a logarithm per event of the rarer kind.
/// Source: binomial trials (Robbins, 1970, as above).
#[allow(clippy::cast_precision_loss)]
pub fn rate_exceeds(first: u64, second: u64, odds: f64, alpha: f64) -> bool {
    let (a, b) = (first as f64, second as f64);
    if !odds.is_finite() || a <= odds * b {
        return false;
    }
    let few = first.min(second);
    let ways = (1..=few).map(|k| ((a.max(b) + k as f64) / k as f64).ln()).sum::<f64>();
    let likelihood = ways + a * (odds / (1.0 + odds)).ln() - b * (1.0 + odds).ln();
    (a + b + 1.0).ln() + likelihood < alpha.ln()
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

    /// Events at exactly `odds` times the rate, read after each event, exceed it in at most 5 % of
    /// the runs; a test for one reading says so in more.
    #[test]
    fn rates_at_the_limit_are_hardly_ever_said_to_exceed_it() {
        let mut rng = Rng::new(8);
        for odds in [0.5, 2.0, 10.0] {
            let (mut false_alarms, mut of_one_reading) = (0, 0);
            for _ in 0..400 {
                let (mut counts, mut exceeds, mut seems) = ([0, 0], false, false);
                for _ in 0..1500 {
                    counts[usize::from(rng.unit() * (1.0 + odds) >= odds)] += 1;
                    exceeds |= rate_exceeds(counts[0], counts[1], odds, 0.05);
                    let [a, b] = counts.map(|count| count as f64);
                    let (n, p) = (a + b, odds / (1.0 + odds));
                    seems |= n > 30.0 && a > n * p + 1.65 * (n * p * (1.0 - p)).sqrt();
                }
                false_alarms += u32::from(exceeds);
                of_one_reading += u32::from(seems);
            }
            assert!(false_alarms <= 20, "{odds}: {false_alarms}");
            assert!(of_one_reading > 60, "{odds}: {of_one_reading}");
        }
    }

    #[test]
    fn higher_rates_are_found_with_few_events() {
        // Without an event of the second kind, ln(1.5) of evidence each.
        assert!(rate_exceeds(30, 0, 2.0, 1e-3) && !rate_exceeds(20, 0, 2.0, 1e-3));
        assert!(rate_exceeds(400, 100, 2.0, 1e-6) && !rate_exceeds(40, 10, 2.0, 1e-6));
        // At or below the limit no number of events suffices.
        assert!(!rate_exceeds(200_000, 100_000, 2.0, 0.5));
        assert!(!rate_exceeds(0, 0, 2.0, 1.0) && !rate_exceeds(100, 0, f64::INFINITY, 0.5));
    }

    /// The mixture is a probability: of all outcomes of `n` events, likelihood times mixture sums
    /// to 1.
    #[test]
    fn the_limit_of_one_event_is_that_of_its_probability() {
        // One event of the first kind has the likelihood 2/3 at odds of 2, and the mixture 1/2.
        assert!(rate_exceeds(1, 0, 2.0, 1.34) && !rate_exceeds(1, 0, 2.0, 1.33));
        // Four and one: 5 (2/3)^4 (1/3) · 6 = 1.9753.
        assert!(rate_exceeds(4, 1, 2.0, 1.976) && !rate_exceeds(4, 1, 2.0, 1.975));
    }
}
