//! System calls. None allocates from the global allocator.
//!
//! # Safety
//! Mappings are never placed on addresses that may be in use, and only mappings of this crate are
//! unmapped or moved. The advice offered never changes what memory reads as; discarding is a
//! separate call.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_ulong, c_void};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use hugepilot_record::{Errno, PageRun};
use hugepilot_units::{AddrRange, Bytes, PageSizes};

use super::{Advice, Linux, Pages, Setting, Sys, grow};
use crate::pagemap::{self, PageRegion};
use crate::{Label, Numa};

/// Returns the error number of the call that just failed.
pub(super) fn last_errno() -> Errno {
    Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

fn answer(done: c_int) -> Result<(), Errno> {
    if done == 0 { Ok(()) } else { Err(last_errno()) }
}

// SAFETY: private anonymous mappings at addresses of the kernel's choice, or at addresses that were
// free and that the kernel refuses if they no longer are (MAP_FIXED_NOREPLACE).
unsafe impl Sys for Linux {
    fn sizes(&self) -> PageSizes {
        // No thread waits for the first reader: in a child, that thread may not exist.
        static HUGE: AtomicU64 = AtomicU64::new(0);
        // SAFETY: takes no pointer.
        let base = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let base = u64::try_from(base).unwrap_or(PageSizes::X86_64.base.get());
        let mut huge = HUGE.load(Relaxed);
        if huge == 0 {
            huge = read_huge(base);
            HUGE.store(huge, Relaxed);
        }
        PageSizes::new(Bytes::new(base), Bytes::new(huge)).unwrap_or(PageSizes::X86_64)
    }

    fn map(&self, len: usize, align: usize, pages: Pages) -> Result<NonNull<u8>, Errno> {
        let flags = match pages {
            Pages::Plain => 0,
            // The pool reserves the pages now (no MAP_NORESERVE): a shortage is an error here, not
            // a later SIGBUS.
            Pages::Pool(size) => {
                libc::MAP_HUGETLB
                    | (c_int::try_from(size.get().ilog2()).unwrap_or(0) << libc::MAP_HUGE_SHIFT)
            }
        };
        // The kernel usually aligns to huge pages by itself (pools always, other memory since 6.7).
        let start = map_somewhere(len, libc::PROT_READ | libc::PROT_WRITE, flags)?;
        if is_aligned(start, align) {
            return Ok(start);
        }
        unmap_all(start, len);
        match pages {
            Pages::Plain => map_trimmed(len, align, libc::PROT_READ | libc::PROT_WRITE, 0),
            Pages::Pool(_) => map_placed(len, align, flags),
        }
    }

    unsafe fn unmap(&self, start: NonNull<u8>, len: usize, _align: usize) {
        unmap_all(start, len);
    }

    unsafe fn grow(
        &self,
        start: NonNull<u8>,
        old: usize,
        new: usize,
        align: usize,
    ) -> Result<NonNull<u8>, Errno> {
        // SAFETY: the same contract.
        unsafe { grow::grow(start, old, new, align) }
    }

    unsafe fn shrink(&self, start: NonNull<u8>, old: usize, new: usize) -> Result<(), Errno> {
        // SAFETY: by contract `new` is not beyond the end.
        unmap(unsafe { start.add(new) }, old - new)
    }

    unsafe fn advise(&self, start: NonNull<u8>, len: usize, advice: Advice) -> Result<(), Errno> {
        // SAFETY: by contract the bytes are in a mapping of this crate, and this advice never
        // changes what they read as.
        let done = answer(unsafe { libc::madvise(start.as_ptr().cast(), len, advice as c_int) });
        match (done, advice) {
            // The kernel returns EAGAIN if it lacks memory, or mappings, to split one
            // (mm/madvise.c).
            (Err(Errno::EAGAIN), Advice::Huge | Advice::NoHuge | Advice::DontFork) => {
                Err(Errno::ENOMEM)
            }
            (done, _) => done,
        }
    }

    unsafe fn discard(&self, start: NonNull<u8>, len: usize) -> Result<(), Errno> {
        // SAFETY: by contract whole pages of this crate, whose contents are not needed.
        answer(unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_DONTNEED) })
    }

    fn knows(&self, advice: Advice) -> bool {
        // SAFETY: no bytes are advised; the kernel checks the advice before the length.
        unsafe { libc::madvise(ptr::null_mut(), 0, advice as c_int) == 0 }
    }

    fn name(&self, start: NonNull<u8>, len: usize, name: &Label) -> Result<(), Errno> {
        const PR_SET_VMA: c_int = 0x5356_4d41;
        const PR_SET_VMA_ANON_NAME: c_ulong = 0;
        let name = name.as_c_str().as_ptr();
        // SAFETY: the kernel copies the string, which ends with a zero, and only labels the
        // mapping.
        answer(unsafe {
            libc::prctl(
                PR_SET_VMA,
                PR_SET_VMA_ANON_NAME,
                start.as_ptr() as c_ulong,
                len as c_ulong,
                name,
            )
        })
    }

    fn bind(&self, start: NonNull<u8>, len: usize, numa: Numa) -> Result<(), Errno> {
        let (mode, nodes) = match numa {
            Numa::Default => return Ok(()),
            Numa::Bind(nodes) => (libc::MPOL_BIND, nodes),
            Numa::Interleave(nodes) => (libc::MPOL_INTERLEAVE, nodes),
        };
        let mask = nodes.mask();
        // The kernel subtracts one from the number of bits.
        let (bits, no_flags) = (u64::BITS + 1, 0_u32);
        // SAFETY: the kernel reads one word, which outlives the call, and sets where pages will
        // come from.
        let done = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                start.as_ptr(),
                len,
                mode,
                &raw const mask,
                c_ulong::from(bits),
                no_flags,
            )
        };
        if done == 0 { Ok(()) } else { Err(last_errno()) }
    }

    fn scan(&self, range: AddrRange, each: &mut dyn FnMut(PageRun)) -> Result<(), Errno> {
        /// Runs on the stack. Below 512, the kernel gathers them in one batch.
        const RUNS: usize = 128;
        let pagemap = open(c"/proc/self/pagemap")?;
        pagemap::scan(pagemap.as_fd(), range, &mut [PageRegion::EMPTY; RUNS], each)
    }

    fn setting<'a>(&self, setting: Setting, buffer: &'a mut [u8]) -> Option<&'a str> {
        read(setting.path(), buffer)
    }

    fn thp_disabled(&self) -> bool {
        // SAFETY: takes no pointer. 1 is disabled; since 6.18, 3 is disabled except for advised
        // memory.
        unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1 }
    }
}

