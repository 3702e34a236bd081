//! Resource use of a process and its threads, read again and again from open files.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use hugepilot_record::{Pid, Tid};
use hugepilot_units::{Bytes, Nanos};
use rustix::fs::{Mode, OFlags};

use super::Process;
use crate::proc::{Stat, kib, parse_stat};
use crate::{KernelError, Result, schedstat};

/// Longest file that is read: `stat` has at most 52 numbers.
const MAX_FILE: usize = 4096;

/// Files of a process that are kept open, so that a read costs two system calls.
#[derive(Debug)]
pub struct ProcessMeter {
    pid: Pid,
    directory: PathBuf,
    stat: File,
    statm: File,
    base: Bytes,
}

/// Resource use of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessUsage {
    /// Faults and CPU time.
    pub stat: Stat,
    /// Resident memory, off by some hundred KiB.
    pub resident: Bytes,
    /// Part of it that belongs to files or is shared memory.
    pub shared: Bytes,
}

/// Resource use of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadUsage {
    /// Thread.
    pub tid: Tid,
    /// Name, control characters escaped.
    pub name: String,
    /// CPU time, in nanoseconds if the kernel has `CONFIG_SCHED_INFO`.
    pub cpu: Nanos,
    /// Time that it waited for a processor; `None` without `CONFIG_SCHED_INFO`.
    pub run_queue_wait: Option<Nanos>,
    /// Page faults without I/O.
    pub minor_faults: u64,
    /// Page faults that waited for I/O.
    pub major_faults: u64,
    /// Context switches because it waited for something.
    pub voluntary_switches: Option<u64>,
    /// Context switches because another thread was to run.
    pub involuntary_switches: Option<u64>,
    /// Largest resident size of its process, without hugetlb pages; `None` of a process that ended.
    pub peak_resident: Option<Bytes>,
}

impl ProcessMeter {
    /// Reads the use so far. That of a zombie has no memory.
    ///
    /// # Errors
    /// [`KernelError::NoProcess`] if it ended.
    pub fn read(&self) -> Result<ProcessUsage> {
        let bytes = self.bytes(&self.stat, "stat")?;
        let stat = parse_stat(&bytes).ok_or_else(|| {
            KernelError::parse(&self.directory.join("stat"), 1, "pid (name) state …", &bytes)
        })?;
        let bytes = self.bytes(&self.statm, "statm")?;
        let pages = |field: usize| {
            let text = std::str::from_utf8(&bytes).ok()?;
            text.split_ascii_whitespace().nth(field)?.parse().ok()
        };
        let size = |field| pages(field).map_or(Bytes::ZERO, |pages| self.base.times(pages));
        Ok(ProcessUsage { stat, resident: size(1), shared: size(2) })
    }

    fn bytes(&self, file: &File, name: &str) -> Result<Vec<u8>> {
        let mut bytes = vec![0; MAX_FILE];
        match file.read_at(&mut bytes, 0) {
            Ok(length) => {
                bytes.truncate(length);
                Ok(bytes)
            }
            Err(source) => {
                let error = KernelError::read(&self.directory.join(name), source);
                let pid = self.pid;
                Err(if error.is_gone() { KernelError::NoProcess { pid } } else { error })
            }
        }
    }
}

impl Process {
    /// Opens the files with its resource use.
    ///
    /// # Errors
    /// [`KernelError::NoProcess`] if it ended; EMFILE.
    pub fn meter(&self) -> Result<ProcessMeter> {
        let open = |name| self.open_file(name, OFlags::empty()).map(File::from);
        Ok(ProcessMeter {
            pid: self.id.pid,
            directory: self.path.clone(),
            stat: open("stat")?,
            statm: open("statm")?,
            base: self.sizes.base,
        })
    }

