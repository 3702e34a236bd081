//! io_uring that only pins memory, as registered buffers (`io_uring_register(2)`).
//!
//! # Safety
//! The kernel reads one argument structure per call, which lives across the call and has the layout
//! of `linux/io_uring.h`. It pins the pages of a buffer and neither reads nor writes them, because
//! nothing is ever submitted to the ring.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use hugepilot_record::Errno;
use hugepilot_units::AddrRange;

use super::last_errno;

const REGISTER_BUFFERS2: libc::c_uint = 15;
const REGISTER_BUFFERS_UPDATE: libc::c_uint = 16;
/// Table of buffers without buffers.
const SPARSE: u32 = 1;
/// Buffers of a ring: the maximum of the kernel (`IORING_MAX_REG_BUFFERS`).
const SLOTS: u32 = 1 << 14;

/// `struct io_uring_rsrc_register`.
#[repr(C)]
struct Register {
    count: u32,
    flags: u32,
    reserved: u64,
    data: u64,
    tags: u64,
}

/// `struct io_uring_rsrc_update2`.
#[repr(C)]
struct Update {
    offset: u32,
    reserved: u32,
    data: u64,
    tags: u64,
    count: u32,
    reserved2: u32,
}

/// Ring whose buffers stay pinned until it is dropped, or its process ends.
#[derive(Debug)]
pub(crate) struct PinRing {
    descriptor: OwnedFd,
    used: u32,
}

impl PinRing {
    /// Makes a ring without buffers.
    ///
    /// # Errors
    /// ENOSYS and EPERM without io_uring (`kernel.io_uring_disabled`), EMFILE, ENOMEM.
    pub(crate) fn new() -> Result<Self, Errno> {
        // `struct io_uring_params`: 120 bytes, all zero for the defaults.
        let mut params = [0_u32; 30];
        // SAFETY: the kernel reads and writes the parameters, and returns a new descriptor.
        let descriptor = unsafe {
            let number = libc::syscall(libc::SYS_io_uring_setup, 1_u32, params.as_mut_ptr());
            let number = i32::try_from(number).unwrap_or(-1);
            if number < 0 {
                return Err(last_errno());
            }
            OwnedFd::from_raw_fd(number)
        };
        let table = Register { count: SLOTS, flags: SPARSE, reserved: 0, data: 0, tags: 0 };
        register(&descriptor, REGISTER_BUFFERS2, &table)?;
        Ok(Self { descriptor, used: 0 })
    }

    /// Pins the pages of `range`, at most 1 GiB, also after they are unmapped.
    ///
    /// # Errors
    /// ENOMEM beyond RLIMIT_MEMLOCK without CAP_IPC_LOCK; ENOSPC after 16,384 ranges; EFAULT.
    pub(crate) fn pin(&mut self, range: AddrRange) -> Result<(), Errno> {
        if self.used == SLOTS {
            return Err(Errno(libc::ENOSPC));
        }
        let buffer = libc::iovec {
            iov_base: range.start.get() as *mut libc::c_void,
            iov_len: range.len().as_usize(),
        };
        let data = (&raw const buffer) as u64;
        let update =
            Update { offset: self.used, reserved: 0, data, tags: 0, count: 1, reserved2: 0 };
        register(&self.descriptor, REGISTER_BUFFERS_UPDATE, &update)?;
        self.used += 1;
        Ok(())
    }
}

fn register<T>(ring: &OwnedFd, operation: libc::c_uint, argument: &T) -> Result<(), Errno> {
    // SAFETY: the last argument is the size of the structure, which these operations require; what
    // it points to lives in the caller.
    let done = unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            ring.as_raw_fd(),
            operation,
            (&raw const *argument).cast::<libc::c_void>(),
            size_of::<T>(),
        )
    };
    if done < 0 { Err(last_errno()) } else { Ok(()) }
}
