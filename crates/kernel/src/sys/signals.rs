//! Signals read from a descriptor, one by one, each with its sender.
//!
//! # Safety
//! Only the signal mask of the calling thread and a descriptor change. `sigemptyset` or the kernel
//! initialises every set.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use hugepilot_record::Pid;

/// Returns the signals that other processes send and that end a process by default, without
/// SIGPIPE, which Rust's start-up ignores, and SIGKILL.
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

/// Returns the signals that a fault of the process itself raises. The kernel then ends the process,
/// blocked or not, so [`Signals`] can take them when other processes send them. A handler could not
/// mend the instruction to which it returns.
pub const fn fault_signals() -> [i32; 6] {
    [libc::SIGILL, libc::SIGTRAP, libc::SIGBUS, libc::SIGFPE, libc::SIGSEGV, libc::SIGSYS]
}

/// Signals of this thread, and of the process as long as it has no other thread, as a descriptor
/// that is readable once one has arrived. On drop, the former mask is restored.
#[derive(Debug)]
pub struct Signals {
    descriptor: OwnedFd,
    before: libc::sigset_t,
}

/// Signal that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedSignal {
    /// Signal.
    pub signal: i32,
    /// Sender; 0 for the kernel.
    pub sender: Pid,
}

impl Signals {
    /// Blocks `numbers` from now on, so that they only wait to be read. Call it before the first
    /// thread starts.
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
        // SAFETY: a whole set; the kernel returns a new descriptor.
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

    /// Returns the next one that arrived; `None` if there is none.
    pub fn next(&self) -> Option<ReceivedSignal> {
        let mut info = [0_u8; size_of::<libc::signalfd_siginfo>()];
        let length =
            rustix::io::retry_on_intr(|| rustix::io::read(&self.descriptor, &mut info)).ok()?;
        let word = |at: usize| info.get(at..at + 4)?.try_into().ok().map(i32::from_ne_bytes);
        // signalfd_siginfo begins with ssi_signo, ssi_errno, ssi_code, ssi_pid.
        let (signal, sender) = (word(0)?, Pid(word(12)?));
        (length == info.len()).then_some(ReceivedSignal { signal, sender })
    }

    /// Returns the former mask, for a program to start.
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
        // A signal that arrived since and was not read would act now, on a program that is about to
        // end.
        while self.next().is_some() {}
        // SAFETY: a whole set, as the kernel returned it.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut())
        };
    }
}

/// Runs `work` while all signals to this thread wait, and those to the process as long as it has no
/// other thread. For the installation of handlers, during which a signal could be lost.
pub fn with_signals_blocked<T>(work: impl FnOnce() -> T) -> T {
    let before = mask();
    let mut all = MaybeUninit::uninit();
    // SAFETY: `sigfillset` initialises the set.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), ptr::null_mut());
    }
    let result = work();
    // SAFETY: a whole set, as the kernel returned it.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
    result
}

/// Returns the signals that are blocked now.
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
    fn a_signal_waits_until_the_work_is_done() {
        let is_blocked = || {
            let now = mask();
            // SAFETY: a whole set and a number.
            unsafe { libc::sigismember(&raw const now, libc::SIGUSR1) == 1 }
        };
        assert!(with_signals_blocked(is_blocked) && !is_blocked());
    }

    #[test]
    fn a_signal_is_read_with_its_sender_and_has_no_other_effect() {
        let signals = Signals::take(&[libc::SIGUSR2]).unwrap();
        assert_eq!(signals.next(), None);
        // SAFETY: to this thread, which blocks it.
        unsafe { libc::raise(libc::SIGUSR2) };
        let sender = Pid(std::process::id().cast_signed());
        assert_eq!(signals.next(), Some(ReceivedSignal { signal: libc::SIGUSR2, sender }));
        assert_eq!(signals.next(), None);
    }
}
