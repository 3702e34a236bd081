//! Pipeline: the simulators execute a batch of runs while the next one is made.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};

use hugepilot_sim::Batch;

use super::Simulator;

/// Batches: one is made, one waits, one is executed.
const BATCHES: usize = 3;
/// Runs or regions, of all simulators together, for which threads are started.
const MIN_STEPS: usize = 1 << 14;

/// All simulators of a pass.
pub(super) struct Simulators<'b> {
    all: Vec<Mutex<&'b mut dyn Simulator>>,
    /// Threads, at most. The standard library reads files to find the CPUs, 30 µs each time.
    workers: usize,
}

impl<'b> Simulators<'b> {
    pub(super) fn new(all: &'b mut [&mut dyn Simulator]) -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let workers = cpus.min(all.len());
        Self { all: all.iter_mut().map(|one| Mutex::new(&mut **one as _)).collect(), workers }
    }

    /// Calls `each` with every simulator, in threads if the `steps` of each are worth their start.
    pub(super) fn call(&self, steps: usize, each: &(dyn Fn(&mut dyn Simulator) + Sync)) {
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(one) = self.all.get(next.fetch_add(1, Ordering::Relaxed)) {
                each(&mut **one.lock().unwrap_or_else(PoisonError::into_inner));
            }
        };
        if self.workers <= 1 || self.all.len().saturating_mul(steps) < MIN_STEPS {
            return work();
        }
        std::thread::scope(|scope| {
            for _ in 1..self.workers {
                scope.spawn(work);
            }
            work();
        });
    }
}

/// Thread that executes batches in order, and returns them empty, so that their memory is allocated
/// once.
pub(super) struct Pipeline<'a, 'b> {
    simulators: &'a Simulators<'b>,
    made: SyncSender<Batch>,
    executed: Receiver<Batch>,
    /// Batches that are here, all of them empty.
    empty: Vec<Batch>,
    thread: ScopedJoinHandle<'a, ()>,
}

impl<'a, 'b> Pipeline<'a, 'b> {
    pub(super) fn start(scope: &'a Scope<'a, '_>, simulators: &'a Simulators<'b>) -> Self {
        let (made, receiver) = sync_channel(BATCHES);
        let (sender, executed) = sync_channel(BATCHES);
        let thread = scope.spawn(move || execute_all(simulators, &receiver, &sender));
        Self { simulators, made, executed, empty: vec![Batch::default(); BATCHES - 1], thread }
    }

    /// Whether the thread takes batches. It ends early only by a panic.
    pub(super) fn is_running(&self) -> bool {
        !self.thread.is_finished()
    }

    /// Hands over a batch, and leaves an empty one in its place.
    pub(super) fn execute(&mut self, batch: &mut Batch) {
        let _ = self.made.send(std::mem::take(batch));
        *batch = self.empty.pop().unwrap_or_else(|| self.next_executed());
    }

    /// Waits until all batches are executed, and returns the simulators.
    pub(super) fn drain(&mut self) -> &'a Simulators<'b> {
        while self.empty.len() < BATCHES - 1 {
            let executed = self.next_executed();
            self.empty.push(executed);
        }
        self.simulators
    }

    /// Waits for a batch to be executed. After a panic of the thread there is none.
    fn next_executed(&self) -> Batch {
        self.executed.recv().unwrap_or_default()
    }

    /// Waits until all batches are executed, and resumes a panic of the thread.
    pub(super) fn finish(self) {
        drop(self.made);
        self.thread.join().unwrap_or_else(|panic| resume_unwind(panic));
    }
}

fn execute_all(simulators: &Simulators<'_>, made: &Receiver<Batch>, executed: &SyncSender<Batch>) {
    for mut batch in made {
        simulators.call(batch.runs().len(), &|one| one.run(&batch));
        batch.clear();
        // After an error, the receiver is gone.
        let _ = executed.send(batch);
    }
}
