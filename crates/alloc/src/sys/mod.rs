//! System calls behind a trait, so that tests can inject failures. [`Linux`] is zero-sized and
//! known at compile time, so the trait costs nothing.
//!
//! # Safety
//! The trait is unsafe to implement, because regions trust it for memory. Only `linux.rs`,
//! `grow.rs` and, under Miri, `heap.rs` hold unsafe code.
#![allow(unsafe_code)]

#[cfg(not(miri))]
mod grow;
#[cfg(miri)]
mod heap;
#[cfg(not(miri))]
mod linux;
#[cfg(test)]
pub(crate) mod scripted;

use std::ffi::CStr;
use std::ptr::NonNull;

use hugepilot_record::{Errno, PageRun};
use hugepilot_units::{AddrRange, Bytes, PageSizes};

use crate::{Label, Numa};

/// Running kernel; under Miri, the global allocator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Linux;

/// Kind of page of a new mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Pages that become resident when touched.
    Plain,
    /// Pages of this size from a hugetlb pool, reserved now.
    Pool(Bytes),
}

/// Advice that never changes what the memory reads as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Advice {
    /// Huge pages from now on.
    Huge = libc::MADV_HUGEPAGE,
    /// No huge pages, not even by a collapse.
    NoHuge = libc::MADV_NOHUGEPAGE,
    /// Huge pages now, in place of resident base pages (6.1).
    Collapse = libc::MADV_COLLAPSE,
    /// All pages now, writable (5.14).
    Populate = libc::MADV_POPULATE_WRITE,
    /// Invisible to children.
    DontFork = libc::MADV_DONTFORK,
}

/// Kernel file with a setting or a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Setting {
    /// THP mode: `always`, `madvise` or `never`.
    ThpEnabled,
    /// THP mode for 2 MiB alone, or `inherit` (6.8).
    Thp2MEnabled,
    /// All pages of the 2 MiB pool.
    Pool2MTotal,
    /// Free pages of the 2 MiB pool, including reserved ones.
    Pool2MFree,
    /// Reserved pages among the free ones of the 2 MiB pool.
    Pool2MReserved,
    /// All pages of the 1 GiB pool.
    Pool1GTotal,
    /// Free pages of the 1 GiB pool, including reserved ones.
    Pool1GFree,
    /// Reserved pages among the free ones of the 1 GiB pool.
    Pool1GReserved,
    /// Nodes with memory.
    NodesWithMemory,
}

impl Setting {
    /// Returns the path.
    pub const fn path(self) -> &'static CStr {
        match self {
            Self::ThpEnabled => c"/sys/kernel/mm/transparent_hugepage/enabled",
            Self::Thp2MEnabled => c"/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled",
            Self::Pool2MTotal => c"/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
            Self::Pool2MFree => c"/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
            Self::Pool2MReserved => c"/sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages",
            Self::Pool1GTotal => c"/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages",
            Self::Pool1GFree => c"/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages",
            Self::Pool1GReserved => c"/sys/kernel/mm/hugepages/hugepages-1048576kB/resv_hugepages",
            Self::NodesWithMemory => c"/sys/devices/system/node/has_memory",
        }
    }
}

/// System calls of regions.
///
/// # Safety
/// [`map`](Self::map) and [`grow`](Self::grow) return memory without other users, readable and
/// writable, zeroed if new, until it is passed to [`unmap`](Self::unmap).
pub unsafe trait Sys: Clone + Send + Sync {
    /// Returns the page sizes of the system. Reads them once.
    fn sizes(&self) -> PageSizes;

    /// Maps `len` bytes at a multiple of `align`, a power of two. Both are multiples of the page
    /// size of `pages`.
    ///
    /// # Errors
    /// ENOMEM if address space, mappings or pool pages are exhausted; EINVAL without such a pool.
    fn map(&self, len: usize, align: usize, pages: Pages) -> Result<NonNull<u8>, Errno>;

    /// Unmaps the `len` bytes at `start`.
    ///
    /// # Safety
    /// They are one mapping of `map` or `grow` with this length and alignment, without references
    /// into it.
    unsafe fn unmap(&self, start: NonNull<u8>, len: usize, align: usize);

    /// Grows the `old` bytes at `start`, of [`Pages::Plain`], to `new` bytes, in place or at
    /// another multiple of `align`. Moves page tables; copies only if an address limit forbids two
    /// mappings.
    ///
    /// # Safety
    /// As for `unmap`; after success the old address is invalid.
    ///
    /// # Errors
    /// ENOMEM, EFAULT or ENOSYS; the mapping is then unchanged.
    unsafe fn grow(
        &self,
        start: NonNull<u8>,
        old: usize,
        new: usize,
        align: usize,
    ) -> Result<NonNull<u8>, Errno>;

    /// Unmaps all after the first `new` of the `old` bytes at `start`. `new` is above 0 and a
    /// multiple of their page size.
    ///
    /// # Safety
    /// As for `unmap`, except for the bytes that stay.
    ///
    /// # Errors
    /// ENOMEM if the mapping limit forbids it, ENOSYS; the mapping is then unchanged.
    unsafe fn shrink(&self, start: NonNull<u8>, old: usize, new: usize) -> Result<(), Errno>;

    /// Advises the `len` bytes at `start`.
    ///
    /// # Safety
    /// They lie in a mapping of `map` or `grow`.
    ///
    /// # Errors
    /// Depends on the advice: ENOMEM, EINVAL, EAGAIN, EBUSY and EFAULT among others.
    unsafe fn advise(&self, start: NonNull<u8>, len: usize, advice: Advice) -> Result<(), Errno>;

    /// Frees the memory behind the `len` bytes at `start`, of [`Pages::Plain`]. They then read as
    /// zeros.
    ///
    /// # Safety
    /// They are whole pages of a mapping of `map` or `grow`, and their contents are not needed.
    ///
    /// # Errors
    /// EINVAL for locked memory, ENOMEM; the memory is then unchanged.
    unsafe fn discard(&self, start: NonNull<u8>, len: usize) -> Result<(), Errno>;

    /// Returns whether the kernel supports `advice`. Tests it on no memory.
    fn knows(&self, advice: Advice) -> bool;

    /// Names a mapping.
    ///
    /// # Errors
    /// EINVAL on kernels without names, EBADF for memory on a pool, ENOMEM.
    fn name(&self, start: NonNull<u8>, len: usize, name: &Label) -> Result<(), Errno>;

    /// Binds a mapping to nodes (`mbind`).
    ///
    /// # Errors
    /// EINVAL for nodes without memory or not permitted, ENOSYS on kernels without NUMA.
    fn bind(&self, start: NonNull<u8>, len: usize, numa: Numa) -> Result<(), Errno>;

    /// Calls `each` for each run of present or swapped pages in `range`, in address order.
    ///
    /// # Errors
    /// ENOTTY before Linux 6.7, and the errors of opening `/proc/self/pagemap`.
    fn scan(&self, range: AddrRange, each: &mut dyn FnMut(PageRun)) -> Result<(), Errno>;

    /// Reads a setting, trimmed; `None` if it cannot be read.
    fn setting<'a>(&self, setting: Setting, buffer: &'a mut [u8]) -> Option<&'a str>;

    /// Returns whether this process has THP disabled even for advised memory
    /// (`PR_SET_THP_DISABLE`).
    fn thp_disabled(&self) -> bool;
}
