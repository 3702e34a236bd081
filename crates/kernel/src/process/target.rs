//! [`Target`] for a live process.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use hugepilot_record::{
    Errno, Headroom, LargePages, Mapping, PageRun, Pressure, ProcessId, RegionPages,
};
use hugepilot_units::{AddrRange, Bytes, Nanos, PageSizes, Region, VirtAddr};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;

use super::frames::{EXCLUSIVE, GUARD, PRESENT};
use super::obstacles::is_disabled;
use super::{Claim, Process};
use crate::cgroup::{LimitHeadroom, MemoryCgroup};
use crate::memory;
use crate::sys::madvise::{RemoteAdvice, process_madvise};
use crate::sys::{pagemap, remote};
use crate::target::{Target, TargetState};
use crate::warm::warm_huge_page;
use crate::{KernelError, Result, clock, schedstat};

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
        // Its memory is being freed; the pidfd is readable only when all is freed. An exec frees
        // memory, too, and has no stack meanwhile.
        if stat.is_exiting() {
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
        let mut pages = RegionPages::on_base_pages(region, 0);
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

        let words = self.page_words(&File::from(file), range)?;
        for (page, word) in words.chunks_exact(8).enumerate() {
            let word = u64::from_ne_bytes(word.try_into().unwrap_or_default());
            let address = range.start.plus(base.times(page as u64));
            let is_zero = zero.iter().any(|run| run.contains(address));
            let present = word & PRESENT != 0;
            pages.shared += u64::from(present && word & EXCLUSIVE == 0 && !is_zero);
            pages.guards += u64::from(word & GUARD != 0);
        }
        Ok(pages)
    }

    fn lazily_freed(&self, region: Region) -> Result<Option<u64>> {
        self.count_lazily_freed(region)
    }

    fn large_pages(&self, ranges: &[AddrRange], only_stranded: bool) -> Result<Option<LargePages>> {
        self.find_large_pages(ranges, only_stranded)
    }

    fn thp_disabled(&self) -> bool {
        is_disabled(&self.text("status").unwrap_or_default())
    }

    fn headroom(&self) -> Result<Headroom> {
        let memory = memory::mem_info(&self.root)?;
        let limit =
            self.cgroup.as_ref().map_or(LimitHeadroom::ENDLESS, |group| group.headroom(&self.root));
        Ok(Headroom {
            cgroup: limit.left,
            cgroup_limit: limit.limit,
            system: memory.available,
            system_total: memory.total,
            free_huge: Bytes::MAX,
        })
    }

    fn free_huge(&self) -> Bytes {
        memory::free_huge(&self.root, self.sizes()).unwrap_or(Bytes::MAX)
    }

    fn pressure(&self) -> Option<Pressure> {
        let own = self.cgroup.as_ref().and_then(MemoryCgroup::pressure_file);
        own.and_then(|file| memory::pressure(&self.root, &file))
            .or_else(|| memory::pressure(&self.root, "proc/pressure/memory"))
    }

    fn now(&self) -> Nanos {
        clock::monotonic()
    }

    fn queued(&self) -> Nanos {
        schedstat::own_processor_wait(&self.root).unwrap_or(Nanos::ZERO)
    }

    fn sleep(&self, time: Nanos) {
        std::thread::sleep(time.into());
    }
}

impl Process {
    /// Reads the words of its `pagemap` for `range`.
    ///
    /// # Errors
    /// [`KernelError::NoProcess`] if it ended after `pagemap` was opened: the kernel then returns
    /// the end of the file.
    pub(super) fn page_words(&self, pagemap: &File, range: AddrRange) -> Result<Vec<u8>> {
        let pages = range.len().get() / self.sizes.base.get();
        let mut words = vec![0_u8; usize::try_from(pages * 8).unwrap_or(0)];
        let offset = range.start.get() / self.sizes.base.get() * 8;
        match pagemap.read_exact_at(&mut words, offset) {
            Ok(()) => Ok(words),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                Err(KernelError::NoProcess { pid: self.id.pid })
            }
            Err(error) => Err(self.or_gone(KernelError::read(&self.path.join("pagemap"), error))),
        }
    }
}
