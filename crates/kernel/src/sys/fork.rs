//! Child of this process for probes, so that no probe touches another process.
//!
//! # Safety
//! After fork, the child of a threaded process may only make async-signal-safe calls: it reads and
//! writes memory it already has, advises about it, writes one byte to a pipe, and computes or
//! sleeps until killed.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, OwnedFd};

use hugepilot_record::{Errno, Pid};
use hugepilot_units::{Bytes, PageSizes};

use super::anon::AnonMap;
use super::last_errno;
use crate::privilege::renounce_in_child;

/// Action of a [`Child`] on its copy of the memory, after it wrote [`Child::MARK`] into the first
/// word of every `stride`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Sleeps. The memory is on base pages and may become huge, so that the probe can collapse it.
    Hold,
    /// Collapses the memory into huge pages, as far as the kernel lets it, and sleeps.
    HoldHuge,
    /// Reads its pages in pseudorandom order, until killed.
    Wander,
}

/// Forked child that holds a private, touched copy of an [`AnonMap`]. Killed and reaped on drop.
#[derive(Debug)]
pub(crate) struct Child {
    pid: Pid,
}

impl Child {
    /// Word that the child writes.
    pub(crate) const MARK: u64 = 0x5ca1_ab1e_0ddb_a115;

    /// Forks a child that touches every `stride` of `map` and then runs its `task` until killed.
    /// The touched pages are its own, if this process has not touched them before. Returns once
    /// they are resident.
    ///
    /// # Errors
    /// EAGAIN or ENOMEM if no process can be made; EMFILE if no pipe can.
    pub(crate) fn start(
        map: &mut AnonMap,
        stride: Bytes,
        task: Task,
        sizes: PageSizes,
    ) -> Result<Self, Errno> {
        let (read, write) = rustix::pipe::pipe().map_err(|errno| Errno(errno.raw_os_error()))?;
        // SAFETY: see the module: the child path below makes only async-signal-safe calls and never
        // returns.
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

    /// Returns its pid.
    pub(crate) const fn pid(&self) -> Pid {
        self.pid
    }
}

fn run_child(map: &mut AnonMap, stride: Bytes, task: Task, sizes: PageSizes, ready: &OwnedFd) -> ! {
    renounce_in_child();
    // SAFETY: plain system calls. The child dies with its parent. It is dumpable as an ordinary
    // process is, which one started from a file with capabilities would not be.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::prctl(libc::PR_SET_DUMPABLE, 1);
    }
    if task == Task::Hold && map.start_with_base_pages(Child::MARK, sizes).is_err() {
        // The parent sees the pipe close. SAFETY: ends the child at once, without destructors.
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
        // SAFETY: waits for a signal, and touches no memory. The child never returns into code that
        // could run destructors of the parent's values.
        unsafe { libc::pause() };
    }
}

/// Loads from pages in pseudorandom order, each address from the load before, so that most miss the
/// TLB if the memory exceeds its reach.
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
        // SAFETY: the pid is an unreaped child of this process, so no other process can have it.
        unsafe {
            libc::kill(self.pid.0, libc::SIGKILL);
            libc::waitpid(self.pid.0, std::ptr::null_mut(), 0);
        }
    }
}
