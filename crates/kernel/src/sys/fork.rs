//! A child of ourselves to try things on, so that no probe touches somebody else's process.
//!
//! # Safety
//! After fork, the child of a threaded process may only make async-signal-safe calls: it reads and writes memory it
//! already has, advises about it, writes one byte to a pipe, and computes or sleeps until killed.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, OwnedFd};

use hugepilot_record::{Errno, Pid};
use hugepilot_units::{Bytes, PageSizes};

use super::anon::AnonMap;
use super::last_errno;
use crate::privilege::renounce_in_child;

/// What a [`Child`] does with its copy of the memory, after it wrote [`Child::MARK`] into the first word of every
/// `stride`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Sleeps. The memory is on base pages, and allowed huge ones, so that somebody else may collapse it.
    Hold,
    /// Collapses the memory into huge pages itself, as far as the kernel lets it, and sleeps.
    HoldHuge,
    /// Reads all over it, one page after another in no order, for ever.
    Wander,
}

/// A forked child that holds a private, touched copy of an [`AnonMap`]. Killed and reaped on drop.
#[derive(Debug)]
pub(crate) struct Child {
    pid: Pid,
}

impl Child {
    /// What the child writes.
    pub(crate) const MARK: u64 = 0x5ca1_ab1e_0ddb_a115;

    /// Forks; the child touches every `stride` of `map` (untouched by us, else the pages are shared), which makes these
    /// pages its own, and then does its `task` until killed. Returns when the pages are there.
    ///
    /// # Errors
    /// EAGAIN or ENOMEM when no process can be made; EMFILE when no pipe can.
    pub(crate) fn start(
        map: &mut AnonMap,
        stride: Bytes,
        task: Task,
        sizes: PageSizes,
    ) -> Result<Self, Errno> {
        let (read, write) = rustix::pipe::pipe().map_err(|errno| Errno(errno.raw_os_error()))?;
        // SAFETY: see the module: the child path below makes only async-signal-safe calls and never returns.
        match unsafe { libc::fork() } {
            -1 => Err(last_errno()),
            0 => run_child(map, stride, task, sizes, &write),
            pid => {
                let child = Self { pid: Pid(pid) };
                drop(write);
                let mut byte = [0_u8];
                match rustix::io::retry_on_intr(|| rustix::io::read(&read, &mut byte)) {
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

fn run_child(map: &mut AnonMap, stride: Bytes, task: Task, sizes: PageSizes, ready: &OwnedFd) -> ! {
    renounce_in_child();
    // SAFETY: plain system calls. The child dies with its parent; it shows itself as an ordinary process does, which
    // one started from a file with capabilities would not.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::prctl(libc::PR_SET_DUMPABLE, 1);
    }
    if task == Task::Hold && map.start_with_base_pages(Child::MARK, sizes).is_err() {
        // Our parent sees the pipe close.
        // SAFETY: ends the child at once, without destructors.
        unsafe { libc::_exit(1) };
    }
    for chunk in map.words_mut().chunks_mut(stride.as_usize() / 8) {
        chunk[0] = Child::MARK;
    }
    if task == Task::HoldHuge {
        let _ = map.collapse(map.range());
    }
    let byte = [1_u8];
    // SAFETY: a live descriptor and buffer.
    unsafe { libc::write(ready.as_raw_fd(), byte.as_ptr().cast(), 1) };
    if task == Task::Wander {
        wander(map.words());
    }
    loop {
        // SAFETY: waits for a signal, and touches no memory. The child never returns into code that could run
        // destructors of the parent's values.
        unsafe { libc::pause() };
    }
}

/// Loads whose addresses depend on each other and lie on pages in no order, so that most miss the TLB when the memory
/// is larger than it maps.
fn wander(words: &[u64]) -> ! {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    loop {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let index = usize::try_from(state).unwrap_or(0) % words.len();
        state = state.wrapping_add(std::hint::black_box(words[index]) | 1);
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