    /// Reads the use of one thread, in tens of microseconds.
    ///
    /// # Errors
    /// [`KernelError::NoProcess`] if the thread ended.
    pub fn thread_usage(&self, tid: Tid) -> Result<ThreadUsage> {
        let name = |file: &str| format!("task/{}/{file}", tid.0);
        let bytes = self.thread_file(&name("stat"))?;
        let stat = parse_stat(&bytes).ok_or(KernelError::NoProcess { pid: Pid(tid.0) })?;
        let sched = self.thread_text(&name("schedstat"));
        let status = self.thread_text(&name("status"));
        let (on_cpu, run_queue_wait) = schedstat::parse_both(&sched);
        Ok(ThreadUsage {
            tid,
            name: stat.command,
            cpu: on_cpu.unwrap_or(stat.cpu),
            run_queue_wait,
            minor_faults: stat.minor_faults,
            major_faults: stat.major_faults,
            voluntary_switches: count(&status, "voluntary_ctxt_switches:"),
            involuntary_switches: count(&status, "nonvoluntary_ctxt_switches:"),
            peak_resident: kib(&status, "VmHWM:"),
        })
    }

    /// Lists the children that a thread started and that still run; none if the kernel has no
    /// `CONFIG_PROC_CHILDREN`.
    pub fn children_of(&self, tid: Tid) -> Vec<Pid> {
        let text = self.thread_text(&format!("task/{}/children", tid.0));
        text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).map(Pid).collect()
    }

    /// Reads a file of a thread, without capabilities: all users may read these.
    fn thread_file(&self, name: &str) -> Result<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let failed = |source| self.or_gone(KernelError::read(&self.path.join(name), source));
        let opened = rustix::fs::openat(&self.directory, name, flags, Mode::empty());
        let mut bytes = Vec::with_capacity(MAX_FILE);
        let mut file = opened.map(File::from).map_err(|errno| failed(errno.into()))?;
        file.read_to_end(&mut bytes).map_err(failed)?;
        Ok(bytes)
    }

    fn thread_text(&self, name: &str) -> String {
        String::from_utf8_lossy(&self.thread_file(name).unwrap_or_default()).into_owned()
    }
}

/// Returns the number after `label` at the begin of a line.
fn count(text: &str, label: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(label))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Root;
    use crate::root::fixture;

    const STAT: &str = "7 (a) b\n) R 1 2 3 0 -1 4194304 99 5 4 0 17 3 0 0 20 0 1 0 152663 \
                        3133440 383 184467 943 944 140725 0 0\n";

    #[test]
    fn a_captured_process_is_metered() {
        let (_dir, root) = fixture(&[
            ("proc/7/stat", STAT),
            ("proc/7/statm", "900 30 10 1 0 20 0\n"),
            ("proc/7/task/7/stat", STAT),
            ("proc/7/task/7/schedstat", "5000 700 3\n"),
            (
                "proc/7/task/7/status",
                "voluntary_ctxt_switches:\t8\nnonvoluntary_ctxt_switches:\t2\n",
            ),
            ("proc/7/task/7/children", "12 13 "),
            ("proc/meminfo", "Hugepagesize: 2048 kB\n"),
        ]);
        let process = Process::open(&root, Pid(7)).unwrap();
        let usage = process.meter().unwrap().read().unwrap();
        assert_eq!((usage.stat.minor_faults, usage.stat.major_faults), (99, 4));
        let base = rustix::param::page_size() as u64;
        assert_eq!((usage.resident.get(), usage.shared.get()), (30 * base, 10 * base));
        let thread = process.thread_usage(Tid(7)).unwrap();
        assert_eq!((thread.cpu, thread.run_queue_wait), (Nanos::new(5000), Some(Nanos::new(700))));
        assert_eq!((thread.voluntary_switches, thread.involuntary_switches), (Some(8), Some(2)));
        assert_eq!(thread.name, "a) b\\n");
        assert_eq!(process.children_of(Tid(7)), [Pid(12), Pid(13)]);
        assert!(process.thread_usage(Tid(8)).is_err());
    }

    #[test]
    fn faults_of_this_process_are_counted() {
        let process = Process::open(&Root::live(), Pid(std::process::id().cast_signed())).unwrap();
        let meter = process.meter().unwrap();
        let before = meter.read().unwrap();
        let pages = 64;
        let mut memory = vec![0_u8; pages * rustix::param::page_size() + (4 << 20)];
        memory.iter_mut().step_by(rustix::param::page_size()).for_each(|byte| *byte = 1);
        let after = meter.read().unwrap();
        assert!(after.stat.minor_faults > before.stat.minor_faults);
        assert!(after.resident > Bytes::ZERO && after.shared < after.resident);
    }
}
