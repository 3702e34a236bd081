//! Threads that run the rounds of a kernel together.
//!
//! A kernel starts its threads once (30 µs each), and barriers separate its rounds: breadth-first
//! search on a road network has thousands of rounds, each shorter than the start of a thread.

use std::fmt;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize, fence};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

use crate::access_sink::AccessSink;

/// Number of threads of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadPool(NonZeroUsize);

/// Handle of one running thread.
#[derive(Debug)]
pub struct Worker<'a, S = ()> {
    /// Index of the thread, from 0.
    pub id: usize,
    /// Number of threads.
    pub count: usize,
    /// Receiver of the accesses of this thread.
    pub sink: &'a S,
    barrier: &'a Barrier,
}

#[derive(Debug, Default)]
struct Barrier {
    arrived: AtomicUsize,
    round: AtomicUsize,
    /// Whether a thread panicked, which then never arrives.
    broken: AtomicBool,
    /// Number of threads that sleep until the next round, or until another one panicked.
    sleepers: Mutex<usize>,
    awake: Condvar,
}

impl Barrier {
    /// Wakes all sleeping threads. The round, or the mark as broken, was stored before: a thread
    /// that holds the lock sees it, or already sleeps.
    fn wake(&self) {
        // A call without sleepers would still be a system call.
        if *self.sleepers.lock().unwrap_or_else(PoisonError::into_inner) > 0 {
            self.awake.notify_all();
        }
    }

    fn sleep_until(&self, has_changed: impl Fn() -> bool) {
        let mut sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        while !has_changed() {
            *sleepers += 1;
            sleepers = self.awake.wait(sleepers).unwrap_or_else(PoisonError::into_inner);
            *sleepers -= 1;
        }
    }
}

/// Guard that marks the barrier as broken if its thread panics.
struct PoisonGuard<'a>(&'a Barrier);

impl Drop for PoisonGuard<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.broken.store(true, Relaxed);
            self.0.wake();
        }
    }
}

/// Work that threads claim in chunks. Each thread starts in its own part, so that it finds the data
/// of earlier rounds in its caches, and then helps in the parts of others.
#[derive(Debug)]
pub struct WorkQueue([Cursor; PARTS]);

/// Index of the next unclaimed chunk.
#[derive(Debug, Default)]
#[repr(align(128))] // alone on its cache line and the adjacent one, as threads write it
pub struct Cursor(AtomicUsize);

/// Number of parts at most; further threads share them.
const PARTS: usize = 64;
/// Vertices of a frontier in a chunk.
const FRONTIER_CHUNK: usize = 64;
/// Chunks of a frontier that only the owner of the part claims, at most half of them. Another
/// thread that takes a few at the end would scatter the vertices that it finds.
const RESERVED: usize = 8;

impl Default for WorkQueue {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Cursor::default()))
    }
}

impl ThreadPool {
    /// Uses `threads` threads, at least one.
    pub fn new(threads: usize) -> Self {
        Self(NonZeroUsize::new(threads).unwrap_or(NonZeroUsize::MIN))
    }

    /// Uses one thread per processor that this process may use.
    pub fn all() -> Self {
        Self(thread::available_parallelism().unwrap_or(NonZeroUsize::MIN))
    }

    /// Returns the number of threads.
    pub fn threads(self) -> usize {
        self.0.get()
    }

    /// Runs `work` on each thread, and returns the results by thread. The caller is thread 0.
    ///
    /// # Panics
    /// If a thread panics or cannot be started. The others then panic at their next barrier.
    pub fn run<T: Send>(self, work: impl Fn(Worker) -> T + Sync) -> Vec<T> {
        let (count, barrier) = (self.threads(), &Barrier::default());
        let work = &|id| {
            let _guard = PoisonGuard(barrier);
            work(Worker { id, count, sink: &(), barrier })
        };
        thread::scope(|scope| {
            // A thread that cannot be started never arrives either.
            let _guard = PoisonGuard(barrier);
            let others: Vec<_> = (1..count).map(|id| scope.spawn(move || work(id))).collect();
            let mut all = vec![work(0)];
            all.extend(others.into_iter().map(|other| other.join().expect("a worker panicked")));
            all
        })
    }

