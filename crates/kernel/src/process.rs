//! A live process, held so that its number cannot come to mean another.

mod claim;
mod sums;

pub use claim::Claim;

use std::fs::File;
use std::io::BufReader;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use hugepilot_record::{Errno, Headroom, Mapping, PageRun, Pid, ProcessId, RegionPages, Tid};
use hugepilot_units::{AddrRange, Bytes, Nanos, PageSizes, Region, VirtAddr};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};

use crate::cgroup::{LimitHeadroom, MemoryCgroup};
use crate::file;
use crate::memory::{self, Pressure};
use crate::privilege::{Purpose, raised};
use crate::proc::{Stat, parse_smaps, parse_stat};
use crate::sys::madvise::{RemoteAdvice, process_madvise};
use crate::sys::{pagemap, remote};
use crate::target::{Target, TargetState};
use crate::warm::warm_huge_page;
use crate::{KernelError, Result, Root};

const PAGEMAP_EXCLUSIVE: u64 = 1 << 56;
const PAGEMAP_PRESENT: u64 = 1 << 63;

/// A process opened by number. A pidfd and a handle on its `/proc` directory are taken first and everything goes
/// through them, so a later process with the same number is never looked at or acted on.
#[derive(Debug)]
pub struct Process {
    root: Root,
    id: ProcessId,
    sizes: PageSizes,
    /// Missing when the root is a captured tree: then nothing can be done to it.
    pidfd: Option<OwnedFd>,
    directory: OwnedFd,
    path: PathBuf,
    /// What changes when another program is started.
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

    /// Opens process `pid`.
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
            return Err(no_memory("a zombie: it has ended and waits for its parent"));
        }
        process.program = process.program_mark(&stat)?;
        process.cgroup = match process.text("cgroup") {
            Ok(text) => MemoryCgroup::find(root, &text),
            // A kernel without cgroups has no such file.
            Err(error) if error.is_gone() || error.is_denied() => None,
            // Without it its memory limit would not be known.
            Err(error) => return Err(error),
        };
        process.id = ProcessId { pid, start_ticks: stat.start_ticks, command: stat.command };
        Ok(process)
    }

    /// The root it was opened under.
    pub const fn root(&self) -> &Root {
        &self.root
    }
    /// Its memory cgroup, by path, where the limits of that cannot be seen from here.
    pub fn unseen_cgroup(&self) -> Option<String> {
        self.cgroup.as_ref().filter(|group| !group.is_visible(&self.root)).map(MemoryCgroup::path)
    }

    /// Its `stat` line.
    ///
    /// # Errors
    /// [`KernelError::NoProcess`] when it is gone.
    pub fn stat(&self) -> Result<Stat> {
        let bytes = self.bytes("stat")?;
        parse_stat(&bytes).ok_or_else(|| {
            KernelError::parse(&self.path.join("stat"), 1, "pid (name) state …", &bytes)
        })
    }

    /// How readily the kernel kills it for lack of memory: −1000 for never, up to 1000.
    ///
    /// # Errors
    /// When it is gone.
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

    /// Its threads as they are now.
    ///
    /// # Errors
    /// When it is gone.
    pub fn threads(&self) -> Result<Vec<Tid>> {
        let path = self.path.join("task");
        let listing = self.open_file("task", OFlags::DIRECTORY)?;
        let entries =
            rustix::fs::Dir::new(listing).map_err(|errno| KernelError::read(&path, errno))?;
        let tids =
            entries.flatten().filter_map(|entry| entry.file_name().to_str().ok()?.parse().ok());
        Ok(tids.map(Tid).collect())
    }

    /// Its mappings without sizes: cheap, no page tables are walked.
    ///
    /// # Errors
    /// As for [`Target::mappings`].
    pub fn layout(&self) -> Result<Vec<Mapping>> {
        self.parse_mappings("maps")
    }

    /// Opens a file that the process has mapped as `name`, with the rights of the user. Goes through the root directory
    /// of the process, so that containers work; if that may not be entered, takes the same path on the host, unless its
    /// inode is another. `None` if the user may not read the file, or if it was replaced.
    pub fn mapped_file(&self, name: &str, inode: u64) -> Option<File> {
        let same = |file: &File| file.metadata().is_ok_and(|about| about.ino() == inode);
        self.in_root(name).or_else(|| file::open(Path::new(name)).ok().filter(same))
    }

    /// Opens the file that is called `name` below the root directory of the process.
    fn in_root(&self, name: &str) -> Option<File> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let enter = || rustix::fs::openat(&self.directory, "root", flags, Mode::empty());
        let root = raised(Purpose::EnterRoot, enter).ok()?;
        file::open_below(&root, Path::new(name)).ok()
    }

    /// Tells programs of one process apart: by the bottom of the stack, or, where only ptrace rights would show that, by
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

    fn parse_mappings(&self, name: &str) -> Result<Vec<Mapping>> {
        let file = File::from(self.open_file(name, OFlags::empty())?);
        parse_smaps(BufReader::with_capacity(64 << 10, file), &self.path.join(name))
            .map_err(|error| self.or_gone(error))
    }

    fn open_file(&self, name: &str, flags: OFlags) -> Result<OwnedFd> {
        let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC;
        let open = || rustix::fs::openat(&self.directory, name, flags, Mode::empty());
        raised(purpose_of(name), open)
            .map_err(|errno| self.or_gone(KernelError::read(&self.path.join(name), errno)))
    }

    fn bytes(&self, name: &str) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(
            &mut File::from(self.open_file(name, OFlags::empty())?),
            &mut bytes,
        )
        .map_err(|source| self.or_gone(KernelError::read(&self.path.join(name), source)))?;
        Ok(bytes)
    }

    fn text(&self, name: &str) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.bytes(name)?).into_owned())
    }

    /// A read that failed because the process ended is not a broken file.
    fn or_gone(&self, error: KernelError) -> KernelError {
        if error.is_gone() { KernelError::NoProcess { pid: self.id.pid } } else { error }
    }
}

