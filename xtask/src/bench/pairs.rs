//! Comparing two things on a machine that will not hold still.
//!
//! Clocks drift, neighbours wake up, memory fragments: what is measured later is measured elsewhere. So the two are
//! taken in turn, A B B A A B B A …, which cancels a steady drift, and what counts is the ratio within each pair.

use std::fmt::Write;

/// Measures `a` and `b` in turn, `count` times each, after one round of both that is thrown away.
///
/// Each returns what it measured: a time, a rate, a size; not zero, because it is divided by.
///
/// # Panics
/// For no pairs.
pub(crate) fn pairs(
    count: usize,
    mut a: impl FnMut() -> f64,
    mut b: impl FnMut() -> f64,
) -> PairedStats {
    assert!(count > 0, "at least one pair");
    a();
    b();
    let pair = |turn: usize| {
        if turn % 2 == 1 {
            return (a(), b());
        }
        let second = b();
        (a(), second)
    };
    PairedStats::of((0..count).map(pair).collect())
}

/// Pairs of measurements, and the spread of their ratios.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PairedStats {
    /// What was measured, in order.
    pub(crate) pairs: Vec<(f64, f64)>,
    /// The middle one of the ratios b / a.
    pub(crate) median_ratio: f64,
    /// The smallest.
    pub(crate) min_ratio: f64,
    /// The largest.
    pub(crate) max_ratio: f64,
    /// Where the true median lies, with 95 % certainty; `None` for fewer than six pairs.
    pub(crate) certain: Option<(f64, f64)>,
}

impl PairedStats {
    pub(super) fn of(pairs: Vec<(f64, f64)>) -> Self {
        let ratios = sorted(pairs.iter().map(|&(a, b)| b / a));
        Self {
            median_ratio: middle(&ratios),
            min_ratio: ratios[0],
            max_ratio: ratios[ratios.len() - 1],
            certain: certain(&ratios),
            pairs,
        }
    }

    /// The ratios in words: their median, where the true one lies, the least and the most.
    pub(super) fn line(&self) -> String {
        let Self { pairs, median_ratio, min_ratio, max_ratio, certain } = self;
        let certain = certain.map_or_else(String::new, |(low, high)| {
            format!(" (95 % certain: {low:.4} to {high:.4})")
        });
        let count = pairs.len();
        format!(
            "median {median_ratio:.4}{certain}, from {min_ratio:.4} to {max_ratio:.4}, {count} pairs"
        )
    }

    /// One line for each pair, the medians, and the ratios in words.
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
            format!("{:.4}", middle(&sorted(self.pairs.iter().map(part))))
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

/// The 95 % confidence interval of the median, by order statistics: whether a value lies above or below it is the toss of a
/// coin, whatever the distribution.
fn certain(sorted: &[f64]) -> Option<(f64, f64)> {
    let n = sorted.len();
    // Chance of fewer than `k` heads in `n` tosses, built up term by term.
    let (mut term, mut below, mut k) = (0.5_f64.powi(i32::try_from(n).ok()?), 0.0, 0);
    while below + term <= 0.025 {
        below += term;
        #[allow(clippy::cast_precision_loss)]
        let next = (n - k) as f64 / (k + 1) as f64;
        term *= next;
        k += 1;
    }
    (k > 0).then(|| (sorted[k - 1], sorted[n - k]))
}

/// The median of `values`; NaN of none.
pub(crate) fn median(values: &[f64]) -> f64 {
    if values.is_empty() { f64::NAN } else { middle(&sorted(values.iter().copied())) }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The median of what is sorted and not empty.
fn middle(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[half] } else { f64::midpoint(sorted[half - 1], sorted[half]) }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn the_two_take_turns_and_the_first_round_is_dropped() {
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

    /// Ranks as tables of the sign test have them.
    #[test]
    fn the_interval_has_the_ranks_of_the_sign_test() {
        for (n, rank) in [(6_u32, 1), (10, 2), (20, 6), (25, 8), (50, 18)] {
            let values: Vec<f64> = (1..=n).map(f64::from).collect();
            assert_eq!(certain(&values), Some((f64::from(rank), f64::from(n + 1 - rank))), "{n}");
        }
        assert_eq!(certain(&[1.0; 5]), None);
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
