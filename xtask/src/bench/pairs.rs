//! Comparing two things on a machine that will not hold still.
//!
//! Clocks drift, neighbours wake up, memory fragments: what is measured later is measured elsewhere. So the two are
//! taken in turn, A B A B …, and what counts is the ratio within each pair.

use std::fmt::Write;

/// Measures `a` and `b` in turn, `count` times each, after one round of both that is thrown away.
///
/// Each returns what it measured: a time, a rate, a size; not zero, because it is divided by.
///
/// # Panics
/// For no pairs.
pub(crate) fn pairs(count: usize, mut a: impl FnMut() -> f64, mut b: impl FnMut() -> f64) -> PairedStats {
    assert!(count > 0, "at least one pair");
    a();
    b();
    // A tuple's parts are evaluated in order: a first.
    PairedStats::of((0..count).map(|_| (a(), b())).collect())
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
}

impl PairedStats {
    fn of(pairs: Vec<(f64, f64)>) -> Self {
        let ratios = sorted(pairs.iter().map(|&(a, b)| b / a));
        Self {
            median_ratio: middle(&ratios),
            min_ratio: ratios[0],
            max_ratio: ratios[ratios.len() - 1],
            pairs,
        }
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
            line(&(i + 1).to_string(), &format!("{a:.4}"), &format!("{b:.4}"), &format!("{:.4}", b / a));
        }
        let median =
            |part: fn(&(f64, f64)) -> f64| format!("{:.4}", middle(&sorted(self.pairs.iter().map(part))));
        line("median", &median(|pair| pair.0), &median(|pair| pair.1), &format!("{:.4}", self.median_ratio));
        let Self { pairs, median_ratio, min_ratio, max_ratio } = self;
        let count = pairs.len();
        let _ = writeln!(
            text,
            "{b} / {a}: median {median_ratio:.4}, from {min_ratio:.4} to {max_ratio:.4}, {count} pairs"
        );
        text
    }
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
        assert_eq!(*order.borrow(), "abababab");
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
        assert_eq!(PairedStats::of(vec![(2.0, 1.0), (4.0, 3.0), (3.0, 3.0)]).table("old", "new", "s"), table);
    }
}
