//! All that the layers above may ask of a process, or do to it.

use hugepilot_record::{Errno, Headroom, Mapping, PageRun, ProcessId, RegionPages};
use hugepilot_units::{AddrRange, Bytes, Nanos, PageSizes, Region, VirtAddr};

use crate::Result;
use crate::memory::Pressure;
use crate::process::Claim;

/// Whether a target is still what it was when it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetState {
    /// The same process, running the same program.
    Alive,
    /// It ended, or only its zombie is left.
    Gone,
    /// It started another program: addresses known of it mean nothing now.
    Execed,
}

/// A process, as a policy's snapshot and the actuator need it. [`crate::Process`] is a live one;
/// [`crate::fake::FakeTarget`] answers from a script. The clock is part of the seam, so that a test owns the time.
pub trait Target {
    /// Who it is.
    fn id(&self) -> &ProcessId;
    /// The system's page sizes.
    fn sizes(&self) -> PageSizes;
    /// Whether it is still there and still the same program.
    ///
    /// # Errors
    /// When that cannot be read, such as EMFILE; it may be alive.
    fn state(&self) -> Result<TargetState>;
    /// Claims the right to change it, until the claim is dropped, against every other run of hugepilot that sees the same
    /// mount of `/proc`.
    ///
    /// # Errors
    /// [`crate::KernelError::Claimed`]; EACCES if its page map may not be opened; [`crate::KernelError::NoProcess`].
    fn claim(&self) -> Result<Claim>;
    /// Asks the kernel to put one region on a huge page now, and returns the bytes it *says* it did, which proves
    /// nothing: look with [`Target::region_pages`]. About 1–6 ms.
    ///
    /// # Errors
    /// EAGAIN (pinned or locked for a moment), EBUSY (cgroup full), EINVAL (not allowed here), ENOMEM (no huge page, or
    /// a hole), EPERM (needs CAP_SYS_NICE), ESRCH.
    fn collapse(&self, region: Region) -> std::result::Result<Bytes, Errno>;
    /// Prepares the next [`Target::collapse`], so that the target waits as little as possible: for about 0.25 ms, or as
    /// long as the system takes to find a free huge page. Needs no right and changes nothing in the target.
    fn prepare(&self);
    /// Asks the kernel to split the huge page around the base page at `page`, by ageing that page (`MADV_COLD`). Since
    /// Linux 6.12 the split frees base pages that hold only zeros. What memory reads as never changes. Returns the bytes
    /// the kernel *says* it advised, which proves nothing: of a huge page that is pinned, or shared after fork, nothing is
    /// split. Look with [`Target::region_pages`]. Name a page that nobody uses, because it is the one that gets old.
    /// About 0.3 ms.
    ///
    /// # Errors
    /// EPERM (needs CAP_SYS_NICE), EINVAL (locked memory), ENOMEM (a hole), ESRCH.
    fn split(&self, page: VirtAddr) -> std::result::Result<Bytes, Errno>;
    /// Copies `ranges` of its memory into `into`, one after the other. Only pages that are present should be asked for:
    /// reading others faults them in. Returns the bytes copied.
    ///
    /// # Errors
    /// EPERM without ptrace rights (CAP_SYS_PTRACE, or the same user), ESRCH, EFAULT.
    fn read_memory(&self, ranges: &[AddrRange], into: &mut [u8]) -> Result<usize>;
    /// Its mappings with their sizes, in address order. Walks all page tables: tens of milliseconds for 10 GiB.
    ///
    /// # Errors
    /// [`crate::KernelError`] when it is gone or may not be looked at.
    fn mappings(&self) -> Result<Vec<Mapping>>;
    /// Runs of present or swapped pages in `range`, in address order.
    ///
    /// # Errors
    /// ENOTTY before Linux 6.7; as for [`Target::mappings`].
    fn page_runs(&self, range: AddrRange) -> Result<Vec<PageRun>>;
    /// The pages of one region, counted. A few microseconds.
    ///
    /// # Errors
    /// As for [`Target::page_runs`].
    fn region_pages(&self, region: Region) -> Result<RegionPages>;
    /// Whether it forbade huge pages for itself.
    fn thp_disabled(&self) -> bool;
    /// Memory left under its cgroup limits and on the system.
    ///
    /// # Errors
    /// When `/proc/meminfo` cannot be read.
    fn headroom(&self) -> Result<Headroom>;
    /// How short memory is for it, or for the system; `None` where the kernel does not say.
    fn pressure(&self) -> Option<Pressure>;
    /// The clock: nanoseconds of `CLOCK_MONOTONIC`.
    fn now(&self) -> Nanos;
    /// How long this thread of ours has stood ready without a processor, since it started. On a busy machine that is no
    /// slowness of the kernel.
    fn queued(&self) -> Nanos;
    /// Waits.
    fn sleep(&self, time: Nanos);
}
