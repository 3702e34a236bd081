//! Lines of a recording.

use hugepilot_record::{Cpu, GroupTime, Metric, Pid, ProcessId, ProvenanceCounts, Tid};
use hugepilot_units::{AddrRange, Nanos, Region, VirtAddr};
use serde::{Deserialize, Serialize};

use super::TreeUse;

/// Line of a recording. Times are nanoseconds on the monotonic clock of the recorded machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The first line.
    Head(Box<Head>),
    /// A process comes into view, or starts another program.
    Process(RecordedProcess),
    /// Metrics of a slice of time.
    Slice(Slice),
    /// Mappings of a process with their pages.
    Pages(PageSlice),
    /// Stall samples of a slice by region.
    Heat(HeatSlice),
    /// Stall samples of a slice by code.
    Code(CodeSlice),
    /// A phase begins.
    Phase(Phase),
    /// Line of a journal: its header or a round.
    Journal(serde_json::Value),
    /// A run of a program in a mode, or a trial of a kernel, is over.
    Trial(RecordedTrial),
    /// JSON that the command prints with `--json`: its report at the end, of the daemon each event.
    Report(serde_json::Value),
    /// An observation that limits what the recording shows.
    Warning(String),
    /// The last line of a complete recording.
    End(End),
}

/// Head of a recording. The default is that of a file that was cut inside its head.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// [`super::SCHEMA`].
    pub schema: String,
    /// Version of hugepilot that recorded.
    pub version: String,
    /// Command line of hugepilot, each argument with control characters escaped.
    pub command: Vec<String>,
    /// Wall-clock time of the start, in seconds since 1970.
    pub started_unix_seconds: f64,
    /// Time of the start on the clock of the lines.
    pub started: Nanos,
    /// Length of a slice; 0 if the recording has no metrics.
    pub every: Nanos,
    /// The machine.
    pub machine: RecordedMachine,
    /// All metrics, also missing ones.
    pub metrics: Vec<Metric>,
    /// Source of stall samples and its rate: `cpu-clock at 500 Hz`; `None` without samples.
    pub sampler: Option<String>,
    /// Why there are no stall samples.
    pub sampler_missing: Option<String>,
}

/// Machine of a recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RecordedMachine {
    /// Processor.
    pub cpu: Cpu,
    /// Processors that are online.
    pub cpus: u32,
    /// Memory of the system.
    pub memory_bytes: u64,
    /// Release of the kernel.
    pub kernel: String,
    /// Word of `transparent_hugepage/enabled`.
    pub thp: String,
    /// Size of a base page.
    pub base_page_bytes: u64,
    /// Size of a huge page, and of a region.
    pub huge_page_bytes: u64,
    /// Data TLB for base pages; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tlb: Option<TlbSize>,
}

/// Base pages that the data TLB holds, in its last level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlbSize {
    /// Base pages.
    pub base_pages: u32,
    /// Where the number is from: a measurement or a table.
    pub source: String,
}

/// Process of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedProcess {
    /// Time when it came into view.
    pub time: Nanos,
    /// The process.
    pub id: ProcessId,
    /// Threads with their names, at that time.
    pub threads: Vec<ThreadInfo>,
}

/// Thread of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadInfo {
    /// Thread ID.
    pub tid: Tid,
    /// Name, with control characters escaped.
    pub name: String,
}

/// Values of metrics in a slice of time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slice {
    /// End of the slice.
    pub time: Nanos,
    /// Its length.
    pub length: Nanos,
    /// Process; `None` for metrics of the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<Pid>,
    /// Thread; `None` for metrics of the process or the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tid: Option<Tid>,
    /// Value of each metric of the scope, in the order of the head; `None` if it could not be read.
    pub values: Vec<Option<f64>>,
    /// Times of the groups of events.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupTime>,
}

/// Mappings of a process and their pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageSlice {
    /// Time of the look.
    pub time: Nanos,
    /// Process.
    pub pid: Pid,
    /// Mappings with resident memory, in order of address.
    pub mappings: Vec<MappingPages>,
}

