//! On which pages memory really is.

use std::ops::Add;

use hugepilot_record::PageRun;
use hugepilot_units::Bytes;

use super::HugeRegion;
use crate::{AllocError, Backing, Result, Sys};

/// The bytes of a region by what is behind them. They add up to its length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageUsage {
    /// On base pages, or on huge pages smaller than a page-table entry of the next level maps (mTHP).
    pub base: Bytes,
    /// On transparent huge pages.
    pub thp: Bytes,
    /// On pages of the pool of 2 MiB.
    pub hugetlb_2m: Bytes,
    /// On pages of the pool of 1 GiB.
    pub hugetlb_1g: Bytes,
    /// Mapped to the shared zero page: read, but never written.
    pub zero: Bytes,
    /// In swap.
    pub swapped: Bytes,
    /// Never touched. Pages of a pool are set aside all the same.
    pub untouched: Bytes,
}

impl PageUsage {
    /// On huge pages of any kind.
    pub fn huge(&self) -> Bytes {
        self.thp + self.hugetlb_2m + self.hugetlb_1g
    }
    /// Using memory: on any page of its own.
    pub fn resident(&self) -> Bytes {
        self.base + self.huge()
    }
}

/// Of both.
impl Add for PageUsage {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            base: self.base + other.base,
            thp: self.thp + other.thp,
            hugetlb_2m: self.hugetlb_2m + other.hugetlb_2m,
            hugetlb_1g: self.hugetlb_1g + other.hugetlb_1g,
            zero: self.zero + other.zero,
            swapped: self.swapped + other.swapped,
            untouched: self.untouched + other.untouched,
        }
    }
}

impl<S: Sys> HugeRegion<S> {
    /// Looks up in the page map on which pages the memory is, now. No page is touched. It walks the page tables of the
    /// region: about 30 µs a GiB of huge pages, and 10 ms a GiB of base pages.
    ///
    /// # Errors
    /// [`AllocError::Pagemap`]: ENOTTY before Linux 6.7, or where `/proc` is not to be had.
    pub fn usage(&self) -> Result<PageUsage> {
        let mut usage = PageUsage { untouched: self.len(), ..PageUsage::default() };
        let backing = self.backing;
        let mut add = |run: PageRun| {
            let len = run.range.len();
            usage.untouched -= len;
            *match (backing, run.huge) {
                _ if run.swapped => &mut usage.swapped,
                _ if run.zero => &mut usage.zero,
                (Backing::Hugetlb2M, _) => &mut usage.hugetlb_2m,
                (Backing::Hugetlb1G, _) => &mut usage.hugetlb_1g,
                (_, true) => &mut usage.thp,
                (_, false) => &mut usage.base,
            } += len;
        };
        self.sys.scan(self.range(), &mut add).map_err(AllocError::Pagemap)?;
        Ok(usage)
    }
}
