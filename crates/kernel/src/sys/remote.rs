//! `process_vm_readv(2)`: copies memory out of another process.
//!
//! # Safety
//! Only buffers of this process are written, by their true length; the kernel checks remote
//! addresses.
#![allow(unsafe_code)]

use hugepilot_record::{Errno, Pid};
use hugepilot_units::AddrRange;

use super::last_errno;
use crate::privilege::{Purpose, raised};

/// Copies the `ranges` of `pid`, at most 1024, one after the other into `into`, whose length is the
/// sum of theirs. Returns the number of bytes copied, which is smaller if a range is not readable:
/// the kernel stops there.
///
/// Reading a page that was never touched faults it in, in the target: read the pagemap first.
///
/// # Errors
/// EPERM without permission to trace it, ESRCH if the process is gone, EFAULT if no byte was
/// readable.
pub(crate) fn read_remote(pid: Pid, ranges: &[AddrRange], into: &mut [u8]) -> Result<usize, Errno> {
    let wanted: u64 = ranges.iter().map(|range| range.len().get()).sum();
    if wanted != into.len() as u64 {
        return Err(Errno::EINVAL);
    }
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote: Vec<libc::iovec> = ranges
        .iter()
        .map(|range| libc::iovec {
            iov_base: range.start.get() as *mut libc::c_void,
            iov_len: range.len().as_usize(),
        })
        .collect();
    let count = remote.len() as libc::c_ulong;
    raised(Purpose::ReadMemory, || {
        // SAFETY: `local` describes `into`, borrowed mutably; both vectors live across the call
        // with their lengths.
        let copied = unsafe {
            libc::process_vm_readv(pid.0, &raw const local, 1, remote.as_ptr(), count, 0)
        };
        usize::try_from(copied).map_err(|_| last_errno())
    })
}
