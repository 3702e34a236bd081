//! Target selection by `-p PID`.

use std::path::PathBuf;

use clap::Args;
use hugepilot_kernel::cgroup::MemoryCgroup;
use hugepilot_kernel::{KernelError, Process, Root};
use hugepilot_record::Pid;

/// Flag that names a running process.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct PidArg {
    /// Process to show
    #[arg(short, long, value_name = "PID", value_parser = parse_pid)]
    pub(crate) pid: i32,
}

/// Parses a pid, 1 or above.
pub(crate) fn parse_pid(text: &str) -> Result<i32, &'static str> {
    let pid = text.parse().ok().filter(|&pid| pid > 0);
    pid.ok_or("expected a pid, such as 4711")
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
    use super::*;

    #[test]
    fn a_pid_is_a_number_above_0() {
        assert_eq!(parse_pid("4711"), Ok(4711));
        for text in ["abc", "", "0", "-3", "4711x", "2147483648"] {
            assert_eq!(parse_pid(text), Err("expected a pid, such as 4711"), "{text}");
        }
    }
}
