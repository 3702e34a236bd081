//! Multiplexed events: the share of the time in which each metric was counted.

use hugepilot_events::{Certainty, EventReading};
use hugepilot_record::{GroupTime, Metric, MetricScope};
use hugepilot_render::model::{Cell, Notice, Table, Unit};

use super::timeline::Timeline;

/// Groups of events at most.
const MAX_GROUPS: usize = 1024;
/// Smallest share that prints as 100.0 %.
const WHOLE: f64 = 0.9995;
/// Metrics that a warning names at most.
const MAX_NAMES: usize = 8;

/// Times of the groups of events, over all slices.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct GroupTimes(Vec<EventReading>);

impl GroupTimes {
    /// Adds the times of a slice.
    pub(crate) fn add(&mut self, times: &[GroupTime]) {
        let readings = times.iter().map(|&time| EventReading { value: 0, time });
        self.extend(readings.take(MAX_GROUPS));
    }

    fn extend(&mut self, readings: impl ExactSizeIterator<Item = EventReading>) {
        self.0.resize(self.0.len().max(readings.len()), EventReading::default());
        self.0.iter_mut().zip(readings).for_each(|(sum, reading)| *sum = sum.plus(reading));
    }

    fn reading(&self, metric: &Metric) -> Option<EventReading> {
        self.0.get(metric.group? as usize).copied()
    }

    /// Returns the share of the time in which a metric was counted: 1 if it needs no counter.
    pub(crate) fn counted(&self, metric: &Metric) -> f64 {
        self.reading(metric).and_then(EventReading::coverage).unwrap_or(1.0)
    }

    /// Returns the certainty of the values of a metric.
    pub(crate) fn certainty(&self, metric: &Metric) -> Certainty {
        self.reading(metric).map_or(Certainty::Exact, EventReading::certainty)
    }
}

/// The times of the groups of a scope, over all processes.
fn times(timeline: &Timeline, scope: MetricScope) -> GroupTimes {
    if scope == MetricScope::System {
        return timeline.system.groups.clone();
    }
    let mut all = GroupTimes::default();
    for process in &timeline.processes {
        all.extend(process.track.groups.0.iter().copied());
    }
    all
}

/// The table of the metrics of a recording, with the column of [`with_counted`].
pub(crate) fn counted_metrics(timeline: &Timeline, table: Table) -> Table {
    let [system, processes] =
        [MetricScope::System, MetricScope::Process].map(|scope| times(timeline, scope));
    let share = |metric: &Metric| match metric.scope {
        _ if metric.missing.is_some() => f64::NAN,
        MetricScope::System => system.counted(metric),
        MetricScope::Process | MetricScope::Thread => processes.counted(metric),
    };
    let shares: Vec<f64> = timeline.head.metrics.iter().map(share).collect();
    with_counted(table, &shares)
}

/// The table with a column of the shares of the time in which its rows were counted, unless all
/// were counted all of the time.
pub(crate) fn with_counted(mut table: Table, shares: &[f64]) -> Table {
    if !shares.iter().any(|share| *share < WHOLE) {
        return table;
    }
    table.columns.push("counted".to_owned());
    for (row, share) in table.rows.iter_mut().zip(shares) {
        row.push(Cell::of(Some(*share), Unit::Ratio, "the metric is missing"));
    }
    table
}

/// A warning with the metrics that were counted for too little of the time.
pub(crate) fn warning(timeline: &Timeline) -> Option<Notice> {
    let mut few = Vec::new();
    for scope in [MetricScope::Process, MetricScope::System] {
        let times = times(timeline, scope);
        let metrics = timeline.head.metrics.iter();
        for metric in metrics.filter(|one| one.scope == scope && one.missing.is_none()) {
            if matches!(times.certainty(metric), Certainty::Uncertain | Certainty::Missing) {
                few.push(format!("{} ({})", metric.name, percent(times.counted(metric))));
            }
        }
    }
    let more = few.len().saturating_sub(MAX_NAMES);
    few.truncate(MAX_NAMES);
    if more > 0 {
        few.push(format!("{more} more"));
    }
    let text = format!(
        "counted in less than {} of the time, so their values and ratios with them may be far \
         off: {}",
        percent(EventReading::FEW),
        few.join(", ")
    );
    let help = "count fewer events at once, by --events, or run the program once for each set: \
                hugepilot record --repeat -- CMD";
    (!few.is_empty()).then(|| Notice::warning(text).help(help))
}

/// A share for people.
pub(crate) fn percent(share: f64) -> String {
    Cell::ratio(share).text()
}
