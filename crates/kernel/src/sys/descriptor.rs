//! Descriptors known by number only, as they are inherited from the program that started us.
//!
//! # Safety
//! Setting a flag on a descriptor touches no memory; a wrong number is answered with EBADF.
#![allow(unsafe_code)]

use std::io;

/// Marks an inherited descriptor to be closed when this process starts another program.
///
/// # Errors
/// EBADF when there is none of that number.
pub fn close_on_exec(descriptor: i32) -> io::Result<()> {
    // SAFETY: F_SETFD takes a plain number and changes a flag in the kernel's table only.
    let done = unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
