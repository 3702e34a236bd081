//! What can be seen of a cgroup and its processes without reading their memory.

use std::path::Path;

use hugepilot_kernel::cgroup::{self, GroupMemory, MemoryCgroup};
use hugepilot_kernel::{KernelError, Process, Root, Target, TargetState, memory};
use hugepilot_units::Bytes;

use crate::SettingsError;
use hugepilot_kernel::ExcludedProcesses;

/// One look.
pub(super) struct Look {
    pub(super) group: GroupMemory,
    /// Underused huge pages that were split since the system started.
    pub(super) splits: Option<u64>,
    pub(super) members: Vec<DebloatProcess>,
    /// That some may not be looked at.
    pub(super) left_out: Option<String>,
}

/// One process, and its memory then.
pub(super) struct DebloatProcess {
    pub(super) process: Process,
    pub(super) memory: Used,
}

/// What a process uses.
#[derive(Clone, Copy)]
pub(super) struct Used {
    pub(super) anon: Bytes,
    /// `None` where its smaps may not be read.
    pub(super) huge: Option<Bytes>,
}

impl Look {
    /// At the cgroup at `directory` and all processes below it but ourselves and those that may not be looked at.
    pub(super) fn new(
        root: &Root,
        group: &MemoryCgroup,
        directory: &Path,
    ) -> Result<Self, SettingsError> {
        let (mut members, mut left) = (Vec::new(), ExcludedProcesses::default());
        for pid in cgroup::processes(root, directory)? {
            if pid.0.unsigned_abs() == std::process::id() {
                continue;
            }
            let opened = Process::open(root, pid).and_then(|process| {
                let memory = Used::of(&process)?;
                Ok(DebloatProcess { process, memory })
            });
            match opened {
                Ok(member) => members.push(member),
                // It ended, or has none.
                Err(KernelError::NoProcess { .. } | KernelError::NoMemory { .. }) => {}
                Err(error) => left.add(error),
            }
        }
        let left_out = left.warning(members.len())?;
        Ok(Self { left_out, ..Self::of(root, group, members)? })
    }

    /// At the same processes once more; those that ended or became other programs are left out.
    pub(super) fn again(&self, root: &Root, group: &MemoryCgroup) -> Result<Self, SettingsError> {
        let mut members = Vec::new();
        for DebloatProcess { process, .. } in &self.members {
            if matches!(process.state(), Ok(TargetState::Gone | TargetState::Execed)) {
                continue;
            }
            if let (Ok(process), Ok(memory)) =
                (Process::open(root, process.id().pid), Used::of(process))
            {
                members.push(DebloatProcess { process, memory });
            }
        }
        Self::of(root, group, members)
    }

    fn of(
        root: &Root,
        group: &MemoryCgroup,
        members: Vec<DebloatProcess>,
    ) -> Result<Self, SettingsError> {
        Ok(Self {
            group: group.memory(root)?,
            splits: memory::underused_splits(root),
            members,
            left_out: None,
        })
    }

    /// What the process of `member` used at this look.
    pub(super) fn used_by(&self, member: &DebloatProcess) -> Option<Used> {
        self.members
            .iter()
            .find(|one| one.process.id() == member.process.id())
            .map(|one| one.memory)
    }

    /// Whether some process asked for huge pages by `MADV_HUGEPAGE`, as far as may be seen.
    pub(super) fn is_advised(&self) -> bool {
        let asked = |process: &Process| {
            let mappings = process.mappings().unwrap_or_default();
            mappings.iter().any(|mapping| mapping.flags.has("hg"))
        };
        self.members.iter().any(|member| asked(&member.process))
    }
}

impl Used {
    fn of(process: &Process) -> Result<Self, KernelError> {
        Ok(Self { anon: process.anonymous()?, huge: process.anonymous_huge().ok() })
    }
}
