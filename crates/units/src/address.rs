//! Addresses in a process, and ranges of them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Bytes, ParseError};

const EXPECTED: &str = "two hexadecimal addresses, START-END";

/// Virtual address in a process. Never dereferenced.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct VirtAddr(u64);

impl VirtAddr {
    /// Makes an address from a number.
    pub const fn new(address: u64) -> Self {
        Self(address)
    }
    /// Returns the number.
    pub const fn get(self) -> u64 {
        self.0
    }
    /// Adds `bytes`, saturating at the end of the address space.
    #[must_use]
    pub const fn plus(self, bytes: Bytes) -> Self {
        Self(self.0.saturating_add(bytes.get()))
    }
    /// Subtracts `bytes`, saturating at 0.
    #[must_use]
    pub const fn minus(self, bytes: Bytes) -> Self {
        Self(self.0.saturating_sub(bytes.get()))
    }
    /// Rounds down to a multiple of `unit`, a power of two.
    #[must_use]
    pub const fn align_down(self, unit: Bytes) -> Self {
        Self(self.0 & !(unit.get() - 1))
    }
    /// Rounds up to a multiple of `unit`, a power of two.
    #[must_use]
    pub const fn align_up(self, unit: Bytes) -> Self {
        Self(self.0.saturating_add(unit.get() - 1) & !(unit.get() - 1))
    }
    /// Returns the distance from `other`; 0 if `other` is above.
    pub const fn since(self, other: Self) -> Bytes {
        Bytes::new(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for VirtAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:#x}", self.0))
    }
}

/// Half-open range of addresses, from `start` to `end`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AddrRange {
    /// First address.
    pub start: VirtAddr,
    /// First address after the range.
    pub end: VirtAddr,
}

impl AddrRange {
    /// Makes a range; empty if `end` is not above `start`.
    pub fn new(start: VirtAddr, end: VirtAddr) -> Self {
        Self { start, end: end.max(start) }
    }
    /// Makes a range of `len` bytes.
    pub fn at(start: VirtAddr, len: Bytes) -> Self {
        Self { start, end: start.plus(len) }
    }
    /// Returns the length in bytes.
    pub const fn len(self) -> Bytes {
        self.end.since(self.start)
    }
    /// Whether the range is empty.
    pub const fn is_empty(self) -> bool {
        self.len().get() == 0
    }
    /// Whether the range holds `address`.
    pub fn contains(self, address: VirtAddr) -> bool {
        self.start <= address && address < self.end
    }
    /// Whether the range holds all of `other`.
    pub fn covers(self, other: Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }
    /// Returns the intersection of both ranges.
    #[must_use]
    pub fn intersect(self, other: Self) -> Self {
        Self::new(self.start.max(other.start), self.end.min(other.end))
    }
    /// Returns the part of whole, aligned units (a power of two); empty if none fits.
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

/// Parses two hexadecimal addresses, `START-END`, as `/proc/PID/maps` has them, or with `0x`.
impl FromStr for AddrRange {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let parsed = || {
            let (start, end) = text.split_once('-')?;
            let address = |text: &str| {
                let digits = text.strip_prefix("0x").unwrap_or(text);
                let is_signed = digits.starts_with(['+', '-']);
                let number = u64::from_str_radix(digits, 16).ok().filter(|_| !is_signed);
                number.map(VirtAddr::new)
            };
            let (start, end) = (address(start)?, address(end)?);
            (start < end).then(|| Self::new(start, end))
        };
        parsed().ok_or_else(|| ParseError::new(EXPECTED, text))
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

    #[test]
    fn a_range_is_parsed_as_it_is_printed() {
        for text in ["7f00-7f80", "0x7f00-0x7f80"] {
            assert_eq!(text.parse(), Ok(range(0x7f00, 0x7f80)));
        }
        assert_eq!(range(0x7f00, 0x7f80).to_string(), "7f00-7f80");
        for wrong in
            ["", "7f00", "7f80-7f00", "7f00-7f00", "7f00-xyz", "7f00 - 7f80", "+1-2", "1-2-3"]
        {
            assert!(wrong.parse::<AddrRange>().is_err(), "{wrong:?}");
        }
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
