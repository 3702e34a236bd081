//! `cachestat(2)`: pages of a file in the page cache (Linux 6.5).
//!
//! # Safety
//! The kernel reads one structure and fills in another; both live across the call.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd};

use hugepilot_record::Errno;

use super::last_errno;

const CACHESTAT: libc::c_long = 451;

/// Pages of a range of a file, in base pages.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CachedPages {
    /// Pages in the page cache.
    pub cached: u64,
    /// Those that must be written before they can be freed.
    pub dirty: u64,
    /// Those that are being written.
    pub writeback: u64,
    /// Pages that were evicted.
    pub evicted: u64,
    /// Those that were evicted so recently that reading them again would show memory pressure.
    pub recently_evicted: u64,
}

/// Counts the pages of `length` bytes from `offset`; of all the rest if `length` is 0.
///
/// # Errors
/// ENOSYS, EOPNOTSUPP, EBADF, EPERM.
pub(crate) fn cached_pages(
    file: BorrowedFd<'_>,
    offset: u64,
    length: u64,
) -> Result<CachedPages, Errno> {
    let range = [offset, length];
    let mut pages = CachedPages::default();
    // SAFETY: `struct cachestat_range` has these two numbers, `struct cachestat` the five above.
    let done = unsafe {
        libc::syscall(CACHESTAT, file.as_raw_fd(), range.as_ptr(), &raw mut pages, 0_u32)
    };
    if done == 0 { Ok(pages) } else { Err(last_errno()) }
}
