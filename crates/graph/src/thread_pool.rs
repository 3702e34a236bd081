//! Threads that go through the rounds of a kernel together.
//!
//! They are started once per kernel (30 µs each), and meet at barriers between its rounds: breadth-first search on a road
//! network has thousands of rounds, each shorter than the start of a thread.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize, fence};
use std::thread;

/// How many threads work together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadPool(NonZeroUsize);

/// One of them, while they work.
#[derive(Clone, Copy, Debug)]
pub struct Worker<'a> {
    /// Which one, from 0 on.
    pub id: usize,
    /// Of how many.
    pub count: usize,
    barrier: &'a Barrier,
}

#[derive(Debug, Default)]
struct Barrier {
    arrived: AtomicUsize,
    round: AtomicUsize,
    /// One that panicked will never come.
    broken: AtomicBool,
}

/// Tells the others when its worker panics.
struct PoisonGuard<'a>(&'a Barrier);

impl Drop for PoisonGuard<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.broken.store(true, Relaxed);
        }
    }
}

/// Work given out piece by piece: to each worker from a part of its own, so that from round to round it finds what it touched in its
/// own caches, and when that is done from those of others.
#[derive(Debug)]
pub struct WorkQueue([Cursor; PARTS]);

/// Which of some pieces is the next to be taken.
#[derive(Debug, Default)]
#[repr(align(128))] // written by threads, so alone on its line and the one that is fetched with it
pub struct Cursor(AtomicUsize);

/// Parts at most; more workers than these share them.
const PARTS: usize = 64;
/// Vertices of a frontier in a piece of work.
const FEW: usize = 64;
/// WorkQueue of a frontier that are left to whose part they are, but half of them at most: whoever takes a few at the end scatters what
/// they lead to.
const LEFT: usize = 8;

impl Default for WorkQueue {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Cursor::default()))
    }
}

impl ThreadPool {
    /// `threads` of them, at least one.
    pub fn new(threads: usize) -> Self {
        Self(NonZeroUsize::new(threads).unwrap_or(NonZeroUsize::MIN))
    }

    /// One for each processor that this process may use.
    pub fn all() -> Self {
        Self(thread::available_parallelism().unwrap_or(NonZeroUsize::MIN))
    }

    /// How many.
    pub fn threads(self) -> usize {
        self.0.get()
    }

    /// Has each do `work`, and gives what they return, in the order of their numbers. The caller is number 0.
    ///
    /// # Panics
    /// If one does, or cannot be started; then the others do so where they wait for it.
    pub fn run<T: Send>(self, work: impl Fn(Worker) -> T + Sync) -> Vec<T> {
        let (count, barrier) = (self.threads(), &Barrier::default());
        let work = &|id| {
            let _guard = PoisonGuard(barrier);
            work(Worker { id, count, barrier })
        };
        thread::scope(|scope| {
            // One that cannot be started will never come either.
            let _guard = PoisonGuard(barrier);
            let others: Vec<_> = (1..count).map(|id| scope.spawn(move || work(id))).collect();
            let mut all = vec![work(0)];
            all.extend(others.into_iter().map(|other| other.join().expect("a worker panicked")));
            all
        })
    }

    /// Has each item taken by one thread, which does `work` with what it takes, one after the other. What they return, in the
    /// order of the threads; no more threads than items are started.
    pub fn share<I: Send, T: Send>(
        self,
        items: Vec<I>,
        work: impl Fn(&mut dyn Iterator<Item = I>) -> T + Sync,
    ) -> Vec<T> {
        let (count, items) = (items.len(), Mutex::new(items.into_iter()));
        let take = || items.lock().ok().and_then(|mut items| items.next());
        Self::new(self.threads().min(count)).run(|_| work(&mut std::iter::from_fn(take)))
    }

    /// Does `work` for all pieces of `0..len` that are `size` long, in any order.
    pub fn each(self, len: usize, size: usize, work: impl Fn(Range<usize>) + Sync) {
        let pieces = WorkQueue::default();
        let threads = self.threads().min(len.div_ceil(size));
        Self::new(threads).run(|worker| worker.each(&pieces, len, size, &work));
    }
}

