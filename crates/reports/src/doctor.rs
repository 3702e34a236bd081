//! The report of `hugepilot doctor`: features and permissions of a machine.

pub(crate) mod text;

use std::collections::BTreeMap;

use hugepilot_record::sentence::{Sentence, numbered};
use hugepilot_record::{Cpu, THP, ThpSize, Unsupported};
use hugepilot_units::{Bytes, Nanos};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Value of [`DoctorReport::schema`]. It changes when a field changes its meaning or goes.
pub const SCHEMA: &str = "hugepilot.doctor/2";

/// Features, permissions and settings of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DoctorReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// Release of the kernel, as `uname -r` prints it.
    pub kernel_release: String,
    /// Processor and its TLBs.
    pub cpu: CpuReport,
    /// Smallest page.
    pub base_page_bytes: Bytes,
    /// Page of THP.
    pub huge_page_bytes: Bytes,
    /// Results of the probes, in a fixed order.
    pub probes: Vec<Probe>,
    /// Files of `/sys/kernel/mm/transparent_hugepage` and their contents; empty on a kernel
    /// without THP.
    pub thp: BTreeMap<String, String>,
    /// Settings of each page size below a huge page, and of huge pages; empty before Linux 6.8.
    #[serde(default)]
    pub thp_sizes: Vec<ThpSize>,
    /// Settings of THP that are known to hurt programs.
    #[serde(default)]
    pub risks: Vec<SettingRisk>,
    /// Cgroup that accounts the memory of this process; none without one.
    pub cgroup: Option<CgroupReport>,
    /// Whether the kernel reports memory pressure.
    pub psi: bool,
    /// Permitted capabilities, such as `cap_sys_nice`.
    pub capabilities: Vec<String>,
    /// 0 none, 1 strict, 2 a filter of system calls.
    pub seccomp_mode: u32,
    /// Whether starting a program can no longer grant privileges, file capabilities among them.
    pub no_new_privs: bool,
    /// `kernel.perf_event_paranoid`; null on a kernel without perf events.
    pub perf_event_paranoid: Option<i32>,
    /// `kernel.yama.ptrace_scope`; null on a kernel without Yama.
    pub yama_ptrace_scope: Option<i32>,
}

impl DoctorReport {
    /// Returns the probe named `name`.
    pub fn probe(&self, name: &str) -> Option<&Probe> {
        self.probes.iter().find(|probe| probe.name == name)
    }
    /// Whether the probe named `name` found support.
    pub fn supports(&self, name: &str) -> bool {
        self.probe(name).is_some_and(|probe| probe.supported)
    }
    /// Whether a live process can be tuned here, which takes promotion and one sampler.
    pub fn can_tune(&self) -> bool {
        self.supports(Probe::PROMOTE)
            && (self.supports(Probe::SAMPLER_CPU_CLOCK) || self.supports(Probe::SAMPLER_HARDWARE))
    }
}

/// Setting that hurts programs. JSON carries the variant as `code`, and the sentence as `text` and
/// `help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Sentence)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum SettingRisk {
    /// `defrag` is `always`: a page fault waits while the kernel compacts memory.
    #[text(
        "defrag is always: a first touch of {} waits while the kernel compacts memory, for \
         milliseconds; that hurts databases and other programs with latency goals",
        where_set(*everywhere)
    )]
    #[help("echo defer+madvise | sudo tee {THP}/defrag")]
    FaultsCompact {
        /// Whether that concerns all memory, not only advised memory.
        everywhere: bool,
    },
    /// khugepaged collapses regions of which most base pages are unused, freed ones too.
    #[text(
        "khugepaged/max_ptes_none is {max_ptes_none}: khugepaged makes regions of {} huge of which \
         most base pages are unused; memory that a program or debloat freed comes back",
        where_set(*everywhere)
    )]
    #[help("echo 0 | sudo tee {THP}/khugepaged/max_ptes_none")]
    FreedMemoryRefills {
        /// `khugepaged/max_ptes_none`.
        max_ptes_none: u64,
        /// Whether that concerns all memory, not only advised memory.
        everywhere: bool,
    },
    /// khugepaged scans with short pauses.
    #[text(
        "khugepaged/scan_sleep_millisecs is {}: khugepaged uses a large part of a core",
        pause_ns.get() / 1_000_000
    )]
    #[help("echo 10000 | sudo tee {THP}/khugepaged/scan_sleep_millisecs")]
    ScansWithoutPause {
        /// `khugepaged/scan_sleep_millisecs`.
        pause_ns: Nanos,
    },
    /// Page faults allocate pages of another size everywhere.
    #[text(
        "pages of {page_bytes} are always used at page faults: programs that touch a few bytes of \
         each take up to {page_bytes} instead of a base page"
    )]
    #[help("echo madvise | sudo tee {THP}/hugepages-{}kB/enabled", page_bytes.get() >> 10)]
    SmallerPages {
        /// The page size.
        page_bytes: Bytes,
    },
}

