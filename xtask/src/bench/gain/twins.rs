//! Comparison of processes with an untouched twin, in alternating slices on one CPU.
//!
//! The speed of a virtual CPU varies within seconds by more than most gains, and from one CPU to
//! the other. So all processes run on the same CPU, one at a time.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hugepilot_stats::{Orders, Rounds};

use super::record::Window;
use super::target::Target;

/// Rounds of slices at least, for programs whose operations take seconds.
const MIN_SLICES: usize = 5;

/// Alternates all, in a random order in each round, until each has run for `window`. The first is
/// the twin; returns a window for each of the others. All are stopped afterwards.
pub(super) fn compare(
    targets: &mut [Target<'_>],
    window: Duration,
    seed: u64,
) -> Result<Vec<Window>> {
    for one in &*targets {
        one.stop()?;
        one.pin(true)?;
    }
    let (begun, count) = (Instant::now(), targets.len());
    let all = window * u32::try_from(count)?;
    let mut rounds = Rounds::default();
    for order in Orders::random(count, seed) {
        if begun.elapsed() >= all && rounds.count() >= MIN_SLICES {
            break;
        }
        rounds.measure(order, |index| targets[index].slice())?;
    }
    for one in &*targets {
        one.pin(false)?;
    }
    (1..count).map(|index| of(&rounds, index).context("the programs made no progress")).collect()
}

/// Medians of the rates of a process, and of its twin, which is the first.
fn of(rounds: &Rounds<f64>, index: usize) -> Option<Window> {
    let window = Window {
        per_second: rounds.median(index),
        twin_per_second: rounds.median(0),
        ratio: rounds.ratios(index, 0).median()?,
        slices: rounds.count(),
    };
    (window.ratio.is_finite() && window.ratio > 0.0).then_some(window)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_taken_within_a_round() {
        // The machine becomes half as fast.
        let rounds = [[100.0, 120.0, 90.0], [50.0, 60.0, 45.0], [50.0, 60.0, 45.0]];
        let rounds = Rounds::from_iter(rounds.map(Vec::from));
        let wanted = Window { per_second: 60.0, twin_per_second: 50.0, ratio: 1.2, slices: 3 };
        assert_eq!(of(&rounds, 1), Some(wanted));
        assert_eq!(of(&rounds, 2).map(|window| window.ratio), Some(0.9));
        assert_eq!(of(&Rounds::from_iter([vec![0.0, 1.0]]), 1), None);
        assert_eq!(of(&Rounds::default(), 1), None);
    }
}
