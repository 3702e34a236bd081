//! Simulation: accesses of sources, fed to simulators as they come.
//!
//! Each source runs in a thread of its own, one process of the simulation. Their accesses are
//! interleaved. A batch of runs is made once, and all simulators execute it, on all CPUs, while the
//! next batch is made.

mod facts;
mod feed;
mod mixer;
mod pipeline;
mod policies;
mod prefix;
mod reuse;
mod tlb;

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use hugepilot_kernel::OwnMemory;
use hugepilot_reports::sim::SimInput;
use hugepilot_sim::{Batch, Footprint, Layout, MAX_PROCESSES, MemoryUse, Pattern, View};
use hugepilot_units::{Bytes, Nanos, PageSizes};

use crate::TraceError;
use crate::source::{TraceEnd, TraceOptions, TraceSource};
pub use facts::CpuSetup;
use feed::Feeds;
use mixer::Mixer;
use pipeline::{Pipeline, Simulators};
pub use policies::{PolicyResult, PolicySetup, SimPolicy, goal_of, policy, utility};
pub use reuse::{PlacedReuse, reuse};
pub use tlb::tlb;

/// Runs of a batch, at least, that one thread executes; about 128 KiB, which stay in the CPU's
/// cache. On one CPU, each batch takes two changes of the thread.
const BATCH: usize = 1 << 14;
/// Runs of a batch, at least, of several simulators, whose threads start for each batch; about
/// 2 MiB. A tick ends a batch, too.
const SHARED_BATCH: usize = 1 << 18;
/// Ticks of an interval: decisions are due at ticks.
pub const TICKS: u64 = 120;
/// Ticks at the start of an interval during which the access coverage is observed: one of thirty
/// seconds (Manocha et al., MICRO'23, section 4).
const COVERED_TICKS: u64 = TICKS / 30;
/// Accesses of a source before the next source has its turn.
const TURN: usize = 4096;
/// Accesses between two calls of the receiver of progress.
const PROGRESS: u64 = 1 << 16;

/// Source of accesses: a process of the simulation.
#[derive(Clone, Debug)]
pub enum AccessSource {
    /// Trace, stored, of a program or of a graph kernel.
    Trace(TraceSource),
    /// Accesses by a rule, with this seed; [`TraceOptions::max_accesses`] must end them.
    Pattern(Pattern, u64),
}

impl AccessSource {
    /// Whether it can be run again. The addresses of graph kernels differ between runs, by a region
    /// of 2 MiB or two.
    fn is_repeatable(&self) -> bool {
        match self {
            Self::Trace(TraceSource::File(path)) => path.is_file(),
            Self::Trace(TraceSource::Graph(_)) | Self::Pattern(..) => true,
            Self::Trace(_) => false,
        }
    }
}

/// Something that executes runs.
pub trait Simulator: Send {
    /// Executes the runs of the next batch. More are made meanwhile.
    fn run(&mut self, batch: &Batch);
    /// Returns the memory that it takes.
    fn memory(&self) -> MemoryUse {
        MemoryUse::default()
    }
    /// Whether a tick after `accesses` is due, with this number of regions in use. Called after
    /// all earlier ticks, and before the runs since then are executed.
    fn is_due(&self, accesses: u64, regions: usize) -> bool {
        let _ = (accesses, regions);
        false
    }
    /// Called at each tick that is due, after the runs before it.
    fn tick(&mut self, view: &View<'_>) {
        let _ = view;
    }
    /// Called when an observation of the access coverage ends.
    fn note_coverage(&mut self, view: &View<'_>) {
        let _ = view;
    }
}

/// Result of a simulation.
#[derive(Clone, Debug)]
pub struct Simulated {
    /// Regions in use.
    pub footprint: Footprint,
    /// Mappings.
    pub layout: Layout,
    /// Accesses.
    pub accesses: u64,
    /// Stores among them.
    pub stores: u64,
    /// Threads with accesses.
    pub threads: u64,
    /// End of each source.
    pub ends: Vec<TraceEnd>,
    /// Source whose mappings ended the simulation.
    pub full: Option<FullLayout>,
}