/// Why a file of `/proc/PID` is opened.
fn purpose_of(name: &str) -> Purpose {
    match name {
        "pagemap" => Purpose::OpenPageMap,
        "maps" | "smaps" | "smaps_rollup" => Purpose::OpenMappings,
        _ => Purpose::OpenProcess,
    }
}

fn open_pidfd(pid: Pid) -> Result<OwnedFd> {
    use rustix::process::{PidfdFlags, pidfd_open};
    let raw = rustix::process::Pid::from_raw(pid.0).ok_or(KernelError::NoProcess { pid })?;
    pidfd_open(raw, PidfdFlags::empty()).map_err(|errno| match Errno(errno.raw_os_error()) {
        Errno::ESRCH => KernelError::NoProcess { pid },
        // A number that is a thread, but no process.
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

impl Target for Process {
    fn id(&self) -> &ProcessId {
        &self.id
    }

    fn sizes(&self) -> PageSizes {
        self.sizes
    }

    fn state(&self) -> Result<TargetState> {
        if let Some(pidfd) = &self.pidfd {
            let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
            if poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))
                .is_ok_and(|ready| ready > 0)
            {
                return Ok(TargetState::Gone);
            }
        }
        let stat = match self.stat() {
            Ok(stat) => stat,
            Err(error) if error.is_gone() => return Ok(TargetState::Gone),
            Err(error) => return Err(error),
        };
        // Its memory is being freed; the pidfd tells only when all is done.
        if stat.start_stack == 0 && self.program.0 != 0 {
            return Ok(TargetState::Gone);
        }
        match self.program_mark(&stat) {
            Ok(mark) if mark == self.program => Ok(TargetState::Alive),
            Ok(_) => Ok(TargetState::Execed),
            Err(error) if error.is_gone() => Ok(TargetState::Gone),
            Err(error) => Err(error),
        }
    }

    fn claim(&self) -> Result<Claim> {
        self.take_claim(self.open_file("pagemap", OFlags::empty())?)
    }

    fn collapse(&self, region: Region) -> std::result::Result<Bytes, Errno> {
        let pidfd = self.pidfd.as_ref().ok_or(Errno::ENOSYS)?;
        process_madvise(pidfd.as_fd(), region.range(self.sizes), RemoteAdvice::Collapse)
    }

    fn prepare(&self) {
        warm_huge_page(self.sizes);
    }

    fn split(&self, page: VirtAddr) -> std::result::Result<Bytes, Errno> {
        let pidfd = self.pidfd.as_ref().ok_or(Errno::ENOSYS)?;
        let base = self.sizes.base;
        process_madvise(
            pidfd.as_fd(),
            AddrRange::at(page.align_down(base), base),
            RemoteAdvice::Cold,
        )
    }

    fn read_memory(&self, ranges: &[AddrRange], into: &mut [u8]) -> Result<usize> {
        remote::read_remote(self.id.pid, ranges, into)
            .map_err(|errno| KernelError::syscall("process_vm_readv", self.id.pid, errno))
    }

    fn mappings(&self) -> Result<Vec<Mapping>> {
        self.parse_mappings("smaps")
    }

    fn page_runs(&self, range: AddrRange) -> Result<Vec<PageRun>> {
        let file = self.open_file("pagemap", OFlags::empty())?;
        let mut runs = Vec::new();
        pagemap::scan(file.as_fd(), range, &mut |run| runs.push(run)).map_err(|errno| {
            self.or_gone(KernelError::syscall("PAGEMAP_SCAN", self.id.pid, errno))
        })?;
        Ok(runs)
    }

    fn region_pages(&self, region: Region) -> Result<RegionPages> {
        let (range, base) = (region.range(self.sizes), self.sizes.base);
        let file = self.open_file("pagemap", OFlags::empty())?;
        let mut pages = RegionPages { region, resident: 0, swapped: 0, huge: false, shared: 0 };
        let mut zero = Vec::new();
        pagemap::scan(file.as_fd(), range, &mut |run| {
            let count = run.range.len().get() / base.get();
            pages.resident += if run.present && !run.zero { count } else { 0 };
            pages.swapped += if run.swapped { count } else { 0 };
            pages.huge |= run.huge && !run.zero && run.range.covers(range);
            if run.zero {
                zero.push(run.range);
            }
        })
        .map_err(|errno| self.or_gone(KernelError::syscall("PAGEMAP_SCAN", self.id.pid, errno)))?;

        let mut words = vec![0_u8; usize::try_from(self.sizes.base_per_huge() * 8).unwrap_or(0)];
        let offset = range.start.get() / base.get() * 8;
        File::from(file).read_exact_at(&mut words, offset).map_err(|source| {
            self.or_gone(KernelError::read(&self.path.join("pagemap"), source))
        })?;
        for (page, word) in words.chunks_exact(8).enumerate() {
            let word = u64::from_ne_bytes(word.try_into().unwrap_or_default());
            let address = range.start.plus(base.times(page as u64));
            let is_zero = zero.iter().any(|run| run.contains(address));
            let present = word & PAGEMAP_PRESENT != 0;
            pages.shared += u64::from(present && word & PAGEMAP_EXCLUSIVE == 0 && !is_zero);
        }
        Ok(pages)
    }

    fn thp_disabled(&self) -> bool {
        let status = self.text("status").unwrap_or_default();
        status
            .lines()
            .any(|line| line.strip_prefix("THP_enabled:").is_some_and(|value| value.trim() == "0"))
    }

    fn headroom(&self) -> Result<Headroom> {
        let memory = memory::mem_info(&self.root)?;
        let room =
            self.cgroup.as_ref().map_or(LimitHeadroom::ENDLESS, |group| group.headroom(&self.root));
        Ok(Headroom {
            cgroup: room.left,
            cgroup_limit: room.limit,
            system: memory.available,
            system_total: memory.total,
        })
    }

    fn pressure(&self) -> Option<Pressure> {
        let own = self.cgroup.as_ref().and_then(MemoryCgroup::pressure_file);
        own.and_then(|file| memory::pressure(&self.root, &file))
            .or_else(|| memory::pressure(&self.root, "proc/pressure/memory"))
    }

    fn now(&self) -> Nanos {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Nanos::seconds(u64::try_from(now.tv_sec).unwrap_or(0))
            + Nanos::new(u64::try_from(now.tv_nsec).unwrap_or(0))
    }

    fn queued(&self) -> Nanos {
        // Time on a processor, time waiting for one (both in nanoseconds), and how often.
        let text = self.root.read_text("proc/thread-self/schedstat").unwrap_or_default();
        Nanos::new(text.split(' ').nth(1).and_then(|waited| waited.parse().ok()).unwrap_or(0))
    }

    fn sleep(&self, time: Nanos) {
        std::thread::sleep(time.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AnonMap, Pages};

    fn ourselves() -> Process {
        Process::open(&Root::live(), Pid(i32::try_from(std::process::id()).unwrap())).unwrap()
    }

    #[test]
    fn we_are_alive_and_have_threads_and_memory() {
        let process = ourselves();
        assert_eq!(process.state().unwrap(), TargetState::Alive);
        assert!(!process.threads().unwrap().is_empty());
        assert!(process.mappings().unwrap().iter().any(|m| m.resident > Bytes::ZERO));
        assert!(process.now() > Nanos::ZERO);
        assert!((-1000..=1000).contains(&process.oom_score_adj().unwrap()));
    }

    #[test]
    fn what_cannot_be_read_is_not_gone() {
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
    fn regions_count_what_was_touched_and_looking_touches_nothing() {
        let sizes = memory::page_sizes(&Root::live()).unwrap();
        let mut map = AnonMap::new(sizes.huge, Pages::Base, sizes).unwrap();
        let region = sizes.region_of(map.range().start);
        let process = ourselves();
        assert_eq!(process.region_pages(region).unwrap().resident, 0);
        let words_per_page = sizes.base.as_usize() / 8;
        for page in 0..7 {
            map.words_mut()[page * words_per_page] = 1;
        }
        // Reading maps the shared zero page, which is present and costs nothing.
        assert_eq!(map.words()[100 * words_per_page], 0);
        let pages = process.region_pages(region).unwrap();
        assert_eq!((pages.resident, pages.swapped, pages.huge, pages.shared), (7, 0, false, 0));
    }

    #[test]
    fn every_run_is_found_once_however_many_there_are() {
        let sizes = memory::page_sizes(&Root::live()).unwrap();
        let words_per_page = sizes.base.as_usize() / 8;
        let process = ourselves();
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
    fn numbers_that_are_no_process_are_said_so() {
        for pid in [Pid(0), Pid(-1), Pid(i32::MAX)] {
            assert!(
                matches!(Process::open(&Root::live(), pid), Err(KernelError::NoProcess { .. })),
                "{pid}"
            );
        }
    }

    #[test]
    fn a_kernel_thread_has_no_memory() {
        let kthreadd = Process::open(&Root::live(), Pid(2));
        // In a container, number 2 is somebody else or nobody.
        if let Err(error @ KernelError::NoMemory { .. }) = kthreadd {
            assert!(error.to_string().contains("kernel thread"), "{error}");
        }
    }
}
