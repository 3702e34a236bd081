//! `process_madvise(2)`: advice about another process's memory.
//!
//! # Safety
//! The advice offered here never changes what the target reads; addresses in the vectors are the
//! target's.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd};

use hugepilot_record::Errno;
use hugepilot_units::{AddrRange, Bytes};

use super::last_errno;
use crate::privilege::{Purpose, raised};

/// Advice that the kernel accepts for another process and that keeps its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum RemoteAdvice {
    /// Collapse the range into huge pages now (6.1).
    Collapse = libc::MADV_COLLAPSE,
    /// Age the pages; on a part of a huge page, split it (zero-filled pages are freed since 6.12).
    Cold = libc::MADV_COLD,
}

/// Advises one range. Returns the bytes that the kernel reports, which the caller must verify.
///
/// # Errors
/// EAGAIN, EBUSY, EINVAL, ENOMEM, EPERM, ESRCH among others.
pub(crate) fn process_madvise(
    pidfd: BorrowedFd<'_>,
    range: AddrRange,
    advice: RemoteAdvice,
) -> Result<Bytes, Errno> {
    let vector = libc::iovec {
        iov_base: range.start.get() as *mut libc::c_void,
        iov_len: range.len().as_usize(),
    };
    raised(Purpose::AdviseMemory, || {
        // SAFETY: the kernel reads one iovec that lives across the call. The address inside is the
        // target's. If the target is this process, neither advice changes contents, so no reference
        // is invalidated.
        let done = unsafe {
            libc::syscall(
                libc::SYS_process_madvise,
                pidfd.as_raw_fd(),
                &raw const vector,
                1_usize,
                advice as libc::c_int,
                0_u32,
            )
        };
        u64::try_from(done).map(Bytes::new).map_err(|_| last_errno())
    })
}
