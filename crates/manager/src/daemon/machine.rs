//! Access of the daemon to the running system.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use hugepilot_kernel::cgroup::{self, MemoryCgroup};
use hugepilot_kernel::memory::{self, page_sizes};
use hugepilot_kernel::proc::{parse_stat, pids, resident, user, user_names};
use hugepilot_kernel::thp::mapped_in_part;
use hugepilot_kernel::{
    ForkWatch, Forks, KernelError, Process, Root, Target, access_error, clock, recollapse_risk,
};
use hugepilot_policy::daemon::{Key, ProcessFacts, Reading, by_start};
use hugepilot_policy::{Calibration, Priority, mapping_split_skip};
use hugepilot_profiler::large_pages;
use hugepilot_record::{Mapping, Pid, ProcessId, RecollapseRisk};
use hugepilot_reports::daemon::{ExclusionCause, ExhaustedCause, ReloadError};
use hugepilot_units::{Bytes, Nanos, PageSizes};

use super::cgroups::{LimitedCgroups, psi, reading};
use super::config::Config;
use super::facts::{FactsSource, MachineFacts};
use super::reserve::Reserve;
use super::{ControlRequest, ProcessList, System};
use crate::ManagerError;
use crate::engine::live::Live;
use crate::sampling::{NotSampled, SamplerKind, Sampling, SamplingOptions};
use crate::tune::{Event, lives};

/// Samples per second of CPU time per thread: an overhead of about 0.4 %.
const RATE_HZ: u32 = 250;
/// The same in trials, which last seconds.
const BOOSTED_HZ: u32 = 2000;
/// `oom_score_adj` of processes that the kernel never kills for lack of memory.
const NEVER_KILLED: i32 = -1000;

/// Requests of the user.
pub struct Control<'a> {
    /// Returns the pending request.
    pub asked: &'a dyn Fn() -> ControlRequest,
    /// Waits for a time, or until there is a request.
    pub wait: &'a dyn Fn(Nanos),
    /// Reads the configuration again.
    pub reload: &'a dyn Fn() -> Result<Config, ReloadError>,
}

/// The live [`System`].
pub struct LiveSystem<'a> {
    root: Root,
    cgroup: Option<(PathBuf, MemoryCgroup)>,
    /// Cgroups with a limit of their own.
    cgroups: LimitedCgroups,
    control: Control<'a>,
    /// Whether there is a request to stop. Another request waits for the end of a round.
    is_stopped: Box<dyn Fn() -> bool + 'a>,
    /// Facts from before; then those of `source`.
    facts: RefCell<MachineFacts>,
    /// Forks of children that are shorter than a reading; `None` if the kernel does not show them.
    forks: OnceCell<RefCell<Option<ForkWatch>>>,
    source: &'a dyn FactsSource,
    reserve: Rc<RefCell<Reserve>>,
    compacts_from: Rc<Cell<Nanos>>,
}

impl<'a> LiveSystem<'a> {
    /// Opens the whole system, or the cgroup of `config`. `facts` hold until those of `source` are
    /// known.
    ///
    /// # Errors
    /// [`ManagerError::Cgroup`] if there is no such cgroup, or it has no limit.
    pub fn new(
        config: &Config,
        facts: MachineFacts,
        source: &'a dyn FactsSource,
        control: Control<'a>,
    ) -> Result<Self, ManagerError> {
        let root = Root::live();
        let cgroup = config.cgroup.clone().map(|directory| {
            let error = |what| ManagerError::Cgroup {
                directory: directory.to_string_lossy().into_owned(),
                what,
            };
            if !root.join(&directory).join("cgroup.procs").exists() {
                return Err(error("there is no such cgroup"));
            }
            let group = MemoryCgroup::of_directory(&root, &directory)
                .ok_or_else(|| error("the cgroup accounts no memory"))?;
            if group.headroom(&root).limit == Bytes::MAX {
                return Err(error("it has no memory limit (memory.max, memory.limit_in_bytes)"));
            }
            Ok((directory, group))
        });
        let asked = control.asked;
        Ok(Self {
            cgroup: cgroup.transpose()?,
            cgroups: LimitedCgroups::default(),
            root,
            control,
            is_stopped: Box::new(move || asked() == ControlRequest::Stop),
            facts: RefCell::new(facts),
            forks: OnceCell::new(),
            source,
            reserve: Rc::default(),
            compacts_from: Rc::default(),
        })
    }

    /// Opens the processes that still run.
    fn opened(&self, ids: &[ProcessId]) -> Vec<Rc<Process>> {
        let open = |id: &ProcessId| {
            let process = Process::open(&self.root, id.pid).ok()?;
            (process.id() == id).then(|| Rc::new(process))
        };
        ids.iter().filter_map(open).collect()
    }

