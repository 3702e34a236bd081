//! Workloads: programs whose memory behaviour is known, each a process of its own.
//!
//! A [`Spec`] names a workload and its sizes, [`run`] prepares it, runs it on some threads and prints what it reached:
//!
//! ```text
//! hot 7f2a40000000-7f2a40400000      with `announce`: regions that a huge page pays for, as in /proc/PID/maps
//! ready 4711                         memory is filled; the process. Measuring starts, with `wait` after a line `go`
//! 1.000 83420160                     seconds since the start, operations per second since the line before
//! 2.000 83510272
//! latency p50_ns 195 p99_ns 240 max_ns 90112   with `steps`: how long batches of so many operations took
//! {"schema":"hugepilot.workload/1","workload":"hot-set",…}
//! ```
//!
//! A closed pipe ends a run quietly. The inner loops are functions of their own, so that a profile names them.
//!
//! ```
//! use hugepilot_workload::{Machine, MemoryConfig, RunConfig, Spec, run};
//! use hugepilot_units::{Bytes, Nanos};
//!
//! # fn main() -> Result<(), hugepilot_workload::WorkloadError> {
//! let spec = Spec::PointerChase(MemoryConfig { footprint: Bytes::mib(4), ..MemoryConfig::DEFAULT });
//! let config = RunConfig { seconds: Some(Nanos::millis(20)), ..RunConfig::DEFAULT };
//! let (mut stdin, mut out) = (std::io::empty(), std::io::sink());
//! let summary = run(&spec, &config, &Machine::live()?, &mut stdin, &mut out)?;
//! assert!(summary.ops > 0);
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod btree;
mod crc32c;
mod cycle;
mod error;
mod gups;
mod hash_insert;
mod hash_map;
mod hot_set;
mod latency;
mod lookups;
mod memcached;
mod memory;
mod output;
mod pointer_chase;
mod random_access;
mod rng;
mod runner;
mod stream;
mod tlb_friendly;
mod tree;

use std::process;

use hugepilot_kernel::Pages;
use hugepilot_units::AddrRange;

pub use error::WorkloadError;
pub use hash_insert::HashInsertConfig;
pub use hot_set::{HotSetConfig, Pattern};
pub use latency::Latency;
pub use memory::{Machine, MemoryConfig};
pub use output::{SCHEMA, Summary};
pub use random_access::{Hot, Layout, RandomAccessConfig, Side};
pub use runner::{RunConfig, run};
pub use tlb_friendly::TlbFriendlyConfig;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, WorkloadError>;

/// A workload, its memory filled.
trait Workload {
    /// The regions that it waits for and a huge page pays for: whole huge-page regions in address order, neighbours
    /// merged. Empty when a huge page would gain nothing. May read all of its memory.
    fn hot(&self) -> Vec<AddrRange>;
    /// How much is resident because of it, in bytes, bloat included.
    fn footprint_bytes(&self) -> u64;
    /// How much of that is bloat by design; `None` for workloads that are about something else.
    fn bloat_bytes(&self) -> Option<u64> {
        None
    }
    /// The process whose memory it is.
    fn pid(&self) -> u32 {
        process::id()
    }
    /// One worker for each of `threads` threads. Their random choices start from the seed and their number.
    fn workers(&mut self, threads: usize) -> Vec<Box<dyn Worker + '_>>;
}

/// One thread's part of a workload.
trait Worker: Send {
    /// Does exactly `ops` operations. Fails where it depends on somebody else.
    fn step(&mut self, ops: u64) -> Result<()>;
    /// What it computed, so that two runs of the same work can be compared; an error when it is known to be wrong. May
    /// read all of its memory.
    fn checksum(&self) -> Result<u64>;
    /// Operations between two looks at the clock: a millisecond's worth or less.
    fn batch(&self) -> u64 {
        1 << 14
    }
}

