//! Live process, held so that its pid cannot come to mean another one.

mod claim;
mod files;
mod forks;
mod frames;
mod lazily_freed;
mod meter;
mod obstacles;
mod stranded;
mod sums;
mod target;
mod work;

pub use claim::Claim;
pub use forks::Forks;
pub use meter::{ProcessMeter, ProcessUsage, ThreadUsage};
pub use sums::HugeSums;

use std::fs::File;
use std::io::BufReader;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use hugepilot_record::{Errno, Mapping, Pid, ProcessId, Tid};
use hugepilot_units::{AddrRange, PageSizes, VirtAddr};
use rustix::fs::{Mode, OFlags};

use crate::cgroup::MemoryCgroup;
use crate::memory;
use crate::privilege::{Purpose, raised};
use crate::proc::{Stat, parse_stat};
use crate::sys::madvise::{RemoteAdvice, process_madvise};
use crate::{KernelError, Result, Root};

/// Process opened by pid. A pidfd and a handle on its `/proc` directory are opened first, and all
/// access goes through them, so a later process with the same pid is never read or changed.
#[derive(Debug)]
pub struct Process {
    root: Root,
    id: ProcessId,
    sizes: PageSizes,
    /// `None` if the root is a captured tree: then the process cannot be changed.
    pidfd: Option<OwnedFd>,
    directory: OwnedFd,
    path: PathBuf,
    /// Mark that changes when another program is started.
    program: (u64, Vec<u8>),
    cgroup: Option<MemoryCgroup>,
}

impl Process {
    /// Tests whether memory of this process may be promoted, by advice on an empty range.
    ///
    /// # Errors
    /// EPERM without `CAP_SYS_NICE` or by a seccomp filter, EACCES if the process may not be read,
    /// ENOSYS without `process_madvise`.
    pub fn check_promotable(&self) -> Result<()> {
        let pidfd = self.pidfd.as_ref().ok_or(Errno::ENOSYS);
        let empty = AddrRange::new(VirtAddr::new(0), VirtAddr::new(0));
        let answer =
            pidfd.and_then(|pidfd| process_madvise(pidfd.as_fd(), empty, RemoteAdvice::Collapse));
        match answer {
            Err(errno @ (Errno::EPERM | Errno::EACCES | Errno::ENOSYS)) => {
                Err(KernelError::syscall("process_madvise", self.id.pid, errno))
            }
            // Other errors depend on the range.
            _ => Ok(()),
        }
    }

    /// Tests whether memory of this process may be read, at address 0: nothing is mapped there, so
    /// that nothing is faulted in.
    ///
    /// # Errors
    /// EPERM.
    pub fn check_readable(&self) -> Result<()> {
        let first = AddrRange::at(VirtAddr::new(0), self.sizes.base);
        match crate::Target::read_memory(self, &[first], &mut [0]) {
            Err(error) if error.is_denied() => Err(error),
            _ => Ok(()),
        }
    }

    /// Opens process `pid`.
    ///
    /// ```
    /// use hugepilot_kernel::{KernelError, Process, Root, Target, TargetState};
    /// use hugepilot_record::Pid;
    ///
    /// let own = Process::open(&Root::live(), Pid(std::process::id().cast_signed()))?;
    /// assert_eq!(own.state()?, TargetState::Alive);
    /// let error = Process::open(&Root::live(), Pid(-1)).unwrap_err();
    /// assert!(matches!(error, KernelError::NoProcess { .. }));
    /// # Ok::<(), KernelError>(())
    /// ```
    ///
    /// # Errors
    /// [`KernelError::NoProcess`]; [`KernelError::NoMemory`] for a kernel thread or a zombie.
    pub fn open(root: &Root, pid: Pid) -> Result<Self> {
        let path = root.join(format!("proc/{pid}"));
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let open = || rustix::fs::open(&path, flags, Mode::empty());
        let directory = raised(Purpose::OpenProcess, open)
            .map_err(|errno| at_open(pid, &path, Errno(errno.raw_os_error())))?;
        let pidfd = if *root == Root::live() { Some(open_pidfd(pid)?) } else { None };
        let sizes = memory::page_sizes(root)?;
        let mut process = Self {
            root: root.clone(),
            id: ProcessId { pid, start_ticks: 0, command: String::new() },
            sizes,
            pidfd,
            directory,
            path,
            program: (0, Vec::new()),
            cgroup: None,
        };
        let stat = process.stat()?;
        let no_memory = |what| KernelError::NoMemory { pid, command: stat.command.clone(), what };
        if stat.is_kernel_thread() {
            return Err(no_memory("a kernel thread"));
        }
        if stat.is_zombie() {
            return Err(no_memory("a zombie, which has ended"));
        }
        process.program = process.program_mark(&stat)?;
        process.cgroup = match process.text("cgroup") {
            Ok(text) => MemoryCgroup::find(root, &text),
            // A kernel without cgroups has no such file.
            Err(error) if error.is_gone() || error.is_denied() => None,
            // Without this file its memory limit would be unknown.
            Err(error) => return Err(error),
        };
        process.id = ProcessId { pid, start_ticks: stat.start_ticks, command: stat.command };
        Ok(process)
    }

