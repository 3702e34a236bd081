//! Pipeline: the simulators execute batches of runs while the next ones are made.
//!
//! Ticks travel with the batches, so that the source never waits for a decision. For them, the
//! executing thread has its own footprint and mappings, which follow the batches.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};

use hugepilot_record::trace::TraceMapping;
use hugepilot_sim::{Batch, Footprint, Layout, View};

use super::{COVERED_TICKS, Simulator, TICKS};

/// Runs or regions, of all simulators together, for which threads are started.
const MIN_STEPS: usize = 1 << 14;
/// Runs that wait for a decision, at most. Of more, the start of threads is a small part already.
const MAX_WAITING: usize = 1 << 16;
/// Works that wait, at most: those of mappings have few runs.
const MAX_WORKS: usize = 64;
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

    /// Whether batches are executed in several threads.
    pub(super) const fn has_threads(&self) -> bool {
        self.workers > 1
    }

    /// Calls `each` with every simulator, in threads if the `steps` of each are worth their start.
    fn call(&self, steps: usize, each: &(dyn Fn(&mut dyn Simulator) + Sync)) {
        let next = AtomicUsize::new(0);
        self.in_threads(steps, &|| {
            while let Some(one) = self.all.get(next.fetch_add(1, Ordering::Relaxed)) {
                each(&mut **lock(one));
            }
        });
    }

    /// Lets every simulator execute all works in order. A thread takes the next work of the
    /// simulator that is most behind, so that all threads end at about the same time.
    fn run(&self, works: &[Work]) {
        let turns = Mutex::new(vec![Turn::default(); self.all.len()]);
        self.in_threads(runs_of(works), &|| {
            while let Some((number, work)) = next_turn(&turns, works.len()) {
                lock(&self.all[number]).run(&works[work].batch);
                let turn = &mut lock(&turns)[number];
                *turn = Turn { executed: work + 1, is_taken: false };
            }
        });
    }

    /// Does `work` in several threads, if the `steps` of each simulator are worth their start.
    fn in_threads(&self, steps: usize, work: &(dyn Fn() + Sync)) {
        if !self.has_threads() || self.all.len().saturating_mul(steps) < MIN_STEPS {
            return work();
        }
        std::thread::scope(|scope| {
            for _ in 1..self.workers {
                scope.spawn(work);
            }
            work();
        });
    }

    /// Whether a tick after `accesses` is due for any.
    fn is_due(&self, accesses: u64, regions: usize) -> bool {
        self.all.iter().any(|one| lock(one).is_due(accesses, regions))
    }
}

/// Works that a simulator has executed, and whether a thread executes the next one.
#[derive(Clone, Copy, Default)]
struct Turn {
    executed: usize,
    is_taken: bool,
}

/// Takes the turn of the simulator that is most behind. Returns its index and the work; `None` if
/// other threads have all that is left.
fn next_turn(turns: &Mutex<Vec<Turn>>, works: usize) -> Option<(usize, usize)> {
    let mut turns = lock(turns);
    let free = turns.iter_mut().enumerate();
    let free = free.filter(|(_, turn)| !turn.is_taken && turn.executed < works);
    let (number, turn) = free.min_by_key(|(_, turn)| turn.executed)?;
    turn.is_taken = true;
    Some((number, turn.executed))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Batch, the mappings of a process that precede it, and the accesses before the tick that follows
/// it. Without ticks, it has neither.
#[derive(Default)]
pub(super) struct Work {
    pub(super) mappings: Option<(u16, Vec<TraceMapping>)>,
    pub(super) batch: Batch,
    pub(super) tick: Option<u64>,
}

impl Work {
    /// Whether it is to be executed now.
    pub(super) fn is_due(&self, most_runs: usize) -> bool {
        self.tick.is_some() || self.mappings.is_some() || self.batch.runs().len() >= most_runs
    }
}

/// Thread that executes works in order, and returns them empty, so that their memory is allocated
/// once.
pub(super) struct Pipeline<'a> {
    made: SyncSender<Work>,
    executed: Receiver<Work>,
    thread: ScopedJoinHandle<'a, Option<Footprint>>,
}

