//! Addresses in a process, and ranges of them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Bytes;

/// A virtual address of some process. Not a pointer: it is never followed.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct VirtAddr(u64);

impl VirtAddr {
    /// That address.
    pub const fn new(address: u64) -> Self {
        Self(address)
    }
    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
    /// This address and `bytes` more, held at the end of the address space.
    #[must_use]
    pub const fn plus(self, bytes: Bytes) -> Self {
        Self(self.0.saturating_add(bytes.get()))
    }
    /// This address less `bytes`, held at 0.
    #[must_use]
    pub const fn minus(self, bytes: Bytes) -> Self {
        Self(self.0.saturating_sub(bytes.get()))
    }
    /// The multiple of `unit` (a power of two) at or below.
    #[must_use]
    pub const fn align_down(self, unit: Bytes) -> Self {
        Self(self.0 & !(unit.get() - 1))
    }
    /// The multiple of `unit` (a power of two) at or above.
    #[must_use]
    pub const fn align_up(self, unit: Bytes) -> Self {
        Self(self.0.saturating_add(unit.get() - 1) & !(unit.get() - 1))
    }
    /// Bytes from `other` up to here; 0 when `other` is above.
    pub const fn since(self, other: Self) -> Bytes {
        Bytes::new(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for VirtAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:#x}", self.0))
    }
}

/// Addresses from `start` up to, not including, `end`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct AddrRange {
    /// The first address.
    pub start: VirtAddr,
    /// The first address after.
    pub end: VirtAddr,
}

impl AddrRange {
    /// From `start` to `end`; empty when `end` is not above `start`.
    pub fn new(start: VirtAddr, end: VirtAddr) -> Self {
        Self { start, end: end.max(start) }
    }
    /// `len` bytes from `start`.
    pub fn at(start: VirtAddr, len: Bytes) -> Self {
        Self { start, end: start.plus(len) }
    }
    /// How many bytes lie in it.
    pub const fn len(self) -> Bytes {
        self.end.since(self.start)
    }
    /// Whether nothing lies in it.
    pub const fn is_empty(self) -> bool {
        self.len().get() == 0
    }
    /// Whether `address` lies in it.
    pub fn contains(self, address: VirtAddr) -> bool {
        self.start <= address && address < self.end
    }
    /// Whether all of `other` lies in it.
    pub fn covers(self, other: Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }
    /// What lies in both.
    #[must_use]
    pub fn intersect(self, other: Self) -> Self {
        Self::new(self.start.max(other.start), self.end.min(other.end))
    }
    /// The part made of whole, aligned units (a power of two); empty when none fits.
    #[must_use]
    pub fn aligned_inside(self, unit: Bytes) -> Self {
        Self::new(self.start.align_up(unit), self.end.align_down(unit))
    }
}

impl fmt::Display for AddrRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}", self.start.get(), self.end.get())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(start: u64, end: u64) -> AddrRange {
        AddrRange::new(VirtAddr::new(start), VirtAddr::new(end))
    }

    #[test]
    fn a_range_that_holds_no_whole_unit_is_empty_inside() {
        let unit = Bytes::mib(2);
        assert!(range(1, 4 << 20).aligned_inside(unit) == range(2 << 20, 4 << 20));
        assert!(range(1, (4 << 20) - 1).aligned_inside(unit).is_empty());
        assert!(range(u64::MAX - 4096, u64::MAX).aligned_inside(unit).is_empty());
    }

    proptest! {
        #[test]
        fn the_aligned_part_lies_inside(a in any::<u64>(), b in any::<u64>(), shift in 12_u32..31) {
            let (whole, unit) = (range(a.min(b), a.max(b)), Bytes::new(1 << shift));
            let part = whole.aligned_inside(unit);
            if !part.is_empty() {
                prop_assert!(whole.covers(part));
                prop_assert_eq!(part.start.get() % unit.get(), 0);
                prop_assert_eq!(part.len().get() % unit.get(), 0);
                prop_assert!((whole.len() - part.len()).get() < 2 * unit.get());
            }
        }
    }
}
