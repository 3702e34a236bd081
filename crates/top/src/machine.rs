//! Access of `top` to the running system.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use hugepilot_kernel::proc::{parse_stat, user, user_names};
use hugepilot_kernel::{KernelError, Process, Root, Target as _, clock, memory, thp};
use hugepilot_policy::{Limits, process_skip, region_skip};
use hugepilot_profiler::region_pages;
use hugepilot_record::{Mapping, Obstacle, Pid, ProcessId, SkipReason};
use hugepilot_units::{AddrRange, Bytes, Nanos, PageSizes, Region};

use crate::budget::sampling_rate;
use crate::{ListedProcess, NewSamples, ProcessTable, StalledPages};
use hugepilot_manager::sampling::{SamplerKind, Sampling, SamplingOptions};

/// Limit of regions with stalls that are kept per process: 128 GiB.
const MAX_REGIONS: usize = 1 << 16;
/// Regions with stalls whose pages are read, evenly distributed.
const CHECKED_REGIONS: usize = 32;
/// Time between two reads of their pages.
const CHECK_EVERY: Nanos = Nanos::seconds(10);
/// The same at least as a multiple of the CPU time of a read, most of which is smaps: 20 ms for
/// each GiB on base pages. It makes 0.25 % of a core for each process.
const CHECK_REST: u64 = 400;

/// Processes in view; called at each look, as processes come and go.
pub type Selection<'a> = Box<dyn Fn() -> Result<Vec<Pid>, KernelError> + 'a>;

/// The live [`ProcessTable`].
pub struct RunningSystem<'a> {
    root: Root,
    sizes: PageSizes,
    selection: Selection<'a>,
    names: BTreeMap<u32, String>,
    rate_hz: u32,
    sampled: BTreeMap<Pid, Sampled>,
}

/// Sampling of one process.
struct Sampled {
    process: Rc<Process>,
    is_virtual_machine: bool,
    sampling: Sampling,
    regions: BTreeMap<Region, u32>,
    /// Pages of the stalls, and the time after which they are read again.
    pages: Option<(StalledPages, Nanos)>,
}

impl<'a> RunningSystem<'a> {
    /// Opens the running system with `cpus` CPUs.
    ///
    /// # Errors
    /// If the sizes of pages cannot be read.
    pub fn new(cpus: usize, selection: Selection<'a>) -> Result<Self, KernelError> {
        let root = Root::live();
        let sizes = memory::page_sizes(&root)?;
        let names = user_names(&root);
        let rate_hz = sampling_rate(cpus);
        Ok(Self { root, sizes, selection, names, rate_hz, sampled: BTreeMap::new() })
    }

    /// Empties the ring buffers of all samplers.
    pub fn drain(&mut self) {
        for (pid, sampled) in &mut self.sampled {
            // The addresses of the program before are void.
            if sampled.sampling.drain(Nanos::ZERO).contains(pid) {
                sampled.regions.clear();
                sampled.pages = None;
            }
        }
    }

    /// Returns the recent stalls of a process by region; `None` if it is not sampled.
    pub fn stalls(&self, pid: Pid) -> Option<&BTreeMap<Region, u32>> {
        self.sampled.get(&pid).map(|sampled| &sampled.regions)
    }

    fn listed(&self, pid: Pid) -> Option<ListedProcess> {
        let stat = parse_stat(&self.root.read(format!("proc/{pid}/stat")).ok()?)?;
        if stat.is_kernel_thread() || stat.is_zombie() {
            return None;
        }
        let id = ProcessId { pid, start_ticks: stat.start_ticks, command: stat.command };
        Some(ListedProcess { id, resident: stat.resident, cpu: stat.cpu })
    }

    fn open(&self, id: &ProcessId) -> Result<Process, KernelError> {
        let process = Process::open(&self.root, id.pid)?;
        if process.id().start_ticks == id.start_ticks {
            Ok(process)
        } else {
            Err(KernelError::NoProcess { pid: id.pid })
        }
    }
}