    /// Returns the root under which it was opened.
    pub const fn root(&self) -> &Root {
        &self.root
    }
    /// Returns the path of its memory cgroup, if the limits of that are not visible here.
    pub fn unseen_cgroup(&self) -> Option<String> {
        self.cgroup.as_ref().filter(|group| !group.is_visible(&self.root)).map(MemoryCgroup::path)
    }

    /// Reads its `stat` line.
    ///
    /// # Errors
    /// [`KernelError::NoProcess`] if it is gone.
    pub fn stat(&self) -> Result<Stat> {
        let bytes = self.bytes("stat")?;
        parse_stat(&bytes).ok_or_else(|| {
            KernelError::parse(&self.path.join("stat"), 1, "pid (name) state …", &bytes)
        })
    }

    /// Reads how readily the kernel kills it for lack of memory: −1000 for never, up to 1000.
    ///
    /// # Errors
    /// [`KernelError::NoProcess`] if it is gone.
    pub fn oom_score_adj(&self) -> Result<i32> {
        let text = self.text("oom_score_adj")?;
        text.trim().parse().map_err(|_| {
            KernelError::parse(
                &self.path.join("oom_score_adj"),
                1,
                "−1000 to 1000",
                text.as_bytes(),
            )
        })
    }

    /// Lists its current threads.
    ///
    /// # Errors
    /// [`KernelError::NoProcess`] if it is gone.
    pub fn threads(&self) -> Result<Vec<Tid>> {
        let path = self.path.join("task");
        let listing = self.open_file("task", OFlags::DIRECTORY)?;
        let entries =
            rustix::fs::Dir::new(listing).map_err(|errno| KernelError::read(&path, errno))?;
        let tids =
            entries.flatten().filter_map(|entry| entry.file_name().to_str().ok()?.parse().ok());
        Ok(tids.map(Tid).collect())
    }

    /// Reads its mappings without sizes. Cheap: the kernel walks no page tables.
    ///
    /// # Errors
    /// As for [`crate::Target::mappings`].
    pub fn layout(&self) -> Result<Vec<Mapping>> {
        self.parse_mappings("maps")
    }

    /// Returns the mark of its program: the bottom of the stack, or, if only a tracer may see that,
    /// the first mapping.
    fn program_mark(&self, stat: &Stat) -> Result<(u64, Vec<u8>)> {
        if stat.start_stack != 0 {
            return Ok((stat.start_stack, Vec::new()));
        }
        let mut line = Vec::new();
        match self.open_file("maps", OFlags::empty()) {
            Ok(file) => {
                let mut file = BufReader::with_capacity(512, File::from(file));
                let _ = std::io::BufRead::read_until(&mut file, b'\n', &mut line);
            }
            Err(error) if error.is_denied() => {}
            Err(error) => return Err(error),
        }
        Ok((0, line))
    }
}

fn open_pidfd(pid: Pid) -> Result<OwnedFd> {
    use rustix::process::{PidfdFlags, pidfd_open};
    let raw = rustix::process::Pid::from_raw(pid.0).ok_or(KernelError::NoProcess { pid })?;
    pidfd_open(raw, PidfdFlags::empty()).map_err(|errno| match Errno(errno.raw_os_error()) {
        Errno::ESRCH => KernelError::NoProcess { pid },
        // A thread has such a number, too, but is not a process.
        Errno::EINVAL | Errno::ENOENT => KernelError::NoProcess { pid },
        errno => KernelError::syscall("pidfd_open", pid, errno),
    })
}

fn at_open(pid: Pid, path: &Path, errno: Errno) -> KernelError {
    match errno {
        Errno::ENOENT | Errno::ESRCH => KernelError::NoProcess { pid },
        errno => KernelError::read(path, std::io::Error::from_raw_os_error(errno.0)),
    }
}

#[cfg(test)]
mod tests {
    use hugepilot_units::{Bytes, Nanos};

    use super::*;
    use crate::{AnonMap, Pages, Target, TargetState};

    fn this_process() -> Process {
        Process::open(&Root::live(), Pid(i32::try_from(std::process::id()).unwrap())).unwrap()
    }

    #[test]
    fn this_process_is_alive_and_has_threads_and_memory() {
        let process = this_process();
        assert_eq!(process.state().unwrap(), TargetState::Alive);
        assert!(!process.threads().unwrap().is_empty());
        assert!(process.mappings().unwrap().iter().any(|m| m.resident > Bytes::ZERO));
        assert!(process.now() > Nanos::ZERO);
        assert!((-1000..=1000).contains(&process.oom_score_adj().unwrap()));
    }

