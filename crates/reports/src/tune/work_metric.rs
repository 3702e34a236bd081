//! Found metric: which of the counts that the kernel keeps of a process measures its speed.
//!
//! A count per second of the CPU time of the process does not depend on how busy its clients are.
//! Read and write calls come first: a server makes about as many for each request, whatever its
//! speed. Instructions come last, since a thread that spins executes more of them the longer it
//! waits.

#[cfg(test)]
mod tests;

use hugepilot_stats::{median, sorted};
use hugepilot_units::Nanos;

use super::{Metric, NoMetric};

/// Windows before the first promotion, and after the last one, below which nothing is found.
const MIN_WINDOWS: usize = 5;
/// Windows of either side that are compared at most, those closest to the promotions.
const MAX_WINDOWS: usize = 64;
/// CPU time below which a window does not count: the kernel brings the time of running threads up
/// to date only at each tick, of up to 10 ms.
const MIN_CPU: Nanos = Nanos::millis(50);
/// Events in a window below which a count cannot be a metric: by chance alone, as few vary by 5 %.
const MIN_EVENTS: f64 = 400.0;
/// Largest quartile range of a metric, as a share of its median. Calls of a busy server vary by 4
/// to 16 % with the speed of a shared machine, its context switches by up to 270 %.
const MAX_SPREAD: f64 = 0.2;
/// Largest change of the bytes in a call between both sides: otherwise, the requests or their
/// batches changed. In steady servers it is below 0.5 %.
const MAX_CHANGE: f64 = 0.05;
/// Time after the last promotion that does not count: the caches and the TLB fill.
const SETTLE: Nanos = Nanos::millis(250);
/// Found metrics, the best one first.
const ORDER: [Metric; 2] = [Metric::IoCalls, Metric::Instructions];

/// Work of a process since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkReading {
    /// Time of the reading.
    pub time: Nanos,
    /// CPU time.
    pub cpu: Nanos,
    /// Page faults of children that it has waited for. Their calls were added to its own, and their
    /// CPU time was not.
    pub child_faults: u64,
    /// Read and write calls; `None` if they cannot be read.
    pub io_calls: Option<u64>,
    /// Bytes read and written.
    pub io_bytes: Option<u64>,
    /// Instructions; `None` without a counter.
    pub instructions: Option<u64>,
}

/// Metric that was found, with its values.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundMetric {
    /// The metric.
    pub metric: Metric,
    /// Its values before the first promotion.
    pub before: Vec<f64>,
    /// Its values after the last one.
    pub after: Vec<f64>,
}

/// Finds the first metric that is steady both before the first promotion, at `first_act`, and after
/// the last one, at `last_act`. Readings between belong to neither side.
///
/// # Errors
/// The cause, if there is none.
pub fn find_metric(
    readings: &[WorkReading],
    first_act: Nanos,
    last_act: Nanos,
) -> Result<FoundMetric, NoMetric> {
    let begun = readings.partition_point(|reading| reading.time <= first_act);
    let settled = readings.partition_point(|reading| reading.time < last_act + SETTLE);
    let mut before = windows(&readings[..begun]);
    before.drain(..before.len().saturating_sub(MAX_WINDOWS));
    let mut after = windows(&readings[settled..]);
    after.truncate(MAX_WINDOWS);
    let fewest = before.len().min(after.len());
    if fewest < MIN_WINDOWS {
        let (windows, required) = (fewest as u64, MIN_WINDOWS as u64);
        return Err(NoMetric::FewWindows { windows, required });
    }
    let mut cause = NoMetric::FewEvents;
    for metric in ORDER {
        let values = |side: &[Window]| -> Option<Vec<f64>> {
            side.iter().map(|window| window.value(metric)).collect()
        };
        let Some((before_values, after_values)) = values(&before).zip(values(&after)) else {
            continue;
        };
        let spread_ratio = spread(&before_values).max(spread(&after_values));
        let change_ratio = change(&before, &after).filter(|_| metric == Metric::IoCalls);
        let failure = if spread_ratio > MAX_SPREAD {
            NoMetric::Unsteady { metric, spread_ratio }
        } else if let Some(change_ratio) = change_ratio.filter(|change| *change > MAX_CHANGE) {
            NoMetric::Changed { change_ratio }
        } else {
            return Ok(FoundMetric { metric, before: before_values, after: after_values });
        };
        // The failure of the best metric says most.
        if cause == NoMetric::FewEvents {
            cause = failure;
        }
    }
    Err(cause)
}

/// Returns the windows of successive readings that count: each has enough CPU time, and no child
/// ended in it.
fn windows(readings: &[WorkReading]) -> Vec<Window> {
    let mut windows = Vec::new();
    let Some(&first) = readings.first() else { return windows };
    let mut start = first;
    for &end in readings {
        let window = Window { start, end };
        let is_whole = window.cpu() >= MIN_CPU;
        let is_broken = end.child_faults != start.child_faults || end.cpu < start.cpu;
        if is_whole && !is_broken {
            windows.push(window);
        }
        if is_whole || is_broken {
            start = end;
        }
    }
    windows
}

/// Time between two readings.
#[derive(Clone, Copy)]
struct Window {
    start: WorkReading,
    end: WorkReading,
}

impl Window {
    /// CPU time; zero, too, if the clock went backwards.
    fn cpu(&self) -> Nanos {
        self.end.cpu - self.start.cpu
    }

    /// Events of `metric` for each second of CPU time; `None` if they are few, or if the count went
    /// backwards.
    fn value(&self, metric: Metric) -> Option<f64> {
        let events = match metric {
            Metric::Given => None,
            Metric::IoCalls => since(self.start.io_calls, self.end.io_calls),
            Metric::Instructions => since(self.start.instructions, self.end.instructions),
        };
        events.filter(|&events| events >= MIN_EVENTS).map(|events| events / self.cpu().as_seconds())
    }

    fn bytes_per_call(&self) -> Option<f64> {
        let bytes = since(self.start.io_bytes, self.end.io_bytes)?;
        let calls = since(self.start.io_calls, self.end.io_calls)?;
        (bytes > 0.0 && calls > 0.0).then(|| bytes / calls)
    }
}

#[allow(clippy::cast_precision_loss)]
fn since(start: Option<u64>, end: Option<u64>) -> Option<f64> {
    Some(end?.checked_sub(start?)? as f64)
}

/// Change of the bytes in a call, as a share of the smaller value.
fn change(before: &[Window], after: &[Window]) -> Option<f64> {
    let middle = |side: &[Window]| median(side.iter().filter_map(Window::bytes_per_call));
    let (before, after) = (middle(before)?, middle(after)?);
    Some(before.max(after) / before.min(after) - 1.0)
}

/// Quartile range of `values` over their median.
fn spread(values: &[f64]) -> f64 {
    let sorted = sorted(values.iter().copied());
    let quarter = sorted.len() / 4;
    let range = sorted.len().checked_sub(1 + quarter).map(|last| sorted[last] - sorted[quarter]);
    let middle = median(sorted.iter().copied());
    range.zip(middle).map_or(f64::INFINITY, |(range, middle)| range / middle)
}