/// Which workload, and how large.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spec {
    /// Random reads or a pointer chase over hot regions scattered in a large footprint.
    HotSet(HotSetConfig),
    /// A pointer chase over all of the memory.
    PointerChase(MemoryConfig),
    /// Random updates of a table.
    Gups(MemoryConfig),
    /// Random look-ups in a hash map.
    HashMap(MemoryConfig),
    /// Insertions into a hash map, from nothing to full.
    HashInsert(HashInsertConfig),
    /// Random look-ups in a B-tree.
    Tree(MemoryConfig),
    /// `a = b + s·c` over three arrays.
    Stream(MemoryConfig),
    /// A few very hot pages and a scan: must attract no huge page.
    TlbFriendly(TlbFriendlyConfig),
    /// Random updates of a buffer with known bloat.
    RandomAccess(RandomAccessConfig),
    /// Random look-ups in a B+-tree with room for growth.
    BTree(MemoryConfig),
    /// Random GETs from a memcached server.
    Memcached(MemoryConfig),
}

impl Spec {
    /// The name on the command line and in the output.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::HotSet(_) => hot_set::NAME,
            Self::PointerChase(_) => pointer_chase::NAME,
            Self::Gups(_) => gups::NAME,
            Self::HashMap(_) => hash_map::NAME,
            Self::HashInsert(_) => hash_insert::NAME,
            Self::Tree(_) => tree::NAME,
            Self::Stream(_) => stream::NAME,
            Self::TlbFriendly(_) => tlb_friendly::NAME,
            Self::RandomAccess(_) => random_access::NAME,
            Self::BTree(_) => btree::NAME,
            Self::Memcached(_) => memcached::NAME,
        }
    }

    /// How it reads, where there is a choice.
    pub const fn pattern(&self) -> Option<&'static str> {
        match self {
            Self::HotSet(config) => Some(config.pattern.name()),
            _ => None,
        }
    }

    /// Which pages the kernel is asked for.
    pub const fn pages(&self) -> Pages {
        match (self, self.memory()) {
            (_, Some(memory)) => memory.pages,
            (Self::HashInsert(config), None) => config.pages,
            (_, None) => Pages::Default,
        }
    }

    /// What its random choices start from; 0 where nothing is left to chance.
    pub const fn seed(&self) -> u64 {
        match self.memory() {
            Some(memory) => memory.seed,
            None => 0,
        }
    }

    /// What it is told about its memory, where that is a footprint.
    const fn memory(&self) -> Option<&MemoryConfig> {
        Some(match self {
            Self::HashInsert(_) => return None,
            Self::HotSet(config) => &config.memory,
            Self::TlbFriendly(config) => &config.memory,
            Self::RandomAccess(config) => &config.memory,
            Self::PointerChase(memory)
            | Self::Gups(memory)
            | Self::HashMap(memory)
            | Self::Tree(memory)
            | Self::Stream(memory)
            | Self::BTree(memory)
            | Self::Memcached(memory) => memory,
        })
    }

    /// Reserves and fills its memory, for so many threads: seconds for gigabytes.
    fn prepare(&self, machine: &Machine, threads: usize) -> Result<Box<dyn Workload>> {
        Ok(match self {
            Self::HotSet(config) => Box::new(hot_set::HotSet::prepare(*config, machine)?),
            Self::PointerChase(memory) => {
                Box::new(pointer_chase::PointerChase::prepare(*memory, machine)?)
            }
            Self::Gups(memory) => Box::new(gups::Gups::prepare(*memory, machine)?),
            Self::HashMap(memory) => Box::new(hash_map::HashMapLookups::prepare(*memory, machine)?),
            Self::HashInsert(config) => {
                Box::new(hash_insert::HashInsert::prepare(*config, machine, threads)?)
            }
            Self::Tree(memory) => Box::new(tree::TreeLookups::prepare(*memory, machine)?),
            Self::Stream(memory) => Box::new(stream::Stream::prepare(*memory, machine)?),
            Self::TlbFriendly(config) => {
                Box::new(tlb_friendly::TlbFriendly::prepare(*config, machine)?)
            }
            Self::RandomAccess(config) => {
                Box::new(random_access::RandomAccess::prepare(config.clone(), machine, threads)?)
            }
            Self::BTree(memory) => Box::new(btree::BTree::prepare(*memory, machine)?),
            Self::Memcached(memory) => {
                Box::new(memcached::Memcached::prepare(*memory, machine, threads)?)
            }
        })
    }
}

#[cfg(test)]
mod tests;
