//! Metrics: what the values of a recording mean.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Unit of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Events.
    Count,
    /// Bytes.
    Bytes,
    /// Nanoseconds.
    Nanoseconds,
    /// Share between 0 and 1.
    Ratio,
    /// Processor cycles.
    Cycles,
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Count => "count",
            Self::Bytes => "bytes",
            Self::Nanoseconds => "ns",
            Self::Ratio => "ratio",
            Self::Cycles => "cycles",
        })
    }
}

/// Meaning of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MetricKind {
    /// Increase within the slice.
    Counter,
    /// State at the end of the slice.
    Gauge,
}

/// Scope of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MetricScope {
    /// The whole system.
    System,
    /// A process with all its threads.
    Process,
    /// A thread.
    Thread,
}

/// Metric of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metric {
    /// Name, with words joined by `_`: `page_faults`, `dtlb_walks`.
    pub name: String,
    /// Unit of its values.
    pub unit: Unit,
    /// Meaning of its values.
    pub kind: MetricKind,
    /// Scope of its values.
    pub scope: MetricScope,
    /// Source: a file of the kernel, or the event with its code.
    pub source: String,
    /// Explanation, in a sentence.
    pub description: String,
    /// Group of events that the kernel counts together, an index into the groups of a slice;
    /// `None` if always counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
    /// Why the recording has no values of it; `None` if it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// Time of a group of events within a slice. The kernel counts groups by turns if the processor has
/// fewer counters than events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupTime {
    /// Nanoseconds in which the group was enabled, over all threads.
    pub enabled_ns: u64,
    /// Part of them in which it counted. Values are scaled by the ratio of both.
    pub running_ns: u64,
}