/// Result of one probe. In JSON, `code` names the finding, and its facts stand beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Probe {
    /// Name, from the list below.
    pub name: String,
    /// Whether the feature worked, as verified afterwards.
    pub supported: bool,
    /// Evidence, or the reason of the failure.
    #[serde(flatten)]
    pub finding: Finding,
    /// Further facts.
    pub details: Vec<Detail>,
}

impl Probe {
    /// `MADV_COLLAPSE` on another process.
    pub const PROMOTE: &str = "promote";
    /// `MADV_COLD` on one page of another process's huge page, which frees its zero-filled pages.
    pub const DEMOTE_FREES_ZERO_PAGES: &str = "demote_frees_zero_pages";
    /// `PAGEMAP_SCAN` ioctl on another process.
    pub const PAGEMAP_SCAN: &str = "pagemap_scan";
    /// `process_vm_readv` on another process.
    pub const READ_TARGET_MEMORY: &str = "read_target_memory";
    /// Samples with registers from the CPU clock.
    pub const SAMPLER_CPU_CLOCK: &str = "sampler_cpu_clock";
    /// Samples with data addresses from the processor.
    pub const SAMPLER_HARDWARE: &str = "sampler_hardware";
    /// Free hugetlb page of 2 MiB.
    pub const HUGETLB_2M: &str = "hugetlb_2m";
    /// Free hugetlb page of 1 GiB.
    pub const HUGETLB_1G: &str = "hugetlb_1g";

    /// A probe that found support.
    pub fn yes(name: &str, evidence: Evidence) -> Self {
        let finding = Finding::Evidence(evidence);
        Self { name: name.to_owned(), supported: true, finding, details: Vec::new() }
    }
    /// A probe that found none.
    pub fn no(name: &str, reason: Unsupported) -> Self {
        let finding = Finding::Unsupported(reason);
        Self { name: name.to_owned(), supported: false, finding, details: Vec::new() }
    }
    /// Adds further facts.
    #[must_use]
    pub fn with_details(mut self, details: impl IntoIterator<Item = Detail>) -> Self {
        self.details.extend(details);
        self
    }
    /// Whether no command requires the feature, as for hugetlb pools.
    pub fn is_optional(&self) -> bool {
        self.name == Self::HUGETLB_2M || self.name == Self::HUGETLB_1G
    }
    /// Returns the reason of a failure; `None` if the feature works.
    pub const fn reason(&self) -> Option<&Unsupported> {
        match &self.finding {
            Finding::Unsupported(reason) => Some(reason),
            Finding::Evidence(_) => None,
        }
    }
}

/// Finding of a probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Finding {
    /// The feature worked.
    Evidence(Evidence),
    /// The feature did not work.
    Unsupported(Unsupported),
}

/// Observation that shows that a feature works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Sentence)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum Evidence {
    /// Memory of a child was promoted.
    #[text("MADV_COLLAPSE promoted {promoted_bytes} of a child")]
    Promoted {
        /// Memory that was promoted.
        promoted_bytes: Bytes,
    },
    /// A split freed zero-filled pages of a child.
    #[text(
        "MADV_COLD on one page split a huge page and freed {freed_pages} of {zero_pages} \
         zero-filled pages"
    )]
    ZeroPagesFreed {
        /// Base pages that the kernel freed.
        freed_pages: u64,
        /// Base pages that were zero-filled.
        zero_pages: u64,
    },
    /// The pagemap of a child shows its pages.
    #[text("the pagemap of a child shows its {pages} pages")]
    PagemapRead {
        /// Base pages in the pagemap.
        pages: u64,
    },
    /// Memory of a child was read.
    #[text("process_vm_readv read the memory of a child")]
    MemoryRead,
    /// Samples of a child arrived.
    #[text("samples of a child arrived, with registers")]
    Sampled,
    /// Page walks of a child arrived.
    #[text("{source}: page walks with addresses arrived")]
    PageWalksSampled {
        /// Source of the samples.
        source: String,
    },
    /// A hugetlb page was free.
    #[text("a page of {size_bytes} was free")]
    PageFree {
        /// Page size.
        size_bytes: Bytes,
    },
}

