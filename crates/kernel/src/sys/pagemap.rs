//! The `PAGEMAP_SCAN` ioctl of `/proc/PID/pagemap` (Linux 6.7).
//!
//! # Safety
//! The kernel writes only into a vector of ours whose length it is told.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd};

use hugepilot_record::{Errno, PageRun};
use hugepilot_units::{AddrRange, VirtAddr};

use super::last_errno;

const PAGE_IS_FILE: u64 = 1 << 2;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;
const PAGE_IS_PFNZERO: u64 = 1 << 5;
const PAGE_IS_HUGE: u64 = 1 << 6;

/// `struct pm_scan_arg` of `linux/fs.h`.
#[repr(C)]
#[derive(Default)]
struct ScanArg {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region` of `linux/fs.h`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::c_ulong =
    (3 << 30) | ((size_of::<ScanArg>() as libc::c_ulong) << 16) | (0x66 << 8) | 16;

/// Runs found by one call at most.
const RUNS: usize = 1024;

/// Scans `range` and gives every run of present or swapped pages to `each`, in address order.
///
/// # Errors
/// ENOTTY before Linux 6.7, EFAULT for a kernel address, ESRCH when the process is gone.
pub(crate) fn scan(
    pagemap: BorrowedFd<'_>,
    range: AddrRange,
    each: &mut dyn FnMut(PageRun),
) -> Result<(), Errno> {
    let mut found = vec![PageRegion::default(); RUNS];
    let mut start = range.start.get();
    while start < range.end.get() {
        let mut arg = ScanArg {
            size: size_of::<ScanArg>() as u64,
            start,
            end: range.end.get(),
            vec: found.as_mut_ptr() as u64,
            vec_len: found.len() as u64,
            category_anyof_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
            return_mask: PAGE_IS_FILE
                | PAGE_IS_PRESENT
                | PAGE_IS_SWAPPED
                | PAGE_IS_PFNZERO
                | PAGE_IS_HUGE,
            ..ScanArg::default()
        };
        // SAFETY: `arg` and `found` live across the call; the kernel writes at most `vec_len` regions there.
        let count = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut arg) };
        let count = usize::try_from(count).map_err(|_| last_errno())?;
        let found = &found[..count.min(RUNS)];
        found.iter().for_each(|region| each(run(region)));
        // The kernel gathers 512 runs at a time, and where the walk ends within the second lot, `walk_end` still is the end of
        // the first: to go on there would find the second lot twice. What was found is done.
        let end = arg.walk_end.max(found.last().map_or(0, |region| region.end));
        if end <= start {
            break;
        }
        start = end;
    }
    Ok(())
}

fn run(region: &PageRegion) -> PageRun {
    let has = |flag| region.categories & flag != 0;
    PageRun {
        range: AddrRange::new(VirtAddr::new(region.start), VirtAddr::new(region.end)),
        present: has(PAGE_IS_PRESENT),
        swapped: has(PAGE_IS_SWAPPED),
        zero: has(PAGE_IS_PFNZERO),
        huge: has(PAGE_IS_HUGE),
        file: has(PAGE_IS_FILE),
    }
}
