//! The running system, as the daemon sees it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use hugepilot_kernel::cgroup::{self, MemoryCgroup};
use hugepilot_kernel::proc::{parse_stat, pids, resident};
use hugepilot_kernel::{KernelError, Process, Root, Target, clock, cpu, memory};
use hugepilot_policy::{Priority, mapping_split_skip};
use hugepilot_record::{Pid, ProcessId};
use hugepilot_units::{Bytes, Nanos, Region};

use super::config::Config;
use super::history::{Key, by_start};
use super::watermark::Reading;
use super::{ControlRequest, ProcessList, World};
use crate::ManagerError;
use crate::debloat::stalls;
use hugepilot_kernel::KhugepagedRisk;
use hugepilot_kernel::describe;

/// Samples per second of each thread's CPU time: about 0.4 % of it.
const RATE_HZ: u32 = 250;
/// The kernel never kills it for lack of memory, because the system needs it.
const NEVER_KILLED: i32 = -1000;
/// Base pages in the TLB where the processor does not say.
const USUAL_TLB_ENTRIES: u32 = 1536;

/// How the user talks to the daemon.
pub struct Control<'a> {
    /// What the user wants.
    pub asked: &'a dyn Fn() -> ControlRequest,
    /// Waits so long, or until that changes.
    pub wait: &'a dyn Fn(Nanos),
    /// Reads the configuration again.
    pub reload: &'a dyn Fn() -> Result<Config, String>,
}

/// The running system.
pub struct Machine<'a> {
    root: Root,
    cgroup: Option<(PathBuf, MemoryCgroup)>,
    control: Control<'a>,
    tlb_entries: u32,
    /// Those that [`World::processes`] found last.
    processes: RefCell<Vec<Rc<Process>>>,
}

impl<'a> Machine<'a> {
    /// The whole system, or the cgroup that `config` names.
    ///
    /// # Errors
    /// [`ManagerError::Cgroup`] when there is no such cgroup, or nothing limits it.
    pub fn new(config: &Config, control: Control<'a>) -> Result<Self, ManagerError> {
        let root = Root::live();
        let cgroup = config.cgroup.clone().map(|directory| {
            let refused =
                |what| ManagerError::Cgroup { directory: directory.to_string_lossy().into_owned(), what };
            let group = MemoryCgroup::of_directory(&root, &directory).ok_or_else(|| {
                refused("no cgroup there accounts memory (such as /sys/fs/cgroup/db.slice)")
            })?;
            if group.headroom(&root).limit == Bytes::MAX {
                return Err(refused(
                    "it has no memory limit (memory.max, memory.limit_in_bytes) to hold its use against",
                ));
            }
            Ok((directory, group))
        });
        let tlb_entries =
            cpu::read(&root).map_or(USUAL_TLB_ENTRIES, |cpu| cpu::tlb(&cpu).l2_4k_entries);
        Ok(Self {
            cgroup: cgroup.transpose()?,
            root,
            control,
            tlb_entries,
            processes: RefCell::default(),
        })
    }

    fn pids(&self) -> Result<Vec<Pid>, KernelError> {
        match &self.cgroup {
            // One that is removed has no processes.
            Some((directory, _)) => {
                Ok(cgroup::processes(&self.root, directory).unwrap_or_default())
            }
            None => pids(&self.root),
        }
    }

    /// Opens `pid` where it may be worth a look: `None` where it is not, `Err` with why where it is to be left alone.
    fn process(&self, pid: Pid, config: &Config) -> Result<Option<Process>, (ProcessId, String)> {
        let unknown = || ProcessId { pid, start_ticks: 0, command: String::new() };
        match resident(&self.root, pid) {
            Ok(Some(resident)) if resident >= config.min_huge => {}
            Ok(_) => return Ok(None),
            Err(error) => return Err((unknown(), describe(&error))),
        }
        let process = match Process::open(&self.root, pid) {
            Ok(process) => process,
            Err(KernelError::NoProcess { .. } | KernelError::NoMemory { .. }) => return Ok(None),
            Err(error) => return Err((unknown(), describe(&error))),
        };
        let left = |why: &str| Err((process.id().clone(), why.to_owned()));
        let mappings = match process.mappings() {
            Ok(mappings) => mappings,
            Err(error) if error.is_gone() => return Ok(None),
            Err(error) => return left(&describe(&error)),
        };
        let may_split = mappings.iter().filter(|mapping| mapping_split_skip(mapping).is_none());
        if may_split.map(|mapping| mapping.huge).sum::<Bytes>() < config.min_huge {
            return Ok(None);
        }
        if config.priority(process.id()) == Priority::Protected {
            return left("protected by the configuration");
        }
        match process.oom_score_adj() {
            Ok(score) if score <= NEVER_KILLED => {
                left("the system needs it: its oom_score_adj is -1000")
            }
            Ok(_) => Ok(Some(process)),
            Err(error) if error.is_gone() => Ok(None),
            Err(error) => left(&describe(&error)),
        }
    }
}

/// `cause`: why khugepaged would, where it does. New memory that a program maps at the same place cannot be told from the old:
/// neither the page map nor smaps shows since when a mapping is there.
fn who_collapses(cause: Option<String>) -> String {
    let program = "the program maps new memory at the same place";
    match cause {
        Some(cause) => format!("{program}, or khugepaged makes them huge again, {cause}"),
        None => format!(
            "not khugepaged, as it is set now: {program}, it makes them huge itself (MADV_COLLAPSE), or another tool does"
        ),
    }
}

