//! Anonymous memory with a choice of pages, for calibration, probes and workloads.
//!
//! # Safety
//! The mapping is private, owned by [`AnonMap`], unmapped once on drop, and handed out only as
//! slices that borrow it, so Rust's rules for the slices are the rules for the memory. Any bit
//! pattern is a valid `u64`.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::ptr::{self, NonNull};

use hugepilot_record::Errno;
use hugepilot_units::{AddrRange, Bytes, PageSizes, VirtAddr};

use super::last_errno;

/// Pages that the kernel uses for an [`AnonMap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Pages by the settings of the system.
    Default,
    /// Base pages (`MADV_NOHUGEPAGE`). The kernel also rejects a later remote collapse.
    Base,
    /// Huge pages from the first touch on (`MADV_HUGEPAGE`), unless THP is off.
    Huge,
}

/// Private anonymous memory, zeroed, aligned to huge pages.
///
/// ```
/// use hugepilot_kernel::{AnonMap, Pages, Root, memory};
/// use hugepilot_units::Bytes;
///
/// let sizes = memory::page_sizes(&Root::live())?;
/// let mut map = AnonMap::new(Bytes::mib(4), Pages::Base, sizes).expect("4 MiB");
/// map.words_mut()[0] = 7;
/// assert_eq!((map.words()[0], map.words()[1]), (7, 0));
/// # Ok::<(), hugepilot_kernel::KernelError>(())
/// ```
#[derive(Debug)]
pub struct AnonMap {
    base: NonNull<u64>,
    len: Bytes,
    whole: NonNull<libc::c_void>,
    whole_len: usize,
}

// SAFETY: the memory is owned by this value and reachable only through `&self` and `&mut self`.
unsafe impl Send for AnonMap {}
// SAFETY: through `&self` the memory can only be read.
unsafe impl Sync for AnonMap {}

impl AnonMap {
    /// Maps `len` bytes, rounded up to huge pages. No page is resident until touched.
    ///
    /// # Errors
    /// ENOMEM if address space, the mapping limit or a strict overcommit limit is used up; EINVAL
    /// for no bytes.
    pub fn new(len: Bytes, pages: Pages, sizes: PageSizes) -> Result<Self, Errno> {
        let len = Bytes::new(len.get().next_multiple_of(sizes.huge.get()));
        let whole_len = (len + sizes.huge).as_usize();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: no address is given, so no existing mapping changes.
        let whole = unsafe {
            libc::mmap(ptr::null_mut(), whole_len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        let whole = NonNull::new(whole)
            .filter(|p| p.as_ptr() != libc::MAP_FAILED)
            .ok_or_else(last_errno)?;
        let offset = whole.as_ptr().align_offset(sizes.huge.as_usize());
        // SAFETY: one huge page more than `len` was mapped, so an aligned start with `len` bytes
        // after it lies inside.
        let base = unsafe { whole.byte_add(offset) }.cast::<u64>();
        let map = Self { base, len, whole, whole_len };
        match pages {
            Pages::Default => {}
            Pages::Base => map.madvise(map.range(), libc::MADV_NOHUGEPAGE)?,
            Pages::Huge => map.madvise(map.range(), libc::MADV_HUGEPAGE)?,
        }
        Ok(map)
    }

    /// Returns its addresses.
    pub fn range(&self) -> AddrRange {
        AddrRange::at(VirtAddr::new(self.base.as_ptr() as u64), self.len)
    }

    /// Returns the memory as words.
    pub fn words(&self) -> &[u64] {
        // SAFETY: `len` bytes from `base` are mapped readable for as long as `self` lives; all-zero
        // pages and anything written later are valid words; `&self` excludes writers.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len.as_usize() / 8) }
    }

    /// Returns the memory as writable words.
    pub fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: as in `words`; `&mut self` excludes all other access.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len.as_usize() / 8) }
    }

    /// Names the mapping in `/proc/PID/maps` (`[anon:name]`). Kernels without the option ignore it.
    pub fn name(&self, name: &str) {
        const PR_SET_VMA: libc::c_int = 0x5356_4d41;
        const PR_SET_VMA_ANON_NAME: libc::c_ulong = 0;
        let Ok(name) = CString::new(name) else { return };
        // SAFETY: the kernel copies the string and only labels the mapping.
        unsafe {
            libc::prctl(
                PR_SET_VMA,
                PR_SET_VMA_ANON_NAME,
                self.base.as_ptr() as libc::c_ulong,
                self.len.get(),
                name.as_ptr(),
            );
        }
    }

    /// Collapses `part` into huge pages (`MADV_COLLAPSE` on this process, which requires no
    /// permission).
    ///
    /// # Errors
    /// ENOMEM without free huge pages; EINVAL if it is not allowed or the kernel is older than 6.1.
    pub fn collapse(&self, part: AddrRange) -> Result<(), Errno> {
        self.madvise(part.intersect(self.range()), libc::MADV_COLLAPSE)
    }

    /// Makes all of it resident, and keeps it so (`mlock`), until it is dropped.
    ///
    /// # Errors
    /// ENOMEM beyond RLIMIT_MEMLOCK without CAP_IPC_LOCK, and if memory is short; EPERM if that
    /// limit is 0.
    pub fn lock(&self) -> Result<(), Errno> {
        // SAFETY: changes no contents; unmapping ends the lock.
        let done = unsafe { libc::mlock(self.base.as_ptr().cast(), self.len.as_usize()) };
        if done == 0 { Ok(()) } else { Err(last_errno()) }
    }

    /// Restricts its memory to NUMA node `node` (`mbind`). Call it before the first touch.
    ///
    /// # Errors
    /// EINVAL if there is no such node; EPERM; ENOSYS without NUMA.
    pub fn bind(&self, node: u32) -> Result<(), Errno> {
        const MPOL_BIND: libc::c_int = 2;
        const WORDS: usize = 16;
        let (mut mask, node) = ([0_u64; WORDS], node as usize);
        *mask.get_mut(node / 64).ok_or(Errno::EINVAL)? |= 1 << (node % 64);
        // SAFETY: the kernel reads the mask; the call changes no contents.
        let done = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.base.as_ptr(),
                self.len.as_usize(),
                MPOL_BIND,
                mask.as_ptr(),
                WORDS * 64,
                0_u32,
            )
        };
        if done == 0 { Ok(()) } else { Err(last_errno()) }
    }

    /// Writes `value` into the first word of each region so that base pages are used, whatever THP
    /// is set to, without advice that would forbid huge pages later. The kernel gives no huge page
    /// to a mapping that is too small for one, nor by a fault where a page table exists.
    ///
    /// # Errors
    /// ENOMEM if the limit on mappings is used up.
    pub(crate) fn start_with_base_pages(
        &mut self,
        value: u64,
        sizes: PageSizes,
    ) -> Result<(), Errno> {
        for region in sizes.regions_inside(self.range()) {
            let upper_half = region.range(sizes).start.plus(Bytes::new(sizes.huge.get() / 2));
            let upper_half = AddrRange::at(upper_half, Bytes::new(sizes.huge.get() / 2));
            self.protect(upper_half, libc::PROT_READ)?;
            let index = region.range(sizes).start.since(self.range().start).as_usize() / 8;
            self.words_mut()[index] = value;
            self.protect(upper_half, libc::PROT_READ | libc::PROT_WRITE)?;
        }
        Ok(())
    }

    /// Sets the protection of `part`, which stays readable.
    fn protect(&mut self, part: AddrRange, protection: libc::c_int) -> Result<(), Errno> {
        let part = part.intersect(self.range());
        let start = part.start.get() as *mut libc::c_void;
        // SAFETY: the range was cut to this mapping, to which `&mut self` excludes all other
        // access. The caller above writes only outside of the read-only part, and makes it writable
        // again.
        let done = unsafe { libc::mprotect(start, part.len().as_usize(), protection) };
        if done == 0 { Ok(()) } else { Err(last_errno()) }
    }

    /// Advises `part`. No advice passed here changes contents: HUGEPAGE, NOHUGEPAGE, COLLAPSE.
    fn madvise(&self, part: AddrRange, advice: libc::c_int) -> Result<(), Errno> {
        let start = part.start.get() as *mut libc::c_void;
        // SAFETY: the range was cut to this mapping, and no advice used here changes what the
        // memory reads as.
        let done = unsafe { libc::madvise(start, part.len().as_usize(), advice) };
        if done == 0 { Ok(()) } else { Err(last_errno()) }
    }
}