impl Worker<'_> {
    /// Waits for all others; what any of them wrote before, each sees afterwards.
    pub fn barrier(&self) {
        let round = self.barrier.round.load(Relaxed);
        if self.barrier.arrived.fetch_add(1, AcqRel) + 1 == self.count {
            self.barrier.arrived.store(0, Relaxed);
            self.barrier.round.store(round.wrapping_add(1), Release);
            return;
        }
        /// About 20 µs, longer than a round with little in it.
        const SPINS: u32 = 400;
        let mut spins = 0;
        while self.barrier.round.load(Relaxed) == round {
            if spins < SPINS {
                spins += 1;
                std::hint::spin_loop();
            } else {
                assert!(!self.barrier.broken.load(Relaxed), "another worker panicked");
                thread::yield_now();
            }
        }
        fence(Acquire);
    }

    /// Does `work` for those pieces of `0..len` that no other worker does. They begin at multiples of `size`.
    pub fn each(
        &self,
        pieces: &WorkQueue,
        len: usize,
        size: usize,
        work: impl FnMut(Range<usize>),
    ) {
        self.take(pieces, len, size, 0, work);
    }

    /// The same for a frontier of `len` vertices in the order in which they were found: of its own part, each worker keeps the last
    /// few pieces to itself, so that neighbours stay together (on a grid, a fifth of the time of a search).
    pub fn frontier(&self, pieces: &WorkQueue, len: usize, work: impl FnMut(Range<usize>)) {
        self.take(pieces, len, FEW, LEFT, work);
    }

    fn take(
        &self,
        pieces: &WorkQueue,
        len: usize,
        size: usize,
        left: usize,
        mut work: impl FnMut(Range<usize>),
    ) {
        let (all, parts) = (len.div_ceil(size), self.count.min(PARTS));
        for turn in 0..parts {
            let part = (self.id + turn) % parts;
            let (first, end) = (all * part / parts, all * (part + 1) / parts);
            let left = if turn == 0 { 0 } else { left };
            while let Some(piece) = pieces.0[part].next_before(left, end - first) {
                let start = (first + piece) * size;
                work(start..(start + size).min(len));
            }
        }
    }

    /// The same for what thread `whose` found.
    pub fn frontier_of(
        &self,
        whose: usize,
        next: &Cursor,
        len: usize,
        mut work: impl FnMut(Range<usize>),
    ) {
        let left = if whose == self.id { 0 } else { LEFT };
        while let Some(piece) = next.next_before(left, len.div_ceil(FEW)) {
            work(piece * FEW..((piece + 1) * FEW).min(len));
        }
    }

    /// This worker's part of `0..len`: the parts follow each other in the order of the workers.
    pub fn part(&self, len: usize) -> Range<usize> {
        let at = |id: usize| len / self.count * id + len % self.count * id / self.count;
        at(self.id)..at(self.id + 1)
    }
}

impl WorkQueue {
    /// All pieces are to be done again. For one worker, between two barriers.
    pub fn reset(&self) {
        self.0.iter().for_each(Cursor::reset);
    }
}

impl Cursor {
    /// The next of `0..len` that nobody has taken.
    pub fn next(&self, len: usize) -> Option<usize> {
        self.next_before(0, len)
    }

    /// That, unless it is one of the last `left`, or of the last half.
    fn next_before(&self, left: usize, len: usize) -> Option<usize> {
        // Looked at before it is written: most of what others have is taken by then.
        (self.0.load(Relaxed) + left.min(len / 2) < len)
            .then(|| self.0.fetch_add(1, Relaxed))
            .filter(|&next| next < len)
    }

    /// All are to be taken again. For one worker, between two barriers.
    pub fn reset(&self) {
        self.0.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn after_a_barrier_each_sees_what_all_wrote() {
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
    fn who_waits_for_one_that_panicked_panics() {
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
            let pieces = WorkQueue::default();
            let found: Vec<Cursor> = (0..threads).map(|_| Cursor::default()).collect();
            ThreadPool::new(threads).run(|worker| {
                let count = |range: Range<usize>| {
                    range.for_each(|i| {
                        done[i].fetch_add(1, Relaxed);
                    });
                };
                worker.frontier(&pieces, len, count);
                // As if the last had found all.
                for whose in (0..threads).map(|other| (worker.id + other) % threads) {
                    let len = if whose + 1 == threads { len } else { 0 };
                    worker.frontier_of(whose, &found[whose], len, count);
                }
            });
            assert!(done.iter().all(|times| times.load(Relaxed) == 4));
        }
    }
}
