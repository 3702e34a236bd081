//! Page sizes, numbers of huge pages, and regions.

use std::fmt;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::{AddrRange, Bytes, VirtAddr};

/// Page sizes of a system: 4 KiB and 2 MiB on x86-64, 64 KiB and 512 MiB on some others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageSizes {
    /// Size of a base page.
    pub base: Bytes,
    /// Size of a huge page: the memory that a PMD entry maps.
    pub huge: Bytes,
}

impl PageSizes {
    /// 4 KiB and 2 MiB, for tests and recordings of x86-64.
    pub const X86_64: Self = Self { base: Bytes::kib(4), huge: Bytes::mib(2) };

    /// Makes page sizes; `None` unless both are powers of two and `huge` is larger.
    pub const fn new(base: Bytes, huge: Bytes) -> Option<Self> {
        let sound = base.get().is_power_of_two() && huge.get().is_power_of_two();
        if sound && huge.get() > base.get() { Some(Self { base, huge }) } else { None }
    }
    /// Returns the base pages per huge page: 512 on x86-64.
    pub const fn base_per_huge(self) -> u64 {
        self.huge.get() / self.base.get()
    }
    /// Returns the region of `address`.
    pub const fn region_of(self, address: VirtAddr) -> Region {
        Region(address.get() / self.huge.get())
    }
    /// Returns the index of the base page of `address` within its region.
    pub const fn page_in_region(self, address: VirtAddr) -> u64 {
        address.get() % self.huge.get() / self.base.get()
    }
    /// Returns the regions wholly inside `range`, in address order.
    pub fn regions_inside(self, range: AddrRange) -> impl ExactSizeIterator<Item = Region> + Clone {
        let inside = range.aligned_inside(self.huge);
        let first = self.region_of(inside.start).0;
        let count = usize::try_from(inside.len().get() / self.huge.get()).unwrap_or(usize::MAX);
        (0..count).map(move |i| Region(first + i as u64))
    }

    /// Returns the regions that lie inside `range` as a whole, as a range; `None` without one.
    pub fn span_inside(self, range: AddrRange) -> Option<RangeInclusive<Region>> {
        let mut inside = self.regions_inside(range);
        let first = inside.next()?;
        Some(first..=Region(first.0 + inside.len() as u64))
    }
}

/// Number of huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HugePages(u64);

impl HugePages {
    /// Makes a number of huge pages.
    pub const fn new(count: u64) -> Self {
        Self(count)
    }
    /// Returns the whole huge pages that fit in `len`.
    pub const fn fitting_in(len: Bytes, sizes: PageSizes) -> Self {
        Self(len.get() / sizes.huge.get())
    }
    /// Returns the number.
    pub const fn get(self) -> u64 {
        self.0
    }
    /// Returns their total size.
    pub const fn bytes(self, sizes: PageSizes) -> Bytes {
        sizes.huge.times(self.0)
    }
}

impl fmt::Display for HugePages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Aligned address range that a huge page can map. The number is the start address divided by the
/// huge page size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Region(u64);

impl Region {
    /// Makes the region with this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }
    /// Returns the number.
    pub const fn get(self) -> u64 {
        self.0
    }
    /// Returns its addresses.
    pub fn range(self, sizes: PageSizes) -> AddrRange {
        AddrRange::at(VirtAddr::new(self.0.saturating_mul(sizes.huge.get())), sizes.huge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_aligned_regions_are_inside() {
        let sizes = PageSizes::X86_64;
        let range = AddrRange::new(VirtAddr::new((2 << 20) + 4096), VirtAddr::new(9 << 20));
        let regions: Vec<_> = sizes.regions_inside(range).map(Region::get).collect();
        assert_eq!(regions, [2, 3]);
        assert_eq!(Region::new(2).range(sizes).start.get(), 4 << 20);
    }

    #[test]
    fn pages_of_a_region_are_numbered_from_its_start() {
        let sizes = PageSizes::X86_64;
        let address = VirtAddr::new((6 << 20) + 3 * 4096 + 17);
        assert_eq!(sizes.region_of(address), Region::new(3));
        assert_eq!(sizes.page_in_region(address), 3);
        assert_eq!(sizes.base_per_huge(), 512);
    }

    #[test]
    fn impossible_sizes_are_refused() {
        assert!(PageSizes::new(Bytes::kib(4), Bytes::kib(4)).is_none());
        assert!(PageSizes::new(Bytes::ZERO, Bytes::mib(2)).is_none());
        assert!(PageSizes::new(Bytes::kib(64), Bytes::mib(512)).is_some());
    }
}