/// Mapping with its pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappingPages {
    /// Addresses.
    pub range: AddrRange,
    /// Name: a file, `[heap]`, `[anon]`, `[stack]`; control characters escaped.
    pub name: String,
    /// Resident bytes, huge pages included.
    pub resident_bytes: u64,
    /// Bytes on transparent huge pages.
    pub thp_bytes: u64,
    /// Bytes on hugetlb pages.
    pub hugetlb_bytes: u64,
}

/// Stall samples of a slice by region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeatSlice {
    /// End of the slice.
    pub time: Nanos,
    /// Its length.
    pub length: Nanos,
    /// Process.
    pub pid: Pid,
    /// Samples, with an address or without.
    pub samples: u64,
    /// Samples with an address.
    pub addressed: u64,
    /// Samples at an instruction that reads or writes memory without streaming.
    pub scattered: u64,
    /// Regions with samples, in order of address.
    pub regions: Vec<HotRegion>,
    /// Mappings of regions with samples that no earlier slice has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mappings: Vec<NamedMapping>,
    /// Threads with samples, in order of ID: the 64 with the most. Empty if all samples are of the
    /// first thread.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<ThreadStalls>,
}

/// Mapping: addresses and name, as in [`MappingPages`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NamedMapping(pub AddrRange, pub String);

/// Thread with samples: ID, samples, and those of them that are scattered, as in [`HeatSlice`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadStalls(pub Tid, pub u32, pub u32);

/// Region with samples: region, samples, streamed samples, and whether it is huge (if known).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotRegion(pub Region, pub u32, pub u32, pub Option<bool>);

/// Stall samples of a slice by code and by the memory that it waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeSlice {
    /// End of the slice.
    pub time: Nanos,
    /// Process.
    pub pid: Pid,
    /// Stalls, the most samples first.
    pub stalls: Vec<CodeStall>,
}

/// Samples of an instruction on a mapping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeStall {
    /// The instruction.
    pub ip: VirtAddr,
    /// Where it is in the source.
    pub frame: Frame,
    /// Callers, the nearest first; empty if the stack was not walked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub callers: Vec<Frame>,
    /// Mapping of the data, or [`super::UNKNOWN_MAPPING`]; `None` if the address is unknown.
    pub mapping: Option<String>,
    /// First address of that mapping, which separates mappings of one name; `None` if several of
    /// them are summed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mapping_start: Option<VirtAddr>,
    /// Samples.
    pub samples: u64,
    /// Samples of them that streamed.
    pub streamed: u64,
}

/// Place in the code.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// Function, demangled; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// File of the program or library; `None` for code without a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Source file and line, where debug information exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<(String, u32)>,
    /// First address of the mapping of code without a file, such as generated code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mapping_start: Option<VirtAddr>,
}

/// Begin of a phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    /// Its begin.
    pub time: Nanos,
    /// Name, with control characters escaped.
    pub name: String,
}

/// Run or trial that is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedTrial {
    /// Its end.
    pub time: Nanos,
    /// Mode or kernel; confirmation rounds of `compare` end with `, confirmation`.
    pub name: String,
    /// Round or trial, from 1.
    pub number: u64,
    /// Time that it took.
    pub took: Nanos,
    /// Facts, as the JSON of the command has them.
    pub result: serde_json::Value,
}

/// End of a recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// Time of the end.
    pub time: Nanos,
    /// Exit status of the program: `0`, `1`, `signal 9`; `None` if it was not started by hugepilot.
    pub exit: Option<String>,
    /// Samples by provenance.
    pub samples: ProvenanceCounts,
    /// CPU time of hugepilot itself, in nanoseconds.
    pub own_cpu: Nanos,
    /// Use of the program, or of the running process, with all its descendants; `None` for several
    /// processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<TreeUse>,
    /// Part of the run of the program that was recorded, as a phrase with its end; `None` for all
    /// of it, and for running processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span: Option<String>,
}
