//! C library and system calls of the heap.
//!
//! # Safety
//! None of these calls keeps a pointer, except to functions that live as long as the process.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::AtomicU32;

/// Runs `work` and restores `errno`: neither `free` nor a successful allocation may change it.
pub(super) fn preserving_errno<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: the address of the calling thread's own number, valid while the thread lives.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    let done = work();
    // SAFETY: as above.
    unsafe { *errno = before };
    done
}

/// Sleeps while `word` is `value`; may wake early.
pub(super) fn sleep(word: &AtomicU32, value: u32) {
    futex(word, libc::FUTEX_WAIT, value);
}

/// Wakes one thread that sleeps on `word`.
pub(super) fn wake(word: &AtomicU32) {
    futex(word, libc::FUTEX_WAKE, 1);
}

fn futex(word: &AtomicU32, operation: i32, value: u32) {
    let operation = operation | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word outlives the call; no timeout is given.
    preserving_errno(|| unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            operation,
            value,
            ptr::null::<libc::timespec>(),
        )
    });
}

/// Function called at the end of a thread, with the pointer given to [`at_thread_exit`].
pub(super) type AtExit = unsafe extern "C" fn(*mut c_void);

/// Creates a key whose `end` runs at the end of each thread that called [`at_thread_exit`]; `None`
/// if the process has no more keys. Unlike a `thread_local!` with a destructor, it allocates
/// nothing, and runs after those of the program.
pub(super) fn thread_key(end: AtExit) -> Option<u32> {
    let mut key = 0;
    // SAFETY: the key outlives the call.
    (unsafe { libc::pthread_key_create(&raw mut key, Some(end)) } == 0).then_some(key)
}

/// Makes the end of this thread call the key's function with `what`, which is not null.
pub(super) fn at_thread_exit(key: u32, what: *mut c_void) {
    // SAFETY: the key was made by `thread_key` and is never deleted. If the C library has no memory
    // for it, the thread's cache is leaked.
    preserving_errno(|| unsafe { libc::pthread_setspecific(key, what) });
}

/// Calls `begin` in each child that this process forks from now on. The C library may allocate.
pub(super) fn in_children(begin: extern "C" fn()) {
    if cfg!(miri) {
        return;
    }
    // SAFETY: a function without arguments and result, which lives as long as the process.
    preserving_errno(|| unsafe { pthread_atfork(None, None, Some(begin)) });
}

unsafe extern "C" {
    fn pthread_atfork(before: Hook, parent: Hook, child: Hook) -> i32;
}
type Hook = Option<extern "C" fn()>;

/// Writes to stderr; ignores errors.
pub(super) fn write_to_stderr(bytes: &[u8]) {
    // SAFETY: the length of the slice.
    unsafe { libc::write(2, bytes.as_ptr().cast(), bytes.len()) };
}

/// Ends the process like the C library after misuse of an allocator.
pub(super) fn abort() -> ! {
    // SAFETY: ends the process.
    unsafe { libc::abort() }
}

/// Ends the process without the program's handler of SIGABRT, which may allocate and then wait
/// forever for a lock held here.
pub(super) fn abort_unhandled() -> ! {
    // SAFETY: a signal number and a constant.
    unsafe { libc::signal(libc::SIGABRT, libc::SIG_DFL) };
    abort()
}

/// Returns the number of CPUs that the process may use.
pub(super) fn cpus() -> usize {
    if cfg!(miri) {
        return 1;
    }
    // SAFETY: zeros are an empty set, which outlives the call and whose size is given.
    preserving_errno(|| unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let done = libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set);
        // More CPUs than fit into the set.
        let all = libc::CPU_SETSIZE as usize;
        if done == 0 { usize::try_from(libc::CPU_COUNT(&set)).unwrap_or(1).max(1) } else { all }
    })
}
