//! What threads share from round to round with one barrier between rounds.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use crate::{WorkQueue, Worker};

/// Three of each, taken in turn: while one is used, the one before may still be read by who is late, and the next is made
/// ready.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    states: [RoundState; 3],
}

/// What is shared in one round.
#[derive(Debug, Default)]
pub(crate) struct RoundState {
    /// The work that is given out.
    pub(crate) work: WorkQueue,
    /// Sums over all threads.
    count: AtomicUsize,
    edges: AtomicUsize,
}

impl Rounds {
    /// That of a round, which begins after a barrier.
    pub(crate) fn state(&self, worker: &Worker, round: usize) -> &RoundState {
        if worker.id == 0 {
            let next = &self.states[(round + 1) % 3];
            next.work.reset();
            next.count.store(0, Relaxed);
            next.edges.store(0, Relaxed);
        }
        &self.states[round % 3]
    }

    /// The sums of a round, vertices and edges, after the barrier that ends it and before the next one.
    pub(crate) fn sums(&self, round: usize) -> (usize, usize) {
        let state = &self.states[round % 3];
        (state.count.load(Relaxed), state.edges.load(Relaxed))
    }
}

impl RoundState {
    /// Adds what one thread found.
    pub(crate) fn add(&self, count: usize, edges: usize) {
        if count > 0 {
            self.count.fetch_add(count, Relaxed);
            self.edges.fetch_add(edges, Relaxed);
        }
    }
}
