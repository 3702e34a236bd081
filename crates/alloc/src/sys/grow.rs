//! Growth of a mapping, in place or by moving it.
//!
//! # Safety
//! The mapping is the caller's, without references into it. It never moves to addresses that may be
//! in use: they are reserved before, or the kernel chooses them.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::ptr::NonNull;

use hugepilot_record::Errno;

use super::linux::{map_trimmed, mapped, unmap_all};

/// Grows a mapping, for [`super::Sys::grow`].
///
/// # Safety
/// As there.
pub(super) unsafe fn grow(
    start: NonNull<u8>,
    old: usize,
    new: usize,
    align: usize,
) -> Result<NonNull<u8>, Errno> {
    // SAFETY: by contract the caller owns these bytes, without references into them.
    let in_place = mapped(unsafe { libc::mremap(start.as_ptr().cast(), old, new, 0) });
    if in_place.is_ok() {
        return in_place;
    }
    let Ok(place) = map_trimmed(new, align, libc::PROT_NONE, libc::MAP_NORESERVE) else {
        // SAFETY: as above.
        return unsafe { grow_shifted(start, old, new, align) };
    };
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: as above; the target is reserved above and unreferenced. If this fails half-way, the
    // target may be reserved still, or already belong to another thread: its addresses are then
    // leaked, not unmapped.
    mapped(unsafe { libc::mremap(start.as_ptr().cast(), old, new, flags, place.as_ptr()) })
}

/// Grows a mapping if an address limit (`ulimit -v`) forbids two mappings of that size at a time.
///
/// The kernel moves the mapping, `align` longer than wanted, to an address of its choice. The
/// contents are then copied to a multiple of `align` within it.
///
/// # Safety
/// As for [`grow`].
unsafe fn grow_shifted(
    start: NonNull<u8>,
    old: usize,
    new: usize,
    align: usize,
) -> Result<NonNull<u8>, Errno> {
    const FLAGS: c_int = libc::MREMAP_MAYMOVE;
    let whole_len = new.checked_add(align).ok_or(Errno::ENOMEM)?;
    // SAFETY: by contract the caller owns these bytes, without references into them.
    let whole = mapped(unsafe { libc::mremap(start.as_ptr().cast(), old, whole_len, FLAGS) })?;
    let head = whole.as_ptr().align_offset(align);
    // SAFETY: an aligned start lies within the first `align` bytes, so it and `new` bytes after it
    // lie inside. The copy overwrites the first `old` bytes, or they are in the head, so zeros
    // follow the copy.
    unsafe {
        let (start, end) = (whole.add(head), whole.add(head + new));
        if head > 0 {
            start.copy_from(whole, old);
        }
        unmap_all(whole, head);
        unmap_all(end, whole_len - head - new);
        Ok(start)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::c_void;

    use super::super::linux::read;
    use super::super::{Linux, Pages, Sys};
    use super::*;

    const ALIGN: usize = 32 << 20;

    /// Maps memory with another mapping right after it, so that it must move to grow.
    fn hemmed_in(len: usize) -> NonNull<u8> {
        let start = Linux.map(len, ALIGN, Pages::Plain).unwrap();
        let after = start.as_ptr().wrapping_add(len).cast::<c_void>();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: replaces nothing.
        let _taken = unsafe { libc::mmap(after, 4096, libc::PROT_NONE, flags, -1, 0) };
        start
    }

    /// Checks alignment, contents and trailing zeros, whether the mapping moved or not.
    #[test]
    fn a_mapping_grows_at_its_alignment() {
        let mut len = 64 << 10;
        let mut start = hemmed_in(len);
        for new in [len * 2, 5 << 20, 40 << 20] {
            // SAFETY: mapped above with this length, and accessed only inside.
            unsafe {
                start.write(7);
                start.add(len - 1).write(9);
                start = Linux.grow(start, len, new, ALIGN).unwrap();
                assert!(start.as_ptr().addr().is_multiple_of(ALIGN));
                assert_eq!((start.read(), start.add(len - 1).read()), (7, 9));
                assert_eq!((start.add(len).read(), start.add(new - 1).read()), (0, 0));
            }
            len = new;
        }
        // SAFETY: mapped above, without other users.
        unsafe { Linux.unmap(start, len, ALIGN) };
    }

    /// Returns the size of the process's address space in bytes.
    fn addresses() -> usize {
        let mut buffer = [0; 128];
        let pages = read(c"/proc/self/statm", &mut buffer)
            .and_then(|text| text.split(' ').next()?.parse().ok());
        pages.map_or(0, |pages: usize| pages * 4096)
    }

    /// Counts pages of `len` bytes with a wrong mark: the first `marked` bytes are marked, zeros
    /// follow.
    fn wrong(start: NonNull<u8>, marked: usize, len: usize) -> usize {
        let mark = |page: usize| if page * 4096 < marked { page + 1 } else { 0 };
        // SAFETY: inside of a mapping of this length.
        let at = |page: usize| unsafe { start.add(page * 4096).cast::<usize>().read() };
        (0..len / 4096).filter(|&page| at(page) != mark(page)).count()
    }

    const OLD: usize = 64 << 20;

    /// Grows a mapping to `new` bytes in a child that may map `more` additional bytes. Returns 0 if
    /// all checks pass.
    fn under_limit(new: usize, more: usize, grows: bool) -> i32 {
        let mut start = hemmed_in(OLD);
        // SAFETY: inside of the mapping.
        (0..OLD / 4096)
            .for_each(|page| unsafe { start.add(page * 4096).cast::<usize>().write(page + 1) });
        let before = addresses();
        let limit =
            libc::rlimit { rlim_cur: (before + more) as u64, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: the limit outlives the call.
        if before == 0 || unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) } != 0 {
            return 1;
        }
        // SAFETY: mapped above with this length, and unreferenced.
        match unsafe { grow(start, OLD, new, ALIGN) } {
            Ok(grown) if grows => start = grown,
            Err(Errno(libc::ENOMEM)) if !grows => {
                return i32::from(wrong(start, OLD, OLD) != 0) * 2;
            }
            _ => return 3,
        }
        let checks = [
            start.as_ptr().addr().is_multiple_of(ALIGN),
            wrong(start, OLD, new) == 0,
            addresses() == before + new - OLD,
        ];
        checks
            .iter()
            .position(|&right| !right)
            .map_or(0, |check| 4 + i32::try_from(check).unwrap_or(9))
    }

    #[test]
    fn with_scarce_addresses_it_moves_without_two_mappings_at_a_time() {
        // The growth and the alignment; a second mapping would need the old length on top. The
        // length decides where the kernel places it.
        let lengths = [96, 97, 101, 110].map(|mib: usize| mib << 20);
        let few = lengths.map(|new| (new, new - OLD + ALIGN + (8 << 20), true));
        for (new, more, grows) in few.into_iter().chain([(96 << 20, 40 << 20, false)]) {
            // SAFETY: the child makes system calls, writes to its own memory, and ends without
            // destructors.
            let status = match unsafe { libc::fork() } {
                // SAFETY: as above.
                0 => unsafe { libc::_exit(under_limit(new, more, grows)) },
                child => {
                    let mut status = 0;
                    // SAFETY: this process's own child, awaited once; the status outlives the call.
                    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                    status
                }
            };
            assert!(libc::WIFEXITED(status), "{status:#x}");
            assert_eq!(libc::WEXITSTATUS(status), 0, "{new} with {more}");
        }
    }
}