impl Sentence for Probe {
    fn text(&self) -> String {
        match &self.finding {
            Finding::Evidence(evidence) => evidence.text(),
            Finding::Unsupported(reason) => reason.to_string(),
        }
    }
    fn help(&self) -> Vec<String> {
        self.reason().map_or_else(Vec::new, |reason| reason.help())
    }
}

/// Further fact of a probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Sentence)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum Detail {
    /// Duration of the call.
    #[text("took {} µs", duration_ns.get() / 1000)]
    Duration {
        /// Wall time.
        duration_ns: Nanos,
    },
    /// The feature works on processes of other users.
    #[text("other users' processes, too")]
    OtherUsers,
    /// The feature works on processes of other users of this user namespace.
    #[text("other users' processes, too, but only of this user namespace")]
    OtherUsersOfNamespace,
    /// The feature works on processes of this user.
    #[text("processes of this user only: {missing} is missing")]
    OwnUser {
        /// Capability that other users' processes require.
        missing: String,
    },
    /// `kernel.yama.ptrace_scope=1` limits the feature to children.
    #[text("children only: kernel.yama.ptrace_scope=1, and cap_sys_ptrace is missing")]
    ChildrenOnly,
    /// State of a hugetlb pool.
    #[text(
        "pool of {}: {free_pages} free, {reserved_pages} of them reserved",
        numbered(*total_pages, "page", "pages")
    )]
    Pool {
        /// All pages.
        total_pages: u64,
        /// Free pages, reserved ones included.
        free_pages: u64,
        /// Free pages that mappings have reserved.
        reserved_pages: u64,
    },
    /// Perf event of the source.
    #[text(
        "type {kind} config {config:#x} config1 {config1:#x} config2 {config2:#x} precise_ip \
         {precise_ip}"
    )]
    Event {
        /// Type of the PMU.
        kind: u32,
        /// First word of the event.
        config: u64,
        /// Second word.
        config1: u64,
        /// Third word.
        config2: u64,
        /// Requested limit on skid, 0 to 3.
        precise_ip: u8,
    },
    /// Source of samples that does not work.
    #[text("{source}: {reason}")]
    Source {
        /// Name of the source.
        source: String,
        /// Reason of the failure.
        reason: Unsupported,
    },
}

/// Processor and its TLBs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CpuReport {
    /// Processor.
    #[serde(flatten)]
    pub cpu: Cpu,
    /// Sizes of its TLBs.
    pub tlb: TlbSizes,
}

/// Data translations that the TLBs of a core hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TlbSizes {
    /// First level, base pages.
    pub l1d_4k_entries: u32,
    /// Second level, base pages.
    pub l2_4k_entries: u32,
    /// Second level, 2 MiB pages; 0 if it holds base pages only.
    pub l2_2m_entries: u32,
    /// Origin of these numbers.
    pub source: String,
    /// Whether some of them are assumed.
    pub assumed: bool,
}

/// Cgroup that accounts the memory of this process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CgroupReport {
    /// Version of cgroups, 1 or 2.
    pub version: u8,
    /// Path in the hierarchy, from `/`.
    pub path: String,
    /// Whether its limits are visible. Containers may show another part of the hierarchy.
    pub visible: bool,
    /// Tightest limit of the cgroup and its ancestors; null for none.
    pub limit_bytes: Option<Bytes>,
    /// Headroom below that limit; null for no limit.
    pub left_bytes: Option<Bytes>,
}

/// The memory that a setting concerns.
const fn where_set(everywhere: bool) -> &'static str {
    if everywhere { "any memory" } else { "advised memory" }
}