    fn live(&self, processes: Vec<Rc<Process>>, sampling: Sampling) -> Live<'_> {
        // A closure without captures takes no memory, so nothing is leaked.
        let say = Box::leak(Box::new(|_: Event<'_>| {}));
        let tlb_entries = self.facts.borrow().tlb_entries;
        Live::new(processes, sampling, tlb_entries, None, &*self.is_stopped, say)
    }

    /// Processes of the cgroup at `directory`, or all.
    fn pids(&self, directory: Option<&Path>) -> Result<Vec<Pid>, KernelError> {
        match directory {
            // A removed cgroup has no processes.
            Some(directory) => Ok(cgroup::processes(&self.root, directory).unwrap_or_default()),
            None => pids(&self.root),
        }
    }

    fn directory(&self) -> Option<&Path> {
        self.cgroup.as_ref().map(|(directory, _)| directory.as_path())
    }

    /// Reads what rules need of `pid`; `None` if it is gone, or has less memory.
    fn process_facts(
        &self,
        pid: Pid,
        min_resident: Bytes,
        with_cgroups: bool,
        names: &BTreeMap<u32, String>,
    ) -> Result<Option<ProcessFacts>, KernelError> {
        let enough = |resident: &Bytes| *resident >= min_resident;
        let Some(resident) = resident(&self.root, pid)?.filter(enough) else { return Ok(None) };
        let stat = parse_stat(&self.root.read(format!("proc/{pid}/stat"))?);
        let user = user(&self.root, pid)?;
        let Some((stat, user)) = stat.filter(|stat| !stat.is_zombie()).zip(user) else {
            return Ok(None);
        };
        let cgroup = if with_cgroups {
            let text = self.root.read_text(format!("proc/{pid}/cgroup"))?;
            MemoryCgroup::find(&self.root, &text)
        } else {
            None
        };
        Ok(Some(ProcessFacts {
            id: ProcessId { pid, start_ticks: stat.start_ticks, command: stat.command },
            user,
            user_name: names.get(&user).cloned(),
            cgroup: cgroup.map_or_else(|| "/".to_owned(), |group| group.path()),
            resident,
            cpu: stat.cpu,
        }))
    }

    /// Whether all processes together may hold this much memory that they do not map.
    fn may_strand(&self, least: Bytes) -> bool {
        let sizes = page_sizes(&self.root).unwrap_or(PageSizes::X86_64);
        mapped_in_part(&self.root, sizes).is_some_and(|pages| sizes.huge.times(pages) >= least)
    }

    /// Opens `pid` if it may have enough bloat; `None` if not. `may_strand`: whether a process may
    /// hold enough that it does not map. `Err` has the cause of an exclusion.
    fn process(
        &self,
        pid: Pid,
        config: &Config,
        may_strand: bool,
    ) -> Result<Option<Process>, (ProcessId, ExclusionCause)> {
        let unknown = || ProcessId { pid, start_ticks: 0, command: String::new() };
        match resident(&self.root, pid) {
            Ok(Some(resident)) if resident >= config.min_huge || may_strand => {}
            Ok(_) => return Ok(None),
            Err(error) => return Err((unknown(), unreadable(&error))),
        }
        let process = match Process::open(&self.root, pid) {
            Ok(process) => process,
            Err(KernelError::NoProcess { .. } | KernelError::NoMemory { .. }) => return Ok(None),
            Err(error) => return Err((unknown(), unreadable(&error))),
        };
        let excluded = |cause| Err((process.id().clone(), cause));
        let mappings = match process.mappings() {
            Ok(mappings) => mappings,
            Err(error) if error.is_gone() => return Ok(None),
            Err(error) => return excluded(unreadable(&error)),
        };
        let may_split = mappings.iter().filter(|mapping| mapping_split_skip(mapping).is_none());
        let huge: Bytes = may_split.map(|mapping| mapping.huge).sum();
        if huge < config.min_huge && !(may_strand && holds(&process, &mappings, config.min_huge)) {
            return Ok(None);
        }
        if config.priority(process.id()) == Priority::Protected {
            return excluded(ExclusionCause::Protected);
        }
        match process.oom_score_adj() {
            Ok(oom_score_adj) if oom_score_adj <= NEVER_KILLED => {
                excluded(ExclusionCause::OomProtected { oom_score_adj })
            }
            Ok(_) => Ok(Some(process)),
            Err(error) if error.is_gone() => Ok(None),
            Err(error) => excluded(unreadable(&error)),
        }
    }
}

/// Whether large pages of a process hold this much that it does not map.
fn holds(process: &Process, mappings: &[Mapping], least: Bytes) -> bool {
    let large = large_pages(process, mappings, true).ok().flatten().unwrap_or_default();
    large.stranded_bytes() >= least
}

fn unreadable(error: &KernelError) -> ExclusionCause {
    ExclusionCause::Unreadable(access_error(error))
}

impl System for LiveSystem<'_> {
    type Watched<'w>
        = Live<'w>
    where
        Self: 'w;
    type Opened<'w>
        = Live<'w>
    where
        Self: 'w;

