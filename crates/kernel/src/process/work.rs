//! Work of a process since its start: its CPU time, and its read and write calls.

use std::fs::File;
use std::io::Read as _;

use hugepilot_record::Errno;
use hugepilot_units::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};

use super::Process;
use crate::proc::{IoCounts, parse_io};
use crate::sys::cpu_clock;
use crate::{KernelError, Result};

/// Most bytes of `/proc/PID/io`, which has seven short lines.
const MAX_IO: u64 = 4096;

impl Process {
    /// Reads the CPU time that all its threads have used, in a microsecond. Under a captured root,
    /// it is in steps of a clock tick.
    ///
    /// # Errors
    /// [`KernelError::NoProcess`] if it is gone.
    pub fn cpu_time(&self) -> Result<Nanos> {
        let Some(pidfd) = &self.pidfd else { return Ok(self.stat()?.cpu) };
        let time = cpu_clock::cpu_time(self.id.pid);
        // The clock is found by pid, which may be another process by now.
        let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0) {
            return Err(KernelError::NoProcess { pid: self.id.pid });
        }
        time.map_err(|errno| match errno {
            Errno::EINVAL | Errno::ESRCH => KernelError::NoProcess { pid: self.id.pid },
            errno => KernelError::syscall("clock_gettime", self.id.pid, errno),
        })
    }

    /// Reads its read and write calls, in some microseconds and 0.1 µs for each thread. Opens the
    /// file with the permissions of the user.
    ///
    /// # Errors
    /// EACCES without permission to trace it; [`KernelError::NoProcess`]; a kernel without
    /// `CONFIG_TASK_IO_ACCOUNTING` has no such file.
    pub fn io_counts(&self) -> Result<IoCounts> {
        let path = self.path.join("io");
        let failed = |source| self.or_gone(KernelError::read(&path, source));
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.directory, "io", flags, Mode::empty())
            .map_err(|errno| failed(errno.into()))?;
        let mut bytes = Vec::new();
        File::from(file).take(MAX_IO).read_to_end(&mut bytes).map_err(failed)?;
        parse_io(&bytes).ok_or_else(|| KernelError::parse(&path, 1, "rchar, wchar, …", &bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use hugepilot_record::Pid;

    use super::*;
    use crate::Root;
    use crate::root::fixture;

    const THP: (&str, &str) = ("sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "2097152");

    #[test]
    fn calls_and_cpu_time_of_this_process_are_counted() {
        let process = Process::open(&Root::live(), Pid(std::process::id().cast_signed())).unwrap();
        let cpu = process.cpu_time().unwrap();
        let Ok(before) = process.io_counts() else { return };
        let mut null = File::options().write(true).open("/dev/null").unwrap();
        for _ in 0..100 {
            null.write_all(b"12345678").unwrap();
        }
        let after = process.io_counts().unwrap();
        assert!(after.calls >= before.calls + 100, "{before:?} {after:?}");
        assert!(after.bytes >= before.bytes + 800, "{before:?} {after:?}");
        assert!(process.cpu_time().unwrap() >= cpu);
    }

    #[test]
    fn a_captured_process_is_read_from_its_files() {
        let line = format!("7 (db) S {}", "100 ".repeat(49));
        let io = "rchar: 3\nwchar: 4\nsyscr: 1\nsyscw: 2\n";
        let (_dir, root) = fixture(&[THP, ("proc/7/stat", &line), ("proc/7/io", io)]);
        let process = Process::open(&root, Pid(7)).unwrap();
        assert_eq!(process.io_counts().unwrap(), IoCounts { calls: 3, bytes: 7 });
        assert_eq!(process.cpu_time().unwrap(), process.stat().unwrap().cpu);
        std::fs::write(root.join("proc/7/io"), "junk").unwrap();
        assert!(!process.io_counts().unwrap_err().is_gone());
        std::fs::remove_file(root.join("proc/7/io")).unwrap();
        assert!(process.io_counts().is_err());
    }
}
