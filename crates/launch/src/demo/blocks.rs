//! Comparison of three copies of a workload that run interleaved, in blocks of short windows. Pure.
//!
//! A machine's speed drifts by tens of percent within seconds, so only windows of one block are
//! compared with each other. A report has medians over blocks.

use hugepilot_reports::tune::{Interval, Performance, Runs, SpeedRatio, TuneWarning};
use hugepilot_stats::{Ratios, Rounds, Spread, sorted};

/// Copies that are compared.
pub(super) const COPIES: usize = 3;
/// Never promoted: the reference.
pub(super) const BASE: usize = 0;
/// Tuned.
pub(super) const TUNED: usize = 1;
/// All memory promoted.
pub(super) const ALL_HUGE: usize = 2;

/// Median over blocks of a ratio of throughputs. Below six blocks, it has no confidence interval.
fn ratio(ratios: &Ratios) -> Option<SpeedRatio> {
    let interval = ratios.interval().map(|(low, high)| Interval { low, high });
    Some(SpeedRatio { median: ratios.median()?, interval })
}

/// Speed of copy [`BASE`] over the mean (geometric) of all copies, all on base pages.
///
/// The base pages of each copy lie elsewhere in physical memory, which makes some copies faster. A
/// promotion moves memory again, so this difference does not outlast it. The mean is a steadier
/// reference than one copy.
fn base_over_mean(alike: &Rounds<f64>) -> f64 {
    let over_base = |copy| alike.ratios(copy, BASE).median();
    let product = over_base(TUNED).zip(over_base(ALL_HUGE)).map(|(one, other)| one * other);
    product.map_or(1.0, |product| product.cbrt().recip())
}

/// The throughput of each copy with the speedups, and the doubt about the share of the gain.
/// `alike` are blocks with all copies on base pages, `blocks` those after promotion. `is_all_huge`:
/// whether all memory of copy [`ALL_HUGE`] could be promoted.
///
/// A block in which a copy reports no work does not count: the copy probably got no CPU, which says
/// nothing about its pages.
pub(super) fn compared(
    alike: &Rounds<f64>,
    blocks: &Rounds<f64>,
    is_all_huge: bool,
) -> (Runs, Option<TuneWarning>) {
    let (alike, blocks) = (alike.positive(), blocks.positive());
    let performance = |copy: usize| {
        let values: Vec<f64> = blocks.of(copy).copied().collect();
        let ops_per_second = Some(Spread::of(&values)?);
        let values = values.len() as u64;
        Some(Performance { ops_per_second, values, ..Performance::default() })
    };
    let reference = base_over_mean(&alike);
    let over_base = |copy| ratio(&blocks.ratios(copy, BASE).times(reference));
    let runs = Runs {
        baseline: performance(BASE),
        tuned: performance(TUNED),
        speedup: over_base(TUNED),
        ..Runs::default()
    };
    // Directly compared, noise of the base copy does not enter the share of the gain.
    let of_all_huge = ratio(&blocks.ratios(TUNED, ALL_HUGE)).filter(|_| is_all_huge);
    let Some((all_huge, of_all_huge)) = over_base(ALL_HUGE).zip(of_all_huge) else {
        return (runs, None);
    };
    let median = (all_huge.median * of_all_huge.median - 1.0) / (all_huge.median - 1.0);
    let interval = share_interval(all_huge, of_all_huge);
    let is_certain = interval.is_some_and(Interval::is_narrow);
    let runs = Runs {
        all_huge: performance(ALL_HUGE),
        all_huge_speedup: Some(all_huge),
        all_huge_gain: Some(SpeedRatio { median, interval }),
        ..runs
    };
    (runs, (!is_certain).then_some(TuneWarning::UncertainShare { interval }))
}

/// Interval of the share of the all-huge gain: its least and largest value within the intervals of
/// both ratios. `None` if the gain may be zero.
fn share_interval(all_huge: SpeedRatio, of_all_huge: SpeedRatio) -> Option<Interval> {
    let (all_huge, of_all_huge) = (all_huge.interval?, of_all_huge.interval?);
    if all_huge.low <= 1.0 {
        return None;
    }
    let corners = [all_huge.low, all_huge.high].into_iter().flat_map(|all_huge| {
        [of_all_huge.low, of_all_huge.high]
            .map(|of_all_huge| (all_huge * of_all_huge - 1.0) / (all_huge - 1.0))
    });
    let corners = sorted(corners);
    Some(Interval { low: *corners.first()?, high: *corners.last()? })
}

#[cfg(test)]
mod tests;