    fn now(&self) -> Nanos {
        clock::monotonic()
    }
    fn unix_seconds(&self) -> f64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
    }
    fn cpu_time(&self) -> Nanos {
        clock::own_cpu_time()
    }
    fn wait(&self, time: Nanos) {
        (self.control.wait)(time);
    }
    fn asked(&self) -> ControlRequest {
        (self.control.asked)()
    }
    fn reload(&self) -> Result<Config, ReloadError> {
        (self.control.reload)()
    }

    fn facts(
        &self,
        min_resident: Bytes,
        with_cgroups: bool,
    ) -> Result<Vec<ProcessFacts>, KernelError> {
        let (names, daemon) = (user_names(&self.root), std::process::id());
        let others = self.pids(self.directory())?.into_iter();
        let others = others.filter(|pid| pid.0 > 1 && pid.0.unsigned_abs() != daemon);
        // A process that ends meanwhile, or cannot be read, is not a candidate.
        let facts =
            |pid| self.process_facts(pid, min_resident, with_cgroups, &names).ok().flatten();
        Ok(others.filter_map(facts).collect())
    }

    fn forks(&self, process: &ProcessId) -> Forks {
        let opened = self.opened(std::slice::from_ref(process));
        opened.first().map(|process| process.forks()).unwrap_or_default()
    }

    fn forked(&self) -> BTreeSet<Pid> {
        // A daemon that promotes nothing watches no forks.
        let watch = self.forks.get_or_init(|| RefCell::new(ForkWatch::begin()));
        let parents = watch.borrow_mut().as_mut().map(|watch| watch.parents(clock::monotonic()));
        parents.unwrap_or_default()
    }

    fn watch(&self, processes: &[ProcessId]) -> Result<(Live<'_>, Vec<NotSampled>), ManagerError> {
        let opened = self.opened(processes);
        let rate_hz = self.facts.borrow().rate_hz;
        let options = SamplingOptions {
            sampler: SamplerKind::Best,
            with_children: false,
            rate_hz,
            boosted_hz: BOOSTED_HZ.max(rate_hz),
        };
        let (sampling, not_sampled) = Sampling::start(&opened, options)?;
        let mut live = self.live(sampling.processes().to_vec(), sampling);
        live.guard.clone_from(&self.facts.borrow().trial_guard);
        live.reserve = Some(self.reserve.clone());
        live.compacts_from = self.compacts_from.clone();
        Ok((live, not_sampled))
    }

    fn keep_reserve(&self, size: Bytes) {
        let sizes = page_sizes(&self.root).unwrap_or(PageSizes::X86_64);
        self.reserve.borrow_mut().keep(size, sizes, clock::monotonic());
    }

    fn is_calibrated(&self) -> bool {
        let known = self.source.facts();
        let is_calibrated = known.is_some();
        known.map(|facts| self.facts.replace(facts));
        is_calibrated
    }
    fn stop_calibrating(&self) {
        self.source.stop();
    }
    fn calibration(&self) -> Calibration {
        self.facts.borrow().calibration.clone()
    }

    fn limited_cgroups(&self) -> Vec<String> {
        if self.cgroup.is_some() { Vec::new() } else { self.cgroups.list(&self.root) }
    }

    fn select(&self, cgroup: Option<&str>) {
        self.cgroups.select(&self.root, cgroup);
    }

    fn memory(&self) -> Result<Reading, KernelError> {
        if let Some(reading) = self.cgroups.reading(&self.root) {
            return Ok(reading);
        }
        if let Some((_, group)) = &self.cgroup {
            let (room, hard) = (group.headroom(&self.root), group.hard_headroom(&self.root));
            return Ok(reading(&self.root, group, room, hard));
        }
        let info = memory::mem_info(&self.root)?;
        let used = info.total - info.available;
        let psi = psi(&self.root, "proc/pressure/memory");
        Ok(Reading { used, limit: info.total, hard_use: used.ratio_of(info.total), psi })
    }

    fn forbidden(&self) -> Option<ExhaustedCause> {
        // Each split verifies that it frees memory. Another test on a child process would require a
        // free huge page, and memory is short now.
        let corrupted_bytes = memory::mem_info(&self.root).ok()?.corrupted;
        (corrupted_bytes > Bytes::ZERO).then_some(ExhaustedCause::BrokenMemory { corrupted_bytes })
    }

    fn processes(
        &self,
        config: &Config,
        each: &mut dyn FnMut() -> bool,
    ) -> Result<ProcessList, KernelError> {
        let daemon = std::process::id();
        let mut list = ProcessList::default();
        let may_strand = self.may_strand(config.min_huge);
        let selected = self.cgroups.directory();
        for pid in self.pids(selected.as_deref().or(self.directory()))? {
            if pid.0 <= 1 || pid.0.unsigned_abs() == daemon {
                continue;
            }
            if !each() {
                break;
            }
            match self.process(pid, config, may_strand) {
                Ok(found) => list.processes.extend(found.map(|one| one.id().clone())),
                Err(excluded) => list.excluded.push(excluded),
            }
        }
        // Pids wrap around; start times do not.
        list.processes.sort_by_key(by_start);
        Ok(list)
    }

    fn lives(&self, key: Key) -> bool {
        lives(&self.root, key)
    }

    fn open(&self, ids: &[ProcessId], sampled: bool) -> Result<Live<'_>, ManagerError> {
        let processes = self.opened(ids);
        let sampling = if sampled {
            Sampling::start(&processes, SamplingOptions::clock(RATE_HZ))?.0
        } else {
            Sampling::none()
        };
        Ok(self.live(processes, sampling))
    }

    fn recollapse_risk(&self, advised: bool) -> Option<RecollapseRisk> {
        recollapse_risk(&self.root, advised)
    }
}

