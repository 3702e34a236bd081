//! Memory of the system: `/proc/meminfo`, `/proc/buddyinfo`, pressure.

use hugepilot_record::{Errno, Pressure};
use hugepilot_reports::pool::{PoolMemory, ZoneBlocks};
use hugepilot_units::{Bytes, PageSizes};

use crate::proc::kib;
use crate::{KernelError, Result, Root};

/// Fields of `/proc/meminfo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemInfo {
    /// All memory (`MemTotal`).
    pub total: Bytes,
    /// Memory available without swapping (`MemAvailable`).
    pub available: Bytes,
    /// Unused memory (`MemFree`).
    pub free: Bytes,
    /// Memory lost to hardware errors (`HardwareCorrupted`).
    pub corrupted: Bytes,
}

/// Whether this process may compact memory: root may.
pub fn may_compact(root: &Root) -> bool {
    let file = root.join(crate::hugetlb::compact_file(None));
    std::fs::OpenOptions::new().write(true).open(file).is_ok()
}

/// Compacts memory of all nodes. Takes up to seconds.
///
/// # Errors
/// [`KernelError::Write`]: EACCES without root.
pub fn compact(root: &Root) -> Result<()> {
    root.write(crate::hugetlb::compact_file(None), "1")
}

/// Frees the memory of clean cached files (`/proc/sys/vm/drop_caches`). The next reading of such a
/// file reads its disk.
///
/// # Errors
/// [`KernelError::Write`]: EACCES without root.
pub fn drop_caches(root: &Root) -> Result<()> {
    root.write("proc/sys/vm/drop_caches", "1")
}

/// Reads `/proc/meminfo`.
///
/// # Errors
/// [`KernelError::Read`]; [`KernelError::Parse`] if `MemTotal` or `MemAvailable` is missing.
pub fn mem_info(root: &Root) -> Result<MemInfo> {
    let path = "proc/meminfo";
    let text = root.read_text(path)?;
    let need = |name: &'static str| {
        let found = kib(&text, &format!("{name}:"));
        found.ok_or_else(|| KernelError::parse(&root.join(path), 0, name, b"no such line"))
    };
    Ok(MemInfo {
        total: need("MemTotal")?,
        available: need("MemAvailable")?,
        free: kib(&text, "MemFree:").unwrap_or(Bytes::ZERO),
        corrupted: kib(&text, "HardwareCorrupted:").unwrap_or(Bytes::ZERO),
    })
}

/// Reads the memory of NUMA node `node`. The kernel has no `MemAvailable` for a node: it is
/// estimated as free memory and the pages of files.
///
/// # Errors
/// [`KernelError::Read`] if there is no such node; [`KernelError::Parse`].
pub fn node_info(root: &Root, node: u32) -> Result<MemInfo> {
    let path = format!("sys/devices/system/node/node{node}/meminfo");
    let text = root.read_text(&path)?;
    // "Node 0 MemTotal:       24683592 kB"
    let lines: String = text
        .lines()
        .filter_map(|line| line.splitn(3, ' ').nth(2))
        .flat_map(|line| [line.trim_start(), "\n"])
        .collect();
    let of = |name: &str| kib(&lines, name).unwrap_or(Bytes::ZERO);
    let total = of("MemTotal:");
    if total.is_zero() {
        return Err(KernelError::parse(&root.join(path), 0, "MemTotal", text.as_bytes()));
    }
    let free = of("MemFree:");
    let available = free + of("Active(file):") + of("Inactive(file):");
    Ok(MemInfo { total, available, free, corrupted: Bytes::ZERO })
}

/// Whether the system has swap space (`SwapTotal`).
///
/// # Errors
/// [`KernelError::Read`].
pub fn has_swap(root: &Root) -> Result<bool> {
    let text = root.read_text("proc/meminfo")?;
    let total = text.lines().find_map(|line| line.strip_prefix("SwapTotal:"));
    Ok(total.is_some_and(|rest| rest.trim().split(' ').next() != Some("0")))
}

/// Returns the underused huge pages that reclaim has split since boot (`thp_underused_split_page`);
/// `None` if the kernel does not count them.
pub fn underused_splits(root: &Root) -> Option<u64> {
    let text = root.read_text("proc/vmstat").ok()?;
    text.lines().find_map(|line| line.strip_prefix("thp_underused_split_page ")?.parse().ok())
}

/// Returns the memory in free blocks of at least a huge page, from `/proc/buddyinfo`. Compaction
/// can add more.
///
/// # Errors
/// [`KernelError::Read`].
pub fn free_huge(root: &Root, sizes: PageSizes) -> Result<Bytes> {
    let zones = free_blocks(root)?;
    let memory = PoolMemory { base_page_bytes: sizes.base, zones, ..PoolMemory::default() };
    Ok(memory.free_in_blocks_of(sizes.huge))
}

