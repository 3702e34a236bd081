//! A child of ourselves to try things on, so that no probe touches somebody else's process.
//!
//! # Safety
//! After fork, the child of a threaded process may only make async-signal-safe calls: it writes to memory it already
//! has, writes one byte to a pipe, and sleeps until killed.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, OwnedFd};

use hugepilot_record::{Errno, Pid};
use hugepilot_units::Bytes;

use super::anon::AnonMap;
use super::last_errno;

/// A forked child that holds a private, touched copy of an [`AnonMap`]. Killed and reaped on drop.
#[derive(Debug)]
pub(crate) struct Child {
    pid: Pid,
}

impl Child {
    /// Forks; the child writes one word into every `stride` of `map`, which makes these pages its own, and then waits
    /// to be killed. Returns when the pages are there.
    ///
    /// # Errors
    /// EAGAIN or ENOMEM when no process can be made; EMFILE when no pipe can.
    pub(crate) fn touching(map: &mut AnonMap, stride: Bytes) -> Result<Self, Errno> {
        let (read, write) = rustix::pipe::pipe().map_err(|errno| Errno(errno.raw_os_error()))?;
        // SAFETY: see the module: the child path below makes only async-signal-safe calls and never returns.
        match unsafe { libc::fork() } {
            -1 => Err(last_errno()),
            0 => run_child(map, stride, &write),
            pid => {
                let child = Self { pid: Pid(pid) };
                drop(write);
                let mut byte = [0_u8];
                match rustix::io::read(&read, &mut byte) {
                    Ok(1) => Ok(child),
                    _ => Err(Errno::ESRCH),
                }
            }
        }
    }

    /// Its number.
    pub(crate) const fn pid(&self) -> Pid {
        self.pid
    }
}

fn run_child(map: &mut AnonMap, stride: Bytes, ready: &OwnedFd) -> ! {
    for chunk in map.words_mut().chunks_mut(stride.as_usize() / 8) {
        chunk[0] = 1;
    }
    let byte = [1_u8];
    // SAFETY: plain system calls on a live descriptor and buffer; the child dies with its parent, and never returns
    // into Rust code that could run destructors of the parent's values.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::write(ready.as_raw_fd(), byte.as_ptr().cast(), 1);
        loop {
            libc::pause();
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: the pid is our own unreaped child, so the number cannot have been given to anybody else.
        unsafe {
            libc::kill(self.pid.0, libc::SIGKILL);
            libc::waitpid(self.pid.0, std::ptr::null_mut(), 0);
        }
    }
}
