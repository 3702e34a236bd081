//! Census: the zero-filled base pages in each huge page of a process.

use hugepilot_units::{Bytes, Nanos, PageSizes, Region, VirtAddr};
use serde::{Deserialize, Serialize};

use crate::{ProcessId, Skips, Stranded};

/// A huge page with zero-filled base pages. Their number is its bloat density (Gangar et al.,
/// ISMM'25, section 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BloatedPage {
    /// Its region.
    pub region: Region,
    /// Number of zero-filled base pages, at least one.
    pub zero_pages: u32,
    /// Index of the first of them.
    pub first_zero_page: u32,
    /// Cache lines of the page table, eight entries each, that map its other base pages after a
    /// split: the lines that page walks need.
    pub table_lines: u32,
}

/// Page-table entries in a cache line: 8 of 64 bytes.
const ENTRIES_PER_LINE: u32 = 8;

impl BloatedPage {
    /// Counts the zero-filled base pages of a huge page, given by ascending index; `None` if there
    /// are none.
    pub fn of(region: Region, zero_pages: &[u32], sizes: PageSizes) -> Option<Self> {
        let &first_zero_page = zero_pages.first()?;
        let lines = zero_pages.chunk_by(|a, b| a / ENTRIES_PER_LINE == b / ENTRIES_PER_LINE);
        let idle =
            lines.filter(|line| line.len() as u64 == u64::from(ENTRIES_PER_LINE)).count() as u64;
        let table_lines = sizes.base_per_huge().div_ceil(ENTRIES_PER_LINE.into()) - idle;
        let count = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        Some(Self {
            region,
            zero_pages: count(zero_pages.len() as u64),
            first_zero_page,
            table_lines: count(table_lines),
        })
    }

    /// Returns the address of its first zero-filled base page.
    pub fn zero_address(&self, sizes: PageSizes) -> VirtAddr {
        self.region.range(sizes).start.plus(sizes.base.times(self.first_zero_page.into()))
    }
    /// Returns its zero-filled bytes.
    pub fn bloat(&self, sizes: PageSizes) -> Bytes {
        sizes.base.times(self.zero_pages.into())
    }
}

/// Result of a census of one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Census {
    /// The process.
    pub process: ProcessId,
    /// The system's page sizes.
    pub sizes: PageSizes,
    /// Huge pages with bloat that may be split, in address order.
    pub bloated: Vec<BloatedPage>,
    /// Huge pages in mappings that may be split, bloated or not.
    pub huge_pages: u64,
    /// Huge pages whose contents were read: fewer for a sample.
    pub read_pages: u64,
    /// Huge pages that cannot be read, for example with `PROT_NONE`: their bloat is unknown, and
    /// `huge_pages` does not include them.
    #[serde(default)]
    pub unread_pages: u64,
    /// Large pages that hold more than the process maps of them, by address; `None` if they cannot
    /// be found.
    #[serde(default)]
    pub stranded: Option<Vec<Stranded>>,
    /// Skipped huge pages.
    pub skipped: Skips,
    /// Duration of the census.
    pub took: Nanos,
}

impl Census {
    /// Returns the zero-filled bytes in the huge pages that were read.
    pub fn bloat(&self) -> Bytes {
        self.bloated.iter().map(|page| page.bloat(self.sizes)).sum()
    }
    /// Returns the memory that is held and not mapped; `None` if it is not known.
    pub fn stranded_bytes(&self) -> Option<Bytes> {
        Some(self.stranded.as_ref()?.iter().map(|one| one.bytes).sum())
    }
    /// Returns the bytes of the huge pages that were read.
    pub fn scanned(&self) -> Bytes {
        self.sizes.huge.times(self.read_pages)
    }
    /// Estimates the bloat of all huge pages, with twice its standard error, from those that were
    /// read (drawn without replacement). Exact, with no error, if all were read.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn estimate(&self) -> (Bytes, Bytes) {
        let (all, read) = (self.huge_pages as f64, self.read_pages as f64);
        if self.read_pages >= self.huge_pages {
            return (self.bloat(), Bytes::ZERO);
        }
        let bytes = |pages: f64| Bytes::new((pages * self.sizes.base.as_f64()) as u64);
        if self.read_pages < 2 {
            // The variance of a single page is unknown.
            let all = self.sizes.huge.times(self.huge_pages);
            return (Bytes::new(self.bloat().get() * self.huge_pages).min(all), all);
        }
        let of = |page: &BloatedPage| f64::from(page.zero_pages);
        let mean = self.bloated.iter().map(of).sum::<f64>() / read;
        let squares = self.bloated.iter().map(|page| (of(page) - mean).powi(2)).sum::<f64>();
        let rest = (read - self.bloated.len() as f64) * mean.powi(2);
        let variance = (squares + rest) / (read - 1.0) / read * (1.0 - read / all);
        (bytes(mean * all), bytes(2.0 * variance.sqrt() * all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pid;

    fn census(zero_pages: &[u32], read_pages: u64, huge_pages: u64) -> Census {
        let bloated = zero_pages.iter().enumerate();
        Census {
            process: ProcessId { pid: Pid(1), start_ticks: 1, command: "x".into() },
            sizes: PageSizes::X86_64,
            bloated: bloated
                .map(|(i, &zero_pages)| BloatedPage {
                    region: Region::new(i as u64),
                    zero_pages,
                    first_zero_page: 3,
                    table_lines: 64,
                })
                .collect(),
            huge_pages,
            read_pages,
            unread_pages: 0,
            stranded: None,
            skipped: Skips::new(),
            took: Nanos::ZERO,
        }
    }

    #[test]
    fn only_used_pages_need_lines_of_the_page_table() {
        let of = |zero: Vec<u32>| BloatedPage::of(Region::new(1), &zero, PageSizes::X86_64);
        assert_eq!(of(vec![]), None);
        let tail = of((103..512).collect()).unwrap();
        assert_eq!((tail.zero_pages, tail.first_zero_page, tail.table_lines), (409, 103, 13));
        assert_eq!(of((0..512).filter(|page| page % 8 > 0).collect()).unwrap().table_lines, 64);
        assert_eq!(of((0..512).collect()).unwrap().table_lines, 0);
    }

    #[test]
    fn a_full_census_has_no_error() {
        let full = census(&[100, 412], 4, 4);
        assert_eq!(full.bloat(), Bytes::mib(2));
        assert_eq!(full.estimate(), (Bytes::mib(2), Bytes::ZERO));
        assert_eq!(full.scanned(), Bytes::mib(8));
        assert_eq!(full.bloated[1].zero_address(full.sizes).get(), (2 << 20) + 3 * 4096);
    }

    #[test]
    fn a_sample_is_scaled_up_and_has_an_error() {
        // Alternating pages of 0 and 512 zeros: mean 256, deviation 256 (273.7 of 8 drawn ones).
        let sample = census(&[512; 4], 8, 80);
        let (bloat, error) = sample.estimate();
        assert_eq!(bloat, Bytes::mib(80));
        // 2 · 273.7 / √8 · √(1 − 1/10) · 80 base pages
        let expected = 2.0 * 273.694 / 8_f64.sqrt() * 0.9_f64.sqrt() * 80.0 * 4096.0;
        assert!((error.as_f64() / expected - 1.0).abs() < 1e-4, "{error}");
        assert!(
            census(&[7], 1, 5).estimate().1 >= Bytes::mib(10),
            "the variance of one page is unknown"
        );
    }
}