/// Reads the size of transparent huge pages; without THP, computes what a table of base pages
/// spans.
fn read_huge(base: u64) -> u64 {
    let mut buffer = [0; 32];
    let text = read(c"/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", &mut buffer);
    text.and_then(|text| text.parse().ok()).unwrap_or(base * (base / 8))
}

fn is_aligned(start: NonNull<u8>, align: usize) -> bool {
    start.as_ptr().addr().is_multiple_of(align)
}

pub(super) fn mapped(start: *mut c_void) -> Result<NonNull<u8>, Errno> {
    let start = NonNull::new(start).filter(|start| start.as_ptr() != libc::MAP_FAILED);
    start.map(NonNull::cast).ok_or_else(last_errno)
}

fn map_somewhere(len: usize, rights: c_int, flags: c_int) -> Result<NonNull<u8>, Errno> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
    // SAFETY: no address is requested, so no existing mapping is affected.
    mapped(unsafe { libc::mmap(ptr::null_mut(), len, rights, flags, -1, 0) })
}

/// Maps `align` bytes more, then unmaps the excess at both ends.
pub(super) fn map_trimmed(
    len: usize,
    align: usize,
    rights: c_int,
    flags: c_int,
) -> Result<NonNull<u8>, Errno> {
    let whole_len = len.checked_add(align).ok_or(Errno::ENOMEM)?;
    let whole = map_somewhere(whole_len, rights, flags)?;
    let head = whole.as_ptr().align_offset(align);
    // SAFETY: an aligned start lies within the first `align` bytes, so it and `len` bytes after it
    // lie inside.
    let (start, end) = unsafe { (whole.add(head), whole.add(head + len)) };
    // If the kernel has merged the mapping with a neighbour, the mapping limit may forbid to split
    // it.
    if let Err(errno) = unmap(whole, head) {
        unmap_all(whole, whole_len);
        return Err(errno);
    }
    if let Err(errno) = unmap(end, whole_len - head - len) {
        unmap_all(start, whole_len - head);
        return Err(errno);
    }
    Ok(start)
}

