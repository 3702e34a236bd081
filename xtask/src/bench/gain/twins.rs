//! Comparison of a process with an untouched twin, in alternating slices on one CPU.
//!
//! The speed of a virtual CPU varies within seconds by more than most gains, and from one CPU to
//! the other. So both processes run on the same CPU, one at a time.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hugepilot_stats::median;

use super::record::Window;
use super::target::Target;

/// Pairs of slices at least, for programs whose operations take seconds.
const MIN_SLICES: usize = 3;

/// Alternates both until each has run for `window`. Both are stopped afterwards.
pub(super) fn compare(
    target: &mut Target<'_>,
    twin: &mut Target<'_>,
    window: Duration,
) -> Result<Window> {
    for one in [&*target, &*twin] {
        one.stop()?;
        one.pin(true)?;
    }
    let begun = Instant::now();
    let mut pairs: Vec<(f64, f64)> = Vec::new();
    while begun.elapsed() < 2 * window || pairs.len() < MIN_SLICES {
        pairs.push(if pairs.len().is_multiple_of(2) {
            (target.slice()?, twin.slice()?)
        } else {
            let rate = twin.slice()?;
            (target.slice()?, rate)
        });
    }
    for one in [&*target, &*twin] {
        one.pin(false)?;
    }
    of(&pairs).context("the programs made no progress")
}

/// Medians of pairs of rates.
fn of(pairs: &[(f64, f64)]) -> Option<Window> {
    let window = Window {
        per_second: median(pairs.iter().map(|pair| pair.0))?,
        twin_per_second: median(pairs.iter().map(|pair| pair.1))?,
        ratio: median(pairs.iter().map(|(target, twin)| target / twin))?,
        slices: pairs.len(),
    };
    (window.ratio.is_finite() && window.ratio > 0.0).then_some(window)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_taken_within_pairs() {
        // The machine becomes half as fast.
        let window = of(&[(120.0, 100.0), (60.0, 50.0), (60.0, 50.0)]).unwrap();
        let wanted = Window { per_second: 60.0, twin_per_second: 50.0, ratio: 1.2, slices: 3 };
        assert_eq!(window, wanted);
        assert_eq!(of(&[(1.0, 0.0)]), None);
        assert_eq!(of(&[]), None);
    }
}
