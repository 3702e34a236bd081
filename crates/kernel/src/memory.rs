//! The memory of the whole system: `/proc/meminfo`, `/proc/buddyinfo`, pressure.

use hugepilot_units::{Bytes, PageSizes};

use crate::{KernelError, Result, Root};

/// What we use of `/proc/meminfo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemInfo {
    /// All memory (`MemTotal`).
    pub total: Bytes,
    /// What could be had without swapping (`MemAvailable`).
    pub available: Bytes,
    /// Memory that the hardware lost (`HardwareCorrupted`).
    pub corrupted: Bytes,
}

/// Reads `/proc/meminfo`.
///
/// # Errors
/// [`KernelError::Read`], or [`KernelError::Parse`] when `MemTotal` or `MemAvailable` is missing.
pub fn mem_info(root: &Root) -> Result<MemInfo> {
    let path = "proc/meminfo";
    let text = root.read_text(path)?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().split(' ').next()?.parse().ok().map(Bytes::kib)
    };
    let need = |name: &'static str| {
        field(name).ok_or_else(|| KernelError::parse(&root.join(path), 0, name, b"no such line"))
    };
    Ok(MemInfo {
        total: need("MemTotal")?,
        available: need("MemAvailable")?,
        corrupted: field("HardwareCorrupted").unwrap_or(Bytes::ZERO),
    })
}

/// Whether memory can be swapped out here: some swap space is in use (`SwapTotal`).
///
/// # Errors
/// [`KernelError::Read`].
pub fn has_swap(root: &Root) -> Result<bool> {
    let text = root.read_text("proc/meminfo")?;
    let total = text.lines().find_map(|line| line.strip_prefix("SwapTotal:"));
    Ok(total.is_some_and(|rest| rest.trim().split(' ').next() != Some("0")))
}

/// Huge pages that reclaim split on the whole system since it started because they were underused
/// (`thp_underused_split_page`); `None` on a kernel that does not count them.
pub fn underused_splits(root: &Root) -> Option<u64> {
    let text = root.read_text("proc/vmstat").ok()?;
    text.lines().find_map(|line| line.strip_prefix("thp_underused_split_page ")?.parse().ok())
}

/// Memory in free blocks large enough for a huge page, from `/proc/buddyinfo`. Compaction can make more.
///
/// # Errors
/// [`KernelError::Read`].
pub fn free_huge(root: &Root, sizes: PageSizes) -> Result<Bytes> {
    let text = root.read_text("proc/buddyinfo")?;
    let order_of_huge = sizes.base_per_huge().ilog2() as usize;
    let mut free = Bytes::ZERO;
    for line in text.lines() {
        let counts = line.split_ascii_whitespace().skip(4);
        for (order, count) in counts.enumerate().skip(order_of_huge) {
            let block =
                Bytes::new(sizes.base.get().checked_shl(u32::try_from(order).unwrap_or(64)).unwrap_or(0));
            free += block.times(count.parse().unwrap_or(0));
        }
    }
    Ok(free)
}

/// How much tasks waited for memory, in percent of the last ten seconds (PSI).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// At least one task waited.
    pub some_avg10: f64,
    /// All tasks waited.
    pub full_avg10: f64,
}

/// Reads a pressure file such as `proc/pressure/memory`; `None` where the kernel keeps none.
pub fn pressure(root: &Root, path: &str) -> Option<Pressure> {
    let text = root.read_text(path).ok()?;
    let avg10 = |kind: &str| {
        let line = text.lines().find(|line| line.starts_with(kind))?;
        line.split(' ').find_map(|field| field.strip_prefix("avg10="))?.parse().ok()
    };
    Some(Pressure { some_avg10: avg10("some")?, full_avg10: avg10("full").unwrap_or(0.0) })
}

/// The page sizes of the system: the base size from the C library, the huge one from THP's `hpage_pmd_size`, or, where
/// the kernel has no THP, from `Hugepagesize` of meminfo.
///
/// # Errors
/// [`KernelError::Parse`] when neither names a huge page size.
pub fn page_sizes(root: &Root) -> Result<PageSizes> {
    let base = Bytes::new(rustix::param::page_size() as u64);
    let path = "sys/kernel/mm/transparent_hugepage/hpage_pmd_size";
    let from_thp = root.read_text(path).ok().and_then(|text| text.parse().ok()).map(Bytes::new);
    let from_meminfo = || {
        let text = root.read_text("proc/meminfo").ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("Hugepagesize:"))?;
        line.trim().split(' ').next()?.parse().ok().map(Bytes::kib)
    };
    from_thp
        .or_else(from_meminfo)
        .and_then(|huge| PageSizes::new(base, huge))
        .ok_or_else(|| KernelError::parse(&root.join(path), 1, "a huge page size in bytes", b""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;

    #[test]
    fn free_huge_counts_blocks_of_order_nine_and_up() {
        let text = "Node 0, zone      DMA      0      0      0      0      0      0      0      0      1      1      3\n\
                    Node 0, zone   Normal    106    411    577    449    435    330    224    209    101     66    184\n";
        let (_dir, root) = fixture(&[("proc/buddyinfo", text)]);
        let free = free_huge(&root, PageSizes::X86_64).unwrap();
        assert_eq!(free, Bytes::mib(2 * (1 + 66) + 4 * (3 + 184)));
    }

    #[test]
    fn a_kernel_without_psi_says_nothing() {
        let line = "some avg10=1.50 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.25 avg60=0.00 avg300=0.00 total=0\n";
        let (_dir, root) = fixture(&[("proc/pressure/memory", line)]);
        let found = pressure(&root, "proc/pressure/memory").unwrap();
        assert_eq!((found.some_avg10, found.full_avg10), (1.5, 0.25));
        assert!(pressure(&root, "proc/pressure/none").is_none());
    }

    #[test]
    fn a_missing_field_is_named() {
        let (_dir, root) = fixture(&[("proc/meminfo", "MemTotal: 100 kB\n")]);
        assert!(mem_info(&root).unwrap_err().to_string().contains("MemAvailable"));
    }

    #[test]
    fn the_live_system_has_sane_memory() {
        let info = mem_info(&Root::live()).unwrap();
        assert!(info.available <= info.total && info.total > Bytes::mib(64));
        assert!(page_sizes(&Root::live()).unwrap().base_per_huge() >= 2);
    }
}
