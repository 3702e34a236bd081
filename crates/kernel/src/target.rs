//! Interface to a process, live or scripted.

use hugepilot_record::{
    Errno, Headroom, LargePages, Mapping, PageRun, Pressure, ProcessId, RegionPages,
};
use hugepilot_units::{AddrRange, Bytes, Nanos, PageSizes, Region, VirtAddr};

use crate::Result;
use crate::process::Claim;

/// State of a target since it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetState {
    /// The process runs the same program.
    Alive,
    /// The process ended; at most its zombie is left.
    Gone,
    /// The process started another program, so its addresses have lost their meaning.
    Execed,
}

/// Process, as policies and actions see it. [`crate::Process`] is a live one;
/// [`crate::fake::FakeTarget`] is scripted. The clock is part of the interface, so that tests
/// control time.
pub trait Target {
    /// Identity.
    fn id(&self) -> &ProcessId;
    /// Page sizes of the system.
    fn sizes(&self) -> PageSizes;
    /// Returns whether the process lives and runs the same program.
    ///
    /// # Errors
    /// If its state cannot be read, as with EMFILE; the process may be alive.
    fn state(&self) -> Result<TargetState>;
    /// Claims the process until the claim is dropped, so that no other run of hugepilot with the
    /// same mount of `/proc` changes it.
    ///
    /// # Errors
    /// [`crate::KernelError::Claimed`]; EACCES if its pagemap may not be opened;
    /// [`crate::KernelError::NoProcess`].
    fn claim(&self) -> Result<Claim>;
    /// Collapses one region into a huge page, in 1 to 6 ms. Returns the bytes that the kernel
    /// reports; verify them with [`Target::region_pages`].
    ///
    /// # Errors
    /// EAGAIN (a page is pinned or locked), EBUSY (the cgroup is full), EINVAL (not allowed here),
    /// ENOMEM (no huge page, or a hole), EPERM (requires CAP_SYS_NICE), ESRCH.
    fn collapse(&self, region: Region) -> std::result::Result<Bytes, Errno>;
    /// Shortens the stall of the target in the next [`Target::collapse`], in about 0.25 ms, or as
    /// long as the kernel takes to find a free huge page. Requires no permission and changes
    /// nothing in the target.
    fn prepare(&self);
    /// Splits the huge page around the base page at `page` by ageing that page (`MADV_COLD`), in
    /// about 0.3 ms.
    ///
    /// Since Linux 6.12 the split frees zero-filled base pages. The contents of memory never
    /// change. Name an unused page, because the kernel ages it. Returns the bytes that the kernel
    /// reports; it splits no huge page that is pinned, or shared after fork, so verify with
    /// [`Target::region_pages`].
    ///
    /// # Errors
    /// EPERM (requires CAP_SYS_NICE), EINVAL (locked memory), ENOMEM (a hole), ESRCH.
    fn split(&self, page: VirtAddr) -> std::result::Result<Bytes, Errno>;
    /// Copies `ranges` of its memory into `into`, one after the other, and returns the number of
    /// bytes. Pass present pages only: reading others faults them in.
    ///
    /// # Errors
    /// EPERM without permission to trace it (CAP_SYS_PTRACE, or the same user), ESRCH, EFAULT.
    fn read_memory(&self, ranges: &[AddrRange], into: &mut [u8]) -> Result<usize>;
    /// Reads its mappings with their sizes, in address order. The kernel walks all page tables:
    /// tens of milliseconds for 10 GiB.
    ///
    /// # Errors
    /// [`crate::KernelError`] if the process is gone or may not be read.
    fn mappings(&self) -> Result<Vec<Mapping>>;
    /// Reads the runs of present or swapped pages in `range`, in address order.
    ///
    /// # Errors
    /// ENOTTY before Linux 6.7; as for [`Target::mappings`].
    fn page_runs(&self, range: AddrRange) -> Result<Vec<PageRun>>;
    /// Counts the pages of one region, in a few microseconds, except those lazily freed.
    ///
    /// # Errors
    /// As for [`Target::page_runs`].
    fn region_pages(&self, region: Region) -> Result<RegionPages>;
    /// Counts the pages of one region that the program freed lazily (`MADV_FREE`), in 5 to 150
    /// microseconds. Pages that the program wrote again count until the kernel next tries to take
    /// them: [`Mapping::lazily_freed`] is exact. `None` without CAP_SYS_ADMIN, which the flags of
    /// page frames require.
    ///
    /// # Errors
    /// As for [`Target::page_runs`].
    fn lazily_freed(&self, region: Region) -> Result<Option<u64>>;
    /// Finds the large pages that `ranges` map by base pages. Memory that another process shares
    /// does not count. Costs about 1 ms for 100 MiB on base pages, and nothing if the kernel counts
    /// no such page. `only_stranded`: smaller pages need not be counted. `None` without
    /// CAP_SYS_ADMIN, which the flags of page frames require.
    ///
    /// # Errors
    /// As for [`Target::page_runs`].
    fn large_pages(&self, ranges: &[AddrRange], only_stranded: bool) -> Result<Option<LargePages>>;
    /// Whether the process disabled THP for itself.
    fn thp_disabled(&self) -> bool;
    /// Returns the memory left below its cgroup limits and on the system.
    ///
    /// # Errors
    /// If `/proc/meminfo` cannot be read.
    fn headroom(&self) -> Result<Headroom>;
    /// Returns the free memory in blocks of at least a huge page; `Bytes::MAX` if it is unknown.
    fn free_huge(&self) -> Bytes {
        Bytes::MAX
    }
    /// Returns the memory pressure of its cgroup, or else of the system; `None` if the kernel does
    /// not report it.
    fn pressure(&self) -> Option<Pressure>;
    /// Returns the time of `CLOCK_MONOTONIC`.
    fn now(&self) -> Nanos;
    /// Returns the time that the calling thread has been queued for a processor since its start. On
    /// a busy machine, this is not slowness of the kernel.
    fn queued(&self) -> Nanos;
    /// Sleeps.
    fn sleep(&self, time: Nanos);
}
