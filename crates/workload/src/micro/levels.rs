//! Levels of the TLB in latencies by number of pages.

use hugepilot_reports::lab::{TlbLevel, TlbPoint};
use hugepilot_stats::median;

/// Smallest rise of a level, in nanoseconds: about two cycles.
const MIN_RISE_NS: f64 = 0.8;
/// Smallest rise of a level, relative to the level.
const MIN_RISE_RATIO: f64 = 0.35;

/// Divides the points into levels, by ascending number of pages.
///
/// Translations do not get faster with more pages, so a rising fit removes most noise. A level ends
/// where the fit leaves it by a step. The next one begins where the fit stops rising: a TLB whose
/// replacement is not the least recently used misses more and more often over some points.
pub(super) fn levels(points: &[TlbPoint], clock_ghz: Option<f64>) -> Vec<TlbLevel> {
    let fit = rising(&points.iter().map(|point| point.translation_ns).collect::<Vec<_>>());
    let (mut levels, mut first) = (Vec::new(), 0);
    while first < points.len() {
        let last = end_of_level(&fit, first);
        let next = start_of_level(&fit, last);
        let translation_ns = median(fit[first..=last].iter().copied()).unwrap_or(0.0).max(0.0);
        levels.push(TlbLevel {
            holds_pages: next.map(|_| points[last].page_count),
            exceeded_pages: next.map(|_| points[last + 1].page_count),
            translation_ns,
            translation_cycles: clock_ghz.map(|ghz| translation_ns * ghz),
        });
        first = next.unwrap_or(points.len());
    }
    levels
}

/// Whether `to` is above the level of `from`.
fn is_step(from: f64, to: f64) -> bool {
    to - from > MIN_RISE_NS.max(from * MIN_RISE_RATIO)
}

/// Returns the last point of the level that begins at `first`.
fn end_of_level(fit: &[f64], first: usize) -> usize {
    let mut last = first;
    while last + 1 < fit.len() {
        let level = median(fit[first..=last].iter().copied()).unwrap_or(0.0);
        if is_step(level, fit[last + 1]) {
            break;
        }
        last += 1;
    }
    last
}

/// Returns the first point of the level after `last`; `None` at the end.
fn start_of_level(fit: &[f64], last: usize) -> Option<usize> {
    let mut start = last + 1;
    // On the slope, each point is a step above the one before.
    while start + 1 < fit.len() && is_step(fit[start], fit[start + 1]) {
        start += 1;
    }
    (start < fit.len()).then_some(start)
}

/// Returns the closest values that never fall (isotonic regression by pooling adjacent violators).
fn rising(values: &[f64]) -> Vec<f64> {
    let mut pools: Vec<(f64, usize)> = Vec::new();
    for &value in values {
        pools.push((value, 1));
        while let [.., (before, many), (after, few)] = pools[..]
            && before > after
        {
            let count = many + few;
            let mean = (before * many as f64 + after * few as f64) / count as f64;
            pools.truncate(pools.len() - 2);
            pools.push((mean, count));
        }
    }
    pools.iter().flat_map(|&(mean, count)| std::iter::repeat_n(mean, count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Points at powers of two and half-way between, with `latency` at each number of pages.
    fn points(latency: impl Fn(u64) -> f64) -> Vec<TlbPoint> {
        let counts = (3..=13).flat_map(|bit| [1 << bit, 3 << (bit - 1)]);
        let point = |page_count| {
            let translation_ns = latency(page_count);
            let packed_latency_ns = 2.0;
            let latency_ns = translation_ns + packed_latency_ns;
            TlbPoint { page_count, latency_ns, packed_latency_ns, translation_ns }
        };
        counts.map(point).collect()
    }

    fn found(latency: impl Fn(u64) -> f64) -> Vec<(Option<u64>, f64)> {
        let levels = levels(&points(latency), None);
        levels.iter().map(|level| (level.holds_pages, level.translation_ns)).collect()
    }

    #[test]
    fn sharp_steps_are_levels() {
        let latency = |pages| match pages {
            0..=64 => 0.0,
            65..=2048 => 3.0,
            _ => 14.0,
        };
        assert_eq!(found(latency), [(Some(64), 0.0), (Some(2048), 3.0), (None, 14.0)]);
        let level = &levels(&points(latency), Some(3.0))[1];
        assert_eq!((level.exceeded_pages, level.translation_cycles), (Some(3072), Some(9.0)));
    }

    #[test]
    fn noise_is_no_level() {
        // A fixed pattern of 10 % and 0.3 ns.
        let noise = |pages: u64| if pages.count_ones() == 2 { 1.0 } else { -1.0 };
        let latency = |pages| match pages {
            0..=64 => 0.3 * noise(pages),
            65..=1024 => 4.0 + 0.4 * noise(pages),
            _ => 20.0 + 2.0 * noise(pages),
        };
        let levels = found(latency);
        assert_eq!(
            levels.iter().map(|level| level.0).collect::<Vec<_>>(),
            [Some(64), Some(1024), None]
        );
    }

    #[test]
    fn a_slope_belongs_to_no_level() {
        // Above 96 pages ever more accesses miss.
        let latency = |pages: u64| 10.0 * (1.0 - 96.0 / pages.max(96) as f64);
        let levels = found(latency);
        assert_eq!(levels[0], (Some(96), 0.0));
        let (holds, last) = levels[levels.len() - 1];
        assert!(holds.is_none() && (8.0..10.0).contains(&last), "{levels:?}");
    }

    #[test]
    fn a_flat_curve_has_one_level_and_no_curve_none() {
        assert_eq!(found(|_| 1.0), [(None, 1.0)]);
        assert!(levels(&[], None).is_empty());
    }

    #[test]
    fn the_fit_never_falls_and_keeps_the_mean() {
        assert_eq!(rising(&[1.0, 3.0, 2.0, 4.0, 0.0]), [1.0, 2.25, 2.25, 2.25, 2.25]);
        assert_eq!(rising(&[1.0, 2.0, 3.0]), [1.0, 2.0, 3.0]);
    }
}
