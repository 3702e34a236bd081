//! Target selection by `-p PID`, `--name NAME` and `--cgroup DIRECTORY`.

use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::Args;
use hugepilot_kernel::cgroup::{self, MemoryCgroup};
use hugepilot_kernel::{ExcludedProcesses, KernelError, Process, Root, Target, TargetState, proc};
use hugepilot_manager::ManagerError;
use hugepilot_manager::names::parse_who;
use hugepilot_record::Pid;

use crate::exit::Exit;
use crate::failure::Failure;

/// Flags that select running processes: all that any of them names.
#[derive(Args, Clone, Debug)]
#[group(skip)]
pub(crate) struct TargetArgs {
    /// Target process; repeatable
    #[arg(short, long, value_name = "PID", value_parser = parse_pid, allow_negative_numbers = true)]
    pub(crate) pid: Vec<i32>,
    /// Name of target processes (`ps -o comm`): all that have it; repeatable
    #[arg(long, value_name = "NAME", value_parser = parse_who)]
    pub(crate) name: Vec<String>,
    /// Cgroup whose processes are targets, including those of its descendants
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) cgroup: Option<PathBuf>,
}

/// A process that flags select.
pub(crate) struct SelectedProcess {
    pub(crate) process: Process,
    /// Whether the user named it by its pid.
    pub(crate) by_pid: bool,
}

impl TargetArgs {
    /// Whether no flag selects anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.pid.is_empty() && self.name.is_empty() && self.cgroup.is_none()
    }

    /// Whether the flags can select more than one process.
    pub(crate) fn is_list(&self) -> bool {
        self.pid.len() > 1 || !self.name.is_empty() || self.cgroup.is_some()
    }

    /// Opens each selected process once, the oldest first. Also returns those that cannot be
    /// opened; one that the user named by its pid is an error, as is a lack of any. `action` is
    /// what the command does to them.
    pub(crate) fn open(
        &self,
        action: &str,
    ) -> anyhow::Result<(Vec<SelectedProcess>, ExcludedProcesses)> {
        let (mut selected, mut excluded) = (Vec::new(), ExcludedProcesses::default());
        for pid in self.pids()? {
            let by_pid = self.pid.contains(&pid);
            match open(pid) {
                Ok(process) => selected.push(SelectedProcess { process, by_pid }),
                Err(error) if by_pid => return Err(error.into()),
                // A process that ended meanwhile or has no memory needs no warning.
                Err(KernelError::NoProcess { .. } | KernelError::NoMemory { .. }) => {}
                Err(error) => excluded.add(error),
            }
        }
        // Pids wrap around; start times do not.
        selected.sort_by_key(|SelectedProcess { process, .. }| {
            (process.id().start_ticks, process.id().pid)
        });
        if selected.is_empty() {
            excluded.count(0)?;
            bail!("no process to {action}");
        }
        Ok((selected, excluded))
    }

    /// Lists the pids of all flags, each once, without this process.
    pub(crate) fn pids(&self) -> anyhow::Result<Vec<i32>> {
        let (root, mut found) = (Root::live(), Vec::new());
        for name in &self.name {
            let named = others(proc::named(&root, name)?);
            if named.is_empty() {
                let help = "list processes by pid and name: ps -eo pid,comm".to_owned();
                let failure = Failure::new(format!("no process is called {name:?}"), Exit::Error);
                return Err(failure.with_help([help]).into());
            }
            found.extend(named);
        }
        if let Some(directory) = &self.cgroup {
            let inside =
                cgroup::processes(&root, directory).map_err(|error| no_cgroup(directory, error))?;
            found.extend(others(inside));
        }
        let mut pids: Vec<i32> = self.pid.iter().copied().chain(found).collect();
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }
}

/// Succeeds if `check` does so for one of `targets`, or if there are none: those without a
/// permission are excluded later.
///
/// # Errors
/// The first error.
pub(crate) fn require_any<T>(
    targets: &[T],
    check: impl Fn(&T) -> Result<(), ManagerError>,
) -> Result<(), ManagerError> {
    let mut failure = Ok(());
    for target in targets {
        match check(target) {
            Ok(()) => return Ok(()),
            error => failure = failure.and(error),
        }
    }
    failure
}

/// Targets whose permissions are tested before a run.
pub(crate) struct RequiredTargets<'a, T> {
    /// Those that the user named: each must pass, unless it ended, because a later failure to read
    /// it is an error.
    pub(crate) named: Vec<&'a T>,
    /// The others: one must pass, unless a named one does.
    pub(crate) others: Vec<&'a T>,
}