    #[test]
    fn an_unreadable_process_is_not_gone() {
        let line = format!("7 (db) S {}", "1 ".repeat(49));
        let thp = ("sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "2097152");
        let (_dir, root) = crate::root::fixture(&[thp, ("proc/7/stat", &line)]);
        let process = Process::open(&root, Pid(7)).unwrap();
        assert_eq!(process.state().unwrap(), TargetState::Alive);
        let stat = root.join("proc/7/stat");
        std::fs::remove_file(&stat).unwrap();
        assert_eq!(process.state().unwrap(), TargetState::Gone);
        // Reading a directory fails with EISDIR, as without descriptors it does with EMFILE.
        std::fs::create_dir(&stat).unwrap();
        let error = process.state().unwrap_err();
        assert!(error.errno() == Some(Errno(21)) && !error.is_gone(), "{error}");
        assert!(Process::open(&root, Pid(8)).unwrap_err().is_gone());
    }

    #[test]
    fn a_process_without_a_stack_is_in_an_exec_unless_it_exits() {
        let line = |flags, stack| {
            let mut fields = ["1"; 49];
            (fields[5], fields[24]) = (flags, stack);
            format!("7 (db) S {}", fields.join(" "))
        };
        let thp = ("sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "2097152");
        let stat = ("proc/7/stat", &*line("0", "99"));
        let (_dir, root) = crate::root::fixture(&[thp, stat, ("proc/7/maps", "")]);
        let process = Process::open(&root, Pid(7)).unwrap();
        let state = |flags, stack| {
            std::fs::write(root.join("proc/7/stat"), line(flags, stack)).unwrap();
            process.state().unwrap()
        };
        assert_eq!(state("0", "99"), TargetState::Alive);
        assert_eq!(state("0", "0"), TargetState::Execed);
        assert_eq!(state("4", "0"), TargetState::Gone);
    }

    #[test]
    fn a_process_that_ends_while_its_pages_are_read_is_gone() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid(i32::try_from(child.id()).unwrap());
        let process = Process::open(&Root::live(), pid).unwrap();
        let pages = File::from(process.open_file("pagemap", OFlags::empty()).unwrap());
        let range = process.layout().unwrap()[0].range;
        let size = usize::try_from(range.len().get() / process.sizes.base.get() * 8).unwrap();
        assert_eq!(process.page_words(&pages, range).unwrap().len(), size);
        child.kill().unwrap();
        child.wait().unwrap();
        let error = process.page_words(&pages, range).unwrap_err();
        assert!(error.is_gone(), "{error}");
    }

    #[test]
    fn regions_count_touched_pages_and_counting_touches_none() {
        let sizes = memory::page_sizes(&Root::live()).unwrap();
        let mut map = AnonMap::new(sizes.huge, Pages::Base, sizes).unwrap();
        let region = sizes.region_of(map.range().start);
        let process = this_process();
        assert_eq!(process.region_pages(region).unwrap().resident, 0);
        let words_per_page = sizes.base.as_usize() / 8;
        for page in 0..7 {
            map.words_mut()[page * words_per_page] = 1;
        }
        // Reading maps the shared zero page, which is present and takes no memory.
        assert_eq!(map.words()[100 * words_per_page], 0);
        let pages = process.region_pages(region).unwrap();
        assert_eq!((pages.resident, pages.swapped, pages.huge, pages.shared), (7, 0, false, 0));
    }

    #[test]
    fn every_run_is_found_once_for_any_number() {
        let sizes = memory::page_sizes(&Root::live()).unwrap();
        let words_per_page = sizes.base.as_usize() / 8;
        let process = this_process();
        for runs in [1_usize, 511, 512, 513, 700, 1023, 1024, 1025, 1600, 2500] {
            let len = sizes.base.times(2 * runs as u64);
            let mut map = AnonMap::new(len, Pages::Base, sizes).unwrap();
            map.words_mut().iter_mut().step_by(2 * words_per_page).for_each(|word| *word = 1);
            let found = process.page_runs(AddrRange::at(map.range().start, len)).unwrap();
            assert!(
                found.windows(2).all(|pair| pair[0].range.end <= pair[1].range.start),
                "{runs}"
            );
            assert_eq!(found.len(), runs);
        }
    }

    #[test]
    fn pids_without_a_process_are_an_error() {
        for pid in [Pid(0), Pid(-1), Pid(i32::MAX)] {
            assert!(
                matches!(Process::open(&Root::live(), pid), Err(KernelError::NoProcess { .. })),
                "{pid}"
            );
        }
    }

    #[test]
    fn a_kernel_thread_has_no_memory() {
        // In a container, pid 2 is another process or does not exist.
        if std::fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") {
            let kthreadd = Process::open(&Root::live(), Pid(2));
            assert!(matches!(kthreadd, Err(KernelError::NoMemory { .. })));
        }
    }
}
