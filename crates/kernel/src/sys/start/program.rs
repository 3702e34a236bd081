//! Program to start, and the end of a started one.

use std::ffi::OsString;
use std::os::fd::BorrowedFd;
use std::path::Path;

use hugepilot_units::{Bytes, Nanos};

use crate::proc::Stat;

/// Transparent huge pages that a program may have, for itself and its descendants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thp {
    /// Settings of the system and of this process apply.
    Inherit,
    /// None (`PR_SET_THP_DISABLE`).
    Never,
    /// Only where the program itself advises them; EINVAL before Linux 6.18.
    Advised,
    /// Settings of the system apply, also if THP is disabled for this process.
    Allowed,
}

/// Program to start.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    /// File.
    pub path: &'a Path,
    /// Arguments, its name first.
    pub arguments: &'a [OsString],
    /// Complete environment.
    pub environment: &'a [(OsString, OsString)],
    /// Transparent huge pages.
    pub thp: Thp,
    /// Standard input, output and error; `None` for those of this process.
    pub standard: [Option<BorrowedFd<'a>>; 3],
    /// Whether it gets a process group of its own, which a terminal does not signal.
    pub own_group: bool,
}

impl<'a> Program<'a> {
    /// A program with the THP settings, the standard streams and the process group of this process.
    pub const fn inheriting(
        path: &'a Path,
        arguments: &'a [OsString],
        environment: &'a [(OsString, OsString)],
    ) -> Self {
        let (thp, standard) = (Thp::Inherit, [None; 3]);
        Self { path, arguments, environment, thp, standard, own_group: false }
    }
}

/// Change of a child's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Exit with this status.
    Exited(i32),
    /// End by this signal.
    Killed(i32),
    /// Stop, as by Ctrl-Z.
    Stopped,
    /// Continuation after a stop.
    Continued,
}

impl Change {
    /// Parses a status of `wait4`.
    pub(super) const fn of_status(status: i32) -> Self {
        if libc::WIFEXITED(status) {
            Self::Exited(libc::WEXITSTATUS(status))
        } else if libc::WIFSIGNALED(status) {
            Self::Killed(libc::WTERMSIG(status))
        } else if libc::WIFSTOPPED(status) {
            Self::Stopped
        } else {
            Self::Continued
        }
    }
}

/// Resources that a child, and the descendants for which it has waited, used together (`wait4`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceUsage {
    /// CPU time in user mode.
    pub user: Nanos,
    /// CPU time in the kernel.
    pub system: Nanos,
    /// Page faults without I/O.
    pub minor_faults: u64,
    /// Page faults that waited for a disk.
    pub major_faults: u64,
    /// Largest resident size of any one of them, without hugetlb pages. That before exec counts.
    pub peak_resident: Bytes,
    /// Context switches of threads that waited for something.
    pub voluntary_switches: u64,
    /// Context switches of threads that were displaced.
    pub involuntary_switches: u64,
}

/// Use of a program until its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastUse {
    /// Its stat as a zombie, without its children.
    pub stat: Stat,
    /// Its resources, and those of the descendants for which it has waited.
    pub usage: ResourceUsage,
}

impl LastUse {
    /// Returns the resources of the program alone; `None` if they include those of descendants.
    pub fn own_usage(&self) -> Option<&ResourceUsage> {
        (self.stat.child_faults == 0).then_some(&self.usage)
    }
}

impl From<&libc::rusage> for ResourceUsage {
    fn from(usage: &libc::rusage) -> Self {
        let count = |number: i64| u64::try_from(number).unwrap_or(0);
        let time = |time: libc::timeval| {
            Nanos::seconds(count(time.tv_sec)) + Nanos::new(count(time.tv_usec) * 1000)
        };
        Self {
            user: time(usage.ru_utime),
            system: time(usage.ru_stime),
            minor_faults: count(usage.ru_minflt),
            major_faults: count(usage.ru_majflt),
            peak_resident: Bytes::kib(count(usage.ru_maxrss)),
            voluntary_switches: count(usage.ru_nvcsw),
            involuntary_switches: count(usage.ru_nivcsw),
        }
    }
}
