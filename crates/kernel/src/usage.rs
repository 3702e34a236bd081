//! Memory use of a process and its descendants, by kind of page.

use std::collections::BTreeMap;
use std::fs;

use hugepilot_record::Pid;
use hugepilot_units::Bytes;

use crate::Root;
use crate::proc::{field, kib, printable};

/// Limit on processes of one family; further ones are not counted.
pub const MAX_FAMILY: usize = 256;

/// Memory use at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Resident memory, without hugetlb pages.
    pub resident: Bytes,
    /// Anonymous memory on transparent huge pages.
    pub thp: Bytes,
    /// Shared memory and files on transparent huge pages.
    pub thp_shared: Bytes,
    /// Hugetlb memory by page size.
    pub hugetlb: BTreeMap<Bytes, Bytes>,
    /// Processes that may not be read.
    pub hidden: usize,
}

impl Usage {
    /// Returns the bytes on huge pages of any kind.
    pub fn huge(&self) -> Bytes {
        self.thp + self.thp_shared + self.hugetlb()
    }
    /// Returns the bytes of hugetlb pools.
    pub fn hugetlb(&self) -> Bytes {
        self.hugetlb.values().copied().sum()
    }
    /// Raises each field to the one of `other`, if that is larger.
    pub fn raise_to(&mut self, other: &Self) {
        self.resident = self.resident.max(other.resident);
        self.thp = self.thp.max(other.thp);
        self.thp_shared = self.thp_shared.max(other.thp_shared);
        for (&size, &bytes) in &other.hugetlb {
            let largest = self.hugetlb.entry(size).or_default();
            *largest = bytes.max(*largest);
        }
        self.hidden = self.hidden.max(other.hidden);
    }
    fn add(&mut self, other: &Self) {
        self.resident += other.resident;
        self.thp += other.thp;
        self.thp_shared += other.thp_shared;
        for (&size, &bytes) in &other.hugetlb {
            *self.hugetlb.entry(size).or_default() += bytes;
        }
        self.hidden += other.hidden;
    }
}

/// Lists `pid` and its living descendants, at most [`MAX_FAMILY`]. A process whose parent has ended
/// does not count.
pub fn family(root: &Root, pid: Pid) -> Vec<Pid> {
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        next += 1;
        for child in children(root, parent) {
            if found.len() < MAX_FAMILY && !found.contains(&child) {
                found.push(child);
            }
        }
    }
    found
}

