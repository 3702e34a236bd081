//! Heaps in the child of a process with several threads.
//!
//! No lock is taken for `fork`: the C library waits there for its own locks, and their holders may
//! wait for one of a heap. Only the forking thread exists in the child, which drops the state that
//! other threads were changing:
//!
//! - While the kernel copies the address space, a thread that writes to copied memory waits until
//!   all of it is copied. So the child sees the writes of each thread up to some moment, and no
//!   later ones, of that thread or of one that saw them. Data behind a free lock is therefore
//!   consistent. Data behind a held lock is torn, and its holder is gone. (Pages pinned for I/O are
//!   copied while other threads may write to them: with such I/O in progress, a child should only
//!   `exec`.)
//! - Torn data is never read: unused and abandoned
//!   [`ThreadCache`](super::thread_cache::ThreadCache)s, the lender, and the lists of chunks.
//!   Nothing is freed into those chunks from then on, and new memory comes from new chunks. Objects
//!   in the old ones are found by their address alone.
//! - The list of heaps, the list of a heap's caches and the lists of huge objects change by one
//!   store each, which releases all writes before it. So they are consistent at any moment.
//!
//! # Safety
//! This runs in a child before any code of the program. The forking thread was not in a heap,
//! unless a signal handler forked that had interrupted it there. These functions are sound then,
//! too, but the state of that thread is torn. POSIX permits such a child only async-signal-safe
//! calls, so it may not use the heap.
#![allow(unsafe_code)]

use std::ptr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use super::os;
use super::thread::{HeapHeader, REGISTRY};

/// Makes heaps usable in children of this process from now on. Called before the first lock is
/// taken, and under none: the C library may allocate for it, from a heap.
pub(super) fn watch() {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if !WATCHED.swap(true, Relaxed) {
        os::in_children(begin);
    }
}

extern "C" fn begin() {
    if REGISTRY.lock.reset() {
        REGISTRY.forget_unused();
    }
    // SAFETY: see the module.
    unsafe {
        REGISTRY.heaps().for_each(|heap| {
            heap.recount_owners();
            reset_after_fork(heap);
        });
    }
}

/// Makes a heap usable in a child.
///
/// # Safety
/// No other thread uses it.
pub(super) unsafe fn reset_after_fork(heap: &HeapHeader) {
    if !heap.lock.reset() {
        return;
    }
    let _held = heap.lock.lock();
    heap.abandoned.set(ptr::null_mut());
    heap.next_scanned.set(ptr::null_mut());
    heap.spare.set(ptr::null_mut());
    heap.lender.store(ptr::null_mut(), Relaxed);
    // SAFETY: the lock is held.
    unsafe { (heap.reset_after_fork)(ptr::with_exposed_provenance(ptr::from_ref(heap).addr())) };
}
