//! Memory region on a chosen backing.
//!
//! # Safety
//! A region owns its mapping, which is unmapped once, on drop. Callers get slices that borrow the
//! region, or a pointer that is valid until the region grows or is dropped. Zeroed memory and all
//! bytes written later are valid bytes.
#![allow(unsafe_code)]

mod collapse;
mod grow;
mod open;
mod prefault;
#[cfg(test)]
pub(crate) mod tests;
mod usage;

use std::fmt;
use std::ptr::NonNull;

use hugepilot_record::Errno;
use hugepilot_units::{AddrRange, Bytes, VirtAddr};

pub use self::collapse::CollapseOutcome;
pub(crate) use self::open::thp_never;
pub use self::usage::PageUsage;
use crate::{AllocError, Backing, Chain, Linux, Options, Result, Sys};

/// Private anonymous memory, zeroed, on the first available backing. Unmapped on drop.
///
/// ```
/// use hugepilot_alloc::{HugeRegion, Options};
/// use hugepilot_units::Bytes;
///
/// let mut region = HugeRegion::map(Bytes::mib(4), &Options::new("collapse,base".parse()?))?;
/// region.bytes_mut().fill(1);
/// let outcome = region.collapse()?; // base pages become huge pages
/// println!("{} on huge pages, {} refused", outcome.after, outcome.refused);
/// region.grow(Bytes::mib(8), 4 << 20)?; // keeps the first 4 MiB
/// assert_eq!((region.bytes()[0], region.bytes()[5 << 20]), (1, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct HugeRegion<S: Sys = Linux> {
    start: NonNull<u8>,
    /// Multiple of the page size of `backing`.
    len: usize,
    /// Requested alignment of `start`, in bytes.
    align: usize,
    requested_len: Bytes,
    options: Options,
    backing: Backing,
    refused: RefusedBackings,
    named: NameStatus,
    sys: S,
}

/// Outcome of naming the memory in `/proc/PID/maps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameStatus {
    /// The options have no name.
    NotRequested,
    /// The kernel shows the name.
    Set,
    /// EINVAL on a kernel without names (before 5.17, or without `CONFIG_ANON_VMA_NAME`); EBADF on
    /// a hugetlb pool.
    Refused(Errno),
}

/// Errors of the backings before the one in use.
type RefusedBackings = [Option<AllocError>; Chain::MAX_LEN];

// SAFETY: this value owns the memory, which is reachable only through `&self` and `&mut self`.
unsafe impl<S: Sys> Send for HugeRegion<S> {}
// SAFETY: `&self` allows only reads of the memory; the kernel serialises advice and pagemap scans.
unsafe impl<S: Sys> Sync for HugeRegion<S> {}

impl HugeRegion {
    /// Maps at least `len` bytes on the first available backing of the chain.
    ///
    /// No page is resident until it is touched or [prefaulted](Self::prefault), except hugetlb
    /// pages, which are taken from the pool now: the limit of a cgroup refuses them at a touch,
    /// by SIGBUS. Costs 2 to 30 µs, because several kernel settings are read, and 0.1 to 0.3 s per
    /// GiB on a pool.
    ///
    /// # Errors
    /// [`AllocError::Empty`], [`AllocError::Overflow`], [`AllocError::Alignment`] and
    /// [`AllocError::Nodes`] for requests that are invalid on every backing. If every backing is
    /// refused, the error of the last: [`AllocError::PoolEmpty`],
    /// [`AllocError::PoolLimit`] or [`AllocError::NoPool`] for
    /// hugetlb pools, [`AllocError::ThpNever`], [`AllocError::ThpDisabled`] or
    /// [`AllocError::Advice`] for THP and collapse, else [`AllocError::Map`] or
    /// [`AllocError::Bind`].
    pub fn map(len: Bytes, options: &Options) -> Result<Self> {
        Self::map_on(Linux, len, options)
    }
}

impl<S: Sys> HugeRegion<S> {
    /// Returns the requested options.
    pub const fn requested(&self) -> &Options {
        &self.options
    }
    /// Returns the requested length.
    pub const fn requested_len(&self) -> Bytes {
        self.requested_len
    }
    /// Returns the mapped length: the requested length, rounded up to the pages of the backing.
    pub const fn len(&self) -> Bytes {
        Bytes::new(self.len as u64)
    }
    /// Returns `false`: a region is never empty.
    pub const fn is_empty(&self) -> bool {
        false
    }
    /// Returns the backing in use. [`Backing::Thp`] allows huge pages but does not guarantee free
    /// ones: see [`Self::usage`].
    pub const fn backing(&self) -> Backing {
        self.backing
    }
    /// Returns the errors of the backings before it in the chain.
    pub fn refused(&self) -> impl Iterator<Item = &AllocError> {
        self.refused.iter().flatten()
    }
    /// Returns whether the kernel shows the name.
    pub const fn named(&self) -> NameStatus {
        self.named
    }
    /// Returns the address range.
    pub fn range(&self) -> AddrRange {
        AddrRange::at(VirtAddr::new(self.start.as_ptr().addr() as u64), self.len())
    }
    /// Returns the address of the first byte. Valid until the region grows or is dropped.
    pub const fn as_ptr(&self) -> NonNull<u8> {
        self.start
    }
    /// Returns the memory as a slice.
    pub const fn bytes(&self) -> &[u8] {
        // SAFETY: `len` bytes from `start` are mapped and initialised (zeroed at first) while
        // `self` lives, and `&self` excludes writers.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
    /// Returns the memory as a mutable slice.
    pub const fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; `&mut self` excludes all other users.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<S: Sys> Drop for HugeRegion<S> {
    fn drop(&mut self) {
        // SAFETY: mapped by `sys` with this length and alignment, and nothing borrowed from `self`
        // outlives it.
        unsafe { self.sys.unmap(self.start, self.len, self.align) };
    }
}

impl<S: Sys> fmt::Debug for HugeRegion<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("HugeRegion");
        fields.field("range", &format_args!("{}", self.range()));
        fields.field("backing", &format_args!("{}", self.backing)).field("options", &self.options);
        fields.finish_non_exhaustive()
    }
}
