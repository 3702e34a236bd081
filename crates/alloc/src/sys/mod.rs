//! What this crate asks of the kernel, as a trait: the seam at which tests let it fail. [`Linux`] has no size and is known
//! at compile time, so the seam costs nothing.
//!
//! # Safety
//! The trait is unsafe to implement, because regions trust it for memory. Only `linux.rs`, `grow.rs` and, under Miri, `heap.rs`
//! hold code that is unsafe in itself.
#![allow(unsafe_code)]

#[cfg(not(miri))]
mod grow;
#[cfg(miri)]
mod heap;
#[cfg(not(miri))]
mod linux;
#[cfg(not(miri))]
mod pagemap;
#[cfg(test)]
pub(crate) mod scripted;

use std::ffi::CStr;
use std::ptr::NonNull;

use hugepilot_record::{Errno, PageRun};
use hugepilot_units::{AddrRange, Bytes, PageSizes};

use crate::{Label, Numa};

/// The kernel that we run on; under Miri, which has none, the global allocator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Linux;

/// What a new mapping is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Pages that come when they are touched.
    Plain,
    /// Pages of this size from a hugetlb pool, set aside now.
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
    /// Huge pages now, instead of the base pages that are there (6.1).
    Collapse = libc::MADV_COLLAPSE,
    /// All pages now, writable (5.14).
    Populate = libc::MADV_POPULATE_WRITE,
    /// Children do not see it.
    DontFork = libc::MADV_DONTFORK,
}

/// A file of settings or counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Setting {
    /// Whether THP is `always`, `madvise` or `never`.
    ThpEnabled,
    /// The same for the size of 2 MiB alone, or `inherit` (6.8).
    Thp2MEnabled,
    /// All pages of the pool of 2 MiB.
    Pool2MTotal,
    /// Its free pages, those set aside for somebody among them.
    Pool2MFree,
    /// Those of the free pages that are set aside.
    Pool2MReserved,
    /// All pages of the pool of 1 GiB.
    Pool1GTotal,
    /// Its free pages.
    Pool1GFree,
    /// Those of the free pages that are set aside.
    Pool1GReserved,
    /// The nodes with memory.
    NodesWithMemory,
}

impl Setting {
    /// Where it is.
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

/// The calls that regions make.
///
/// # Safety
/// [`map`](Self::map) and [`grow`](Self::grow) give memory that nobody else has, readable and writable, zeroed where it is
/// new, until it is given back to [`unmap`](Self::unmap).
pub unsafe trait Sys: Clone + Send + Sync {
    /// The page sizes of the system. Read once.
    fn sizes(&self) -> PageSizes;

    /// Maps `len` bytes at a multiple of `align`, both multiples of the page size of `pages`; `align` a power of two.
    ///
    /// # Errors
    /// ENOMEM for lack of address space, of mappings, or of pages in the pool; EINVAL without such a pool.
    fn map(&self, len: usize, align: usize, pages: Pages) -> Result<NonNull<u8>, Errno>;

    /// Gives back the `len` bytes at `start`.
    ///
    /// # Safety
    /// They are one mapping of `map` or `grow` with this length and alignment, and nothing refers to them any more.
    unsafe fn unmap(&self, start: NonNull<u8>, len: usize, align: usize);

    /// Makes the `old` bytes at `start`, of [`Pages::Plain`], `new` bytes long, in place or at another multiple of `align`. Moves
    /// pages, and copies only where a limit on addresses forbids two places at once.
    ///
    /// # Safety
    /// As for `unmap`; after a success the old address is gone.
    ///
    /// # Errors
    /// ENOMEM, EFAULT or ENOSYS; then all is as before.
    unsafe fn grow(
        &self,
        start: NonNull<u8>,
        old: usize,
        new: usize,
        align: usize,
    ) -> Result<NonNull<u8>, Errno>;

    /// Gives back what comes after the first `new` of the `old` bytes at `start`; `new` is not 0 and a multiple of their pages.
    ///
    /// # Safety
    /// As for `unmap`, but for the bytes that stay.
    ///
    /// # Errors
    /// ENOMEM where the limit on mappings forbids it, ENOSYS; then all is as before.
    unsafe fn shrink(&self, start: NonNull<u8>, old: usize, new: usize) -> Result<(), Errno>;

    /// Advises the `len` bytes at `start`.
    ///
    /// # Safety
    /// They lie in a mapping of `map` or `grow`.
    ///
    /// # Errors
    /// ENOMEM, EINVAL, EAGAIN, EBUSY and EFAULT among others, depending on the advice.
    unsafe fn advise(&self, start: NonNull<u8>, len: usize, advice: Advice) -> Result<(), Errno>;

    /// Gives the memory behind the `len` bytes at `start`, of [`Pages::Plain`], back to the kernel; they read as zeros from
    /// then on.
    ///
    /// # Safety
    /// They are whole pages of a mapping of `map` or `grow`, and nobody relies on what is in them.
    ///
    /// # Errors
    /// EINVAL for locked memory, ENOMEM; then all is as before.
    unsafe fn discard(&self, start: NonNull<u8>, len: usize) -> Result<(), Errno>;

    /// Whether the kernel knows `advice`, found out on no memory.
    fn knows(&self, advice: Advice) -> bool;

    /// Names a mapping.
    ///
    /// # Errors
    /// EINVAL on kernels without names, EBADF for memory on a pool, ENOMEM.
    fn name(&self, start: NonNull<u8>, len: usize, name: &Label) -> Result<(), Errno>;

    /// Sets the nodes of a mapping (`mbind`).
    ///
    /// # Errors
    /// EINVAL for nodes without memory or that we may not use, ENOSYS on kernels without NUMA.
    fn bind(&self, start: NonNull<u8>, len: usize, numa: Numa) -> Result<(), Errno>;

    /// Gives every run of present or swapped pages of ours in `range` to `each`, in address order.
    ///
    /// # Errors
    /// ENOTTY before Linux 6.7; what opening `/proc/self/pagemap` brings.
    fn scan(&self, range: AddrRange, each: &mut dyn FnMut(PageRun)) -> Result<(), Errno>;

    /// The text of a setting, trimmed; `None` where it cannot be read.
    fn setting<'a>(&self, setting: Setting, buffer: &'a mut [u8]) -> Option<&'a str>;

    /// Whether this process has THP off even where it is advised (`PR_SET_THP_DISABLE`).
    fn thp_disabled(&self) -> bool;
}
