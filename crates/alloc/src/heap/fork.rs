//! What is left of heaps in the child of a process with several threads.
//!
//! Nothing is locked for `fork`: the C library waits there for locks of its own, and who holds these may wait for one of ours.
//! The child, in which only the thread that forked goes on, gives up what the others were in the middle of:
//!
//! - While the kernel copies the address space, a thread that writes to what is copied already waits until all of it is. So
//!   the child has what each thread wrote up to some moment, and nothing that came later, of that thread or of one that saw
//!   it. What a lock guards is then whole where the lock is free. Where it is held, its holder is gone, and left it torn. (Pages
//!   that are pinned for I/O are copied while others may write to them: with such I/O under way, a child should only `exec`.)
//! - What is torn is not looked at again: unused and abandoned [`ThreadCache`](super::thread_cache::ThreadCache)s, and the lists of chunks, in which
//!   nothing is freed from then on. New memory comes from new chunks. Objects in the old ones are found by their address alone.
//! - The list of heaps, that of a heap's locals and the lists of huge things change by one store each, which releases what was
//!   written before it. So they are whole at any moment.
//!
//! # Safety
//! This runs in a child before any code of the program does. The thread that forked was not in a heap, unless a signal handler
//! forked that had interrupted it there: what this does is sound then, too, but what that thread has is torn. POSIX lets such a
//! child make async-signal-safe calls alone, so it may not touch the heap.
#![allow(unsafe_code)]

use std::ptr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use super::os;
use super::thread::{HeapHeader, REGISTRY};

/// From now on, heaps can be used in the children of this process. Called before the first lock is taken, and under none: the
/// C library may take memory for it, from a heap.
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
    unsafe { REGISTRY.heaps().for_each(|heap| reset_after_fork(heap)) };
}

/// Makes a heap fit to be used in a child.
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
    // SAFETY: the lock is held.
    unsafe { (heap.reset_after_fork)(ptr::with_exposed_provenance(ptr::from_ref(heap).addr())) };
}