/// Returns the free blocks of each zone by order, from `/proc/buddyinfo`.
///
/// # Errors
/// [`KernelError::Read`].
pub fn free_blocks(root: &Root) -> Result<Vec<ZoneBlocks>> {
    // "Node 0, zone   Normal    106    411    577 …"
    let zone = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let node = words.nth(1)?.trim_end_matches(',').parse().ok()?;
        let zone = words.nth(1)?.to_owned();
        Some(ZoneBlocks {
            node,
            zone,
            free_blocks: words.map(|count| count.parse().unwrap_or(0)).collect(),
        })
    };
    Ok(root.read_text("proc/buddyinfo")?.lines().filter_map(zone).collect())
}

/// Reads a pressure file such as `proc/pressure/memory`; `None` if the kernel has none.
pub fn pressure(root: &Root, path: &str) -> Option<Pressure> {
    let text = root.read_text(path).ok()?;
    let avg10 = |kind: &str| {
        let line = text.lines().find(|line| line.starts_with(kind))?;
        line.split(' ').find_map(|field| field.strip_prefix("avg10="))?.parse().ok()
    };
    Some(Pressure { some_avg10: avg10("some")?, full_avg10: avg10("full").unwrap_or(0.0) })
}

/// Returns the page sizes of the system: the base size from the C library, the huge one from
/// `hpage_pmd_size` of THP, or without THP from `Hugepagesize` of meminfo.
///
/// # Errors
/// [`KernelError::Read`]; [`KernelError::Parse`] if neither has a huge page size.
pub fn page_sizes(root: &Root) -> Result<PageSizes> {
    let base = Bytes::new(rustix::param::page_size() as u64);
    let path = "sys/kernel/mm/transparent_hugepage/hpage_pmd_size";
    let from_thp = read_optional(root, path)?.and_then(|text| text.parse().ok()).map(Bytes::new);
    let huge = match from_thp {
        Some(huge) => Some(huge),
        None => read_optional(root, "proc/meminfo")?.and_then(|text| kib(&text, "Hugepagesize:")),
    };
    huge.and_then(|huge| PageSizes::new(base, huge))
        .ok_or_else(|| KernelError::parse(&root.join(path), 1, "a huge page size in bytes", b""))
}

/// Returns the text of a file; `None` if it does not exist or may not be read.
fn read_optional(root: &Root, path: &str) -> Result<Option<String>> {
    match root.read_text(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.is_denied() || error.errno() == Some(Errno::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;

    #[test]
    fn a_node_has_its_free_memory_and_its_file_pages_available() {
        let text = "Node 1 MemTotal:    4096 kB\nNode 1 MemFree:   1024 kB\n\
                    Node 1 Active(file):  8 kB\nNode 1 Inactive(file):    16 kB\n";
        let (_dir, root) = fixture(&[("sys/devices/system/node/node1/meminfo", text)]);
        let info = node_info(&root, 1).unwrap();
        assert_eq!((info.total, info.free), (Bytes::mib(4), Bytes::mib(1)));
        assert_eq!(info.available, Bytes::kib(1024 + 24));
        assert!(node_info(&root, 2).is_err());
    }

    #[test]
    fn an_unreadable_page_size_is_an_error_with_its_errno() {
        let (_dir, root) = fixture(&[("proc/meminfo", "Hugepagesize: 2048 kB\n")]);
        assert_eq!(page_sizes(&root).unwrap().huge, Bytes::mib(2), "a kernel without THP");
        // Reading a directory fails with EISDIR.
        let file = root.join("sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
        std::fs::create_dir_all(file).unwrap();
        let error = page_sizes(&root).unwrap_err();
        assert_eq!(error.errno(), Some(Errno(21)), "{error}");
    }

    #[test]
    fn free_huge_counts_blocks_of_order_nine_and_up() {
        let text = "Node 0, zone      DMA    0   0   0   0   0   0   0   0   1   1   3\n\
                    Node 0, zone   Normal  106 411 577 449 435 330 224 209 101  66 184\n";
        let (_dir, root) = fixture(&[("proc/buddyinfo", text)]);
        let free = free_huge(&root, PageSizes::X86_64).unwrap();
        assert_eq!(free, Bytes::mib(2 * (1 + 66) + 4 * (3 + 184)));
    }

    #[test]
    fn a_kernel_without_psi_has_no_pressure() {
        let line = "some avg10=1.50 avg60=0.00 avg300=0.00 total=0\n\
                    full avg10=0.25 avg60=0.00 avg300=0.00 total=0\n";
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
