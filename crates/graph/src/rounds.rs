//! State that threads share within a round, with one barrier between rounds.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use crate::{WorkQueue, Worker};

/// State of three consecutive rounds. Slow threads may still read the previous round, and thread 0
/// resets the next one.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    states: [RoundState; 3],
}

/// State of one round.
#[derive(Debug, Default)]
pub(crate) struct RoundState {
    /// Unclaimed work.
    pub(crate) work: WorkQueue,
    /// Sums over all threads.
    count: AtomicUsize,
    edges: AtomicUsize,
}

impl Rounds {
    /// Returns the state of a round, after the barrier that starts it.
    pub(crate) fn state<S>(&self, worker: &Worker<S>, round: usize) -> &RoundState {
        if worker.id == 0 {
            let next = &self.states[(round + 1) % 3];
            next.work.reset();
            next.count.store(0, Relaxed);
            next.edges.store(0, Relaxed);
        }
        &self.states[round % 3]
    }

    /// Returns the sums of a round, vertices and edges, after the barrier that ends it and before
    /// the next barrier.
    pub(crate) fn sums(&self, round: usize) -> (usize, usize) {
        let state = &self.states[round % 3];
        (state.count.load(Relaxed), state.edges.load(Relaxed))
    }
}

impl RoundState {
    /// Adds the counts of one thread.
    pub(crate) fn add(&self, count: usize, edges: usize) {
        if count + edges > 0 {
            self.count.fetch_add(count, Relaxed);
            self.edges.fetch_add(edges, Relaxed);
        }
    }
}
