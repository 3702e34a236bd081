//! C library and system calls of the heap.
//!
//! # Safety
//! None of these calls keeps a pointer, except to functions that live as long as the process.
//! Addresses passed to `unprotect`, `protect` and `unmap` are the caller's own, from `reserve` or
//! `map`.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicUsize};

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

/// Returns the number of mappings that a process may have.
pub(super) fn max_mappings() -> usize {
    let mut text = [0_u8; 24];
    preserving_errno(|| {
        // SAFETY: the path is a C string, the kernel writes at most the length of the text, and the
        // file is closed once.
        unsafe {
            let file = libc::open(
                c"/proc/sys/vm/max_map_count".as_ptr(),
                libc::O_RDONLY | libc::O_CLOEXEC,
            );
            if file >= 0 {
                libc::read(file, text.as_mut_ptr().cast(), text.len());
                libc::close(file);
            }
        }
    });
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    let number = digits.fold(0_usize, |sum, &digit| {
        sum.saturating_mul(10).saturating_add(usize::from(digit - b'0'))
    });
    // Unreadable: the kernel's default.
    if number == 0 { 65_530 } else { number }
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

/// Returns the number of address bytes that a process may map.
pub(super) fn max_addresses() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit outlives the call.
    preserving_errno(|| unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) });
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}

/// Reserves inaccessible addresses without memory; `None` if there are not enough.
pub(super) fn reserve(len: usize) -> Option<usize> {
    map_as(ptr::null_mut(), len, libc::PROT_NONE, libc::MAP_NORESERVE)
}

/// Maps zeroed memory.
pub(super) fn map(len: usize) -> Option<usize> {
    map_as(ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, 0)
}

/// Makes reserved addresses accessible, zeroed. False if memory or mappings are exhausted.
pub(super) fn unprotect(start: usize, len: usize) -> bool {
    let start: *mut c_void = ptr::with_exposed_provenance_mut(start);
    // SAFETY: the caller's own reserved addresses.
    len == 0
        || preserving_errno(|| unsafe {
            libc::mprotect(start, len, libc::PROT_READ | libc::PROT_WRITE)
        }) == 0
}

/// Makes addresses reserved and inaccessible again.
pub(super) fn protect(start: usize, len: usize) -> bool {
    let place = ptr::with_exposed_provenance_mut(start);
    len == 0 || map_as(place, len, libc::PROT_NONE, libc::MAP_NORESERVE | libc::MAP_FIXED).is_some()
}

/// Unmaps addresses.
pub(super) fn unmap(start: usize, len: usize) {
    // SAFETY: the caller's own, without other users.
    preserving_errno(|| unsafe { libc::munmap(ptr::with_exposed_provenance_mut(start), len) });
}

fn map_as(place: *mut c_void, len: usize, protection: i32, flags: i32) -> Option<usize> {
    if cfg!(miri) {
        return None;
    }
    let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping, or one in place of the caller's own, without other users.
    let start = preserving_errno(|| unsafe { libc::mmap(place, len, protection, flags, -1, 0) });
    (start != libc::MAP_FAILED).then(|| start.expose_provenance())
}

/// Called with the address of a fault before the process ends.
static EXPLAIN: AtomicUsize = AtomicUsize::new(0);

/// Calls `explain` at a fault, unless the program handles SIGSEGV. It must be async-signal-safe.
pub(super) fn at_fault(explain: fn(usize)) {
    EXPLAIN.store(explain as usize, Relaxed);
    // SAFETY: the actions outlive the calls, and zeros are one; the handler has the signature that
    // SA_SIGINFO requires.
    preserving_errno(|| unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGSEGV, ptr::null(), &raw mut action);
        if action.sa_sigaction == libc::SIG_DFL {
            action.sa_sigaction = on_fault as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaction(libc::SIGSEGV, &raw const action, ptr::null_mut());
        }
    });
}

/// Explains a fault and leaves the rest to the kernel: the fault recurs, and a signal that another
/// process sent is sent again.
extern "C" fn on_fault(signal: i32, info: *const libc::siginfo_t, _: *const c_void) {
    // SAFETY: the kernel's description of the signal; the number was a function of this type.
    unsafe {
        let explain: fn(usize) = std::mem::transmute(EXPLAIN.load(Relaxed));
        if (*info).si_code > 0 {
            explain((*info).si_addr().addr());
        }
        libc::signal(signal, libc::SIG_DFL);
        if (*info).si_code <= 0 {
            libc::raise(signal);
        }
    }
}
