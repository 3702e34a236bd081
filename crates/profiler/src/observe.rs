//! Samples of an interval, collected per process.

use std::collections::{BTreeMap, BTreeSet};

use hugepilot_record::{Heat, HeatConfig, Pattern, Pid, ProvenanceCounts, Sample};
use hugepilot_units::{PageSizes, Region};

/// Processes with a heat table. The one with the fewest samples is dropped for a new one.
const MAX_TABLES: usize = 8;
/// Limit of stack regions per process.
const MAX_STACKS: usize = 4096;

/// Samples of one process.
#[derive(Debug)]
pub struct ProcessView {
    /// Heat of its regions.
    pub heat: Heat,
    /// Samples by provenance; losses are not known per process.
    pub counts: ProvenanceCounts,
    /// Samples that stalled on scattered memory.
    pub scattered: u64,
    /// Regions that contain a sampled stack pointer.
    pub stacks: BTreeSet<Region>,
}

/// All samples of an interval, per process. Bounded in memory.
///
/// ```
/// use hugepilot_profiler::Observation;
/// use hugepilot_record::{Pattern, Pid, Provenance, Sample, Tid};
/// use hugepilot_units::{Nanos, PageSizes, VirtAddr};
///
/// let mut observation = Observation::new(PageSizes::X86_64);
/// for page in 0..3 {
///     observation.add(&Sample {
///         time: Nanos::millis(page),
///         pid: Pid(4711),
///         tid: Tid(4711),
///         ip: VirtAddr::new(0x40_1000),
///         address: Some(VirtAddr::new(0x7f00_0020_0000 + page * 4096)),
///         provenance: Provenance::Exact,
///         pattern: Pattern::Scattered,
///         stack: None,
///     });
/// }
/// let (pid, share) = observation.busiest().expect("a process with samples");
/// let view = observation.of(pid).expect("its samples");
/// let hottest = view.heat.regions(1536)[0];
/// assert_eq!((share, hottest.samples, hottest.sampled_pages), (1.0, 3, 3));
/// ```
#[derive(Debug)]
pub struct Observation {
    sizes: PageSizes,
    processes: BTreeMap<Pid, ProcessView>,
    uncounted: u64,
}

impl Observation {
    /// Creates an empty observation.
    pub const fn new(sizes: PageSizes) -> Self {
        Self { sizes, processes: BTreeMap::new(), uncounted: 0 }
    }

    /// Adds one sample.
    pub fn add(&mut self, sample: &Sample) {
        if !self.processes.contains_key(&sample.pid) && self.processes.len() >= MAX_TABLES {
            // Usually a process that ended, as in a script that starts many.
            let least = self
                .processes
                .iter()
                .min_by_key(|(_, view)| view.counts.total())
                .map(|(&pid, _)| pid);
            let gone = least.and_then(|pid| self.processes.remove(&pid));
            self.uncounted += gone.map_or(0, |view| view.counts.total());
        }
        let sizes = self.sizes;
        let view = self.processes.entry(sample.pid).or_insert_with(|| ProcessView {
            heat: Heat::new(HeatConfig::bounded(sizes)),
            counts: ProvenanceCounts::default(),
            scattered: 0,
            stacks: BTreeSet::new(),
        });
        view.counts.count(sample.provenance);
        if let Some(address) = sample.address {
            view.heat.add(address, sample.pattern);
            view.scattered += u64::from(sample.pattern == Pattern::Scattered);
        }
        if let Some(stack) = sample.stack.filter(|_| view.stacks.len() < MAX_STACKS) {
            view.stacks.insert(sizes.region_of(stack));
        }
    }

    /// Removes a process that started another program: its addresses are invalid.
    pub fn forget(&mut self, pid: Pid) {
        self.processes.remove(&pid);
    }

    /// Returns the samples of `pid`.
    pub fn of(&self, pid: Pid) -> Option<&ProcessView> {
        self.processes.get(&pid)
    }

    /// Returns the process with the most samples, and its share of all samples, 0 to 1.
    #[allow(clippy::cast_precision_loss)]
    pub fn busiest(&self) -> Option<(Pid, f64)> {
        let all: u64 =
            self.uncounted + self.processes.values().map(|view| view.counts.total()).sum::<u64>();
        let (&pid, view) = self.processes.iter().max_by_key(|(_, view)| view.counts.total())?;
        Some((pid, view.counts.total() as f64 / all.max(1) as f64))
    }
}
