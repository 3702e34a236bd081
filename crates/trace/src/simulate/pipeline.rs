//! Pipeline: the simulators execute batches of runs while the next ones are made.
//!
//! Ticks travel with the batches, so that the source never waits for a decision. The executing
//! thread has its own footprint and mappings, which follow the batches.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};

use hugepilot_record::trace::TraceMapping;
use hugepilot_sim::{Batch, Footprint, Layout};

use super::{COVERED_TICKS, Simulator, TICKS, View};

/// Runs or regions, of all simulators together, for which threads are started.
const MIN_STEPS: usize = 1 << 14;
/// Runs that wait for a decision, at most: so many that the start of threads costs little.
const MAX_WAITING: usize = 1 << 16;
/// Batches made in advance, without ticks and with them: as many runs as wait.
const ADVANCE: usize = 1;
const TICKED_ADVANCE: usize = 8;

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
    fn call(&self, steps: usize, each: &(dyn Fn(&mut dyn Simulator) + Sync)) {
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(one) = self.all.get(next.fetch_add(1, Ordering::Relaxed)) {
                each(&mut **lock(one));
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

    /// Whether a tick after `accesses` is of use to any.
    fn is_due(&self, accesses: u64, regions: usize) -> bool {
        self.all.iter().any(|one| lock(one).is_due(accesses, regions))
    }
}

fn lock<'a, 'b>(
    simulator: &'a Mutex<&'b mut dyn Simulator>,
) -> MutexGuard<'a, &'b mut dyn Simulator> {
    simulator.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Batch, the mappings that precede it, and the accesses before the tick that follows it.
#[derive(Default)]
pub(super) struct Work {
    pub(super) mappings: Vec<(u16, Vec<TraceMapping>)>,
    pub(super) batch: Batch,
    pub(super) tick: Option<u64>,
}

/// Thread that executes works in order, and returns them empty, so that their memory is allocated
/// once.
pub(super) struct Pipeline<'a> {
    made: SyncSender<Work>,
    executed: Receiver<Work>,
    thread: ScopedJoinHandle<'a, Layout>,
}

impl<'a> Pipeline<'a> {
    /// Starts the thread. `failed` is set if it panics.
    pub(super) fn start(
        scope: &'a Scope<'a, '_>,
        simulators: &'a Simulators<'_>,
        names: &'a [String],
        has_ticks: bool,
        failed: &'a AtomicBool,
    ) -> Self {
        let (made, receiver) = sync_channel(if has_ticks { TICKED_ADVANCE } else { ADVANCE });
        let (sender, executed) = channel();
        let executor = Executor {
            simulators,
            names,
            has_ticks,
            layout: Layout::default(),
            footprint: Footprint::new(),
            waiting: Vec::new(),
            ticks: 0,
            sender,
        };
        let thread = scope.spawn(move || {
            let _notice = PanicNotice(failed);
            executor.execute_all(&receiver)
        });
        Self { made, executed, thread }
    }

    /// Hands over a work, and leaves an empty one in its place. After a panic of the thread, it is
    /// lost.
    pub(super) fn execute(&mut self, work: &mut Work) {
        let empty = self.executed.try_recv().unwrap_or_default();
        let _ = self.made.send(std::mem::replace(work, empty));
    }

    /// Waits until all is executed, and resumes a panic of the thread. Returns the mappings.
    pub(super) fn finish(self) -> Layout {
        drop(self.made);
        self.thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    }
}

/// Sets a flag if its thread panics.
struct PanicNotice<'a>(&'a AtomicBool);

impl Drop for PanicNotice<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// What the thread owns.
struct Executor<'a, 'b> {
    simulators: &'a Simulators<'b>,
    names: &'a [String],
    has_ticks: bool,
    layout: Layout,
    /// Regions of all works that were received. Without ticks, nothing needs them.
    footprint: Footprint,
    /// Works that were received and not executed.
    waiting: Vec<Work>,
    ticks: u64,
    sender: Sender<Work>,
}

impl Executor<'_, '_> {
    fn execute_all(mut self, made: &Receiver<Work>) -> Layout {
        for mut work in made {
            for (process, mappings) in work.mappings.drain(..) {
                self.layout.set(process, mappings);
            }
            if self.has_ticks {
                self.footprint.follow(&work.batch);
            }
            let tick = work.tick.take();
            self.waiting.push(work);
            if let Some(accesses) = tick {
                self.tick(accesses);
            }
            if !self.has_ticks || self.waiting_runs() >= MAX_WAITING {
                self.execute();
            }
        }
        self.execute();
        self.layout
    }

    fn waiting_runs(&self) -> usize {
        self.waiting.iter().map(|work| work.batch.runs().len()).sum()
    }

    /// Executes what waits.
    fn execute(&mut self) {
        let waiting = &self.waiting;
        self.simulators.call(self.waiting_runs(), &|one| {
            waiting.iter().for_each(|work| one.run(&work.batch));
        });
        for mut work in self.waiting.drain(..) {
            work.batch.clear();
            // After an error, the receiver is gone.
            let _ = self.sender.send(work);
        }
    }

    /// Lets simulators decide for which a decision is due. Works wait until then.
    fn tick(&mut self, accesses: u64) {
        self.ticks += 1;
        let (place, regions) = (self.ticks % TICKS, self.footprint.regions().len());
        let is_covered = place == COVERED_TICKS;
        if is_covered || self.simulators.is_due(accesses, regions) {
            self.execute();
            let Self { names, footprint, layout, .. } = &*self;
            let view = View { accesses, names, footprint, layout };
            self.simulators.call(regions, &|one| {
                if is_covered {
                    one.note_coverage(&view);
                }
                if one.is_due(accesses, regions) {
                    one.tick(&view);
                }
            });
        }
        if place == 0 {
            self.footprint.clear_covered();
        }
    }
}
