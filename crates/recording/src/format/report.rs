//! Report of `hugepilot record`, schema `hugepilot.record/1`.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use hugepilot_record::sentence::Sentence;
use hugepilot_record::{Ending, Unsupported};
use hugepilot_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Head, TreeUse};

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
    /// Whether the recording began.
    pub began: bool,
    /// Why it did not begin; `None` if it began.
    pub no_begin: Option<NoBegin>,
    /// Slices of time.
    pub slices: u64,
    /// Recorded processes.
    pub processes: u64,
    /// Phases that began.
    pub phases: u64,
    /// Whether there were more phases than a recording can have.
    pub too_many_phases: bool,
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
    /// Use of the program, or of the running process, with all its descendants; `None` for several
    /// processes.
    pub tree: Option<TreeUse>,
    /// Part of the run of the program that was recorded, as a phrase with its end; `None` for all
    /// of it, and for running processes.
    pub span: Option<String>,
    /// End of the program; `None` for running processes.
    pub ending: Option<Ending>,
    /// Cause of the end of the recording.
    pub stop: RecordStop,
    /// Processes that the program left running, and that were ended.
    pub ended_processes: usize,
}

/// Why a recording did not begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Sentence)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum NoBegin {
    /// No line matched `--from-regex`.
    #[text("no line of the program's stdout matched --from-regex `{pattern}`; {EMPTY}")]
    #[help("compare the pattern with the output of the program")]
    #[help("if the program buffers its output: stdbuf -oL CMD")]
    FromRegex {
        /// The pattern, with control characters escaped.
        pattern: String,
    },
    /// No phase had the name of `--only-phase`.
    #[text("no phase of the program had the name of --only-phase, `{name}`; {EMPTY}")]
    #[help("record without --only-phase, and see the names of the phases in the report")]
    OnlyPhase {
        /// The name, with control characters escaped.
        name: String,
    },
}

const EMPTY: &str = "the recording did not begin and has no values";

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

/// Cause of missing metrics of a program that was too short for them.
pub const ENDED_EARLY: &str = "the program ended before its mappings were read";

/// Metrics that each recording has, whatever events were requested.
const UNREQUESTED: [&str; 2] = ["memory_read", "memory_write"];

/// Returns each cause of missing metrics with the number of them: those with help first, then those
/// of requested events, then the most frequent. `all` has the name and the cause of each metric.
pub fn causes<'a>(all: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<(&'a str, usize)> {
    let mut counts: BTreeMap<&str, (bool, usize)> = BTreeMap::new();
    for (name, cause) in all {
        let (is_requested, count) = counts.entry(cause).or_default();
        *is_requested |= !UNREQUESTED.contains(&name);
        *count += 1;
    }
    let mut causes: Vec<_> = counts.into_iter().collect();
    causes.sort_by_key(|&(cause, (is_requested, count))| {
        let is_first = (help_of(cause).is_some(), cause != ENDED_EARLY, is_requested);
        (Reverse(is_first), Reverse(count), cause)
    });
    causes.into_iter().map(|(cause, (_, count))| (cause, count)).collect()
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
    /// A line matched `--to-regex`, or the phase of `--only-phase` was over.
    Phase,
    /// A signal asked for the end.
    Interrupted,
    /// The file could not be written.
    WriteError,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_with_help_are_first_then_those_of_requested_events_and_a_short_program_last() {
        let no_pmu = Unsupported::NoCounters { hypervisor: true }.to_string();
        let all = [
            ("memory_read", "no amd_umc"),
            ("memory_write", "no amd_umc"),
            ("thp", ENDED_EARLY),
            ("hugetlb", ENDED_EARLY),
            ("swapped", ENDED_EARLY),
            ("r01b6", "unknown"),
            ("cycles", &no_pmu),
        ];
        let expected = [(&*no_pmu, 1), ("unknown", 1), ("no amd_umc", 2), (ENDED_EARLY, 3)];
        assert_eq!(causes(all), expected);
        // The set bandwidth lacks the same unit.
        let all = [all[0], all[1], all[5], ("dram_reads", "no amd_umc")];
        assert_eq!(causes(all), [("no amd_umc", 3), ("unknown", 1)]);
    }
}
