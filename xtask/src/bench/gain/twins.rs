//! Comparison of processes with an untouched twin, in alternating slices on one CPU.
//!
//! The speed of a virtual CPU varies within seconds by more than most gains, and from one CPU to
//! the other. So all processes run on the same CPU, one at a time.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hugepilot_stats::median;

use super::record::Window;
use super::target::Target;
use crate::random::Random;

/// Rounds of slices at least, for programs whose operations take seconds.
const MIN_SLICES: usize = 5;

/// Alternates all, in a random order in each round, until each has run for `window`. The first is
/// the twin; returns a window for each of the others. All are stopped afterwards.
pub(super) fn compare(
    targets: &mut [Target<'_>],
    window: Duration,
    random: &mut Random,
) -> Result<Vec<Window>> {
    for one in &*targets {
        one.stop()?;
        one.pin(true)?;
    }
    let (begun, count) = (Instant::now(), targets.len());
    let all = window * u32::try_from(count)?;
    let mut rounds: Vec<Vec<f64>> = Vec::new();
    while begun.elapsed() < all || rounds.len() < MIN_SLICES {
        let mut rates = vec![0.0; count];
        let mut order: Vec<usize> = (0..count).collect();
        random.shuffle(&mut order);
        for index in order {
            rates[index] = targets[index].slice()?;
        }
        rounds.push(rates);
    }
    for one in &*targets {
        one.pin(false)?;
    }
    (1..count).map(|index| of(&rounds, index).context("the programs made no progress")).collect()
}

/// Medians of the rates of a process, and of its twin, which is the first.
fn of(rounds: &[Vec<f64>], index: usize) -> Option<Window> {
    let window = Window {
        per_second: median(rounds.iter().map(|rates| rates[index]))?,
        twin_per_second: median(rounds.iter().map(|rates| rates[0]))?,
        ratio: median(rounds.iter().map(|rates| rates[index] / rates[0]))?,
        slices: rounds.len(),
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
        let rounds = rounds.map(Vec::from);
        let wanted = Window { per_second: 60.0, twin_per_second: 50.0, ratio: 1.2, slices: 3 };
        assert_eq!(of(&rounds, 1), Some(wanted));
        assert_eq!(of(&rounds, 2).map(|window| window.ratio), Some(0.9));
        assert_eq!(of(&[vec![0.0, 1.0]], 1), None);
        assert_eq!(of(&[], 1), None);
    }
}
