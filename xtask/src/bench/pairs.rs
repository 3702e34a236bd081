//! Text of measurements that were taken in interleaved rounds.

use hugepilot_stats::{Ratios, Spread};

/// Describes ratios: median, its confidence interval, minimum, maximum, count.
pub(super) fn line(ratios: &Ratios) -> String {
    let Some(Spread { median, min, max }) = ratios.spread() else { return none() };
    let interval = ratios
        .interval()
        .map_or_else(String::new, |(low, high)| format!(" (95 % certain: {low:.4} to {high:.4})"));
    let count = ratios.count();
    format!("median {median:.4}{interval}, from {min:.4} to {max:.4}, {count} pairs")
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

#[cfg(test)]
mod tests {
    use super::*;
    use hugepilot_stats::Rounds;

    #[test]
    fn ratios_have_a_median_and_a_range() {
        let rounds = Rounds::from_iter([[2.0, 1.0], [4.0, 3.0], [3.0, 3.0]].map(Vec::from));
        let ratios = rounds.ratios(1, 0);
        assert_eq!(spread(ratios.spread(), 1), "0.8 (0.5–1.0)");
        assert_eq!(line(&ratios), "median 0.7500, from 0.5000 to 1.0000, 3 pairs");
        assert_eq!(line(&Rounds::<f64>::default().ratios(1, 0)), "-");
    }
}
