//! Effect of a page mode: the evidence, or the cause of its absence.

use std::fmt;

use hugepilot_record::{Sentence, Stop, Unsupported};
use hugepilot_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Effect of a page mode, judged by sampled memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Effect {
    /// Whether memory was on the pages of the mode; of `base`: whether none was on transparent huge
    /// pages. `None` if memory was never sampled.
    pub took_effect: Option<bool>,
    /// Evidence, or the most likely cause.
    pub cause: EffectCause,
    /// Process with the pages of the mode, if the process with the most memory has none.
    pub owner: Option<PageOwner>,
    /// Whether a process mapped the preloaded allocator; `None` without one, or if unknown.
    pub allocator_serves: Option<bool>,
}

impl Effect {
    /// An effect without owner and allocator.
    pub const fn new(took_effect: Option<bool>, cause: EffectCause) -> Self {
        Self { took_effect, cause, owner: None, allocator_serves: None }
    }
}

/// Evidence of an effect, or the most likely cause of its absence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Sentence)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum EffectCause {
    /// Memory was on pages of the mode.
    #[text("{}{}", pages, of_memory(*mode_bytes, *memory_bytes))]
    HugePages {
        /// Peak of each kind.
        #[serde(flatten)]
        pages: HugeMemory,
        /// Peak on pages of the mode.
        mode_bytes: Bytes,
        /// Peak of all memory.
        memory_bytes: Bytes,
    },
    /// A process mapped the preloaded allocator, and the mode has no pages of its own.
    #[text("the preloaded allocator serves the program, with {pages}")]
    AllocatorLoaded {
        /// Peak of each kind.
        #[serde(flatten)]
        pages: HugeMemory,
    },
    /// Transparent huge pages were off, and there were no huge pages.
    #[text("no huge pages, as intended")]
    NoHugePages,
    /// Transparent huge pages were off, and the program used huge pages of other kinds.
    #[text("THP was off, and the program used other huge pages: {pages}")]
    OtherHugePages {
        /// Peak of each kind.
        #[serde(flatten)]
        pages: HugeMemory,
    },
    /// Transparent huge pages were off, and there were some.
    #[text("THP was off, and there were some nevertheless: {pages}")]
    UnexpectedThp {
        /// Peak of each kind.
        #[serde(flatten)]
        pages: HugeMemory,
    },
    /// Transparent huge pages were off, and the program ended before the first sample.
    #[text("THP was off; the program ended before the first memory sample")]
    ThpOffNotSampled,
    /// The loader ignores preloaded libraries and tunables for this program.
    #[text("the program ignores preloaded libraries and malloc tunables: {}", kind_of(*program))]
    #[help("{FROM_OUTSIDE}")]
    LoaderBypassed {
        /// Kind of program.
        program: ProgramKind,
    },
    /// The C library lacks the tunable `glibc.malloc.hugetlb`.
    #[text("the C library {}", lacks(*libc))]
    #[help("{FROM_OUTSIDE}")]
    LibcLacksTunable {
        /// The C library.
        libc: Libc,
    },
    /// The hugetlb pool has no free page.
    #[text("the pool has no free page of {page_bytes}")]
    #[help("sudo hugepilot pool set --size {page_bytes} --count N")]
    #[help("for this command alone: --pool AMOUNT")]
    EmptyPool {
        /// Page size of the pool.
        page_bytes: Bytes,
    },
    /// The program has its own allocator.
    #[text("the program has its own allocator ({library}), which ignores this setting")]
    #[help("{FROM_OUTSIDE}")]
    OwnAllocator {
        /// File name of its library.
        library: String,
    },
    /// No process mapped the preloaded library.
    #[text("no process mapped the library: the loader of the program did not load it")]
    LibraryNotLoaded,
    /// The system's THP setting is `never`.
    #[text("the system's THP setting is never")]
    #[help("echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled")]
    ThpNever,
    /// Promotion from outside requires a capability.
    #[text("memory could not be promoted from outside: that requires root")]
    #[help("run it as root")]
    PromotionNotPermitted,
    /// Promotion from outside stopped.
    #[text("memory was not promoted from outside: {stop}")]
    PromotionStopped {
        /// Cause.
        stop: Stop,
    },
    /// glibc before 2.38 advises only in some runs, and did not in this one.
    #[text(
        "the C library advised nothing in this run: glibc before 2.38 compares the THP setting \
         with uninitialised memory, so it advises in some runs only"
    )]
    #[help("{FROM_OUTSIDE}")]
    LibcThpBug,
    /// Little free memory in blocks of huge-page size when the program started.
    #[text(
        "memory is fragmented or full: at the start, {free_bytes} were free in blocks of huge-page \
         size"
    )]
    #[help("echo 1 | sudo tee /proc/sys/vm/compact_memory")]
    Fragmented {
        /// Free memory in such blocks.
        free_bytes: Bytes,
    },
    /// The program ended before the first sample.
    #[text("the program ended after {:.0} ms, before the first memory sample", wall_seconds * 1e3)]
    NotSampled {
        /// Run time.
        wall_seconds: f64,
    },
    /// No process could be read.
    #[text("the memory of the program is unreadable: it has other privileges than hugepilot")]
    Unreadable,
    /// Too little memory for a huge page.
    #[text("the program had {rss_peak_bytes} of memory, too little for huge pages")]
    LittleMemory {
        /// Peak resident set.
        rss_peak_bytes: Bytes,
    },
    /// The program advised no memory.
    #[text("the program advised no memory")]
    NothingAdvised,
    /// No known cause.
    #[text(
        "no known cause: the program may allocate blocks smaller than a huge page, or not by the C \
         library"
    )]
    Unknown,
    /// No run was complete.
    #[text("no run was complete")]
    NotMeasured,
    /// The mode is unavailable on this machine.
    #[text("{reason}")]
    #[help(all = reason.help())]
    Unavailable {
        /// Reason.
        reason: Unsupported,
    },
}

