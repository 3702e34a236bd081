//! Signals as something to read: blocked, and taken from a descriptor one by one, with where each came from.
//!
//! # Safety
//! Only the mask of the calling thread and a descriptor are changed; every set is initialised by `sigemptyset` or the kernel.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use hugepilot_record::Pid;

/// All signals that others send, and that end a process which does nothing about them; SIGPIPE, which Rust's start-up ignores,
/// and SIGKILL are not among them.
pub fn ending_signals() -> Vec<i32> {
    const NAMED: [i32; 15] = [
        libc::SIGHUP,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGABRT,
        libc::SIGUSR1,
        libc::SIGUSR2,
        libc::SIGALRM,
        libc::SIGTERM,
        libc::SIGSTKFLT,
        libc::SIGXCPU,
        libc::SIGXFSZ,
        libc::SIGVTALRM,
        libc::SIGPROF,
        libc::SIGIO,
        libc::SIGPWR,
    ];
    NAMED.into_iter().chain(libc::SIGRTMIN()..=libc::SIGRTMAX()).collect()
}

/// Those that a fault of the process itself raises. Blocked or not, the kernel ends it then, so they can be taken as
/// [`Signals`], for those that others send; a handler could not put right what it returns to.
pub const fn fault_signals() -> [i32; 6] {
    [libc::SIGILL, libc::SIGTRAP, libc::SIGBUS, libc::SIGFPE, libc::SIGSEGV, libc::SIGSYS]
}

/// Signals of this thread, and of the process as long as it has no other thread, as a descriptor that is readable when one
/// came. The former mask is back when it is dropped.
#[derive(Debug)]
pub struct Signals {
    descriptor: OwnedFd,
    before: libc::sigset_t,
}

/// A signal that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Its number.
    pub signal: i32,
    /// Who sent it; 0 for the kernel.
    pub sender: Pid,
}

impl Signals {
    /// From now on those of `numbers` do nothing but wait to be read. For before the first thread is started.
    ///
    /// # Errors
    /// EMFILE.
    pub fn take(numbers: &[i32]) -> io::Result<Self> {
        let mut set = MaybeUninit::uninit();
        // SAFETY: `sigemptyset` initialises the set, and the numbers are checked by `sigaddset`.
        let set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            numbers.iter().for_each(|&number| _ = libc::sigaddset(set.as_mut_ptr(), number));
            set.assume_init()
        };
        let before = mask();
        // SAFETY: a whole set; a new descriptor is asked for.
        let descriptor = unsafe {
            let descriptor =
                libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if descriptor == -1 {
                return Err(io::Error::last_os_error());
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut());
            OwnedFd::from_raw_fd(descriptor)
        };
        Ok(Self { descriptor, before })
    }

    /// The next one that came; `None` when there is none.
    pub fn next(&self) -> Option<Arrived> {
        let mut info = [0_u8; size_of::<libc::signalfd_siginfo>()];
        let length =
            rustix::io::retry_on_intr(|| rustix::io::read(&self.descriptor, &mut info)).ok()?;
        let word = |at: usize| info.get(at..at + 4)?.try_into().ok().map(i32::from_ne_bytes);
        // signalfd_siginfo begins with ssi_signo, ssi_errno, ssi_code, ssi_pid.
        let (signal, sender) = (word(0)?, Pid(word(12)?));
        (length == info.len()).then_some(Arrived { signal, sender })
    }

    /// The mask from before, for a program that we start.
    pub(super) const fn before(&self) -> libc::sigset_t {
        self.before
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // What came since and nobody read would act now, on a program that is about to end.
        while self.next().is_some() {}
        // SAFETY: a whole set, as the kernel gave it.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut())
        };
    }
}

/// The signals that are blocked now.
pub(super) fn mask() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: without a new mask the call only fills the set in.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), set.as_mut_ptr());
        set.assume_init()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_read_with_its_origin_and_does_nothing_else() {
        let signals = Signals::take(&[libc::SIGUSR2]).unwrap();
        assert_eq!(signals.next(), None);
        // SAFETY: to this thread, which has it blocked.
        unsafe { libc::raise(libc::SIGUSR2) };
        let sender = Pid(std::process::id().cast_signed());
        assert_eq!(signals.next(), Some(Arrived { signal: libc::SIGUSR2, sender }));
        assert_eq!(signals.next(), None);
    }
}