    /// Distributes items among threads. `work` gets an iterator over the items that its thread
    /// claims. Returns the results by thread. Starts at most one thread per item.
    pub fn share<I: Send, T: Send>(
        self,
        items: Vec<I>,
        work: impl Fn(&mut dyn Iterator<Item = I>) -> T + Sync,
    ) -> Vec<T> {
        let (count, items) = (items.len(), Mutex::new(items.into_iter()));
        let take = || items.lock().ok().and_then(|mut items| items.next());
        Self::new(self.threads().min(count)).run(|_| work(&mut std::iter::from_fn(take)))
    }

    /// Runs `work` for all chunks of `0..len` of `size`, in any order.
    pub fn each(self, len: usize, size: usize, work: impl Fn(Range<usize>) + Sync) {
        let work_queue = WorkQueue::default();
        let threads = self.threads().min(len.div_ceil(size));
        Self::new(threads).run(|worker| worker.each(&work_queue, len, size, &work));
    }
}

impl<'a> Worker<'a> {
    /// Adds a receiver of accesses.
    pub(crate) fn with<S>(self, sink: &'a S) -> Worker<'a, S> {
        Worker { id: self.id, count: self.count, sink, barrier: self.barrier }
    }
}

impl<S: AccessSink> Worker<'_, S> {
    /// Marks the begin of a phase of all threads, which all call this, if accesses are recorded.
    /// Accesses of a phase are then between its mark and the next.
    #[inline]
    pub fn phase(&self, name: fmt::Arguments<'_>) {
        if S::RECORDS {
            self.sink.end_phase();
            self.barrier();
            if self.id == 0 {
                self.sink.begin_phase(name);
            }
            self.barrier();
        }
    }
}

impl<S> Worker<'_, S> {
    /// Synchronises all threads. Each then sees the writes of all others before the barrier.
    pub fn barrier(&self) {
        let round = self.barrier.round.load(Relaxed);
        if self.barrier.arrived.fetch_add(1, AcqRel) + 1 == self.count {
            self.barrier.arrived.store(0, Relaxed);
            self.barrier.round.store(round.wrapping_add(1), Release);
            self.barrier.wake();
            return;
        }
        /// About 20 µs, longer than a round with little work.
        const SPINS: u32 = 400;
        /// Then the CPU goes to others, such as a thread of this pool that shares it. With more
        /// threads than CPUs, further yields take the time of those that work.
        const SLEEP: u32 = SPINS + 50;
        let barrier = self.barrier;
        let is_next = || barrier.round.load(Relaxed) != round;
        let is_broken = || barrier.broken.load(Relaxed);
        let mut waits = 0;
        while !is_next() {
            assert!(waits < SPINS || !is_broken(), "another worker panicked");
            match waits {
                0..SPINS => std::hint::spin_loop(),
                SPINS..SLEEP => thread::yield_now(),
                SLEEP.. => barrier.sleep_until(|| is_next() || is_broken()),
            }
            waits += 1;
        }
        fence(Acquire);
    }

    /// Runs `work` for the chunks of `0..len` that this thread claims. Chunks start at multiples of
    /// `size`.
    pub fn each(
        &self,
        work_queue: &WorkQueue,
        len: usize,
        size: usize,
        work: impl FnMut(Range<usize>),
    ) {
        self.take(work_queue, len, size, 0, work);
    }

    /// Runs `work` for the chunks of a frontier of `len` vertices, in the order in which they were
    /// found. Each thread keeps the last few chunks of its own part to itself, so that neighbours
    /// stay together. On a grid, this saves a fifth of the time of a search.
    pub fn frontier(&self, work_queue: &WorkQueue, len: usize, work: impl FnMut(Range<usize>)) {
        self.take(work_queue, len, FRONTIER_CHUNK, RESERVED, work);
    }

    fn take(
        &self,
        work_queue: &WorkQueue,
        len: usize,
        size: usize,
        reserved: usize,
        mut work: impl FnMut(Range<usize>),
    ) {
        let (all, parts) = (len.div_ceil(size), self.count.min(PARTS));
        for step in 0..parts {
            let part = (self.id + step) % parts;
            let (first, end) = (all * part / parts, all * (part + 1) / parts);
            let reserved = if step == 0 { 0 } else { reserved };
            while let Some(chunk) = work_queue.0[part].claim(reserved, end - first) {
                let start = (first + chunk) * size;
                work(start..(start + size).min(len));
            }
        }
    }

    /// Runs `work` for the chunks of a frontier that thread `owner` found.
    pub fn frontier_of(
        &self,
        owner: usize,
        next: &Cursor,
        len: usize,
        mut work: impl FnMut(Range<usize>),
    ) {
        let reserved = if owner == self.id { 0 } else { RESERVED };
        while let Some(chunk) = next.claim(reserved, len.div_ceil(FRONTIER_CHUNK)) {
            work(chunk * FRONTIER_CHUNK..((chunk + 1) * FRONTIER_CHUNK).min(len));
        }
    }

    /// Returns the part of `0..len` of this thread. Parts are in the order of the threads.
    pub fn part(&self, len: usize) -> Range<usize> {
        let at = |id: usize| len / self.count * id + len % self.count * id / self.count;
        at(self.id)..at(self.id + 1)
    }
}