/// Finds free addresses by reserving them, and maps there: a pool has no spare page for a trimmed
/// mapping.
fn map_placed(len: usize, align: usize, flags: c_int) -> Result<NonNull<u8>, Errno> {
    const TRIES: usize = 16;
    let whole_len = len.checked_add(align).ok_or(Errno::ENOMEM)?;
    for _ in 0..TRIES {
        let whole = map_somewhere(whole_len, libc::PROT_NONE, libc::MAP_NORESERVE)?;
        let head = whole.as_ptr().align_offset(align);
        unmap(whole, whole_len)?;
        let place = whole.as_ptr().wrapping_add(head).cast::<c_void>();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE | flags;
        // SAFETY: if another thread mapped there first, the kernel refuses (EEXIST) and replaces
        // nothing.
        let start =
            unsafe { libc::mmap(place, len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        match mapped(start) {
            Ok(start) if is_aligned(start, align) => return Ok(start),
            // A kernel before 4.17 treats the address as a hint.
            Ok(start) => unmap_all(start, len),
            Err(Errno(libc::EEXIST)) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno(libc::EEXIST))
}

fn unmap(start: NonNull<u8>, len: usize) -> Result<(), Errno> {
    if len == 0 {
        return Ok(());
    }
    // SAFETY: callers pass their own mapping, or a part of it, without references into it.
    answer(unsafe { libc::munmap(start.as_ptr().cast(), len) })
}

/// Unmaps. If the mapping limit forbids that (ENOMEM: the kernel has merged the mapping with its
/// neighbours, and a hole would split them), frees the memory and leaks the addresses.
pub(super) fn unmap_all(start: NonNull<u8>, len: usize) {
    if unmap(start, len).is_err() {
        // SAFETY: as in `unmap`: unreferenced bytes may become zeros.
        unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_DONTNEED) };
    }
}

/// Opens a file for reading.
fn open(path: &CStr) -> Result<OwnedFd, Errno> {
    // SAFETY: a string that ends with a zero.
    let raw = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    // SAFETY: opened here, with no other owner.
    if raw < 0 { Err(last_errno()) } else { Ok(unsafe { OwnedFd::from_raw_fd(raw) }) }
}

/// Reads the text of a small file in one call.
pub(super) fn read<'a>(path: &CStr, buffer: &'a mut [u8]) -> Option<&'a str> {
    let file = open(path).ok()?;
    // SAFETY: the kernel writes at most the length of the buffer.
    let len = unsafe { libc::read(file.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
    let text = buffer.get(..usize::try_from(len).ok()?)?;
    std::str::from_utf8(text).ok().map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RIGHTS: c_int = libc::PROT_READ | libc::PROT_WRITE;

    /// Maps, reads and writes both ends, and unmaps.
    fn try_out(len: usize, align: usize) {
        let start = Linux.map(len, align, Pages::Plain).unwrap();
        assert!(is_aligned(start, align), "{align:#x}");
        // SAFETY: freshly mapped, and unmapped after the last use.
        unsafe {
            assert_eq!((*start.as_ptr(), *start.as_ptr().add(len - 1)), (0, 0));
            *start.as_ptr() = 1;
            *start.as_ptr().add(len - 1) = 2;
            Linux.unmap(start, len, align);
        }
    }

    #[test]
    fn every_alignment_is_kept() {
        let base = Linux.sizes().base.as_usize();
        for shift in 0..16 {
            let align = base << shift;
            try_out(align, align);
            try_out(3 * base, align);
        }
    }

    #[test]
    fn trimming_leaves_exactly_what_was_asked_for() {
        let align = 64 << 20;
        let starts: Vec<_> = (0..8).map(|_| map_trimmed(4096, align, RIGHTS, 0).unwrap()).collect();
        assert!(starts.iter().all(|&start| is_aligned(start, align)));
        for start in starts {
            // SAFETY: mapped above, without other users. Unmapping the trimmed parts twice would
            // hit others.
            unsafe { Linux.unmap(start, 4096, align) };
        }
    }

    #[test]
    fn a_placed_mapping_is_aligned_too() {
        let align = 1 << 30;
        let start = map_placed(2 << 20, align, 0).unwrap();
        assert!(is_aligned(start, align));
        // SAFETY: mapped above, without other users.
        unsafe { Linux.unmap(start, 2 << 20, align) };
    }

    /// Each thread marks its memory and finds its mark at the end: shared memory would have another
    /// mark.
    #[test]
    fn threads_that_map_at_once_never_get_the_same_place() {
        let (len, align) = (64 << 10, 32 << 20);
        let work = |thread: u8| {
            let mut live = Vec::new();
            for turn in 0..400_usize {
                let placed = map_placed(len, align, 0);
                // Other threads may win all tries in a row.
                let Ok(start) = placed.or_else(|_| map_trimmed(len, align, RIGHTS, 0)) else {
                    panic!("no addresses")
                };
                // SAFETY: freshly mapped.
                unsafe { start.write_bytes(thread, len) };
                live.push(start);
                if turn % 3 != 0 {
                    let start = live.swap_remove(turn % live.len());
                    // SAFETY: mapped above and unmapped once, after the last use.
                    unsafe {
                        assert_eq!((start.read(), start.add(len - 1).read()), (thread, thread));
                        Linux.unmap(start, len, align);
                    }
                }
            }
            for start in live {
                // SAFETY: as above.
                unsafe {
                    assert_eq!((start.read(), start.add(len - 1).read()), (thread, thread));
                    Linux.unmap(start, len, align);
                }
            }
        };
        std::thread::scope(|scope| {
            for thread in 1..=4 {
                scope.spawn(move || work(thread));
            }
        });
    }

    #[test]
    fn more_than_the_address_space_is_refused() {
        assert_eq!(Linux.map(1 << 60, 4096, Pages::Plain), Err(Errno::ENOMEM));
        assert_eq!(map_trimmed(usize::MAX - 4095, 4096, RIGHTS, 0), Err(Errno::ENOMEM));
        assert_eq!(map_placed(usize::MAX - 4095, 4096, 0), Err(Errno::ENOMEM));
    }

    #[test]
    fn unknown_advice_is_known_as_such() {
        assert!(Linux.knows(Advice::DontFork));
    }
}
