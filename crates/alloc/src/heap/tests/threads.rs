//! Tests with several threads: one frees the objects of another; threads start and end.
//!
//! # Safety
//! As in the module above; the tests that simulate several threads run them one after the other.
#![allow(unsafe_code)]

use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::thread;

use hugepilot_units::Bytes;

use super::super::class::class_of;
use super::super::thread_cache::{EmptySpans, ThreadCache};
use super::{Object, layout, limit_owners, scripted};
use crate::{Heap, Options};

/// Pseudo-random numbers (xorshift).
struct Random(u64);
impl Random {
    fn next(&mut self) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap()
    }
}

const ROUNDS: usize = if cfg!(miri) { 40 } else { 20_000 };

#[test]
fn threads_free_what_others_allocated() {
    [16, 2, 0].into_iter().for_each(free_what_others_allocated);
}

fn free_what_others_allocated(owners: usize) {
    const THREADS: usize = 4;
    let heap = Heap::new(Options::default());
    limit_owners(&heap, owners);
    let (ends, mut starts): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| channel::<Object>()).unzip();
    thread::scope(|scope| {
        for own in 0..THREADS {
            let (heap, ends, inbox) = (&heap, ends.clone(), starts.remove(0));
            scope.spawn(move || {
                let (mut random, mut live) = (Random(own as u64 + 1), Vec::new());
                for i in 0..ROUNDS {
                    let size = 1 << (random.next() % if i % 100 == 0 { 18 } else { 10 });
                    let size = size + random.next() % size;
                    live.push(
                        Object::new(heap, layout(size, 8), random.next() as u8, i % 7 == 0)
                            .unwrap(),
                    );
                    if random.next() % 4 == 0 {
                        let which = random.next() % live.len();
                        // A thread that has ended receives no more.
                        if let Err(back) =
                            ends[random.next() % THREADS].send(live.swap_remove(which))
                        {
                            back.0.free(heap);
                        }
                    }
                    if random.next() % 2 == 0 && !live.is_empty() {
                        live.swap_remove(random.next() % live.len()).free(heap);
                    }
                    inbox.try_iter().for_each(|object| object.free(heap));
                }
                live.into_iter().for_each(|object| object.free(heap));
                drop(ends);
                inbox.try_iter().for_each(|object| object.free(heap));
                inbox
            });
        }
        drop(ends);
    });
    // Objects in a channel whose receiver ended are lost with it: no thread frees them.
    let left = heap.stats().allocated;
    assert!(left < Bytes::mib(1), "{left}");
}

/// Passes objects from one thread to another that frees them, and checks that memory is reused.
#[test]
fn memory_freed_by_others_is_used_again() {
    [16, 1, 0].into_iter().for_each(is_used_again);
}

fn is_used_again(owners: usize) {
    let heap = Heap::new(Options::default());
    limit_owners(&heap, owners);
    let (sender, receiver) = std::sync::mpsc::sync_channel::<Object>(64);
    thread::scope(|scope| {
        let heap = &heap;
        scope.spawn(move || receiver.into_iter().for_each(|object| object.free(heap)));
        for i in 0..ROUNDS * 10 {
            sender.send(Object::new(heap, layout(200, 8), i as u8, false).unwrap()).unwrap();
        }
        drop(sender);
    });
    let stats = heap.stats();
    assert_eq!(stats.allocated, Bytes::ZERO);
    assert!(stats.held <= Bytes::mib(1), "{stats:?}");
}

#[test]
fn threads_that_come_and_go_leave_nothing() {
    [16, 0].into_iter().for_each(leave_nothing);
}

fn leave_nothing(owners: usize) {
    let (heap, sys) = scripted("base");
    limit_owners(&heap, owners);
    let heap = Arc::new(heap);
    let mut kept = Vec::new();
    let (turns, count, step) = if cfg!(miri) { (3, 40, 60) } else { (200_u32, 500, 5) };
    for turn in 0..turns {
        let heap = Arc::clone(&heap);
        let work = move || {
            let live: Vec<_> = (0..count)
                .map(|i| Object::new(&heap, layout(1 + i * step, 8), turn as u8, false).unwrap())
                .collect();
            let mut live = live.into_iter();
            let kept = live.next();
            live.for_each(|object| object.free(&heap));
            kept
        };
        kept.extend(thread::spawn(work).join().unwrap());
    }
    let stats = heap.stats();
    assert_eq!(stats.threads, 1, "each took over what the one before had");
    assert!(stats.held < Bytes::mib(8), "{stats:?}");
    kept.into_iter().for_each(|object| object.free(&heap));
    assert_eq!(heap.stats().allocated, Bytes::ZERO);
    heap.trim();
    assert_eq!((heap.stats().held, sys.mappings()), (Bytes::ZERO, 1));
}

#[test]
fn abandoned_memory_is_used_by_living_threads() {
    [16, 1].into_iter().for_each(is_used_by_living_threads);
}

