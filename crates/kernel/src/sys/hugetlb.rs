//! Whether a page of the hugetlb pool is free for us.
//!
//! # Safety
//! The mapping is made where the kernel likes, never touched, and taken away at once.
#![allow(unsafe_code)]

use std::ptr;

use hugepilot_record::Errno;
use hugepilot_units::Bytes;

use super::last_errno;

/// Reserves one page of `size` (a power of two) from the pool and gives it back. The kernel reserves at mmap time, so a
/// success means that a page was there.
///
/// # Errors
/// ENOMEM when none is free, EINVAL when there is no pool of that size, EPERM where policy forbids.
pub(crate) fn reserve_one(size: Bytes) -> Result<(), Errno> {
    let log2 = i32::try_from(size.get().ilog2()).unwrap_or(0);
    let flags = libc::MAP_PRIVATE
        | libc::MAP_ANONYMOUS
        | libc::MAP_HUGETLB
        | (log2 << libc::MAP_HUGE_SHIFT);
    // SAFETY: no address is asked for, so no existing mapping is touched.
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
    fn a_size_no_processor_has_is_refused() {
        assert!(reserve_one(Bytes::kib(128)).is_err());
    }
}
