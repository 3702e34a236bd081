//! Report of `hugepilot trace`, schema `hugepilot.trace/1`.

pub(crate) mod text;

use hugepilot_record::Ending;
use hugepilot_record::trace::{TraceTotals, TraceWarning, TracedMapping, TracedPhase};
use hugepilot_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The value of `schema`.
pub const SCHEMA: &str = "hugepilot.trace/1";

/// Report of a trace that was written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TraceReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// Origin of the accesses.
    pub origin: TraceOrigin,
    /// Program and arguments, the imported file, or the kernel and its graph.
    pub input: Vec<String>,
    /// File of the trace.
    pub file: String,
    /// Length of the file.
    pub file_bytes: Bytes,
    /// Time from the start of the program, of the import, or of building the graph, to the end of
    /// the trace.
    pub wall_seconds: f64,
    /// End of the program; `None` for an import and for a graph kernel.
    pub ending: Option<Ending>,
    /// Cause of the end of the trace.
    pub stop: TraceStopCause,
    /// Counts of the trace.
    #[serde(flatten)]
    pub totals: TraceTotals,
    /// Accesses outside the selected part: `--from-phase`, `--to-phase`, `--skip`, `--window` and
    /// `--max-accesses`.
    pub omitted_accesses: u64,
    /// Accesses folded into the one before, because one instruction made both in one 64-byte line.
    pub folded_accesses: u64,
    /// Mappings with accesses, most accesses first.
    pub mappings: Vec<TracedMapping>,
    /// Phases in order, the first 4096.
    #[serde(default)]
    pub phases: Vec<TracedPhase>,
    /// Further observations.
    pub warnings: Vec<TraceWarning>,
}

impl TraceReport {
    /// Length of the file per access; `None` without an access.
    pub fn bytes_per_access(&self) -> Option<f64> {
        let accesses = self.totals.accesses;
        (accesses > 0).then(|| self.file_bytes.get() as f64 / accesses as f64)
    }
}

/// Origin of accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TraceOrigin {
    /// Program under QEMU.
    Qemu,
    /// Program under lackey.
    Lackey,
    /// Log of lackey.
    LackeyLog,
    /// Text of `perf script`.
    PerfScript,
    /// Text of drmemtrace's view tool.
    DrmemtraceView,
    /// Kernel on a graph.
    Graph,
}

/// Cause of the end of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TraceStopCause {
    /// End of the program, or of the imported file.
    End,
    /// `--max-accesses`.
    MaxAccesses,
    /// `--to-phase`.
    Phase,
    /// `--max-bytes`.
    MaxBytes,
    /// Signal to hugepilot.
    Interrupted,
}