fn is_used_by_living_threads(owners: usize) {
    let heap = Heap::new(Options::default());
    limit_owners(&heap, owners);
    let count = if cfg!(miri) { 100 } else { 10_000 };
    let fill = || {
        (0..count)
            .map(|i| Object::new(&heap, layout(1000, 8), i as u8, false).unwrap())
            .collect::<Vec<_>>()
    };
    let first = fill();
    let all = Barrier::new(4);
    let left: Vec<Vec<Object>> = thread::scope(|scope| {
        let work = || {
            let live = fill();
            all.wait();
            live
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let held = heap.stats().held;
    // A thread that owns none of them frees every second one, so no span becomes empty.
    let (freed, kept): (Vec<_>, Vec<_>) =
        left.into_iter().flatten().enumerate().partition(|(i, _)| i % 2 == 0);
    freed.into_iter().for_each(|(_, object)| object.free(&heap));
    let again: Vec<_> = (0..2).flat_map(|_| fill()).collect();
    assert!(heap.stats().held <= held, "{} of {held}", heap.stats().held);
    kept.into_iter().for_each(|(_, object)| object.free(&heap));
    first.into_iter().chain(again).for_each(|object| object.free(&heap));
    assert_eq!(heap.stats().allocated, Bytes::ZERO);
}

/// Each thread uses all size classes up to 8 KiB, and then waits with one object.
#[test]
fn threads_beyond_the_owners_hold_little() {
    const THREADS: usize = if cfg!(miri) { 3 } else { 100 };
    let sizes: Vec<usize> = (1..=13).map(|shift| 1 << shift).flat_map(|s| [s, s * 3 / 2]).collect();
    let held = |owners| {
        let heap = Heap::new(Options::default());
        limit_owners(&heap, owners);
        let (all, done) = (Barrier::new(THREADS + 1), Barrier::new(THREADS + 1));
        thread::scope(|scope| {
            for own in 0..THREADS {
                let (heap, sizes, all, done) = (&heap, &sizes, &all, &done);
                scope.spawn(move || {
                    let live: Vec<_> = (sizes.iter().chain(sizes))
                        .map(|&size| Object::new(heap, layout(size, 8), own as u8, false).unwrap())
                        .collect();
                    live.into_iter().for_each(|object| object.free(heap));
                    let kept = Object::new(heap, layout(40, 8), own as u8, false).unwrap();
                    all.wait();
                    done.wait();
                    kept.free(heap);
                });
            }
            all.wait();
            let stats = heap.stats();
            assert_eq!(stats.allocated.get(), 48 * THREADS as u64, "{owners} owners");
            assert_eq!(stats.threads, THREADS);
            done.wait();
            stats.held.get()
        })
    };
    let [own, borrow] = [held(THREADS), held(2)];
    // A span of each class for three owners, and what the others hold or held at once.
    assert!(cfg!(miri) || borrow * 8 < own, "{borrow} of {own}");
    // At most two objects of each class are in use at once by one thread.
    let most = sizes.iter().map(|&size| (size + 1024).max(2 * size) as u64).sum::<u64>();
    let spans = sizes.len() as u64 * (64 << 10);
    assert!(borrow <= 4 * spans + THREADS as u64 * most, "{borrow} with {most} for a thread");
}

/// Frees an object remotely and lets another thread adopt its span before the notification: the
/// former owner passes it on.
#[test]
fn a_notification_of_a_former_owner_reaches_the_new_one() {
    let (heap, _sys) = scripted("base");
    let (former, new, class) =
        (Box::new(ThreadCache::new()), Box::new(ThreadCache::new()), class_of(500));
    let core = heap.core().unwrap();
    let this = core.central().take(1, 1).unwrap();
    let empty = EmptySpans::new();
    // SAFETY: both caches and the span belong to this test, which simulates all three threads.
    unsafe {
        let span = &*this;
        former.begin(class, span);
        assert!(former.refill(class, &empty));
        let objects: Vec<_> =
            (0..span.capacity.get().min(4)).map(|_| former.take::<false>(class)).collect();
        former.flush(&empty);
        let is_first = span.free_remotely::<false>(objects[0].cast());
        assert!(new.adopt(&former, class) && is_first);
        former.notify(this);
        former.collect_remote(&empty);
        assert_eq!(span.used.load(Relaxed), 4, "the former owner leaves it alone");
        new.collect_remote(&empty);
        assert_eq!(span.used.load(Relaxed), 3);
        assert!(empty.is_empty());
    }
}

/// Adopts an empty span of an ended thread: the thread that takes over that cache must not free it.
#[test]
fn an_empty_span_that_is_adopted_is_kept_by_its_new_owner_only() {
    let (heap, _sys) = scripted("base");
    let (former, new, empty) =
        (Box::new(ThreadCache::new()), Box::new(ThreadCache::new()), EmptySpans::new());
    let classes = [16, 32, 48, 64, 80].map(class_of);
    let spans = classes.map(|_| heap.core().unwrap().central().take(1, 1).unwrap());
    // SAFETY: both caches and the spans belong to this test, which simulates all threads.
    unsafe {
        let objects = std::array::from_fn::<_, 5, _>(|i| {
            former.begin(classes[i], &*spans[i]);
            assert!(former.refill(classes[i], &empty));
            former.take::<false>(classes[i])
        });
        former.flush(&empty);
        for i in 0..5 {
            assert!((*spans[i]).free_remotely::<false>(objects[i].cast()));
            former.notify(spans[i]);
            former.collect_remote(&empty);
            assert_eq!((*spans[i]).used.load(Relaxed), 0);
            assert!(i > 0 || new.adopt(&former, classes[0]));
        }
    }
    assert!(empty.is_empty(), "four are kept, and the first is another's");
}

#[test]
fn a_heap_may_be_dropped_while_threads_have_caches_of_it() {
    [16, 0].into_iter().for_each(drop_while_threads_have_caches);
}

fn drop_while_threads_have_caches(owners: usize) {
    let (first, second) = (Heap::new(Options::default()), Heap::new(Options::default()));
    [&first, &second].into_iter().for_each(|heap| limit_owners(heap, owners));
    let turn = Barrier::new(3);
    thread::scope(|scope| {
        let (second, turn, first) = (&second, &turn, Arc::new(std::sync::RwLock::new(Some(first))));
        for _ in 0..2 {
            let first = Arc::clone(&first);
            scope.spawn(move || {
                let kept = Object::new(second, layout(100, 8), 2, true).unwrap();
                let of_first = first.read().unwrap();
                let heap = of_first.as_ref().unwrap();
                Object::new(heap, layout(100, 8), 1, true).unwrap().free(heap);
                drop(of_first);
                turn.wait();
                turn.wait();
                // The slot has the ID of a dropped heap.
                let another = Heap::new(Options::default());
                Object::new(&another, layout(100, 8), 4, true).unwrap().free(&another);
                Object::new(second, layout(100, 8), 3, true).unwrap().free(second);
                kept.free(second);
            });
        }
        turn.wait();
        first.write().unwrap().take();
        turn.wait();
    });
    assert_eq!(second.stats().allocated, Bytes::ZERO);
}

/// The lender of a dropped heap becomes the cache of a thread: a former borrower that frees objects
/// of that thread must not keep them.
#[test]
fn a_former_borrower_keeps_nothing_of_another_heap() {
    let (first, second) = (Heap::new(Options::default()), Heap::new(Options::default()));
    limit_owners(&first, 0);
    let (turn, (sender, receiver)) = (Barrier::new(2), channel::<Object>());
    thread::scope(|scope| {
        let (second, turn, first) = (&second, &turn, Arc::new(std::sync::RwLock::new(Some(first))));
        let of_borrower = Arc::clone(&first);
        let borrower = scope.spawn(move || {
            let held = of_borrower.read().unwrap();
            let heap = held.as_ref().unwrap();
            // Another size, so that its bin has room for objects of 100 bytes.
            Object::new(heap, layout(500, 8), 1, false).unwrap().free(heap);
            drop(held);
            turn.wait();
            turn.wait();
            receiver.into_iter().for_each(|object| object.free(second));
        });
        turn.wait();
        first.write().unwrap().take();
        let send = |i| sender.send(Object::new(second, layout(100, 8), i, false).unwrap()).unwrap();
        (0..20).for_each(send);
        turn.wait();
        drop(sender);
        borrower.join().unwrap();
    });
    assert_eq!(second.stats().allocated, Bytes::ZERO);
}

fn borrows(heap: &Heap) -> bool {
    heap.core().unwrap().header.cache().unwrap().borrows()
}

#[test]
fn a_thread_that_borrows_owns_spans_once_there_is_a_place() {
    let heap = Heap::new(Options::default());
    limit_owners(&heap, 1);
    let (first, second) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        let owner = scope.spawn(|| {
            Object::new(&heap, layout(100, 8), 1, false).unwrap().free(&heap);
            first.wait();
            second.wait();
        });
        first.wait();
        let kept = Object::new(&heap, layout(100, 8), 2, false).unwrap();
        assert!(borrows(&heap), "the other thread has the place");
        second.wait();
        owner.join().unwrap();
        // The end of the thread runs after the join in rare cases.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        let mut live = Vec::new();
        while borrows(&heap) && std::time::Instant::now() < until {
            live.push(Object::new(&heap, layout(100, 8), 3, false).unwrap());
        }
        assert!(!borrows(&heap));
        live.into_iter().chain([kept]).for_each(|object| object.free(&heap));
    });
    assert_eq!(heap.stats().allocated, Bytes::ZERO);
}
