//! What a stretch of sampling showed, per process.

use std::collections::{BTreeMap, BTreeSet};

use hugepilot_record::{Heat, HeatConfig, Pattern, Pid, ProvenanceCounts, Sample};
use hugepilot_units::{PageSizes, Region};

/// Processes that have a heat table of their own; the one with the fewest samples makes room for the next.
const MAX_TABLES: usize = 8;
/// Stack regions remembered per process.
const MAX_STACKS: usize = 4096;

/// What was seen of one process.
#[derive(Debug)]
pub struct ProcessView {
    /// Where its stalls fell.
    pub heat: Heat,
    /// Its samples by provenance; losses are not known per process.
    pub counts: ProvenanceCounts,
    /// Samples that waited for scattered memory.
    pub scattered: u64,
    /// Regions that a stack pointer fell into.
    pub stacks: BTreeSet<Region>,
}

/// All samples of a stretch of time, sorted by process. Bounded in memory.
#[derive(Debug)]
pub struct Observation {
    sizes: PageSizes,
    processes: BTreeMap<Pid, ProcessView>,
    uncounted: u64,
}

impl Observation {
    /// Nothing seen yet.
    pub const fn new(sizes: PageSizes) -> Self {
        Self { sizes, processes: BTreeMap::new(), uncounted: 0 }
    }

    /// Takes in one sample.
    pub fn add(&mut self, sample: &Sample) {
        if !self.processes.contains_key(&sample.pid) && self.processes.len() >= MAX_TABLES {
            // Mostly one that has ended, as in a script that starts many.
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

    /// Forgets a process: it started another program, and its addresses mean nothing now.
    pub fn forget(&mut self, pid: Pid) {
        self.processes.remove(&pid);
    }

    /// What was seen of `pid`.
    pub fn of(&self, pid: Pid) -> Option<&ProcessView> {
        self.processes.get(&pid)
    }

    /// The process with the most samples, and how many of all samples are its own, 0 to 1.
    #[allow(clippy::cast_precision_loss)]
    pub fn busiest(&self) -> Option<(Pid, f64)> {
        let all: u64 =
            self.uncounted + self.processes.values().map(|view| view.counts.total()).sum::<u64>();
        let (&pid, view) = self.processes.iter().max_by_key(|(_, view)| view.counts.total())?;
        Some((pid, view.counts.total() as f64 / all.max(1) as f64))
    }
}
