//! Memory usage of a cgroup and its processes, without reading their memory.

use std::path::Path;

use hugepilot_kernel::cgroup::{self, GroupMemory, MemoryCgroup};
use hugepilot_kernel::{
    ExcludedProcesses, KernelError, Process, Root, Target, TargetState, memory,
};
use hugepilot_record::ExcludedCount;
use hugepilot_units::Bytes;

use crate::SettingsError;

/// Usage of a cgroup at one moment.
pub(super) struct GroupUsage {
    pub(super) group: GroupMemory,
    /// Underused huge pages split since boot, on the whole system.
    pub(super) splits: Option<u64>,
    pub(super) processes: Vec<ProcessUsage>,
    /// Processes that cannot be read.
    pub(super) excluded: Option<ExcludedCount>,
}

/// A process and its memory.
pub(super) struct ProcessUsage {
    pub(super) process: Process,
    pub(super) memory: AnonMemory,
}

/// Anonymous memory of a process.
#[derive(Clone, Copy)]
pub(super) struct AnonMemory {
    pub(super) anon: Bytes,
    /// `None` if its smaps cannot be read.
    pub(super) huge: Option<Bytes>,
}

impl GroupUsage {
    /// Reads the cgroup at `directory` and all processes in and below it, except this one.
    pub(super) fn new(
        root: &Root,
        group: &MemoryCgroup,
        directory: &Path,
    ) -> Result<Self, SettingsError> {
        let (mut processes, mut excluded) = (Vec::new(), ExcludedProcesses::default());
        for pid in cgroup::processes(root, directory)? {
            if pid.0.unsigned_abs() == std::process::id() {
                continue;
            }
            let opened = Process::open(root, pid).and_then(|process| {
                let memory = AnonMemory::of(&process)?;
                Ok(ProcessUsage { process, memory })
            });
            match opened {
                Ok(usage) => processes.push(usage),
                // It ended, or has no memory.
                Err(KernelError::NoProcess { .. } | KernelError::NoMemory { .. }) => {}
                Err(error) => excluded.add(error),
            }
        }
        let excluded = excluded.count(processes.len())?;
        Ok(Self { excluded, ..Self::of(root, group, processes)? })
    }

    /// Reads the same processes again, except those that ended or executed another program.
    pub(super) fn again(&self, root: &Root, group: &MemoryCgroup) -> Result<Self, SettingsError> {
        let mut processes = Vec::new();
        for ProcessUsage { process, .. } in &self.processes {
            if matches!(process.state(), Ok(TargetState::Gone | TargetState::Execed)) {
                continue;
            }
            if let (Ok(process), Ok(memory)) =
                (Process::open(root, process.id().pid), AnonMemory::of(process))
            {
                processes.push(ProcessUsage { process, memory });
            }
        }
        Self::of(root, group, processes)
    }

    fn of(
        root: &Root,
        group: &MemoryCgroup,
        processes: Vec<ProcessUsage>,
    ) -> Result<Self, SettingsError> {
        Ok(Self {
            group: group.memory(root)?,
            splits: memory::underused_splits(root),
            processes,
            excluded: None,
        })
    }

    /// Returns the memory of the process of `other` in this reading.
    pub(super) fn memory_of(&self, other: &ProcessUsage) -> Option<AnonMemory> {
        self.processes
            .iter()
            .find(|one| one.process.id() == other.process.id())
            .map(|one| one.memory)
    }

    /// Whether a readable process requested huge pages by `MADV_HUGEPAGE`.
    pub(super) fn is_advised(&self) -> bool {
        let advised = |process: &Process| {
            let mappings = process.mappings().unwrap_or_default();
            mappings.iter().any(|mapping| mapping.flags.has("hg"))
        };
        self.processes.iter().any(|one| advised(&one.process))
    }
}

impl AnonMemory {
    fn of(process: &Process) -> Result<Self, KernelError> {
        Ok(Self { anon: process.anonymous()?, huge: process.anonymous_huge().ok() })
    }
}
