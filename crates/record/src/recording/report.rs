//! Report of `hugepilot record`, schema `hugepilot.record/1`.
//!
//! If you change a field, state it in CHANGELOG.md. If you remove or redefine one, raise the
//! number in [`REPORT_SCHEMA`].

use std::cmp::Reverse;
use std::collections::BTreeMap;

use hugepilot_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Head;
use crate::Unsupported;
use crate::run::Ending;

/// The value of `schema`.
pub const REPORT_SCHEMA: &str = "hugepilot.record/1";

/// Report of a recording that was written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecordReport {
    /// [`REPORT_SCHEMA`].
    pub schema: String,
    /// Program and arguments; empty for running processes.
    pub command: Vec<String>,
    /// File of the recording.
    pub file: String,
    /// Length of the file.
    pub file_bytes: Bytes,
    /// Time from the first slice to the end of the recording.
    pub wall_seconds: f64,
    /// Time of each run; several with `--repeat`.
    pub run_seconds: Vec<f64>,
    /// Whether the recording began; `false` if no line matched `--from-regex`.
    pub began: bool,
    /// Slices of time.
    pub slices: u64,
    /// Recorded processes.
    pub processes: u64,
    /// Phases that began.
    pub phases: u64,
    /// Source of stall samples and its rate; `None` without samples.
    pub sampler: Option<String>,
    /// Why there are no stall samples.
    pub sampler_missing: Option<String>,
    /// Stall samples.
    pub samples: u64,
    /// Samples that the kernel lost.
    pub lost_samples: u64,
    /// Share of the stall samples with callers; `None` without samples, or without `--callers`.
    pub callers_ratio: Option<f64>,
    /// Metrics without values.
    pub missing_metrics: Vec<MissingMetric>,
    /// CPU time of hugepilot itself, as a share of a processor.
    pub own_cpu_ratio: f64,
    /// End of the program; `None` for running processes.
    pub ending: Option<Ending>,
    /// Cause of the end of the recording.
    pub stop: RecordStop,
    /// Processes that the program left running, and that were ended.
    pub ended_processes: usize,
}

/// Metric without values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MissingMetric {
    /// Its name.
    pub name: String,
    /// Cause.
    pub cause: String,
}

impl MissingMetric {
    /// Returns the metrics without values of a recording.
    pub fn all(head: &Head) -> Vec<Self> {
        let missing = head.metrics.iter().filter_map(|metric| {
            let (name, cause) = (metric.name.clone(), metric.missing.clone()?);
            Some(Self { name, cause })
        });
        missing.collect()
    }
}

/// Returns each cause with the number of its occurrences, the most frequent first.
pub fn causes<'a>(all: impl IntoIterator<Item = &'a str>) -> Vec<(&'a str, usize)> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for cause in all {
        *counts.entry(cause).or_default() += 1;
    }
    let mut causes: Vec<_> = counts.into_iter().collect();
    causes
        .sort_by_key(|&(cause, count)| (Reverse(count), Reverse(help_of(cause).is_some()), cause));
    causes
}

/// Returns the suggested action for a cause, of which a recording has only the sentence.
pub fn help_of(cause: &str) -> Option<String> {
    let known = [true, false].map(|hypervisor| Unsupported::NoCounters { hypervisor });
    known.iter().find(|known| known.to_string() == cause)?.help().into_iter().next()
}

/// Cause of the end of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RecordStop {
    /// All recorded processes ended.
    End,
    /// `--duration` was over.
    Duration,
    /// A signal asked for the end.
    Interrupted,
    /// The file could not be written.
    WriteError,
}