impl<'a> Pipeline<'a> {
    /// Starts the thread. `over` is set at its end, so that sources end that wait.
    pub(super) fn start(
        scope: &'a Scope<'a, '_>,
        simulators: &'a Simulators<'_>,
        names: &'a [String],
        has_ticks: bool,
        over: &'a AtomicBool,
    ) -> Self {
        let (made, receiver) = sync_channel(if has_ticks { TICKED_ADVANCE } else { ADVANCE });
        let (sender, executed) = channel();
        let executor = Executor {
            simulators,
            names,
            layout: Layout::default(),
            footprint: has_ticks.then(Footprint::new),
            waiting: Vec::new(),
            ticks: 0,
            sender,
        };
        let thread = scope.spawn(move || {
            let _notice = EndNotice(over);
            executor.execute_all(&receiver)
        });
        Self { made, executed, thread }
    }

    /// Hands over a work, and leaves an empty one in its place. After a panic of the thread, the
    /// work is lost.
    pub(super) fn execute(&mut self, work: &mut Work) {
        let empty = self.executed.try_recv().unwrap_or_default();
        let _ = self.made.send(std::mem::replace(work, empty));
    }

    /// Waits until all is executed, and resumes a panic of the thread. Returns the footprint, if
    /// there are ticks.
    pub(super) fn finish(self) -> Option<Footprint> {
        drop(self.made);
        self.thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    }
}

/// Sets a flag at the end of its thread, also at a panic.
struct EndNotice<'a>(&'a AtomicBool);

impl Drop for EndNotice<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// State of the executing thread.
struct Executor<'a, 'b> {
    simulators: &'a Simulators<'b>,
    names: &'a [String],
    layout: Layout,
    /// Regions of all works that were received, for ticks.
    footprint: Option<Footprint>,
    /// Works that were received and not executed.
    waiting: Vec<Work>,
    ticks: u64,
    sender: Sender<Work>,
}

impl Executor<'_, '_> {
    fn execute_all(mut self, made: &Receiver<Work>) -> Option<Footprint> {
        for mut work in made {
            if let Some((process, mappings)) = work.mappings.take() {
                self.layout.set(process, mappings);
            }
            let tick = work.tick.take();
            self.waiting.push(work);
            if let Some(mut footprint) = self.footprint.take() {
                self.follow(&mut footprint, tick);
                self.footprint = Some(footprint);
            } else {
                self.execute();
            }
        }
        self.execute();
        self.footprint
    }

    /// Follows the newest work, and the tick behind it.
    fn follow(&mut self, footprint: &mut Footprint, tick: Option<u64>) {
        if let Some(work) = self.waiting.last() {
            footprint.follow(&work.batch);
        }
        if let Some(accesses) = tick {
            self.tick(accesses, footprint);
        }
        if runs_of(&self.waiting) >= MAX_WAITING || self.waiting.len() >= MAX_WORKS {
            self.execute();
        }
    }

    /// Lets simulators decide for which a decision is due. Works wait until then.
    fn tick(&mut self, accesses: u64, footprint: &mut Footprint) {
        self.ticks += 1;
        let (place, regions) = (self.ticks % TICKS, footprint.regions().len());
        let is_covered = place == COVERED_TICKS;
        if is_covered || self.simulators.is_due(accesses, regions) {
            self.execute();
            let view = View { accesses, names: self.names, footprint, layout: &self.layout };
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
            footprint.clear_covered();
        }
    }

    /// Executes all waiting works.
    fn execute(&mut self) {
        self.simulators.run(&self.waiting);
        for mut work in self.waiting.drain(..) {
            work.batch.clear();
            // After an error of the source, the receiver is gone.
            let _ = self.sender.send(work);
        }
    }
}

fn runs_of(works: &[Work]) -> usize {
    works.iter().map(|work| work.batch.runs().len()).sum()
}
