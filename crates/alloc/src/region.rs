//! Memory that knows what it was to be on, and can look what it is on.
//!
//! # Safety
//! A region owns its mapping, which is unmapped once, on drop. It is handed out as slices that borrow the region, or as a
//! pointer to whoever keeps the region. Zeroed memory and any bytes written later are valid bytes.
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

/// Private anonymous memory, zeroed, on the pages that it could get. Unmapped on drop.
pub struct HugeRegion<S: Sys = Linux> {
    start: NonNull<u8>,
    /// A multiple of the pages of `backing`.
    len: usize,
    /// What `start` was asked to be a multiple of.
    align: usize,
    requested_len: Bytes,
    options: Options,
    backing: Backing,
    refused: RefusedBackings,
    named: NameStatus,
    sys: S,
}

/// Whether the memory shows under its name in `/proc/PID/maps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameStatus {
    /// No name was asked for.
    NotRequested,
    /// It does.
    Set,
    /// EINVAL on a kernel without names (before 5.17, or without `CONFIG_ANON_VMA_NAME`); EBADF for memory on a pool.
    Refused(Errno),
}

/// Why the backings before the one that was taken were not to be had.
type RefusedBackings = [Option<AllocError>; Chain::MAX_LEN];

// SAFETY: the memory is owned by this value and reachable only through `&self` and `&mut self`.
unsafe impl<S: Sys> Send for HugeRegion<S> {}
// SAFETY: through `&self` the memory can only be read; advice and looks from several threads are the kernel's to order.
unsafe impl<S: Sys> Sync for HugeRegion<S> {}

impl HugeRegion {
    /// Maps at least `len` bytes, on the first backing of the chain that is to be had. Nothing is resident until touched
    /// or [prefaulted](Self::prefault), except for pages of a pool bound to nodes. 2 to 30 µs, as many settings must be read.
    ///
    /// # Errors
    /// [`AllocError::Empty`], [`AllocError::Overflow`], [`AllocError::Alignment`] and [`AllocError::Nodes`] for what is
    /// wrong on any backing. Where each backing is refused, the error of the last: [`AllocError::PoolEmpty`] or
    /// [`AllocError::NoPool`] for the pools, [`AllocError::ThpNever`], [`AllocError::ThpDisabled`] or
    /// [`AllocError::Advice`] for THP and collapse, else [`AllocError::Map`] or [`AllocError::Bind`].
    pub fn map(len: Bytes, options: &Options) -> Result<Self> {
        Self::map_on(Linux, len, options)
    }
}

impl<S: Sys> HugeRegion<S> {
    /// What was asked for.
    pub const fn requested(&self) -> &Options {
        &self.options
    }
    /// How many bytes were asked for.
    pub const fn requested_len(&self) -> Bytes {
        self.requested_len
    }
    /// How many bytes there are: what was asked for, rounded up to the pages of the backing.
    pub const fn len(&self) -> Bytes {
        Bytes::new(self.len as u64)
    }
    /// Never.
    pub const fn is_empty(&self) -> bool {
        false
    }
    /// The backing that was to be had. That THP is allowed does not mean that there was a free huge page: see
    /// [`Self::usage`].
    pub const fn backing(&self) -> Backing {
        self.backing
    }
    /// Why the backings that come before it in the chain were not.
    pub fn refused(&self) -> impl Iterator<Item = &AllocError> {
        self.refused.iter().flatten()
    }
    /// Whether it shows under its name.
    pub const fn named(&self) -> NameStatus {
        self.named
    }
    /// Its addresses.
    pub fn range(&self) -> AddrRange {
        AddrRange::at(VirtAddr::new(self.start.as_ptr().addr() as u64), self.len())
    }
    /// Its first byte. Valid until the region grows or is dropped.
    pub const fn as_ptr(&self) -> NonNull<u8> {
        self.start
    }
    /// The memory.
    pub const fn bytes(&self) -> &[u8] {
        // SAFETY: `len` bytes from `start` are mapped and initialised (zeroed, at first) while `self` lives, and `&self`
        // excludes writers.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
    /// The memory, to write.
    pub const fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; `&mut self` excludes everybody else.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<S: Sys> Drop for HugeRegion<S> {
    fn drop(&mut self) {
        // SAFETY: mapped by `sys` with this length and alignment, and nothing borrowed from `self` outlives it.
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