#[cfg(test)]
mod tests {
    use hugepilot_policy::daemon::key_of;

    use super::*;
    use crate::engine::World;

    struct Nothing;

    impl FactsSource for Nothing {
        fn facts(&self) -> Option<MachineFacts> {
            None
        }
        fn stop(&self) {}
    }

    fn machine(root: Root) -> LiveSystem<'static> {
        let control = Control {
            asked: &|| ControlRequest::Nothing,
            wait: &|_| {},
            reload: &|| Err(ReloadError::CgroupChanged),
        };
        let facts = MachineFacts {
            calibration: Calibration::default(),
            rate_hz: 100,
            tlb_entries: 1,
            trial_guard: None,
        };
        let config = Config::default();
        LiveSystem { root, ..LiveSystem::new(&config, facts, &Nothing, control).unwrap() }
    }

    #[test]
    fn a_process_that_ended_before_it_was_opened_has_ended() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let [child_pid, own] = [child.id(), std::process::id()].map(|pid| Pid(pid.cast_signed()));
        let of = |pid| Process::open(&Root::live(), pid).unwrap().id().clone();
        let (ended, alive) = (of(child_pid), of(own));
        let reused = ProcessId { start_ticks: alive.start_ticks + 1, ..alive.clone() };
        let machine = machine(Root::live());
        child.kill().unwrap();
        // It is a zombie until the wait.
        while machine.lives(key_of(&ended)) {}
        let check = || {
            let mut world = machine.open(&[ended.clone(), reused.clone()], false).unwrap();
            assert!(world.target(child_pid).is_err() && world.has_ended(key_of(&ended)));
            assert!(world.target(own).is_ok() && world.has_ended(key_of(&reused)));
            assert!(!world.has_ended(key_of(&alive)));
        };
        check();
        child.wait().unwrap();
        check();
    }

    #[test]
    fn an_unreadable_process_is_not_gone_and_its_exclusion_has_a_cause() {
        let dir = tempfile::tempdir().unwrap();
        // Reading a directory fails, as it does without descriptors.
        for file in ["proc/7/statm", "proc/7/stat"] {
            std::fs::create_dir_all(dir.path().join(file)).unwrap();
        }
        let machine = machine(Root::at(dir.path()));
        assert!(machine.lives((Pid(7), 1)) && !machine.lives((Pid(8), 1)));
        let (id, cause) = machine.process(Pid(7), &Config::default(), false).unwrap_err();
        let ExclusionCause::Unreadable(error) = cause else { panic!("{cause:?}") };
        assert!(id.pid == Pid(7) && error.error.contains("proc/7/statm"), "{error:?}");
        assert!(machine.process(Pid(8), &Config::default(), false).unwrap().is_none());
    }
}
