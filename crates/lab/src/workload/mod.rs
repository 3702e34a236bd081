//! Workloads: programs whose memory behaviour is known, each a process of its own.
//!
//! A [`Spec`] names a workload and its sizes, [`run`] prepares it, runs it on some threads and prints what it reached:
//!
//! ```text
//! hot 7f2a40000000-7f2a40400000      with `announce`: regions that a huge page pays for, as in /proc/PID/maps
//! ready 4711                         memory is filled, measuring starts; the process
//! 1.000 83420160                     seconds since the start, operations per second since the line before
//! 2.000 83510272
//! {"schema":"hugepilot.workload/1","workload":"hot-set",…}
//! ```
//!
//! A closed pipe ends a run quietly. The inner loops are functions of their own, so that a profile names them.

mod cycle;
mod gups;
mod hash_map;
mod hot_set;
mod memory;
mod output;
mod pointer_chase;
mod rng;
mod runner;
mod stream;
mod tlb_friendly;
mod tree;

use hugepilot_units::AddrRange;

pub use hot_set::{HotSetConfig, Pattern};
pub use memory::{Machine, MemoryConfig};
pub use output::{SCHEMA, Summary};
pub use runner::{RunConfig, run};
pub use tlb_friendly::TlbFriendlyConfig;

use crate::Result;

/// A workload, its memory filled.
trait Workload {
    /// The regions that it waits for and a huge page pays for: whole huge-page regions in address order, neighbours
    /// merged. Empty when a huge page would gain nothing. May read all of its memory.
    fn hot(&self) -> Vec<AddrRange>;
    /// How much is resident because of it, in bytes.
    fn footprint_bytes(&self) -> u64;
    /// One worker for each of `threads` threads. Their random choices start from the seed and their number.
    fn workers(&mut self, threads: usize) -> Vec<Box<dyn Worker + '_>>;
}

/// One thread's part of a workload.
trait Worker: Send {
    /// Does exactly `ops` operations.
    fn step(&mut self, ops: u64);
    /// What it computed, so that two runs of the same work can be compared. May cost milliseconds.
    fn checksum(&self) -> u64;
    /// Operations between two looks at the clock: a millisecond's worth or less.
    fn batch(&self) -> u64 {
        1 << 14
    }
}

/// Which workload, and how large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spec {
    /// Random reads or a pointer chase over hot regions scattered in a large footprint.
    HotSet(HotSetConfig),
    /// A pointer chase over all of the memory.
    PointerChase(MemoryConfig),
    /// Random updates of a table.
    Gups(MemoryConfig),
    /// Random look-ups in a hash map.
    HashMap(MemoryConfig),
    /// Random look-ups in a B-tree.
    Tree(MemoryConfig),
    /// `a = b + s·c` over three arrays.
    Stream(MemoryConfig),
    /// A few very hot pages and a scan: must attract no huge page.
    TlbFriendly(TlbFriendlyConfig),
}

impl Spec {
    /// The name on the command line and in the output.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::HotSet(_) => hot_set::NAME,
            Self::PointerChase(_) => pointer_chase::NAME,
            Self::Gups(_) => gups::NAME,
            Self::HashMap(_) => hash_map::NAME,
            Self::Tree(_) => tree::NAME,
            Self::Stream(_) => stream::NAME,
            Self::TlbFriendly(_) => tlb_friendly::NAME,
        }
    }

    /// How it reads, where there is a choice.
    pub const fn pattern(&self) -> Option<&'static str> {
        match self {
            Self::HotSet(config) => Some(config.pattern.name()),
            _ => None,
        }
    }

    /// What it is told about its memory.
    pub const fn memory(&self) -> &MemoryConfig {
        match self {
            Self::HotSet(config) => &config.memory,
            Self::TlbFriendly(config) => &config.memory,
            Self::PointerChase(memory)
            | Self::Gups(memory)
            | Self::HashMap(memory)
            | Self::Tree(memory)
            | Self::Stream(memory) => memory,
        }
    }

    /// Reserves and fills its memory: seconds for gigabytes.
    fn prepare(&self, machine: &Machine) -> Result<Box<dyn Workload>> {
        Ok(match *self {
            Self::HotSet(config) => Box::new(hot_set::HotSet::prepare(config, machine)?),
            Self::PointerChase(memory) => Box::new(pointer_chase::PointerChase::prepare(memory, machine)?),
            Self::Gups(memory) => Box::new(gups::Gups::prepare(memory, machine)?),
            Self::HashMap(memory) => Box::new(hash_map::HashMapLookups::prepare(memory, machine)?),
            Self::Tree(memory) => Box::new(tree::TreeLookups::prepare(memory, machine)?),
            Self::Stream(memory) => Box::new(stream::Stream::prepare(memory, machine)?),
            Self::TlbFriendly(config) => Box::new(tlb_friendly::TlbFriendly::prepare(config, machine)?),
        })
    }
}

#[cfg(test)]
mod tests;
