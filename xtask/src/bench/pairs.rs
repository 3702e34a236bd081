//! Text of measurements that were taken in interleaved rounds.

use std::fmt::Write;

use hugepilot_stats::{Ratios, Rounds, Spread};

/// Describes ratios: median, its confidence interval, minimum, maximum, count.
pub(super) fn line(ratios: &Ratios) -> String {
    let Some(Spread { median, min, max }) = ratios.spread() else { return none() };
    let interval = ratios
        .interval()
        .map_or_else(String::new, |(low, high)| format!(" (95 % certain: {low:.4} to {high:.4})"));
    let count = ratios.count();
    format!("median {median:.4}{interval}, from {min:.4} to {max:.4}, {count} pairs")
}

/// Table of two variants by name: a line for each round, the medians, and the ratios of the second
/// to the first.
pub(super) fn table(rounds: &Rounds<f64>, [a, b]: [&str; 2], unit: &str) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let mut add = |first: &str, a: &str, b: &str, ratio: &str| {
        let _ = writeln!(text, "{first:<6} {a:>16} {b:>16} {ratio:>8}");
    };
    let shown = |value: f64| format!("{value:.4}");
    add("pair", &format!("{a} ({unit})"), &format!("{b} ({unit})"), "ratio");
    for (at, (&a, &b)) in (1..).zip(rounds.of(0).zip(rounds.of(1))) {
        add(&format!("{at}"), &shown(a), &shown(b), &shown(b / a));
    }
    let ratios = rounds.ratios(1, 0);
    let ratio = ratios.median().map_or_else(none, shown);
    add("median", &shown(rounds.median(0)), &shown(rounds.median(1)), &ratio);
    let _ = writeln!(text, "{b} / {a}: {}", line(&ratios));
    text
}

/// Median with minimum and maximum: `1.20 (1.10–1.30)`.
pub(super) fn spread(of: Option<Spread>, digits: usize) -> String {
    let text =
        |Spread { median, min, max }| format!("{median:.digits$} ({min:.digits$}–{max:.digits$})");
    of.map_or_else(none, text)
}

/// Median and range of `values`.
pub(super) fn spread_of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
    Spread::of(&values.into_iter().collect::<Vec<_>>())
}

/// Cell without a value.
pub(super) fn none() -> String {
    "-".to_owned()
}

/// Median of `values`; NaN if there are none.
pub(super) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    hugepilot_stats::median(values).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_each_pair_and_the_medians() {
        let expected = "\
pair            old (s)          new (s)    ratio
1                2.0000           1.0000   0.5000
2                4.0000           3.0000   0.7500
3                3.0000           3.0000   1.0000
median           3.0000           3.0000   0.7500
new / old: median 0.7500, from 0.5000 to 1.0000, 3 pairs
";
        let rounds = Rounds::from_iter([[2.0, 1.0], [4.0, 3.0], [3.0, 3.0]].map(Vec::from));
        assert_eq!(table(&rounds, ["old", "new"], "s"), expected);
        assert_eq!(spread(rounds.ratios(1, 0).spread(), 1), "0.8 (0.5–1.0)");
        assert_eq!(line(&Rounds::default().ratios(1, 0)), "-");
    }
}
