//! Tests of children whose parent had other threads in a heap: simulated in one process, and with
//! `fork`.
//!
//! # Safety
//! As in the module above. After fork, the child uses the heap, and ends without destructors.
#![allow(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::Ordering::Relaxed;
use std::{mem, ptr, thread};

use hugepilot_units::Bytes;

use super::super::chunk::Chunk;
use super::super::fork::reset_after_fork;
use super::super::map;
use super::super::thread::REGISTRY;
use super::model::assert_apart;
use super::{Object, layout, limit_owners, scripted};
use crate::sys::scripted::ScriptedSys;
use crate::{Heap, Options, Sys};

/// Small, of spans of several units, large and huge.
const KINDS: [usize; 5] = [40, 9000, 300_000, 3 << 20, 20 << 20];

/// Allocates objects of each kind, by the calling thread and by one that has ended.
fn of_every_kind<S: Sys>(heap: &Heap<S>, mark: u8) -> Vec<Object> {
    let some = || {
        let of = |&size: &usize| {
            (0..3).map(move |i| Object::new(heap, layout(size, 16), mark + i, false))
        };
        KINDS.iter().flat_map(of).collect::<Option<Vec<_>>>().expect("memory")
    };
    let mut all = thread::scope(|scope| scope.spawn(some).join().expect("no panic"));
    all.extend(some());
    all
}

/// Uses the heap like a child: frees and resizes inherited objects, and allocates new ones.
fn use_all<S: Sys>(heap: &Heap<S>, mut old: Vec<Object>) {
    old.iter().for_each(Object::check);
    let new = of_every_kind(heap, 100);
    let count = old.len();
    old.extend(new);
    assert_apart(&old);
    for (i, object) in old.iter_mut().enumerate() {
        let size = object.layout.size();
        object.resize(heap, if i % 2 == 0 { size * 2 } else { size / 3 });
    }
    assert_apart(&old);
    old.iter().for_each(Object::check);
    let new = old.split_off(count);
    old.into_iter().for_each(|object| object.free(heap));
    new.iter().for_each(Object::check);
    let again = of_every_kind(heap, 200);
    assert_apart(&again);
    new.into_iter().chain(again).for_each(|object| object.free(heap));
    heap.trim();
}

#[test]
fn torn_state_of_a_lock_holder_is_not_read() {
    (0..2).for_each(torn_state_is_not_read);
}

fn torn_state_is_not_read(owners: usize) {
    let (heap, sys) = scripted("thp,base");
    limit_owners(&heap, owners);
    let old = of_every_kind(&heap, 1);
    let core = heap.core().unwrap();
    let lost: Vec<*mut Chunk<ScriptedSys>> = core.central().tear();
    mem::forget(core.header.lock.lock());
    core.header.abandoned.set(ptr::without_provenance_mut(64));
    core.header.next_scanned.set(ptr::without_provenance_mut(64));
    core.header.spare.set(ptr::without_provenance_mut(64));
    let lender = core.header.lender.swap(ptr::without_provenance_mut(64), Relaxed);
    assert_eq!(lender.is_null(), owners > 0, "threads borrow if none owns spans");
    // SAFETY: no other thread uses the heap.
    unsafe { reset_after_fork(&core.header) };
    let stats = heap.stats();
    assert_eq!(
        (stats.large.count, stats.large.bytes, stats.idle),
        (6, Bytes::mib(6 * 20), Bytes::ZERO)
    );
    use_all(&heap, old);
    let stats = heap.stats();
    assert_eq!(
        (stats.allocated, stats.held, stats.mapped),
        (Bytes::ZERO, Bytes::ZERO, Bytes::ZERO)
    );
    drop(heap);
    assert!(!lost.is_empty());
    for chunk in lost {
        map::remove(chunk.addr());
        // SAFETY: the lost memory is still mapped, and unused.
        drop(unsafe { (*chunk).region.take() });
    }
    assert_eq!(sys.mappings(), 0, "nothing else is lost");
}

#[test]
fn state_behind_a_free_lock_stays() {
    (0..2).for_each(state_stays);
}

fn state_stays(owners: usize) {
    let (heap, sys) = scripted("base");
    limit_owners(&heap, owners);
    let old = of_every_kind(&heap, 1);
    let before = heap.stats();
    // SAFETY: no other thread uses the heap.
    unsafe { reset_after_fork(&heap.core().unwrap().header) };
    assert_eq!(heap.stats(), before);
    use_all(&heap, old);
    assert_eq!((heap.stats().mapped, sys.mappings()), (Bytes::ZERO, 1));
}

/// Returns whether a child that runs `work` succeeds.
fn child(work: impl FnOnce()) -> bool {
    status(work) == 0
}

/// Runs `work` in a child. Returns its status as from `waitpid`.
pub(super) fn status(work: impl FnOnce()) -> i32 {
    // SAFETY: see the module.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            // SAFETY: ends the child if it hangs.
            unsafe { libc::alarm(60) };
            let status = i32::from(catch_unwind(AssertUnwindSafe(work)).is_err());
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(status) }
        }
        pid => {
            let mut status = 0;
            // SAFETY: this process's own child, awaited once; the status outlives the call.
            assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
            status
        }
    }
}

/// The threads of the parent do not exist in the child, so that they take no place.
#[test]
#[cfg_attr(miri, ignore = "forks")]
fn threads_of_a_child_own_spans_though_the_parent_had_many() {
    let heap = Heap::new(Options::default());
    limit_owners(&heap, 2);
    let turn = Barrier::new(2);
    let touch = || Object::new(&heap, layout(64, 8), 1, false).unwrap().free(&heap);
    let borrows = || heap.core().unwrap().header.cache().unwrap().borrows();
    thread::scope(|scope| {
        scope.spawn(|| {
            touch();
            turn.wait();
            turn.wait();
        });
        turn.wait();
        touch();
        let in_child = || {
            thread::scope(|scope| {
                let owns = scope.spawn(|| {
                    touch();
                    !borrows()
                });
                assert!(owns.join().unwrap());
            });
        };
        let done = child(in_child);
        turn.wait();
        assert!(done);
    });
}

#[test]
#[cfg_attr(miri, ignore = "forks")]
fn a_child_has_the_heap_though_other_threads_hold_its_locks() {
    let heap = Heap::new(Options::default());
    let old = of_every_kind(&heap, 1);
    let turn = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            let _held = (REGISTRY.lock.lock(), heap.core().unwrap().central());
            turn.wait();
            turn.wait();
        });
        turn.wait();
        let in_child = || {
            use_all(&heap, old);
            assert!(child(|| drop(of_every_kind(&heap, 50))), "and so has its child");
        };
        let done = child(in_child);
        turn.wait();
        assert!(done);
    });
}