/// Peak memory on huge pages, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HugeMemory {
    /// Anonymous memory on transparent huge pages.
    pub anonymous_thp_bytes: Bytes,
    /// Files and shared memory on transparent huge pages.
    pub shared_thp_bytes: Bytes,
    /// Memory on 2 MiB hugetlb pages.
    pub hugetlb_2m_bytes: Bytes,
    /// Memory on 1 GiB hugetlb pages.
    pub hugetlb_1g_bytes: Bytes,
}

/// Memory by kind; kinds without memory are omitted.
impl fmt::Display for HugeMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = [
            (self.anonymous_thp_bytes, "on transparent huge pages"),
            (self.shared_thp_bytes, "on those of files and shared memory"),
            (self.hugetlb_2m_bytes, "on 2MiB hugetlb pages"),
            (self.hugetlb_1g_bytes, "on 1GiB hugetlb pages"),
        ];
        let some = kinds.iter().filter(|(bytes, _)| *bytes > Bytes::ZERO);
        let parts: Vec<String> = some.map(|(bytes, kind)| format!("{bytes} {kind}")).collect();
        f.write_str(if parts.is_empty() { "no huge pages" } else { "" })?;
        f.write_str(&parts.join(", "))
    }
}

/// Process with pages of a mode that the largest process has not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("sentence" = true))]
pub struct PageOwner {
    /// Name of the process, control characters escaped.
    pub process: String,
    /// Its memory on such pages.
    pub bytes: Bytes,
    /// Name of the process with the most memory.
    pub largest_process: String,
    /// Memory of that process.
    pub largest_bytes: Bytes,
}

impl Sentence for PageOwner {
    fn text(&self) -> String {
        let Self { process, bytes, largest_process, largest_bytes } = self;
        format!(
            "{bytes} on such pages belong to {process}; {largest_process}, which has the most \
             memory ({largest_bytes}), has none"
        )
    }
}

/// Kind of program that ignores `LD_PRELOAD` and `GLIBC_TUNABLES`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProgramKind {
    /// Statically linked.
    Static,
    /// A 32-bit program.
    ThirtyTwoBit,
    /// Set-user-ID or set-group-ID of another user.
    SetId,
}

/// C library without `glibc.malloc.hugetlb`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Libc {
    /// musl.
    Musl,
    /// glibc before 2.35, or another one.
    OldGlibc,
}

/// `--pages thp` works for any allocator.
const FROM_OUTSIDE: &str =
    "--pages thp: promotes memory from outside, whichever allocator the program uses";

/// All memory, if less than half of it was on pages of the mode.
fn of_memory(mode: Bytes, all: Bytes) -> String {
    if mode.times(2) < all { format!(", of {all} of memory") } else { String::new() }
}

/// Why the loader bypasses a program.
const fn kind_of(program: ProgramKind) -> &'static str {
    match program {
        ProgramKind::Static => "it is linked statically",
        ProgramKind::ThirtyTwoBit => "it is a 32-bit program",
        ProgramKind::SetId => "it is set-user-ID or set-group-ID",
    }
}

/// Why a C library lacks the tunable.
const fn lacks(libc: Libc) -> &'static str {
    match libc {
        Libc::Musl => "is musl, which has no glibc.malloc.hugetlb",
        Libc::OldGlibc => "has no glibc.malloc.hugetlb, which requires glibc 2.35",
    }
}