impl World for Machine<'_> {
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
    fn reload(&self) -> Result<Config, String> {
        (self.control.reload)()
    }

    fn memory(&self) -> Result<Reading, KernelError> {
        let waits = |file: &str| {
            memory::pressure(&self.root, file).map(|pressure| pressure.some_avg10 / 100.0)
        };
        if let Some((_, group)) = &self.cgroup {
            let room = group.headroom(&self.root);
            // Version 1 has no pressure of its own, and that of the system is somebody else's.
            let psi = group.pressure_file().and_then(|file| waits(&file));
            let hard_use = group.hard_headroom(&self.root).use_ratio();
            return Ok(Reading { used: room.limit - room.left, limit: room.limit, hard_use, psi });
        }
        let info = memory::mem_info(&self.root)?;
        let used = info.total - info.available;
        let psi = waits("proc/pressure/memory");
        Ok(Reading { used, limit: info.total, hard_use: used.ratio_of(info.total), psi })
    }

    fn forbidden(&self) -> Option<String> {
        // Whether a split frees anything was tried at the start and is seen on each one. To try it on a child again needs a
        // free huge page, which there may be none of just now.
        let corrupted = memory::mem_info(&self.root).ok()?.corrupted;
        (corrupted > Bytes::ZERO).then(|| {
            format!("{corrupted} of memory are broken (HardwareCorrupted in /proc/meminfo), and a split reads every page")
        })
    }

    fn processes(
        &self,
        config: &Config,
        each: &mut dyn FnMut() -> bool,
    ) -> Result<ProcessList, KernelError> {
        let ourselves = std::process::id();
        let mut list = ProcessList::default();
        let mut processes = Vec::new();
        for pid in self.pids()? {
            if pid.0 <= 1 || pid.0.unsigned_abs() == ourselves {
                continue;
            }
            if !each() {
                break;
            }
            match self.process(pid, config) {
                Ok(found) => processes.extend(found.map(Rc::new)),
                Err(left) => list.left.push(left),
            }
        }
        // Pids wrap around; start times do not.
        processes.sort_by_key(|process| by_start(process.id()));
        list.targets =
            processes.iter().map(|process| Rc::clone(process) as Rc<dyn Target>).collect();
        self.processes.replace(processes);
        Ok(list)
    }

    fn lives(&self, (pid, start_ticks): Key) -> bool {
        let stat = match self.root.read(format!("proc/{pid}/stat")) {
            Ok(line) => parse_stat(&line),
            // What cannot be read, for want of descriptors, is not gone.
            Err(error) => return !error.is_gone(),
        };
        // Of one that could not be opened, the start is not known.
        stat.is_some_and(|stat| {
            !stat.is_zombie() && (stat.start_ticks == start_ticks || start_ticks == 0)
        })
    }

    fn observe(
        &self,
        targets: &[Rc<dyn Target>],
        time: Nanos,
        each: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<Option<BTreeMap<Region, u32>>>, ManagerError> {
        let processes = self.processes.borrow();
        let is_meant =
            |process: &&Process| targets.iter().any(|target| target.id() == process.id());
        let processes: Vec<&Process> =
            processes.iter().map(|process| &**process).filter(is_meant).collect();
        let seen = stalls::observe(&processes, time, RATE_HZ, self.tlb_entries, &mut |_| each())?;
        Ok(seen.stalls.into_iter().map(|stalls| Some(stalls?.regions)).collect())
    }

    fn khugepaged(&self, advised: bool) -> Option<String> {
        KhugepagedRisk::now(&self.root, advised).cause()
    }
    fn who_collapses(&self, advised: bool) -> String {
        who_collapses(KhugepagedRisk::now(&self.root, advised).cause())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_cannot_be_read_is_neither_gone_nor_passed_over_in_silence() {
        let dir = tempfile::tempdir().unwrap();
        // Reading a directory fails, as it does without descriptors.
        for file in ["proc/7/statm", "proc/7/stat"] {
            std::fs::create_dir_all(dir.path().join(file)).unwrap();
        }
        let control = Control {
            asked: &|| ControlRequest::Nothing,
            wait: &|_| {},
            reload: &|| Err(String::new()),
        };
        let (root, processes) = (Root::at(dir.path()), RefCell::default());
        let machine = Machine { root, cgroup: None, control, tlb_entries: 1, processes };
        assert!(machine.lives((Pid(7), 1)) && !machine.lives((Pid(8), 1)));
        let (id, why) = machine.process(Pid(7), &Config::default()).unwrap_err();
        assert!(id.pid == Pid(7) && why.contains("proc/7/statm"), "{why}");
        assert!(machine.process(Pid(8), &Config::default()).unwrap().is_none());
    }

    #[test]
    fn khugepaged_is_never_the_only_suspect() {
        let by_khugepaged = who_collapses(Some("because THP is always".to_owned()));
        assert!(by_khugepaged.contains("new memory"), "{by_khugepaged}");
        assert!(by_khugepaged.ends_with("khugepaged makes them huge again, because THP is always"));
        let by_others = who_collapses(None);
        assert!(
            by_others.starts_with("not khugepaged") && by_others.contains("new memory"),
            "{by_others}"
        );
    }
}
