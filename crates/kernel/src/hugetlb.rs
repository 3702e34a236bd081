//! Hugetlb pools: `/sys/kernel/mm/hugepages`, their parts per NUMA node, their users and memory.

mod limit;

use std::fs;

use hugepilot_record::Pid;
use hugepilot_reports::pool::{HugetlbMount, NodePool, Pool, PoolMemory, PoolPages, PoolUser};
use hugepilot_units::Bytes;

pub use self::limit::{PoolLimit, limit};
use crate::proc::{kib, pids, printable};
use crate::{KernelError, Result, Root, memory};

const POOLS: &str = "sys/kernel/mm/hugepages";
const NODES: &str = "sys/devices/system/node";

/// Returns the directory of the pool of `size`, or of its part on one node, below a [`Root`].
pub fn directory(size: Bytes, node: Option<u32>) -> String {
    let pool = format!("hugepages-{}kB", size.get() >> 10);
    node.map_or_else(
        || format!("{POOLS}/{pool}"),
        |node| format!("{NODES}/node{node}/hugepages/{pool}"),
    )
}

/// Returns the file that holds the size of a pool and takes a new one.
pub fn count_file(size: Bytes, node: Option<u32>) -> String {
    format!("{}/nr_hugepages", directory(size, node))
}

/// Returns the file that compacts memory, of all nodes or of one, when 1 is written to it.
pub fn compact_file(node: Option<u32>) -> String {
    node.map_or_else(
        || "proc/sys/vm/compact_memory".to_owned(),
        |node| format!("{NODES}/node{node}/compact"),
    )
}

/// Reads all pools, smallest page size first; empty on a kernel without hugetlb.
///
/// # Errors
/// [`KernelError::Read`] and [`KernelError::Parse`] of an existing pool.
pub fn pools(root: &Root) -> Result<Vec<Pool>> {
    let mut sizes: Vec<Bytes> =
        names(root, POOLS).iter().filter_map(|name| size_of_pool(name)).collect();
    sizes.sort_unstable();
    let default = default_size(root);
    let pool = |size| {
        let of_node = |node| Ok(NodePool { node, pages: pages(root, size, Some(node))? });
        let here = |node: &u32| root.join(count_file(size, Some(*node))).exists();
        Ok(Pool {
            page_bytes: size,
            is_default: default == Some(size),
            pages: pages(root, size, None)?,
            overcommit: number(
                root,
                &format!("{}/nr_overcommit_hugepages", directory(size, None)),
            )?,
            nodes: nodes(root).into_iter().filter(here).map(of_node).collect::<Result<_>>()?,
        })
    };
    sizes.into_iter().map(pool).collect()
}

/// Reads the counts of one pool, or of its part on one node.
///
/// # Errors
/// [`KernelError::Read`] if the pool does not exist; [`KernelError::Parse`].
pub fn pages(root: &Root, size: Bytes, node: Option<u32>) -> Result<PoolPages> {
    let directory = directory(size, node);
    let count = |file: &str| number(root, &format!("{directory}/{file}"));
    Ok(PoolPages {
        total: count("nr_hugepages")?,
        free: count("free_hugepages")?,
        reserved: if node.is_none() { Some(count("resv_hugepages")?) } else { None },
        surplus: count("surplus_hugepages")?,
    })
}

/// Lists the NUMA nodes, in order.
pub fn nodes(root: &Root) -> Vec<u32> {
    let names = names(root, NODES);
    let mut nodes: Vec<u32> =
        names.iter().filter_map(|name| name.strip_prefix("node")?.parse().ok()).collect();
    nodes.sort_unstable();
    nodes
}

/// Returns the default size (`Hugepagesize` of meminfo).
fn default_size(root: &Root) -> Option<Bytes> {
    kib(&root.read_text("proc/meminfo").ok()?, "Hugepagesize:")
}

/// Tests whether this process may set the size of a pool: opens the file for writing.
///
/// # Errors
/// [`KernelError::Write`]: EACCES for all users but root; EROFS if sysfs is mounted read-only, as
/// in containers.
pub fn may_set(root: &Root, size: Bytes, node: Option<u32>) -> Result<()> {
    let path = root.join(count_file(size, node));
    match fs::OpenOptions::new().write(true).open(&path) {
        Ok(_) => Ok(()),
        Err(source) => Err(KernelError::write(&path, source)),
    }
}

/// Reads the memory from which pools take pages: of all nodes, or of one.
///
/// # Errors
/// As [`memory::mem_info`]; [`KernelError::Read`] if the node does not exist.
pub fn memory_of(root: &Root, node: Option<u32>) -> Result<PoolMemory> {
    let base_page_bytes = Bytes::new(rustix::param::page_size() as u64);
    let mut zones = memory::free_blocks(root)?;
    let Some(node) = node else {
        let info = memory::mem_info(root)?;
        let (total_bytes, available_bytes) = (info.total, info.available);
        return Ok(PoolMemory {
            total_bytes,
            available_bytes,
            free_bytes: info.free,
            base_page_bytes,
            zones,
        });
    };
    zones.retain(|zone| zone.node == node);
    let path = format!("{NODES}/node{node}/meminfo");
    let text = root.read_text(&path)?;
    // "Node 0 MemFree:  7458800 kB". The kernel has no MemAvailable per node: page cache is
    // available, except shared memory.
    let size = |name: &str| kib(&text, &format!("Node {node} {name}:")).unwrap_or(Bytes::ZERO);
    let free_bytes = size("MemFree");
    Ok(PoolMemory {
        total_bytes: size("MemTotal"),
        available_bytes: free_bytes + size("Active(file)") + size("Inactive(file)"),
        free_bytes,
        base_page_bytes,
        zones,
    })
}