/// Lists the living children of `pid`.
pub(crate) fn children(root: &Root, pid: Pid) -> Vec<Pid> {
    let tasks = fs::read_dir(root.join(format!("proc/{pid}/task"))).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| {
            list.split_ascii_whitespace()
                .filter_map(|pid| pid.parse().ok().map(Pid))
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Returns the anonymous and shared memory of `pids`, without walks through page tables. Memory
/// that several of them share counts for each.
pub fn unreclaimable(root: &Root, pids: &[Pid]) -> Bytes {
    let status = |pid: &Pid| root.read_text(format!("proc/{pid}/status")).ok();
    let fields = ["RssAnon:", "RssShmem:"];
    let of = |text: String| fields.iter().filter_map(|name| kib(&text, name)).sum::<Bytes>();
    pids.iter().filter_map(status).map(of).sum()
}

/// Process and its memory use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessUsage {
    /// Process.
    pub pid: Pid,
    /// Parent.
    pub parent: Pid,
    /// Name, control characters escaped.
    pub name: String,
    /// Memory use.
    pub usage: Usage,
}

/// Reads the memory use of each of `pids` that lives. The kernel walks their page tables: some
/// milliseconds for each GiB on base pages, during which they cannot map memory.
pub fn each(root: &Root, pids: &[Pid]) -> Vec<ProcessUsage> {
    pids.iter().filter_map(|&pid| member(root, pid)).collect()
}

/// Returns the sum over `members`.
pub fn sum(members: &[ProcessUsage]) -> Usage {
    let mut all = Usage::default();
    members.iter().for_each(|member| all.add(&member.usage));
    all
}

fn member(root: &Root, pid: Pid) -> Option<ProcessUsage> {
    let status = root.read_text(format!("proc/{pid}/status")).ok()?;
    let name = printable(field(&status, "Name:").unwrap_or_default().as_bytes());
    let parent = Pid(field(&status, "PPid:").and_then(|parent| parent.parse().ok()).unwrap_or(0));
    Some(ProcessUsage { pid, parent, name, usage: of_one(root, pid, &status)? })
}

fn of_one(root: &Root, pid: Pid, status: &str) -> Option<Usage> {
    let mut usage = Usage { resident: kib(status, "VmRSS:")?, ..Usage::default() };
    let rollup = match root.read_text(format!("proc/{pid}/smaps_rollup")) {
        Ok(rollup) => rollup,
        Err(error) => {
            usage.hidden = usize::from(error.is_denied());
            return Some(usage);
        }
    };
    let size = |name| kib(&rollup, name).unwrap_or(Bytes::ZERO);
    usage.thp = size("AnonHugePages:");
    usage.thp_shared = size("ShmemPmdMapped:") + size("FilePmdMapped:");
    // smaps is long, so it is read only if there are hugetlb pages.
    if size("Private_Hugetlb:") + size("Shared_Hugetlb:") > Bytes::ZERO {
        usage.hugetlb =
            hugetlb_by_size(&root.read_text(format!("proc/{pid}/smaps")).unwrap_or_default());
    }
    Some(usage)
}

/// Sums the hugetlb pages of smaps by `KernelPageSize`, which comes first in each mapping.
fn hugetlb_by_size(smaps: &str) -> BTreeMap<Bytes, Bytes> {
    let mut sums = BTreeMap::new();
    let mut page = Bytes::ZERO;
    for line in smaps.lines() {
        if let Some(size) = kib(line, "KernelPageSize:") {
            page = size;
        }
        let found = kib(line, "Private_Hugetlb:").or_else(|| kib(line, "Shared_Hugetlb:"));
        if let Some(bytes) = found.filter(|&bytes| bytes > Bytes::ZERO) {
            *sums.entry(page).or_insert(Bytes::ZERO) += bytes;
        }
    }
    sums
}

/// Lists the files that `pid` has mapped, each once, by path; empty if it may not be read.
pub fn mapped_files(root: &Root, pid: Pid) -> Vec<String> {
    let maps = root.read(format!("proc/{pid}/maps")).unwrap_or_default();
    let path =
        |line: &[u8]| line.iter().position(|&byte| byte == b'/').map(|at| printable(&line[at..]));
    let mut files: Vec<String> = maps.split(|&byte| byte == b'\n').filter_map(path).collect();
    files.dedup();
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;

    const STATUS: &str = "Name:\tx y\nPPid:\t3\nVmRSS:\t    4096 kB\nHugetlbPages:\t 0 kB\n";
    const ROLLUP: &str = "\
00-ff ---p 0 00:00 0 [rollup]
AnonHugePages:      2048 kB
ShmemPmdMapped: 4096 kB
FilePmdMapped: 0 kB
Shared_Hugetlb: 2048 kB
Private_Hugetlb:   1052672 kB
";
    const SMAPS: &str = "\
0-1 rw-p 0 00:00 0 /anon_hugepage
KernelPageSize:     2048 kB
Shared_Hugetlb:     2048 kB
Private_Hugetlb:     4096 kB
0-1 rw-p 0 00:00 0 /anon_hugepage
KernelPageSize:  1048576 kB
Shared_Hugetlb: 0 kB
Private_Hugetlb:  1048576 kB
";

    #[test]
    fn pages_are_summed_by_kind_over_a_family() {
        let (_dir, root) = fixture(&[
            ("proc/7/status", STATUS),
            ("proc/7/smaps_rollup", ROLLUP),
            ("proc/7/smaps", SMAPS),
            ("proc/7/task/7/children", "9 \n"),
            ("proc/7/task/8/children", ""),
            ("proc/9/status", STATUS),
            ("proc/9/smaps_rollup", "AnonHugePages: 0 kB\n"),
            ("proc/9/task/9/children", "7 12"),
        ]);
        assert_eq!(family(&root, Pid(7)), [Pid(7), Pid(9), Pid(12)]);
        let members = each(&root, &family(&root, Pid(7)));
        let known: Vec<_> =
            members.iter().map(|one| (one.pid, one.parent, one.name.as_str())).collect();
        assert_eq!(known, [(Pid(7), Pid(3), "x y"), (Pid(9), Pid(3), "x y")]);
        let usage = sum(&members);
        assert_eq!(
            (usage.resident, usage.thp, usage.thp_shared),
            (Bytes::mib(8), Bytes::mib(2), Bytes::mib(4))
        );
        let pages =
            BTreeMap::from([(Bytes::mib(2), Bytes::mib(6)), (Bytes::gib(1), Bytes::gib(1))]);
        assert_eq!((&usage.hugetlb, usage.hidden), (&pages, 0));
        assert_eq!(usage.huge(), Bytes::mib(12) + Bytes::gib(1));
        let mut peak = usage.clone();
        peak.raise_to(&Usage { thp: Bytes::mib(3), ..Usage::default() });
        assert_eq!((peak.thp, peak.resident), (Bytes::mib(3), Bytes::mib(8)));
    }

    #[test]
    fn the_memory_and_files_of_this_process_are_read() {
        let (root, pid) = (Root::live(), Pid(std::process::id().cast_signed()));
        assert!(sum(&each(&root, &[pid])).resident > Bytes::kib(100));
        let own = std::env::current_exe().unwrap();
        assert!(
            mapped_files(&root, pid).iter().any(|file| own.ends_with(file.trim_start_matches('/')))
        );
        assert_eq!(each(&root, &[Pid(i32::MAX)]), []);
    }
}