/// Program whose mappings needed more than [`hugepilot_sim::MAX_LAYOUT`]: its accesses before are
/// simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FullLayout {
    /// Index of the source.
    pub process: u16,
    /// Accesses of the source before the mappings.
    pub accesses: u64,
}

/// Options of a simulation.
#[derive(Clone, Debug, Default)]
pub struct SimulationOptions {
    /// Selected part of each source.
    pub trace: TraceOptions,
    /// Accesses of an interval; `None` without ticks.
    pub interval: Option<u64>,
    /// Memory that the simulators may take; `None` for what is available.
    pub memory: Option<Bytes>,
}

/// Runs simulators on the accesses of `sources`. `names` has the name of each. `progress` gets the
/// number of accesses now and then. If the mappings of a program need too much memory, the
/// simulation ends there: [`Simulated::full`].
///
/// # Errors
/// As [`crate::source::trace`], and [`TraceError::TooManySources`],
/// [`TraceError::TooMuchMemory`], [`TraceError::TooLargeMachines`], [`TraceError::TooManyPages`],
/// [`TraceError::TooManyThreads`] and [`TraceError::TooManyMappings`].
pub fn simulate(
    sources: &[AccessSource],
    names: &[String],
    options: &SimulationOptions,
    simulators: &mut [&mut dyn Simulator],
    interrupted: &(dyn Fn() -> bool + Sync),
    progress: &mut dyn FnMut(u64),
) -> Result<Simulated, TraceError> {
    if sources.len() > MAX_PROCESSES {
        return Err(TraceError::TooManySources { sources: sources.len(), most: MAX_PROCESSES });
    }
    let memory = MemoryLimit::new(simulators, options);
    let simulators = Simulators::new(simulators);
    let most_runs = if simulators.has_threads() { SHARED_BATCH } else { BATCH };
    let over = AtomicBool::new(false);
    let is_over = || over.load(Ordering::Relaxed) || interrupted();
    std::thread::scope(|scope| {
        let mut feeds = Feeds::start(scope, sources, &options.trace, &is_over);
        let has_ticks = options.interval.is_some();
        let mut pipeline = Pipeline::start(scope, &simulators, names, has_ticks, &over);
        let mut mixer = Mixer::new(options.interval, names);
        let mut next_progress = PROGRESS;
        while mixer.full.is_none()
            && let Some(process) = feeds.next_process().filter(|_| !is_over())
        {
            mixer.take(process, &mut feeds)?;
            mixer.check(&memory)?;
            if mixer.work.is_due(most_runs) {
                pipeline.execute(&mut mixer.work);
            }
            if mixer.accesses >= next_progress {
                next_progress = mixer.accesses + PROGRESS;
                progress(mixer.accesses);
            }
        }
        pipeline.execute(&mut mixer.work);
        let follower = pipeline.finish();
        let simulated = mixer.finish(follower);
        Ok(Simulated { ends: feeds.finish()?, ..simulated })
    })
}

/// Sources, and how to execute them.
pub struct Job<'a> {
    /// Sources.
    pub sources: &'a [AccessSource],
    /// Name of each source.
    pub names: &'a [String],
    /// Selected part of each source.
    pub trace: TraceOptions,
    /// Whether the user wants an end.
    pub interrupted: &'a (dyn Fn() -> bool + Sync),
    /// Receiver of the number of accesses so far.
    pub progress: &'a mut dyn FnMut(Pass, u64),
}

/// Pass over the accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Pass that counts the memory in use: [`Job::used`].
    Memory,
    /// Pass of a simulation.
    Simulation,
}

