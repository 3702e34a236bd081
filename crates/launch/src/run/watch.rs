//! Samples of the memory of a running program, and their peaks.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use hugepilot_kernel::usage::{self, ProcessUsage, Usage};
use hugepilot_kernel::{ResourceUsage, Root, schedstat};
use hugepilot_record::Pid;
use hugepilot_reports::run::Peak;
use hugepilot_units::{Bytes, Nanos};

use super::program::allocator_in;
use crate::effect::{Holder, Obstacles};

/// Time until the first sample. Each pause is twice the one before, up to the longest.
const FIRST: Duration = Duration::from_millis(2);
const LONGEST: Duration = Duration::from_millis(250);
/// Pause after a sample, as a multiple of its time: the kernel locks the memory map of the program
/// meanwhile, so sampling costs the program at most a hundredth of its time.
const REST: u32 = 100;
/// First samples that include libraries: a program maps its libraries at its start.
const LIBRARY_SAMPLES: u32 = 6;
/// Processes that are kept, those with the most memory.
const MAX_HOLDERS: usize = 64;
/// Threads whose run-queue wait is kept.
const MAX_THREADS: usize = 4096;

/// Samples of one program and its descendants.
pub(super) struct Watch {
    root: Root,
    library: Option<PathBuf>,
    peak: Usage,
    rss_samples: u32,
    rss_samples_denied: u32,
    spent: Duration,
    pause: Duration,
    next: Instant,
    saw_library: bool,
    saw_libc: bool,
    own_allocator: Option<String>,
    holders: Vec<(Pid, Holder)>,
    pool_parent: Option<String>,
    /// Run-queue wait of each thread, as of its last sample.
    waits: BTreeMap<Pid, Nanos>,
}

impl Watch {
    pub(super) fn new(root: &Root, library: Option<PathBuf>) -> Self {
        Self {
            root: root.clone(),
            library,
            peak: Usage::default(),
            rss_samples: 0,
            rss_samples_denied: 0,
            spent: Duration::ZERO,
            pause: FIRST,
            next: Instant::now() + FIRST,
            saw_library: false,
            saw_libc: false,
            own_allocator: None,
            holders: Vec::new(),
            pool_parent: None,
            waits: BTreeMap::new(),
        }
    }

    /// Time of the next sample.
    pub(super) const fn due(&self) -> Instant {
        self.next
    }

    /// Samples `pid` and its descendants.
    pub(super) fn sample(&mut self, pid: Pid) {
        let begun = Instant::now();
        let family = usage::family(&self.root, pid);
        let members = usage::each(&self.root, &family);
        let seen = usage::sum(&members);
        // A process that is ending has no memory: not a sample.
        if seen.resident > Bytes::ZERO {
            self.rss_samples += 1;
            self.rss_samples_denied += u32::from(seen.hidden > 0);
            self.peak.raise_to(&seen);
            self.remember(&members);
            self.note_waits(&family);
            if self.rss_samples <= LIBRARY_SAMPLES || self.rss_samples.is_power_of_two() {
                family.iter().for_each(|&pid| self.inspect_libraries(pid));
            }
        }
        let took = begun.elapsed();
        self.spent += took;
        self.pause = (self.pause * 2).min(LONGEST);
        self.next = Instant::now() + self.pause.max(took * REST);
    }

    fn note_waits(&mut self, family: &[Pid]) {
        for (tid, wait) in
            family.iter().flat_map(|&pid| schedstat::processor_waits(&self.root, pid))
        {
            if self.waits.len() < MAX_THREADS || self.waits.contains_key(&tid) {
                self.waits.insert(tid, wait);
            }
        }
    }

    /// Time that its threads waited for a processor; `None` if not sampled.
    pub(super) fn processor_wait_seconds(&self) -> Option<f64> {
        let waits = self.waits.values().map(|wait| wait.as_seconds());
        (!self.waits.is_empty()).then(|| waits.sum())
    }

    /// Raises the peaks of each process. A process that executes another program counts as another.
    fn remember(&mut self, members: &[ProcessUsage]) {
        for ProcessUsage { pid, name, usage, .. } in
            members.iter().filter(|member| member.usage.hidden == 0)
        {
            let known = self
                .holders
                .iter()
                .position(|(known, holder)| known == pid && holder.name == *name);
            let at = known.unwrap_or_else(|| {
                self.holders.push((*pid, Holder { name: name.clone(), ..Holder::default() }));
                self.holders.len() - 1
            });
            let holder = &mut self.holders[at].1;
            let of_pool = |size| usage.hugetlb.get(&size).copied().unwrap_or(Bytes::ZERO);
            holder.memory = holder.memory.max(usage.resident + usage.hugetlb());
            holder.thp = holder.thp.max(usage.thp);
            holder.hugetlb_2m = holder.hugetlb_2m.max(of_pool(Bytes::mib(2)));
            holder.hugetlb_1g = holder.hugetlb_1g.max(of_pool(Bytes::gib(1)));
        }
        self.holders.sort_by_key(|(_, holder)| Reverse(holder.memory));
        self.holders.truncate(MAX_HOLDERS);
        let mut on_pool = members.iter().filter(|member| member.usage.hugetlb() > Bytes::ZERO);
        let parent = on_pool.find(|one| members.iter().any(|other| other.parent == one.pid));
        self.pool_parent =
            self.pool_parent.take().or_else(|| parent.map(|parent| parent.name.clone()));
    }