impl ProcessTable for RunningSystem<'_> {
    fn now(&self) -> Nanos {
        clock::monotonic()
    }
    fn cpu_time(&self) -> Nanos {
        clock::own_cpu_time()
    }
    fn huge_page(&self) -> Bytes {
        self.sizes.huge
    }
    fn mapped_in_part(&self) -> Option<Bytes> {
        let pages = thp::mapped_in_part(&self.root, self.sizes)?;
        Some(self.sizes.huge.times(pages))
    }
    fn rate_hz(&self) -> u32 {
        self.rate_hz
    }

    fn list(&self) -> Result<Vec<ListedProcess>, KernelError> {
        let own = std::process::id();
        let others = (self.selection)()?.into_iter().filter(|pid| pid.0.unsigned_abs() != own);
        Ok(others.filter_map(|pid| self.listed(pid)).collect())
    }

    fn user(&self, pid: Pid) -> (Option<u32>, Option<String>) {
        let user = user(&self.root, pid).ok().flatten();
        (user, user.and_then(|user| self.names.get(&user).cloned()))
    }

    fn huge(&self, id: &ProcessId) -> Result<Bytes, KernelError> {
        let process = self.open(id)?;
        // hugetlb pages are not part of the resident memory.
        let scanned = process.huge_sums().map(|sums| sums.thp);
        // Before Linux 6.7, only smaps has them, at many times the cost.
        scanned.or_else(|_| Ok(process.huge()? - process.hugetlb()?))
    }

    fn start_sampling(&mut self, id: &ProcessId) -> Result<(), String> {
        let process = self.open(id).map(Rc::new).map_err(|error| error.to_string())?;
        let options = SamplingOptions {
            // Walks are few on huge pages, and only samples of time give a share.
            sampler: SamplerKind::Clock,
            with_children: false,
            rate_hz: self.rate_hz,
            boosted_hz: self.rate_hz,
        };
        let (sampling, _) =
            Sampling::start(&[Rc::clone(&process)], options).map_err(|error| error.to_string())?;
        let is_virtual_machine = process.obstacles().contains(&Obstacle::KvmGuest);
        let sampled = Sampled {
            process,
            is_virtual_machine,
            sampling,
            regions: BTreeMap::new(),
            pages: None,
        };
        self.sampled.insert(id.pid, sampled);
        Ok(())
    }

    fn stop_sampling(&mut self, pid: Pid) {
        self.sampled.remove(&pid);
    }

    fn take_samples(&mut self, pid: Pid) -> Option<NewSamples> {
        self.drain();
        let sizes = self.sizes;
        let sampled = self.sampled.get_mut(&pid)?;
        Some(sampled.take(pid, clock::monotonic(), sizes))
    }
}

impl Sampled {
    /// Takes the samples of the window, and begins a new one.
    fn take(&mut self, pid: Pid, now: Nanos, sizes: PageSizes) -> NewSamples {
        let Some(view) = self.sampling.observation().of(pid) else {
            return NewSamples::default();
        };
        let window = &view.window;
        let mut new = NewSamples {
            samples: window.samples,
            stalled: window.stalled() + window.chased(),
            chased: window.chased(),
            addressed: window.samples - window.unknown.min(window.samples),
            unknown_ratio: self.unknown_ratio(pid),
            pages: None,
            hot: Bytes::ZERO,
        };
        for (region, count) in window.all_stalls() {
            if self.regions.len() < MAX_REGIONS || self.regions.contains_key(&region) {
                let sum = self.regions.entry(region).or_default();
                *sum = sum.saturating_add(count);
            }
        }
        self.sampling.observation_mut().restart(pid, now);
        let is_old = self.pages.is_none_or(|(_, due)| now > due);
        if is_old && new.stalled > 0 {
            let before = clock::own_cpu_time();
            let pages = self.read_pages(sizes);
            let due = now + rest(clock::own_cpu_time() - before);
            self.pages = pages.map(|pages| (pages, due));
        }
        new.pages = self.pages.map(|(pages, _)| pages);
        new.hot = sizes.huge.times(self.regions.len() as u64);
        new
    }

    /// Share of the samples so far of which nothing is known: all of a virtual machine.
    #[allow(clippy::cast_precision_loss)]
    fn unknown_ratio(&self, pid: Pid) -> f64 {
        let counts = self.sampling.counts_of(pid).unwrap_or_default();
        let unknown = counts.undecoded + counts.unresolved;
        let ratio = unknown as f64 / counts.total().max(1) as f64;
        if self.is_virtual_machine { 1.0 } else { ratio }
    }

