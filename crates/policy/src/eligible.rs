//! What may be put on a huge page at all, whatever its heat: the rules that keep a target unharmed.

use hugepilot_record::{Headroom, Mapping, MappingKind, RegionPages, SkipReason};
use hugepilot_units::{Bytes, PageSizes, Share};

/// Where the line is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Least part of a region that must be resident: the rest is memory the huge page adds. Half, so that a promotion
    /// at most doubles what a region costs.
    pub min_resident: Share,
    /// Most part of a region that may be swapped out: it would all be read back.
    pub max_swapped: Share,
    /// Part of a cgroup's limit that stays free, so that the target can still grow while we act.
    pub cgroup_reserve: Share,
    /// At least this much stays free under a cgroup limit.
    pub cgroup_reserve_min: Bytes,
    /// Part of the system's memory that stays available.
    pub system_reserve: Share,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            min_resident: Share::percent(50.0),
            max_swapped: Share::percent(12.5),
            cgroup_reserve: Share::percent(6.25),
            cgroup_reserve_min: Bytes::mib(8),
            system_reserve: Share::percent(4.0),
        }
    }
}

impl Limits {
    /// What must stay free under a cgroup limit of `limit`.
    pub fn cgroup_reserve_of(&self, limit: Bytes) -> Bytes {
        self.cgroup_reserve.of(limit).max(self.cgroup_reserve_min)
    }

    /// Returns the limit that forbids to take `needed` bytes of `headroom`; `None` if both allow it.
    ///
    /// The caller adds the size of one huge page to what stays allocated: while a huge page is made,
    /// the base pages that it replaces are still there.
    pub fn headroom_skip(&self, headroom: Headroom, needed: Bytes) -> Option<SkipReason> {
        let limited = headroom.cgroup_limit < Bytes::MAX;
        let cgroup_reserve = self.cgroup_reserve_of(headroom.cgroup_limit);
        if limited && headroom.cgroup < needed + cgroup_reserve {
            return Some(SkipReason::CgroupHeadroom);
        }
        let system_reserve = self.system_reserve.of(headroom.system_total);
        (headroom.system < needed + system_reserve).then_some(SkipReason::SystemHeadroom)
    }
}

/// Why nothing in this mapping may be promoted; `None` when it may.
pub fn mapping_skip(mapping: &Mapping) -> Option<SkipReason> {
    if mapping.is_stack() {
        Some(SkipReason::Stack)
    } else if mapping.flags.has("nh") {
        Some(SkipReason::Nohugepage)
    } else {
        mapping_split_skip(mapping)
    }
}

/// Why a region with these pages may not be promoted; `None` when it may.
pub fn region_skip(pages: &RegionPages, sizes: PageSizes, limits: &Limits) -> Option<SkipReason> {
    let whole = sizes.base_per_huge();
    let part = |share: Share| share.of(Bytes::new(whole)).get();
    if pages.huge {
        Some(SkipReason::AlreadyHuge)
    } else if pages.shared > 0 {
        Some(SkipReason::SharedAfterFork)
    } else if pages.swapped > part(limits.max_swapped) {
        Some(SkipReason::MostlySwapped)
    } else if pages.resident < part(limits.min_resident).max(1) {
        Some(SkipReason::TooFewResident)
    } else {
        None
    }
}

/// Why no huge page of this mapping may be split; `None` when they may. A split of what is locked would fail, of a file or
/// shared memory free nothing, and userfaultfd could miss a page (a bug of kernels before 6.18).
pub fn mapping_split_skip(mapping: &Mapping) -> Option<SkipReason> {
    match mapping.kind {
        MappingKind::Special | MappingKind::Hugetlb => return Some(SkipReason::Special),
        MappingKind::File | MappingKind::SharedMemory => return Some(SkipReason::FileOrShared),
        MappingKind::Stack | MappingKind::Anonymous => {}
    }
    if mapping.flags.has("lo") || mapping.locked > Bytes::ZERO {
        return Some(SkipReason::Mlocked);
    }
    mapping.is_userfaultfd().then_some(SkipReason::Userfaultfd)
}

/// Why the huge page with these pages may not be split; `None` when it may.
pub const fn split_skip(pages: &RegionPages) -> Option<SkipReason> {
    if !pages.huge {
        Some(SkipReason::AlreadySplit)
    } else if pages.shared > 0 {
        // The kernel would say yes and do nothing.
        Some(SkipReason::SharedAfterFork)
    } else {
        None
    }
}
