//! Recordings: how programs used memory over time, and what hugepilot decided meanwhile.
//!
//! A recording is lines of JSON (NDJSON) in gzip members, so `zcat FILE | jq` reads it. The first
//! line is the [`Head`]. A writer ends a member at each flush, so a file that was cut anywhere is
//! read up to the cut. Lines of a journal are lines of a recording, too ([`Line::Journal`]), so
//! each reader of journals reads recordings ([`RecordedJournal`]).
//!
//! A slice has the values of the metrics of its scope, in the order of [`Head::metrics`]. The value
//! of a counter is its increase within the slice, that of a gauge its state at the end.
//!
//! Metrics that cost more to read have longer slices of their own, which end at the same times. So
//! a process may have several slices with one end, each with the values of some metrics. A process
//! has a further [`Line::Process`] when it starts another program or has new threads.

mod join;
mod journal;
mod line;
mod reader;
mod report;
#[cfg(test)]
mod tests;
mod tree;
mod writer;

pub use join::{ALIKE, JoinError, join};
pub use journal::RecordedJournal;
pub use line::{
    CodeSlice, CodeStall, End, Frame, Head, HeatSlice, HotRegion, Line, MappingPages, NamedMapping,
    PageSlice, Phase, RecordedMachine, RecordedProcess, RecordedTrial, Slice, ThreadInfo,
    ThreadStalls, TlbSize,
};
pub use reader::{RecordingError, RecordingLimits, RecordingReader};
pub use report::{
    ENDED_EARLY, MissingMetric, NoBegin, REPORT_SCHEMA, RecordReport, RecordStop, causes, help_of,
};
pub use tree::TreeUse;
pub use writer::RecordingWriter;

/// Name and version of recordings.
pub const SCHEMA: &str = "hugepilot.recording/2";
/// Phases of a recording at most.
pub const MAX_PHASES: usize = 10_000;
/// Name of the mapping of an address that is in none, or in one that became another meanwhile.
pub const UNKNOWN_MAPPING: &str = "[unknown mapping]";