impl<T: Target> RequiredTargets<'_, T> {
    /// Succeeds if `check` does so for the required targets.
    ///
    /// # Errors
    /// The first error.
    pub(crate) fn require(
        &self,
        check: impl Fn(&T) -> Result<(), ManagerError>,
    ) -> Result<(), ManagerError> {
        let mut passes = false;
        for target in &self.named {
            match check(target) {
                Ok(()) => passes = true,
                Err(_) if matches!(target.state(), Ok(TargetState::Gone)) => {}
                error => return error,
            }
        }
        if passes { Ok(()) } else { require_any(&self.others, |target| check(target)) }
    }
}

/// The pids other than that of this process, which may have the name or be in the cgroup, too.
fn others(pids: Vec<Pid>) -> Vec<i32> {
    let own = std::process::id();
    pids.into_iter().map(|Pid(pid)| pid).filter(|pid| pid.unsigned_abs() != own).collect()
}

/// The error that `directory` cannot be read as a cgroup.
fn no_cgroup(directory: &Path, error: KernelError) -> anyhow::Error {
    let what = format!("no cgroup at {}", directory.display());
    if error.is_denied() {
        return anyhow::Error::new(error).context(what);
    }
    let help = LIST_CGROUPS.to_owned();
    Failure::new(what, Exit::Error).because(error.to_string()).with_help([help]).into()
}

/// Help for a directory that is not a cgroup.
pub(crate) const LIST_CGROUPS: &str =
    "name a cgroup by its directory, such as /sys/fs/cgroup/db.slice; systemd-cgls lists cgroups";

const EXPECTED_PID: &str = "expected a pid, which is a positive number, such as 4711";

/// Parses a pid, 1 or above.
pub(crate) fn parse_pid(text: &str) -> Result<i32, &'static str> {
    let pid = text.parse().ok().filter(|&pid| pid > 0);
    pid.ok_or(EXPECTED_PID)
}

/// Opens process `pid` of the running system.
pub(crate) fn open(pid: i32) -> Result<Process, KernelError> {
    Process::open(&Root::live(), Pid(pid))
}

/// Returns the command by which the kernel splits underused huge pages of the cgroup of process
/// `pid`. It requires no permission to read memory.
pub(crate) fn shrinker_command(pid: Pid) -> String {
    let cgroup =
        cgroup_of(pid).map_or_else(|| "DIRECTORY".to_owned(), |path| path.display().to_string());
    format!("sudo hugepilot debloat --cgroup {cgroup} --backend shrinker")
}

/// Directory of the cgroup of process `pid`; `None` if it is invisible from here, or the root
/// cgroup, from which nothing can be reclaimed.
fn cgroup_of(pid: Pid) -> Option<PathBuf> {
    let root = Root::live();
    let group = MemoryCgroup::find(&root, &root.read_text(format!("proc/{pid}/cgroup")).ok()?)?;
    let usable = group.is_visible(&root) && group.path() != "/";
    group.directory().filter(|_| usable).map(|directory| root.join(directory))
}

#[cfg(test)]
mod tests {
    use hugepilot_kernel::fake::FakeTarget;
    use hugepilot_record::Errno;

    use super::*;

    /// A process that cannot be read.
    fn denied() -> FakeTarget {
        FakeTarget { unreadable: Some(Errno::EACCES).into(), ..FakeTarget::default() }
    }

    #[test]
    fn each_named_target_that_lives_must_pass() {
        let (passes, denied, ended) = (&FakeTarget::default(), &denied(), &denied());
        ended.state.set(TargetState::Gone);
        let result = |named: &[_], others: &[_]| {
            let targets = RequiredTargets { named: named.to_vec(), others: others.to_vec() };
            targets.require(|one: &FakeTarget| Ok(one.mappings().map(drop)?)).is_ok()
        };
        assert!(!result(&[passes, denied], &[]) && !result(&[denied], &[passes]));
        assert!(result(&[passes, ended], &[]) && result(&[ended], &[]));
        assert!(result(&[passes], &[denied]) && result(&[], &[denied, passes]));
        assert!(!result(&[ended], &[denied]) && result(&[], &[]));
    }

    #[test]
    fn a_pid_is_a_number_above_0() {
        assert_eq!(parse_pid("4711"), Ok(4711));
        for text in ["abc", "", "0", "-3", "4711x", "2147483648"] {
            assert_eq!(parse_pid(text), Err(EXPECTED_PID), "{text}");
        }
    }
}