/// Lists the processes that have touched pages of a pool, largest first. This requires no
/// permission (`HugetlbPages` of `status`). The shared part requires permission to read them
/// (`smaps_rollup`, which locks their mappings for a moment).
///
/// # Errors
/// If `/proc` cannot be listed.
pub fn users(root: &Root) -> Result<Vec<PoolUser>> {
    let mut users: Vec<PoolUser> =
        pids(root)?.into_iter().filter_map(|pid| user(root, pid)).collect();
    users.sort_by_key(|user| (std::cmp::Reverse(user.hugetlb_bytes), user.pid));
    Ok(users)
}

fn user(root: &Root, pid: Pid) -> Option<PoolUser> {
    let status = root.read_text(format!("proc/{pid}/status")).ok()?;
    let hugetlb_bytes = kib(&status, "HugetlbPages:").filter(|&bytes| bytes > Bytes::ZERO)?;
    let rollup = root.read_text(format!("proc/{pid}/smaps_rollup")).unwrap_or_default();
    let name = status.lines().find_map(|line| line.strip_prefix("Name:"))?;
    Some(PoolUser {
        pid,
        command: printable(name.trim().as_bytes()),
        hugetlb_bytes,
        private_bytes: kib(&rollup, "Private_Hugetlb:"),
        shared_bytes: kib(&rollup, "Shared_Hugetlb:"),
    })
}

/// Lists the visible mounts of hugetlbfs.
pub fn mounts(root: &Root) -> Vec<HugetlbMount> {
    let text = root
        .read_text("proc/self/mounts")
        .or_else(|_| root.read_text("proc/mounts"))
        .unwrap_or_default();
    text.lines().filter_map(mount).collect()
}

/// Parses `hugetlbfs /dev/hugepages hugetlbfs rw,relatime,pagesize=2M 0 0`.
fn mount(line: &str) -> Option<HugetlbMount> {
    let mut fields = line.split(' ').skip(1);
    let (path, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
    let page_bytes =
        || options.split(',').find_map(|option| option.strip_prefix("pagesize=")?.parse().ok());
    (kind == "hugetlbfs").then(|| HugetlbMount {
        path: printable(path.as_bytes()),
        page_bytes: page_bytes(),
        options: printable(options.as_bytes()),
    })
}

/// Parses `hugepages-2048kB`.
fn size_of_pool(name: &str) -> Option<Bytes> {
    name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok().map(Bytes::kib)
}

/// Lists a directory; empty if it does not exist.
fn names(root: &Root, directory: &str) -> Vec<String> {
    let entries = fs::read_dir(root.join(directory)).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn number(root: &Root, path: &str) -> Result<u64> {
    let text = root.read_text(path)?;
    text.parse()
        .map_err(|_| KernelError::parse(&root.join(path), 1, "a number of pages", text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;

    #[test]
    fn a_kernel_without_hugetlb_has_no_pools() {
        let (_dir, root) = fixture(&[("proc/meminfo", "MemTotal: 1 kB\n")]);
        assert_eq!(pools(&root).unwrap(), []);
        assert!(pages(&root, Bytes::mib(2), None).is_err());
    }

    #[test]
    fn a_bad_count_is_quoted() {
        let (_dir, root) =
            fixture(&[("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "many\n")]);
        let error = pools(&root).unwrap_err().to_string();
        assert!(error.contains("nr_hugepages:1") && error.contains("\"many\""), "{error}");
    }

    #[test]
    fn users_have_pages_and_harmless_names() {
        let of = |name: &str, kib: u32| {
            format!("Name:\t{name}\nVmRSS:\t 9 kB\nHugetlbPages:\t   {kib} kB\n")
        };
        let (_dir, root) = fixture(&[
            ("proc/7/status", &of("evil\u{1b}[2J", 4096)),
            (
                "proc/7/smaps_rollup",
                "Rss: 3 kB\nShared_Hugetlb:  1024 kB\nPrivate_Hugetlb:  3072 kB\n",
            ),
            ("proc/8/status", &of("none", 0)),
            ("proc/9/status", &of("more", 8192)),
            ("proc/10/status", "Name:\tkthread\n"),
        ]);
        let found = users(&root).unwrap();
        let sizes: Vec<_> =
            found.iter().map(|user| (user.pid.0, user.hugetlb_bytes, user.private_bytes)).collect();
        assert_eq!(sizes, [(9, Bytes::mib(8), None), (7, Bytes::mib(4), Some(Bytes::mib(3)))]);
        assert!(!found[1].command.contains('\u{1b}'), "{:?}", found[1].command);
    }

    #[test]
    fn mounts_may_have_a_size() {
        let text = "proc /proc proc rw 0 0\n\
                    hugetlbfs /dev/hugepages hugetlbfs rw,pagesize=2M,size=1G 0 0\n\
                    none /mnt/a\\040b hugetlbfs rw,pagesize=1024M 0 0\n\
                    x /y hugetlbfs rw 0 0\nbroken\n";
        let (_dir, root) = fixture(&[("proc/self/mounts", text)]);
        let sizes: Vec<_> = mounts(&root).iter().map(|mount| mount.page_bytes).collect();
        assert_eq!(sizes, [Some(Bytes::mib(2)), Some(Bytes::gib(1)), None]);
    }

    #[test]
    fn the_live_system_can_be_read() {
        let root = Root::live();
        assert!(pools(&root).unwrap().iter().all(|pool| pool.pages.free <= pool.pages.total));
        let memory = memory_of(&root, None).unwrap();
        assert!(memory.free_in_blocks_of(Bytes::ZERO) > Bytes::ZERO);
        if let Some(&node) = nodes(&root).first() {
            assert!(memory_of(&root, Some(node)).unwrap().total_bytes <= memory.total_bytes);
        }
    }
}
