//! Reports of `hugepilot sim`: TLBs, policies, page reuse, and utility curves.

pub(crate) mod text;

mod policy;
mod reuse;

use hugepilot_record::Sentence;
use hugepilot_record::trace::TraceWarning;
use hugepilot_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use policy::{
    Candidate, CostReport, POLICY_SCHEMA, PolicyRun, ProcessRun, SimPolicyReport, SimUtilityReport,
    UTILITY_SCHEMA, UtilityPoint,
};
pub use reuse::{
    DistanceBucket, KindOfReuse, KindShare, MappingReuse, MissPoint, PageCell, REUSE_SCHEMA,
    ReuseBucket, ReuseLevel, SimReuseReport,
};

/// The value of `schema` of [`SimTlbReport`].
pub const TLB_SCHEMA: &str = "hugepilot.sim-tlb/1";

/// Accesses that a simulation executed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SimInput {
    /// Sources, one for each process: a file, a command, a pattern, or a graph and a kernel.
    pub sources: Vec<String>,
    /// Accesses, of all processes.
    pub accesses: u64,
    /// Stores among them.
    pub stores: u64,
    /// Accesses outside the selected part.
    pub omitted: u64,
    /// Accesses folded into the one before, because one instruction made both in one 64-byte line.
    pub folded: u64,
    /// Accesses that the tracer saw and lost.
    pub lost: u64,
    /// Threads, of all processes. Each has a core of its own until it ends.
    pub threads: u64,
    /// Visits of base pages: runs of accesses of a thread to one page.
    pub visits: u64,
    /// Base pages used, as bytes.
    pub footprint_bytes: Bytes,
    /// Regions of 2 MiB used.
    pub regions: u64,
    /// Whether every source was executed to its end.
    pub complete: bool,
    /// Stored traces that are cut.
    #[serde(default)]
    pub cut: Vec<SourceCut>,
    /// Further observations about the sources.
    #[serde(default)]
    pub warnings: Vec<SourceWarning>,
    /// Time of the simulation with its sources.
    pub seconds: f64,
}

/// Observation about a source. JSON carries its sentence as `text`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SourceWarning {
    /// Source.
    pub source: String,
    /// Observation.
    #[serde(flatten)]
    pub warning: TraceWarning,
}

impl Sentence for SourceWarning {
    fn text(&self) -> String {
        format!("{}: {}", self.source, self.warning.text())
    }
    fn help(&self) -> Vec<String> {
        self.warning.help()
    }
}

/// Stored trace that is cut, so that the accesses before were executed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SourceCut {
    /// Source.
    pub source: String,
    /// Byte from which on nothing could be read.
    pub byte: u64,
}

/// CPU whose TLBs are simulated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SimCpu {
    /// Preset, or path of the file that describes it.
    pub preset: String,
    /// Name.
    pub cpu: String,
    /// Source of the values.
    pub source: String,
    /// Values that no source has.
    pub assumed: Vec<String>,
    /// Entries per base page that a TLB coalesces four of.
    pub coalescing: bool,
    /// Whether walks are those of a virtual machine.
    pub nested: bool,
}

/// CPU that can be simulated, in a row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PresetFacts {
    /// Name of the preset.
    pub name: String,
    /// Name of the CPU.
    pub cpu: String,
    /// Entries of its L1 TLBs.
    pub l1: String,
    /// Entries of its L2 TLBs.
    pub l2: String,
    /// Values that no source has.
    pub assumed: usize,
}

/// Counts of accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SimCounts {
    /// Accesses.
    pub accesses: u64,
    /// Misses of the L1 TLB.
    pub l1_misses: u64,
    /// Misses of the L2 TLB.
    pub l2_misses: u64,
    /// Page walks: one for each miss of the L2 TLB.
    pub walks: u64,
    /// Walks per access.
    pub walk_ratio: f64,
    /// Memory references of the walks.
    pub walk_references: u64,
}

/// Counts of the pages of one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PageSizeCounts {
    /// Page size.
    pub page_bytes: Bytes,
    /// Counts.
    #[serde(flatten)]
    pub counts: SimCounts,
}

/// Counts of a mapping.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MappingCounts {
    /// Process, from 0.
    pub process: u16,
    /// Name: a file, an array, `[anon]`; `[unknown]` for accesses outside all mappings;
    /// `[small mappings]` for regions that several small ones share.
    pub mapping: String,
    /// Place among the mappings of that name, in address order, from 0; then former ones.
    pub ordinal: u64,
    /// Base pages used, as bytes.
    pub touched_bytes: Bytes,
    /// Counts of its regions. A region at a border counts for the mapping of its middle.
    #[serde(flatten)]
    pub counts: SimCounts,
}

/// A machine whose regions all have pages of one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SimMachine {
    /// Page size of all regions.
    pub page_bytes: Bytes,
    /// Counts of all accesses.
    #[serde(flatten)]
    pub counts: SimCounts,
    /// Counts by page size.
    pub per_page_size: Vec<PageSizeCounts>,
    /// Counts by mapping, most walks first.
    pub per_mapping: Vec<MappingCounts>,
    /// Entries of the promotion candidate caches at the end, summed over threads, highest frequency
    /// first; empty unless the pages are base pages.
    pub candidates: Vec<Candidate>,
}

/// Report of `sim tlb`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SimTlbReport {
    /// [`TLB_SCHEMA`].
    pub schema: String,
    /// Accesses.
    pub input: SimInput,
    /// CPU.
    pub cpu: SimCpu,
    /// A machine for each page size, smallest pages first.
    pub machines: Vec<SimMachine>,
}
