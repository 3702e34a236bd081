//! Effect of a page mode: the evidence, or the cause of its absence.

use hugepilot_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Stop, Unsupported};

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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum EffectCause {
    /// Memory was on pages of the mode.
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
    AllocatorLoaded {
        /// Peak of each kind.
        #[serde(flatten)]
        pages: HugeMemory,
    },
    /// Transparent huge pages were off, and there were no huge pages.
    NoHugePages,
    /// Transparent huge pages were off, and the program used huge pages of other kinds.
    OtherHugePages {
        /// Peak of each kind.
        #[serde(flatten)]
        pages: HugeMemory,
    },
    /// Transparent huge pages were off, and there were some.
    UnexpectedThp {
        /// Peak of each kind.
        #[serde(flatten)]
        pages: HugeMemory,
    },
    /// Transparent huge pages were off, and the program ended before the first sample.
    ThpOffNotSampled,
    /// The loader ignores preloaded libraries and tunables for this program.
    LoaderBypassed {
        /// Kind of program.
        program: ProgramKind,
    },
    /// The C library lacks the tunable `glibc.malloc.hugetlb`.
    LibcLacksTunable {
        /// The C library.
        libc: Libc,
    },
    /// The hugetlb pool has no free page.
    EmptyPool {
        /// Page size of the pool.
        page_bytes: Bytes,
    },
    /// The program has its own allocator.
    OwnAllocator {
        /// File name of its library.
        library: String,
    },
    /// No process mapped the preloaded library.
    LibraryNotLoaded,
    /// The system's THP setting is `never`.
    ThpNever,
    /// Promotion from outside requires a capability.
    PromotionNotPermitted,
    /// Promotion from outside stopped.
    PromotionStopped {
        /// Cause.
        stop: Stop,
    },
    /// glibc before 2.38 advises only in some runs, and did not in this one.
    LibcThpBug,
    /// Little free memory in blocks of huge-page size when the program started.
    Fragmented {
        /// Free memory in such blocks.
        free_bytes: Bytes,
    },
    /// The program ended before the first sample.
    NotSampled {
        /// Run time.
        wall_seconds: f64,
    },
    /// No process could be read.
    Unreadable,
    /// Too little memory for a huge page.
    LittleMemory {
        /// Peak resident set.
        rss_peak_bytes: Bytes,
    },
    /// The program advised no memory.
    NothingAdvised,
    /// No known cause.
    Unknown,
    /// No run was complete.
    NotMeasured,
    /// The mode is unavailable on this machine.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_read_back_what_they_write() {
        let pages = HugeMemory { anonymous_thp_bytes: Bytes::mib(4), ..HugeMemory::default() };
        let effect = Effect {
            took_effect: Some(true),
            cause: EffectCause::HugePages {
                pages,
                mode_bytes: Bytes::mib(4),
                memory_bytes: Bytes::mib(9),
            },
            owner: None,
            allocator_serves: Some(true),
        };
        let json = serde_json::to_value(&effect).unwrap();
        assert_eq!(json["cause"]["code"], "huge_pages");
        assert_eq!(json["cause"]["anonymous_thp_bytes"], 4 << 20);
        assert_eq!(serde_json::from_value::<Effect>(json).unwrap(), effect);
    }
}
