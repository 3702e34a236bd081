//! What the heap asks of the C library.
//!
//! # Safety
//! None of these calls keeps a pointer of ours, but to functions that are there for the life of the process.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::AtomicU32;

/// Does `work` and leaves `errno` as it was: neither `free` nor an allocation that succeeds may change it.
pub(super) fn errno_kept<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: the address of the calling thread's own number, valid while the thread lives.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    let done = work();
    // SAFETY: as above.
    unsafe { *errno = before };
    done
}

/// Sleeps while `word` is `value`, or a little shorter.
pub(super) fn sleep(word: &AtomicU32, value: u32) {
    futex(word, libc::FUTEX_WAIT, value);
}

/// Wakes one that sleeps on `word`.
pub(super) fn wake(word: &AtomicU32) {
    futex(word, libc::FUTEX_WAKE, 1);
}

fn futex(word: &AtomicU32, operation: i32, value: u32) {
    let operation = operation | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word lives across the call; no timeout is given.
    errno_kept(|| unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, ptr::null::<libc::timespec>())
    });
}

/// Ends what a thread had, given what [`at_thread_exit`] was told.
pub(super) type AtExit = unsafe extern "C" fn(*mut c_void);

/// A key whose `end` is called at the end of each thread that [`at_thread_exit`] was called on; `None` where there are no
/// more keys. Unlike a `thread_local!` with a destructor, it takes no memory, and comes after those of the program.
pub(super) fn thread_key(end: AtExit) -> Option<u32> {
    let mut key = 0;
    // SAFETY: the key lives across the call.
    (unsafe { libc::pthread_key_create(&raw mut key, Some(end)) } == 0).then_some(key)
}

/// This thread's end is to call what belongs to the key, with `what`, which is not null.
pub(super) fn at_thread_exit(key: u32, what: *mut c_void) {
    // SAFETY: the key was made by `thread_key` and is never deleted. Where the C library has no memory for it, the thread
    // keeps what it has after its end.
    errno_kept(|| unsafe { libc::pthread_setspecific(key, what) });
}

/// Calls this in each child that this process makes by `fork` from now on. May take memory from the C library.
pub(super) fn in_children(begin: extern "C" fn()) {
    if cfg!(miri) {
        return;
    }
    // SAFETY: a function that takes and returns nothing, for the life of the process.
    errno_kept(|| unsafe { pthread_atfork(None, None, Some(begin)) });
}

unsafe extern "C" {
    fn pthread_atfork(before: Hook, parent: Hook, child: Hook) -> i32;
}
type Hook = Option<extern "C" fn()>;

/// Says on stderr that the program broke a rule of allocators, and ends it as the C library does.
#[cold]
pub(super) fn die(what: &'static str) -> ! {
    // SAFETY: the text is as long as it says.
    unsafe { libc::write(2, what.as_ptr().cast(), what.len()) };
    // SAFETY: ends the process.
    unsafe { libc::abort() }
}