impl WorkQueue {
    /// Makes all work unclaimed. For one thread, between two barriers.
    pub fn reset(&self) {
        self.0.iter().for_each(Cursor::reset);
    }
}

impl Cursor {
    /// Claims the next index of `0..len`.
    pub fn next(&self, len: usize) -> Option<usize> {
        self.claim(0, len)
    }

    /// Claims the next index, except for the last `reserved` or, if fewer, the last half.
    fn claim(&self, reserved: usize, len: usize) -> Option<usize> {
        // Reads before it writes: most parts of other threads are claimed by then.
        (self.0.load(Relaxed) + reserved.min(len / 2) < len)
            .then(|| self.0.fetch_add(1, Relaxed))
            .filter(|&next| next < len)
    }

    /// Makes all indices unclaimed. For one thread, between two barriers.
    pub fn reset(&self) {
        self.0.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn a_barrier_publishes_the_writes_of_all_threads() {
        let pool = ThreadPool::new(4);
        let seen: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(0)).collect();
        pool.run(|worker| {
            for round in 1..200 {
                seen[worker.id].store(round, Relaxed);
                worker.barrier();
                assert!(seen.iter().all(|other| other.load(Relaxed) == round));
                worker.barrier();
            }
        });
    }

    #[test]
    #[should_panic(expected = "panicked")]
    fn a_panic_breaks_the_barrier_of_the_others() {
        ThreadPool::new(3).run(|worker| {
            assert!(worker.id != 1);
            worker.barrier();
        });
    }

    #[test]
    fn pieces_and_parts_cover_all_once() {
        for (len, size, threads) in [(0, 1, 3), (1, 7, 2), (1000, 7, 3), (64, 64, 4), (500, 2, 70)]
        {
            let done: Vec<AtomicU64> = (0..len).map(|_| AtomicU64::new(0)).collect();
            ThreadPool::new(threads).each(len, size, |range| {
                range.for_each(|i| {
                    done[i].fetch_add(1, Relaxed);
                });
            });
            ThreadPool::new(threads).run(|worker| {
                worker.part(len).for_each(|i| {
                    done[i].fetch_add(1, Relaxed);
                });
            });
            assert!(done.iter().all(|times| times.load(Relaxed) == 2));
            let work_queue = WorkQueue::default();
            let found: Vec<Cursor> = (0..threads).map(|_| Cursor::default()).collect();
            ThreadPool::new(threads).run(|worker| {
                let count = |range: Range<usize>| {
                    range.for_each(|i| {
                        done[i].fetch_add(1, Relaxed);
                    });
                };
                worker.frontier(&work_queue, len, count);
                // As if the last thread had found all vertices.
                for owner in (0..threads).map(|other| (worker.id + other) % threads) {
                    let len = if owner + 1 == threads { len } else { 0 };
                    worker.frontier_of(owner, &found[owner], len, count);
                }
            });
            assert!(done.iter().all(|times| times.load(Relaxed) == 4));
        }
    }
}