    /// Reads the pages of some regions with stalls, and judges each by the rules of `tune` for
    /// mappings and pages.
    fn read_pages(&self, sizes: PageSizes) -> Option<StalledPages> {
        let mappings = self.process.mappings().ok()?;
        let is_disabled = self.process.thp_disabled();
        let step = self.regions.len().div_ceil(CHECKED_REGIONS).max(1);
        let (mut base, mut all) = (0_u64, 0_u64);
        let mut blocked = BTreeMap::new();
        for (&region, &count) in self.regions.iter().step_by(step) {
            all += u64::from(count);
            match self.skip(&mappings, is_disabled, region, sizes).ok()? {
                None => base += u64::from(count),
                Some(reason) if reason.is_block() => {
                    *blocked.entry(reason).or_default() += u64::from(count);
                }
                Some(_) => {}
            }
        }
        let top = blocked.iter().max_by_key(|&(_, &count)| count);
        let blocked_by = top.map(|(&reason, _)| reason);
        #[allow(clippy::cast_precision_loss)]
        let ratio = |count: u64| count as f64 / all as f64;
        let blocked_ratio = ratio(blocked.values().sum());
        (all > 0).then(|| StalledPages { base_ratio: ratio(base), blocked_ratio, blocked_by })
    }

    /// The rule by which `tune` would skip `region`; `None` if it may be promoted.
    fn skip(
        &self,
        mappings: &[Mapping],
        is_disabled: bool,
        region: Region,
        sizes: PageSizes,
    ) -> Result<Option<SkipReason>, KernelError> {
        let range = region.range(sizes);
        let Some(mapping) = mappings.iter().find(|mapping| mapping.range.covers(range)) else {
            return Ok(Some(SkipReason::Unaligned));
        };
        if let Some(reason) = process_skip(mapping, is_disabled) {
            return Ok(Some(reason));
        }
        let pages = region_pages(&*self.process, mapping, region)?;
        Ok(region_skip(&pages, sizes, &Limits::default()))
    }
}

/// Time until the pages of stalls are read again, after a read that took `cost`.
fn rest(cost: Nanos) -> Nanos {
    CHECK_EVERY.max(Nanos::new(cost.get().saturating_mul(CHECK_REST)))
}

/// Sums stalls by mapping, in the order of `mappings`.
pub fn by_mapping(
    stalls: &BTreeMap<Region, u32>,
    mappings: &[AddrRange],
    sizes: PageSizes,
) -> Vec<u64> {
    let mut sums = vec![0; mappings.len()];
    let mut seen = BTreeSet::new();
    for (index, mapping) in mappings.iter().enumerate() {
        let first = sizes.region_of(mapping.start);
        for (&region, &count) in stalls.range(first..) {
            if region.range(sizes).start >= mapping.end {
                break;
            }
            // A region that two mappings share counts for the first.
            if seen.insert(region) {
                sums[index] += u64::from(count);
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use hugepilot_units::VirtAddr;

    use super::*;

    #[test]
    fn an_expensive_read_is_rare() {
        assert_eq!(rest(Nanos::millis(1)), CHECK_EVERY);
        // 6 GiB on base pages.
        let cost = Nanos::millis(120);
        assert!(cost.ratio_of(rest(cost)) <= 0.0025, "{}", rest(cost));
    }

    #[test]
    fn each_stall_counts_for_one_mapping() {
        let sizes = PageSizes::X86_64;
        let range = |start: u64, end: u64| AddrRange::new(VirtAddr::new(start), VirtAddr::new(end));
        let stalls = [(1, 5), (2, 7), (9, 1)].map(|(r, count)| (Region::new(r), count));
        let mappings =
            [range(0, 1 << 20), range(1 << 20, (2 << 20) + 4096), range((2 << 20) + 4096, 6 << 20)];
        assert_eq!(by_mapping(&BTreeMap::from(stalls), &mappings, sizes), [0, 5, 7]);
    }

    #[test]
    fn this_machine_lists_other_processes_with_their_users() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid(i32::try_from(child.id()).unwrap());
        let own = Pid(std::process::id().cast_signed());
        let machine =
            RunningSystem::new(2, Box::new(|| Ok(vec![Pid(i32::MAX), own, pid]))).unwrap();
        let listed = machine.list().unwrap();
        let pids: Vec<Pid> = listed.iter().map(|process| process.id.pid).collect();
        assert_eq!(pids, [pid], "neither this process nor a missing one");
        let expected = rustix_uid();
        assert_eq!(machine.user(pid).0, Some(expected));
        assert!(machine.huge(&listed[0].id).is_ok());
        let later = ProcessId { start_ticks: 1, ..listed[0].id.clone() };
        assert!(machine.huge(&later).unwrap_err().is_gone());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(machine.list().unwrap().len(), 0);
    }

    fn rustix_uid() -> u32 {
        hugepilot_kernel::privilege::own_ids().0
    }
}
