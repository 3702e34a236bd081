//! Obstacles to a page mode, found in the files and the memory of a program.

use std::path::PathBuf;
use std::time::Duration;

use hugepilot_record::Stop;
use hugepilot_reports::run::{EffectCause, Libc, ProgramKind};
use hugepilot_units::Bytes;

/// Obstacles to a page mode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Obstacles {
    /// Kind of a program whose loader ignores preloaded libraries and tunables.
    pub loader_bypassed: Option<ProgramKind>,
    /// C library without `glibc.malloc.hugetlb`.
    pub libc_lacks_tunable: Option<Libc>,
    /// Whether glibc advises huge pages only in some runs.
    pub libc_thp_bug: bool,
    /// File name of the program's own allocator.
    pub own_allocator: Option<String>,
    /// File of the limit of a cgroup on pages of the mode's pool.
    pub pool_limit: Option<PathBuf>,
    /// Page size of the mode's pool, if it has no free page.
    pub empty_pool: Option<Bytes>,
    /// Whether the system's THP setting is `never`.
    pub thp_never: bool,
    /// Free memory in blocks of huge-page size at the start, if it was little.
    pub fragmented: Option<Bytes>,
    /// Whether no process mapped the preloaded library.
    pub not_preloaded: bool,
    /// Cause of missing promotion from outside.
    pub not_promoted: Option<PromotionObstacle>,
    /// Promotions from outside; `None` without any attempt.
    pub promotions: Option<Promotions>,
    /// Processes with the most memory: the program and its descendants.
    pub holders: Vec<Holder>,
    /// Name of a process with hugetlb pages that started others.
    pub pool_parent: Option<String>,
}

/// Promotions from outside of a whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promotions {
    /// Regions that were verified on huge pages.
    pub regions: u64,
    /// Time that they took, with the readings of the memory of the program.
    pub time: Duration,
    /// Cause of the last early end.
    pub stopped: Option<Stop>,
}

/// Obstacle to promotion from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromotionObstacle {
    /// A capability is missing.
    NotPermitted,
    /// Promotion stopped.
    Stopped(Stop),
}

impl PromotionObstacle {
    /// The obstacle as the cause of a missing effect.
    pub const fn cause(self) -> EffectCause {
        match self {
            Self::NotPermitted => EffectCause::PromotionNotPermitted,
            Self::Stopped(stop) => EffectCause::PromotionStopped { stop },
        }
    }
}

/// Peak memory of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// Name, control characters escaped.
    pub name: String,
    /// Resident set and hugetlb pages.
    pub memory: Bytes,
    /// Anonymous memory on transparent huge pages.
    pub thp: Bytes,
    /// Memory on 2 MiB hugetlb pages.
    pub hugetlb_2m: Bytes,
    /// Memory on 1 GiB hugetlb pages.
    pub hugetlb_1g: Bytes,
}