impl Job<'_> {
    /// Returns the memory of the 2 MiB regions that the sources use by their end, in a pass over
    /// all accesses: the footprint of which a budget is a share (Manocha et al., MICRO'23, section
    /// 4). `None` if a source cannot be run again, as a program, or after an interruption.
    ///
    /// # Errors
    /// As [`simulate`].
    pub fn used(&mut self) -> Result<Option<Bytes>, TraceError> {
        if !self.sources.iter().all(AccessSource::is_repeatable) {
            return Ok(None);
        }
        let trace = self.trace.clone();
        let options = SimulationOptions { trace, ..SimulationOptions::default() };
        let mut progress = |accesses| (self.progress)(Pass::Memory, accesses);
        let Self { sources, names, interrupted, .. } = *self;
        let simulated = simulate(sources, names, &options, &mut [], interrupted, &mut progress)?;
        let regions = simulated.footprint.regions().len() as u64;
        Ok((!interrupted()).then(|| PageSizes::X86_64.huge.times(regions)))
    }

    /// Executes the sources, and describes what was executed.
    fn run(
        &mut self,
        interval: Option<u64>,
        simulators: &mut [&mut dyn Simulator],
    ) -> Result<(Simulated, SimInput), TraceError> {
        let begun = std::time::Instant::now();
        let options = SimulationOptions { trace: self.trace.clone(), interval, memory: None };
        let mut progress = |accesses| (self.progress)(Pass::Simulation, accesses);
        let Self { sources, names, interrupted, .. } = *self;
        let simulated = simulate(sources, names, &options, simulators, interrupted, &mut progress)?;
        let took = Nanos::new(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
        let input = facts::input(&simulated, names.to_vec(), took);
        Ok((simulated, input))
    }
}

/// Memory of all simulators and of the footprint, and its limit.
struct MemoryLimit {
    /// Simulators that have cores.
    machines: usize,
    of_all: MemoryUse,
    available: Bytes,
}

impl MemoryLimit {
    fn new(simulators: &[&mut dyn Simulator], options: &SimulationOptions) -> Self {
        let each = || simulators.iter().map(|one| one.memory());
        // Ticks need a second footprint.
        let footprint = Footprint::memory();
        let footprints =
            if options.interval.is_some() { footprint.and(footprint) } else { footprint };
        Self {
            machines: each().filter(|memory| memory.core_bytes > 0).count(),
            of_all: each().fold(footprints, MemoryUse::and),
            available: options.memory.unwrap_or_else(OwnMemory::room_now),
        }
    }

    /// `fit`: accesses of each source that it allows.
    fn check(&self, threads: u64, regions: u64, fit: u64) -> Result<(), TraceError> {
        let &Self { machines, of_all, available } = self;
        let needed = Bytes::new(of_all.bytes(threads, regions));
        if needed > available {
            return Err(if machines == 0 {
                TraceError::TooManyPages { fit, regions, needed, available }
            } else {
                TraceError::TooLargeMachines { fit, machines, threads, regions, needed, available }
            });
        }
        Ok(())
    }
}

/// Delivers a pattern as pieces, until the sink has enough.
fn pattern(
    pattern: Pattern,
    seed: u64,
    sink: &mut dyn FnMut(hugepilot_record::trace::TracePiece) -> ControlFlow<()>,
) {
    use hugepilot_record::trace::{TraceAccess, TraceMapping, TracePiece};
    use hugepilot_units::{AddrRange, VirtAddr};
    const PIECE: usize = 1 << 16;
    let range = AddrRange::at(VirtAddr::new(hugepilot_sim::PATTERN_START), pattern.bytes);
    let name = "[anon]".to_owned();
    if sink(TracePiece::Mappings(vec![TraceMapping { range, name }])).is_break() {
        return;
    }
    let mut all = pattern.accesses(seed).map(|(address, store)| TraceAccess { address, store });
    loop {
        // Without an end, the iterator states no length: `collect` would copy most of them.
        let mut accesses = Vec::with_capacity(PIECE);
        all.by_ref().take(PIECE).for_each(|access| accesses.push(access));
        if sink(TracePiece::Accesses { thread: 0, accesses }).is_break() {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
