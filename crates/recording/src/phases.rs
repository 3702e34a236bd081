//! Phases of a process, by change points of its measures.

use hugepilot_stats::change_points;

use super::measures::Measure;
use super::timeline::ProcessTrack;

/// Slices over which change points are searched at most: time is quadratic.
const MAX_POINTS: usize = 1500;
/// Slices of a phase at least.
const MIN_SLICES: usize = 5;

/// A phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Found {
    /// First slice.
    pub(crate) first: usize,
    /// First slice after it.
    pub(crate) end: usize,
}

/// Measures whose changes make a phase, in order of preference; all that exist are used.
const BASIS: [&str; 3] = ["user_time_ratio", "minor_faults_per_second", "ipc"];

/// Phases of the slices of `track`, by CPU use, page faults, and instructions per cycle. Resident
/// memory is not among them: while it grows, its mean changes all the time. Returns also the names
/// of the measures that decided.
pub(crate) fn phases(track: &ProcessTrack, measures: &[Measure]) -> (Vec<Found>, Vec<String>) {
    let slices = track.track.slots().len();
    let is_basis =
        |measure: &&Measure| BASIS.contains(&&*measure.name) && measure.values.len() == slices;
    let basis: Vec<&Measure> = measures.iter().filter(is_basis).collect();
    let step = slices.div_ceil(MAX_POINTS).max(1);
    let series: Vec<Vec<f64>> = basis.iter().map(|measure| means(&measure.values, step)).collect();
    let names = basis.iter().map(|measure| measure.name.clone()).collect();
    if slices < 2 * MIN_SLICES || series.is_empty() {
        return (Vec::new(), names);
    }
    let mut bounds = vec![0];
    bounds.extend(change_points(&series, MIN_SLICES).into_iter().map(|at| at * step));
    bounds.push(slices);
    let found = bounds.windows(2).map(|pair| Found { first: pair[0], end: pair[1] }).collect();
    (found, names)
}

/// Means of `step` values each. A slice without a value has the one before.
#[allow(clippy::cast_precision_loss)]
fn means(values: &[f64], step: usize) -> Vec<f64> {
    let mut last = values.iter().copied().find(|value| value.is_finite()).unwrap_or(0.0);
    let filled: Vec<f64> = values
        .iter()
        .map(|value| {
            last = if value.is_finite() { *value } else { last };
            last
        })
        .collect();
    filled.chunks(step).map(|chunk| chunk.iter().sum::<f64>() / chunk.len() as f64).collect()
}
