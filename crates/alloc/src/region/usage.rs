//! Pages behind a region, read from the pagemap.

use std::ops::Add;

use hugepilot_record::PageRun;
use hugepilot_units::Bytes;

use super::HugeRegion;
use crate::{AllocError, Backing, Result, Sys};

/// Bytes of a region by kind of page. The sum is the region's length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageUsage {
    /// Bytes on base pages, or on huge pages smaller than a PMD entry maps (mTHP).
    pub base: Bytes,
    /// Bytes on transparent huge pages.
    pub thp: Bytes,
    /// Bytes on pages of the 2 MiB pool.
    pub hugetlb_2m: Bytes,
    /// Bytes on pages of the 1 GiB pool.
    pub hugetlb_1g: Bytes,
    /// Bytes mapped to the shared zero page: read, but never written.
    pub zero: Bytes,
    /// Bytes in swap.
    pub swapped: Bytes,
    /// Bytes never touched. On a pool, their pages are reserved.
    pub untouched: Bytes,
}

impl PageUsage {
    /// Returns the bytes on huge pages of any kind.
    pub fn huge(&self) -> Bytes {
        self.thp + self.hugetlb_2m + self.hugetlb_1g
    }
    /// Returns the bytes that use memory: those on pages of their own.
    pub fn resident(&self) -> Bytes {
        self.base + self.huge()
    }
}

/// Sum of two usages.
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
    /// Reads from the pagemap which pages the memory is on. Touches no page.
    ///
    /// Walks the page tables of the region: about 30 µs per GiB of huge pages, 10 ms per GiB of
    /// base pages.
    ///
    /// # Errors
    /// [`AllocError::Pagemap`]: ENOTTY before Linux 6.7, or if `/proc` is unavailable.
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
