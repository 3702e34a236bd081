//! `perf_event_open(2)` and the ring that the kernel writes samples into.
//!
//! # Safety
//! The ring is memory shared with the kernel. Its protocol: the kernel writes records up to
//! `data_head` and never overwrites the part between `data_tail` and `data_head`. This file copies
//! that part out through raw pointers and only then moves `data_tail`. No Rust reference into the
//! ring is ever made.
#![allow(unsafe_code)]

#[cfg(test)]
pub(crate) mod stored;

use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use hugepilot_record::Errno;
use perf_event_open_sys::bindings::{perf_event_attr, perf_event_mmap_page};

use super::last_errno;
use crate::privilege::{Purpose, raised};

/// `PERF_FLAG_FD_CLOEXEC`.
const FLAG_CLOEXEC: libc::c_ulong = 8;

/// Open perf event, disabled at first if its attributes say so.
#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    /// Opens an event on thread `tid` (-1 for all) and CPU `cpu` (-1 for any).
    ///
    /// # Errors
    /// EACCES or EPERM without permission, ENOENT or EOPNOTSUPP without the hardware, ESRCH if the
    /// thread is gone, EMFILE, EINVAL.
    pub(crate) fn open(
        attr: &perf_event_attr,
        tid: i32,
        cpu: i32,
        leader: Option<BorrowedFd<'_>>,
    ) -> Result<Self, Errno> {
        let group = leader.map_or(-1, |fd| fd.as_raw_fd());
        let fd = raised(Purpose::OpenEvent, || {
            // SAFETY: the kernel reads `attr`, which states its own size, during the call.
            let fd = unsafe {
                libc::syscall(
                    libc::SYS_perf_event_open,
                    ptr::from_ref(attr),
                    tid,
                    cpu,
                    group,
                    FLAG_CLOEXEC,
                )
            };
            i32::try_from(fd).ok().filter(|&fd| fd >= 0).ok_or_else(last_errno)
        })?;
        // SAFETY: the kernel just returned this descriptor, and no other code has it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Starts counting and sampling, also of inherited events.
    pub(crate) fn enable(&self) -> Result<(), Errno> {
        self.ioctl(perf_event_open_sys::bindings::ENABLE, 0)
    }
    /// Stops counting and sampling.
    pub(crate) fn disable(&self) -> Result<(), Errno> {
        self.ioctl(perf_event_open_sys::bindings::DISABLE, 0)
    }
    /// Sends this event's samples into the ring of `other`, which must be of the same CPU.
    pub(crate) fn redirect_to(&self, other: &Self) -> Result<(), Errno> {
        let fd = libc::c_ulong::try_from(other.0.as_raw_fd()).unwrap_or(0);
        self.ioctl(perf_event_open_sys::bindings::SET_OUTPUT, fd)
    }

    fn ioctl(&self, request: u32, argument: libc::c_ulong) -> Result<(), Errno> {
        // SAFETY: these requests take a plain number and access no memory.
        let done =
            unsafe { libc::ioctl(self.0.as_raw_fd(), libc::c_ulong::from(request), argument) };
        if done == 0 { Ok(()) } else { Err(last_errno()) }
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Ring of one event, and of those redirected to it.
#[derive(Debug)]
pub(crate) struct Ring {
    page: NonNull<perf_event_mmap_page>,
    data: NonNull<u8>,
    data_len: usize,
    whole_len: usize,
}

// SAFETY: the mapping is owned by this value; every method that moves `data_tail` takes `&mut
// self`.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps a ring of `data_len` bytes (a power of two of pages) for `event`.
    ///
    /// # Errors
    /// EPERM if `perf_event_mlock_kb` is used up, ENOMEM, EINVAL for a length that the kernel
    /// rejects.
    pub(crate) fn map(event: &EventFd, data_len: usize, page_len: usize) -> Result<Self, Errno> {
        let whole_len = data_len + page_len;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: no address is given; the descriptor is a live perf event.
        let whole = unsafe {
            libc::mmap(
                ptr::null_mut(),
                whole_len,
                protection,
                libc::MAP_SHARED,
                event.0.as_raw_fd(),
                0,
            )
        };
        let whole = NonNull::new(whole)
            .filter(|p| p.as_ptr() != libc::MAP_FAILED)
            .ok_or_else(last_errno)?;
        let page = whole.cast::<perf_event_mmap_page>();
        // SAFETY: the data area starts one page into the mapping, which is one page longer than the
        // data.
        let data = unsafe { whole.byte_add(page_len) }.cast::<u8>();
        Ok(Self { page, data, data_len, whole_len })
    }

    /// Moves all complete records into `into`, which is cleared first and never grows beyond the
    /// ring's length.
    pub(crate) fn take(&mut self, into: &mut Vec<u8>) {
        into.clear();
        // ATOMICS: Acquire on `data_head` makes the kernel's writes below it visible before the
        // copy; Release on `data_tail` lets the copy happen before the kernel may reuse the space.
        let head =
            self.counter(offset_of!(perf_event_mmap_page, data_head)).load(Ordering::Acquire);
        let tail_cell = self.counter(offset_of!(perf_event_mmap_page, data_tail));
        let tail = tail_cell.load(Ordering::Relaxed);
        let len = usize::try_from(head.wrapping_sub(tail)).unwrap_or(0).min(self.data_len);
        let start = usize::try_from(tail % self.data_len as u64).unwrap_or(0);
        let first = len.min(self.data_len - start);
        into.reserve(len);
        // SAFETY: both parts lie in the data area between tail and head, which the kernel does not
        // write until the tail moves, and `into` has room for `len` bytes, all of which are written
        // before the length is set.
        unsafe {
            ptr::copy_nonoverlapping(self.data.add(start).as_ptr(), into.as_mut_ptr(), first);
            ptr::copy_nonoverlapping(self.data.as_ptr(), into.as_mut_ptr().add(first), len - first);
            into.set_len(len);
        }
        tail_cell.store(head, Ordering::Release);
    }

    /// Returns the 64-bit counter at `offset` in the control page.
    fn counter(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the control page is mapped while `self` lives, the offset is that of a u64 field
        // of it, hence aligned, and this process and the kernel access these counters only
        // atomically.
        unsafe { AtomicU64::from_ptr(self.page.byte_add(offset).cast().as_ptr()) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length; no reference into it exists.
        unsafe { libc::munmap(self.page.as_ptr().cast(), self.whole_len) };
    }
}