    fn inspect_libraries(&mut self, pid: Pid) {
        let files = usage::mapped_files(&self.root, pid);
        self.note_files(&files);
    }

    fn note_files(&mut self, files: &[String]) {
        let wanted = self.library.as_ref().and_then(|library| library.to_str());
        self.saw_library |= files.iter().any(|file| Some(file.as_str()) == wanted);
        self.saw_libc |= files.iter().any(|file| is_libc(file));
        self.own_allocator =
            allocator_in(files, self.library.as_deref()).or(self.own_allocator.take());
    }

    /// Returns the peaks; the resident set at least that of the largest process by the kernel.
    pub(super) fn peak(&self, used: &ResourceUsage) -> Peak {
        let Usage { resident, thp, thp_shared, .. } = self.peak;
        let of_pool = |size| self.peak.hugetlb.get(&size).copied().unwrap_or(Bytes::ZERO);
        Peak {
            rss_peak_bytes: resident.max(used.peak_resident),
            thp_peak_bytes: thp + thp_shared,
            anonymous_thp_peak_bytes: thp,
            hugetlb_peak_bytes: self.peak.hugetlb(),
            hugetlb_2m_peak_bytes: of_pool(Bytes::mib(2)),
            hugetlb_1g_peak_bytes: of_pool(Bytes::gib(1)),
            rss_samples: self.rss_samples,
            rss_samples_denied: self.rss_samples_denied,
            rss_sample_seconds: self.spent.as_secs_f64(),
        }
    }

    /// Adds obstacles found in memory to those found in files.
    pub(super) fn note(&self, obstacles: &mut Obstacles) {
        obstacles.holders = self.holders.iter().map(|(_, holder)| holder.clone()).collect();
        obstacles.pool_parent.clone_from(&self.pool_parent);
        // The loader maps preloaded libraries before others. Without any, it was at work.
        obstacles.not_preloaded = self.library.is_some() && !self.saw_library && self.saw_libc;
        obstacles.own_allocator =
            obstacles.own_allocator.take().or_else(|| self.own_allocator.clone());
    }
}

/// Whether a mapped file is the C library of glibc. That of musl is the loader itself.
fn is_libc(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file);
    ["libc.so", "libc-"].iter().any(|begin| name.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_missing_only_if_the_loader_is_done() {
        let missing = |files: &[&str]| {
            let mut watch = Watch::new(&Root::live(), Some("/x/libhugepilot_preload.so".into()));
            watch.note_files(&files.iter().map(|file| (*file).to_owned()).collect::<Vec<_>>());
            let mut obstacles = Obstacles::default();
            watch.note(&mut obstacles);
            obstacles.not_preloaded
        };
        let program = ["/bin/ls", "/lib64/ld-linux-x86-64.so.2"];
        assert!(!missing(&program), "the loader has just begun");
        assert!(missing(&[&program[..], &["/lib/x86_64-linux-gnu/libc.so.6"]].concat()));
        let loaded = ["/x/libhugepilot_preload.so", "/lib/x86_64-linux-gnu/libc.so.6"];
        assert!(!missing(&[&program[..], &loaded].concat()));
    }

    fn member(pid: i32, parent: i32, name: &str, mib: u64, pool_mib: u64) -> ProcessUsage {
        let hugetlb =
            [(Bytes::mib(2), Bytes::mib(pool_mib))].into_iter().filter(|_| pool_mib > 0).collect();
        let usage = Usage { resident: Bytes::mib(mib), hugetlb, ..Usage::default() };
        ProcessUsage { pid: Pid(pid), parent: Pid(parent), name: name.to_owned(), usage }
    }

    fn noted(samples: &[&[ProcessUsage]]) -> Obstacles {
        let mut watch = Watch::new(&Root::live(), None);
        samples.iter().for_each(|members| watch.remember(members));
        let mut obstacles = Obstacles::default();
        watch.note(&mut obstacles);
        obstacles
    }

    #[test]
    fn memory_is_kept_by_process_and_program() {
        let (first, later) = ([member(7, 1, "sh", 2, 4)], [member(7, 1, "server", 300, 0)]);
        let noted = noted(&[&first, &first, &later]);
        let known: Vec<_> = noted
            .holders
            .iter()
            .map(|one| (one.name.as_str(), one.memory, one.hugetlb_2m))
            .collect();
        let of_pool = Bytes::mib(4);
        assert_eq!(
            known,
            [("server", Bytes::mib(300), Bytes::ZERO), ("sh", Bytes::mib(6), of_pool)]
        );
        assert_eq!(noted.pool_parent, None);
    }

    #[test]
    fn only_a_parent_with_pages_of_a_pool_is_noted_and_only_the_largest_are_kept() {
        let (make, cc) = (member(7, 1, "make", 9, 4), member(8, 7, "cc", 9, 0));
        assert_eq!(noted(&[&[make, cc.clone()], &[cc]]).pool_parent.unwrap(), "make");
        assert_eq!(
            noted(&[&[member(7, 1, "sh", 9, 0), member(8, 7, "server", 9, 4)]]).pool_parent,
            None
        );
        let many: Vec<ProcessUsage> =
            (0..200).map(|pid| member(pid, 1, "cc", pid.unsigned_abs().into(), 0)).collect();
        let holders = noted(&[&many]).holders;
        assert_eq!((holders.len(), holders[0].memory), (MAX_HOLDERS, Bytes::mib(199)));
    }
}
