//! `PAGEMAP_SCAN` ioctl of `/proc/PID/pagemap` (Linux 6.7).

use std::os::fd::BorrowedFd;

use hugepilot_alloc::pagemap::{self, PageRegion};
use hugepilot_record::{Errno, PageRun};
use hugepilot_units::AddrRange;

/// Largest number of runs that one system call returns.
const RUNS: usize = 1024;

/// Calls `each` for every run of present or swapped pages in `range`, in address order.
///
/// # Errors
/// ENOTTY before Linux 6.7, EFAULT for a kernel address, ESRCH if the process is gone.
pub(crate) fn scan(
    pagemap: BorrowedFd<'_>,
    range: AddrRange,
    each: &mut dyn FnMut(PageRun),
) -> Result<(), Errno> {
    pagemap::scan(pagemap, range, &mut vec![PageRegion::EMPTY; RUNS], each)
}

/// Calls `each` for every run of huge pages in `range`, in address order. Their field `file` is not
/// filled in.
///
/// # Errors
/// As for [`scan`].
pub(crate) fn scan_huge(
    pagemap: BorrowedFd<'_>,
    range: AddrRange,
    each: &mut dyn FnMut(PageRun),
) -> Result<(), Errno> {
    pagemap::scan_huge(pagemap, range, &mut vec![PageRegion::EMPTY; RUNS], each)
}
