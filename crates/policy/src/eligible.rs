//! Safety rules: regions that may be promoted or split, whatever their heat.

use hugepilot_record::{Headroom, Mapping, MappingKind, Pressure, RegionPages, SkipReason};
use hugepilot_units::{Bytes, PageSizes, Share};
use serde::{Deserialize, Serialize};

/// Limits of the safety rules.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Smallest resident part of a region; a huge page adds the rest. At half, a promotion at most
    /// doubles the memory of a region.
    pub min_resident: Share,
    /// Largest part of a region that may be swapped out; a promotion would read all of it back.
    pub max_swapped: Share,
    /// Part of a cgroup's limit that stays free, so that the target can grow during promotion.
    pub cgroup_reserve: Share,
    /// Smallest reserve under a cgroup limit.
    pub cgroup_reserve_min: Bytes,
    /// Part of the system's memory that stays available.
    pub system_reserve: Share,
    /// Highest memory pressure (PSI `some`, percent of ten seconds).
    pub max_pressure: f64,
    /// Highest memory pressure by PSI `full`.
    pub max_full_pressure: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            min_resident: Share::percent(50.0),
            max_swapped: Share::percent(12.5),
            cgroup_reserve: Share::percent(6.25),
            cgroup_reserve_min: Bytes::mib(8),
            system_reserve: Share::percent(4.0),
            max_pressure: 10.0,
            max_full_pressure: 2.0,
        }
    }
}

impl Limits {
    /// Returns the reserve under a cgroup limit.
    pub fn cgroup_reserve_of(&self, limit: Bytes) -> Bytes {
        self.cgroup_reserve.of(limit).max(self.cgroup_reserve_min)
    }

    /// Whether memory pressure forbids promotions.
    pub fn is_pressed(&self, pressure: Pressure) -> bool {
        pressure.some_avg10 > self.max_pressure || pressure.full_avg10 > self.max_full_pressure
    }

    /// Returns the limit that forbids using `needed` bytes of `headroom`; `None` if both allow it.
    ///
    /// The caller adds the size of one huge page to `needed`: while the kernel collapses a region,
    /// the base pages that the huge page replaces stay allocated.
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

/// Returns the reason to skip this mapping; `None` if it may be promoted.
pub fn mapping_skip(mapping: &Mapping) -> Option<SkipReason> {
    if mapping.is_stack() {
        Some(SkipReason::Stack)
    } else if mapping.flags.has("nh") {
        Some(SkipReason::Nohugepage)
    } else {
        mapping_split_skip(mapping)
    }
}

/// Returns the same of a mapping of a process; `thp_disabled`: whether huge pages are disabled for
/// it.
pub fn process_skip(mapping: &Mapping, thp_disabled: bool) -> Option<SkipReason> {
    mapping_skip(mapping).or(thp_disabled.then_some(SkipReason::ThpDisabled))
}

/// Returns the reason to skip a region with these pages; `None` if it may be promoted.
///
/// ```
/// use hugepilot_policy::{Limits, region_skip};
/// use hugepilot_record::{RegionPages, SkipReason};
/// use hugepilot_units::{PageSizes, Region};
///
/// let region = Region::new(7);
/// let pages = RegionPages::on_base_pages(region, 100);
/// // A huge page would add 412 base pages to the 100 resident ones.
/// let skip = region_skip(&pages, PageSizes::X86_64, &Limits::default());
/// assert_eq!(skip, Some(SkipReason::TooFewResident));
/// ```
pub fn region_skip(pages: &RegionPages, sizes: PageSizes, limits: &Limits) -> Option<SkipReason> {
    let whole = sizes.base_per_huge();
    let part = |share: Share| share.of(Bytes::new(whole)).get();
    if pages.huge {
        Some(SkipReason::AlreadyHuge)
    } else if pages.guards > 0 {
        Some(SkipReason::GuardPages)
    } else if pages.merged > 0 {
        Some(SkipReason::Merged)
    } else if pages.shared > 0 {
        Some(SkipReason::SharedAfterFork)
    } else if pages.swapped > part(limits.max_swapped) {
        Some(SkipReason::MostlySwapped)
    } else if pages.resident < part(limits.min_resident).max(1) {
        Some(SkipReason::TooFewResident)
    } else if pages.kept() < part(limits.min_resident).max(1) {
        Some(SkipReason::LazilyFreed)
    } else {
        None
    }
}

/// Returns the reason to split no huge page of this mapping; `None` if they may be split.
///
/// A split of locked memory would fail. A split of a file or of shared memory would free nothing.
/// With userfaultfd, a page could be lost (a bug of kernels before 6.18).
pub fn mapping_split_skip(mapping: &Mapping) -> Option<SkipReason> {
    match mapping.kind {
        MappingKind::Special | MappingKind::Hugetlb => return Some(SkipReason::Special),
        MappingKind::File if mapping.protection.execute => return Some(SkipReason::Code),
        MappingKind::File => return Some(SkipReason::File),
        MappingKind::SharedMemory => return Some(SkipReason::SharedMemory),
        MappingKind::Stack | MappingKind::Anonymous => {}
    }
    if mapping.flags.has("lo") || mapping.locked > Bytes::ZERO {
        return Some(SkipReason::Mlocked);
    }
    mapping.is_userfaultfd().then_some(SkipReason::Userfaultfd)
}

/// Returns the reason not to split the huge page with these pages; `None` if it may be split.
pub const fn split_skip(pages: &RegionPages) -> Option<SkipReason> {
    if !pages.huge {
        Some(SkipReason::AlreadySplit)
    } else if pages.shared > 0 {
        // The kernel would report success without an effect.
        Some(SkipReason::SharedAfterFork)
    } else if pages.resident > 0 && pages.kept() == 0 {
        // The kernel may take all of it already.
        Some(SkipReason::LazilyFreed)
    } else {
        None
    }
}