impl Drop for AnonMap {
    fn drop(&mut self) {
        // SAFETY: `whole` came from mmap with this length, and no slice outlives `self`.
        unsafe { libc::munmap(self.whole.as_ptr(), self.whole_len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_zeroed_and_writable() {
        let mut map = AnonMap::new(Bytes::mib(3), Pages::Base, PageSizes::X86_64).unwrap();
        assert_eq!(map.range().start.get() % (2 << 20), 0);
        assert_eq!(map.range().len(), Bytes::mib(4));
        assert!(map.words().iter().all(|&word| word == 0));
        map.words_mut()[1234] = 5;
        assert_eq!(map.words()[1234], 5);
    }

    #[test]
    fn more_than_the_address_space_is_an_error() {
        assert_eq!(
            AnonMap::new(Bytes::gib(1 << 20), Pages::Default, PageSizes::X86_64).unwrap_err(),
            Errno::ENOMEM
        );
    }

    #[test]
    fn base_pages_are_used_even_with_advice_for_huge_ones() {
        use crate::{Process, Root, Target, memory};
        let sizes = memory::page_sizes(&Root::live()).unwrap();
        let pid = hugepilot_record::Pid(i32::try_from(std::process::id()).unwrap());
        let process = Process::open(&Root::live(), pid).unwrap();
        let on_base_pages = || {
            let mut map = AnonMap::new(sizes.huge, Pages::Huge, sizes).unwrap();
            map.start_with_base_pages(7, sizes).unwrap();
            assert_eq!(map.words()[0], 7);
            let last = map.words().len() - 1;
            map.words_mut()[last] = 8;
            let pages = process.region_pages(sizes.region_of(map.range().start)).unwrap();
            !pages.huge && pages.resident < sizes.base_per_huge()
        };
        // khugepaged, which the advice wakes, may collapse one first.
        assert!((0..5).any(|_| on_base_pages()));
    }
}
