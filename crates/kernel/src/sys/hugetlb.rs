//! Reservation of one hugetlb page, as a test.
//!
//! # Safety
//! The kernel chooses the address of the mapping, which is never touched and removed at once.
#![allow(unsafe_code)]

use std::ptr;

use hugepilot_record::Errno;
use hugepilot_units::Bytes;

use super::last_errno;

/// Reserves one page of `size` (a power of two) from the pool and frees it. The kernel reserves at
/// mmap time, so a success means that a page was free.
///
/// # Errors
/// ENOMEM if none is free, EINVAL if there is no pool of that size, EPERM if policy forbids it.
pub(crate) fn reserve_one(size: Bytes) -> Result<(), Errno> {
    let log2 = i32::try_from(size.get().ilog2()).unwrap_or(0);
    let flags = libc::MAP_PRIVATE
        | libc::MAP_ANONYMOUS
        | libc::MAP_HUGETLB
        | (log2 << libc::MAP_HUGE_SHIFT);
    // SAFETY: no address is given, so no existing mapping changes.
    let page = unsafe {
        libc::mmap(
            ptr::null_mut(),
            size.as_usize(),
            libc::PROT_READ | libc::PROT_WRITE,
            flags,
            -1,
            0,
        )
    };
    if page == libc::MAP_FAILED {
        return Err(last_errno());
    }
    // SAFETY: mapped just above with this length, and no reference into it was made.
    unsafe { libc::munmap(page, size.as_usize()) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_that_no_processor_has_is_an_error() {
        assert!(reserve_one(Bytes::kib(128)).is_err());
    }
}
