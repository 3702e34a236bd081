//! Comparison of two variants on a machine whose speed drifts.
//!
//! Clocks drift, other virtual machines run, memory fragments: a later measurement sees another
//! machine. Interleaved runs, A B B A A B B A …, cancel a steady drift; the result is the ratio
//! within each pair.

use std::convert::Infallible;
use std::fmt::Write;

use hugepilot_stats::{median_interval, sorted};

/// Measures `a` and `b` interleaved, `count` times each, after one round of both that is discarded.
///
/// Each returns its measurement: a time, a rate, a size. It is a divisor, so not zero.
///
/// # Panics
/// If `count` is 0.
pub(crate) fn pairs(
    count: usize,
    mut a: impl FnMut() -> f64,
    mut b: impl FnMut() -> f64,
) -> PairedStats {
    assert!(count > 0, "at least one pair");
    let Ok(pairs) = interleaved::<_, Infallible>(count, |_| Ok(a()), |_| Ok(b()));
    PairedStats::of(pairs)
}

/// Calls `a` and `b` interleaved with the number of the round. Returns the pairs of rounds 1 to
/// `count`; that of round 0 is discarded.
///
/// # Errors
/// The first error of `a` or `b`.
pub(crate) fn interleaved<T, E>(
    count: usize,
    mut a: impl FnMut(usize) -> Result<T, E>,
    mut b: impl FnMut(usize) -> Result<T, E>,
) -> Result<Vec<(T, T)>, E> {
    let pair = |round: usize| {
        if round.is_multiple_of(2) {
            return Ok((a(round)?, b(round)?));
        }
        let second = b(round)?;
        Ok((a(round)?, second))
    };
    let mut pairs = (0..=count).map(pair).collect::<Result<Vec<_>, E>>()?;
    pairs.remove(0);
    Ok(pairs)
}

/// Pairs of measurements and the spread of their ratios.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PairedStats {
    /// Measurements, in order.
    pub(crate) pairs: Vec<(f64, f64)>,
    /// Median of the ratios b / a.
    pub(crate) median_ratio: f64,
    /// Smallest ratio.
    pub(crate) min_ratio: f64,
    /// Largest ratio.
    pub(crate) max_ratio: f64,
    /// 95 % confidence interval of the median; `None` for fewer than six pairs.
    pub(crate) interval: Option<(f64, f64)>,
}

impl PairedStats {
    pub(super) fn of(pairs: Vec<(f64, f64)>) -> Self {
        let ratios = sorted(pairs.iter().map(|&(a, b)| b / a));
        Self {
            median_ratio: median(&ratios),
            min_ratio: ratios[0],
            max_ratio: ratios[ratios.len() - 1],
            interval: median_interval(&ratios),
            pairs,
        }
    }

    /// Describes the ratios: median, its confidence interval, minimum, maximum, count.
    pub(super) fn line(&self) -> String {
        let Self { pairs, median_ratio, min_ratio, max_ratio, interval } = self;
        let interval = interval.map_or_else(String::new, |(low, high)| {
            format!(" (95 % certain: {low:.4} to {high:.4})")
        });
        let count = pairs.len();
        format!(
            "median {median_ratio:.4}{interval}, from {min_ratio:.4} to {max_ratio:.4}, \
             {count} pairs"
        )
    }

    /// Table with a line for each pair, the medians, and the description of the ratios.
    pub(crate) fn table(&self, a: &str, b: &str, unit: &str) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let mut line = |first: &str, a: &str, b: &str, ratio: &str| {
            let _ = writeln!(text, "{first:<6} {a:>16} {b:>16} {ratio:>8}");
        };
        line("pair", &format!("{a} ({unit})"), &format!("{b} ({unit})"), "ratio");
        for (i, (a, b)) in self.pairs.iter().enumerate() {
            line(
                &(i + 1).to_string(),
                &format!("{a:.4}"),
                &format!("{b:.4}"),
                &format!("{:.4}", b / a),
            );
        }
        let median = |part: fn(&(f64, f64)) -> f64| {
            format!("{:.4}", median(&self.pairs.iter().map(part).collect::<Vec<_>>()))
        };
        line(
            "median",
            &median(|pair| pair.0),
            &median(|pair| pair.1),
            &format!("{:.4}", self.median_ratio),
        );
        let _ = writeln!(text, "{b} / {a}: {}", self.line());
        text
    }
}

/// Median of `values`; NaN if there are none.
pub(crate) fn median(values: &[f64]) -> f64 {
    hugepilot_stats::median(values.iter().copied()).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn runs_are_interleaved_and_the_first_round_is_dropped() {
        let order = RefCell::new(String::new());
        let measure = |name: char, value: f64| {
            order.borrow_mut().push(name);
            if order.borrow().len() <= 2 { 1000.0 } else { value }
        };
        let stats = pairs(3, || measure('a', 2.0), || measure('b', 1.0));
        assert_eq!(*order.borrow(), "abbaabba");
        assert_eq!(stats.pairs, [(2.0, 1.0); 3]);
    }

    #[test]
    fn the_ratio_is_taken_within_each_pair() {
        // The machine becomes 10 times slower half-way; b takes half as long as a throughout.
        let stats = PairedStats::of(vec![(2.0, 1.0), (2.0, 1.2), (20.0, 10.0), (20.0, 9.0)]);
        assert!((stats.median_ratio - 0.5).abs() < 1e-12);
        assert!((stats.min_ratio - 0.45).abs() < 1e-12);
        assert!((stats.max_ratio - 0.6).abs() < 1e-12);
    }

    #[test]
    fn the_table_has_each_pair_and_the_medians() {
        let table = "\
pair            old (s)          new (s)    ratio
1                2.0000           1.0000   0.5000
2                4.0000           3.0000   0.7500
3                3.0000           3.0000   1.0000
median           3.0000           3.0000   0.7500
new / old: median 0.7500, from 0.5000 to 1.0000, 3 pairs
";
        assert_eq!(
            PairedStats::of(vec![(2.0, 1.0), (4.0, 3.0), (3.0, 3.0)]).table("old", "new", "s"),
            table
        );
    }
}
