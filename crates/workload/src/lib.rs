//! Workloads with known memory behaviour, each in its own process.
//!
//! A [`Spec`] names a workload and its sizes. [`run`] prepares it, runs it on some threads and
//! prints:
//!
//! ```text
//! hot 7f2a40000000-7f2a40400000      with `announce`: memory that huge pages help, as in maps
//! ready 4711                         memory is filled; the pid. With `wait`, work starts at `go`
//! 1.000 83420160                     seconds since the start, operations per second
//! 2.000 83510272
//! latency p50_ns 195 p99_ns 240 max_ns 90112   with `steps`: times of batches
//! {"schema":"hugepilot.workload/1","workload":"hot-set",…}
//! ```
//!
//! A closed pipe ends a run without an error. The inner loops are separate functions, so profiles
//! name them.
//!
//! ```
//! use hugepilot_workload::{MemoryLimits, MemoryConfig, RunConfig, Spec, run};
//! use hugepilot_units::{Bytes, Nanos};
//!
//! # fn main() -> Result<(), hugepilot_workload::WorkloadError> {
//! let memory = MemoryConfig { footprint: Bytes::mib(4), ..MemoryConfig::DEFAULT };
//! let spec = Spec::PointerChase(memory);
//! let config = RunConfig { seconds: Some(Nanos::millis(20)), ..RunConfig::DEFAULT };
//! let (mut stdin, mut out) = (std::io::empty(), std::io::sink());
//! let summary = run(&spec, &config, &MemoryLimits::live()?, &mut stdin, &mut out)?;
//! assert!(summary.ops > 0);
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod btree;
mod btree_grown;
pub mod calibration;
mod churn;
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
pub mod micro;
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

pub use error::{BloatFault, ServerFault, WorkloadError};
pub use hash_insert::HashInsertConfig;
pub use hot_set::{HotSetConfig, Pattern};
pub use latency::Latency;
pub use memory::{MemoryConfig, MemoryLimits};
pub use output::{SCHEMA, Summary};
pub use random_access::{Hot, Layout, RandomAccessConfig, Side};
pub use runner::{RunConfig, run};
pub use tlb_friendly::TlbFriendlyConfig;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, WorkloadError>;

/// A workload with filled memory.
trait Workload {
    /// Regions on which it stalls and that huge pages help: whole regions in address order,
    /// adjacent ones merged. Empty if huge pages gain nothing. May read all memory.
    fn hot(&self) -> Vec<AddrRange>;
    /// Resident memory in bytes, including bloat.
    fn footprint_bytes(&self) -> u64;
    /// Bloat by design, in bytes; `None` if the workload is not about bloat.
    fn bloat_bytes(&self) -> Option<u64> {
        None
    }
    /// Pid of the process with the memory.
    fn pid(&self) -> u32 {
        process::id()
    }
    /// Returns one worker for each thread, seeded by the seed and its index.
    fn workers(&mut self, threads: usize) -> Vec<Box<dyn Worker + '_>>;
}

/// A thread's part of a workload.
trait Worker: Send {
    /// Does exactly `ops` operations. Fails if the server fails.
    fn step(&mut self, ops: u64) -> Result<()>;
    /// Returns the result, to compare runs of the same work; an error if it is wrong. May read all
    /// memory.
    fn checksum(&self) -> Result<u64>;
    /// Operations between two reads of the clock: at most about a millisecond.
    fn batch(&self) -> u64 {
        1 << 14
    }
}

/// A workload and its sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spec {
    /// Random reads or a pointer chase over hot regions scattered in a large footprint.
    HotSet(HotSetConfig),
    /// A pointer chase over all of the memory.
    PointerChase(MemoryConfig),
    /// Random updates of a table.
    Gups(MemoryConfig),
    /// Random lookups in a hash map.
    HashMap(MemoryConfig),
    /// Insertions into a hash map, from nothing to full.
    HashInsert(HashInsertConfig),
    /// Random lookups in a B-tree.
    Tree(MemoryConfig),
    /// Random replacement of allocated objects.
    Churn(MemoryConfig),
    /// `a = b + s·c` over three arrays.
    Stream(MemoryConfig),
    /// A few very hot pages and a scan; huge pages gain nothing.
    TlbFriendly(TlbFriendlyConfig),
    /// Random updates of a buffer with known bloat.
    RandomAccess(RandomAccessConfig),
    /// Random lookups in a B+-tree with room for growth.
    BTree(MemoryConfig),
    /// Random lookups in a B+-tree that grew by insertion.
    BTreeGrown(MemoryConfig),
    /// Random GETs from a memcached server.
    Memcached(MemoryConfig),
}

impl Spec {
    /// Returns the name on the command line and in the output.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::HotSet(_) => hot_set::NAME,
            Self::PointerChase(_) => pointer_chase::NAME,
            Self::Gups(_) => gups::NAME,
            Self::HashMap(_) => hash_map::NAME,
            Self::HashInsert(_) => hash_insert::NAME,
            Self::Tree(_) => tree::NAME,
            Self::Churn(_) => churn::NAME,
            Self::Stream(_) => stream::NAME,
            Self::TlbFriendly(_) => tlb_friendly::NAME,
            Self::RandomAccess(_) => random_access::NAME,
            Self::BTree(_) => btree::NAME,
            Self::BTreeGrown(_) => btree_grown::NAME,
            Self::Memcached(_) => memcached::NAME,
        }
    }

    /// Returns the access pattern; `None` if there is only one.
    pub const fn pattern(&self) -> Option<&'static str> {
        match self {
            Self::HotSet(config) => Some(config.pattern.name()),
            _ => None,
        }
    }

    /// Returns the requested pages.
    pub const fn pages(&self) -> Pages {
        match (self, self.memory()) {
            (_, Some(memory)) => memory.pages,
            (Self::HashInsert(config), None) => config.pages,
            (_, None) => Pages::Default,
        }
    }

    /// Returns the seed of the random accesses; 0 if there are none.
    pub const fn seed(&self) -> u64 {
        match self.memory() {
            Some(memory) => memory.seed,
            None => 0,
        }
    }

    /// Returns the parameters of the memory; `None` without a footprint.
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
            | Self::Churn(memory)
            | Self::Stream(memory)
            | Self::BTree(memory)
            | Self::BTreeGrown(memory)
            | Self::Memcached(memory) => memory,
        })
    }

    /// Reserves and fills the memory for `threads` threads: seconds for gigabytes.
    fn prepare(&self, machine: &MemoryLimits, threads: usize) -> Result<Box<dyn Workload>> {
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
            Self::Churn(memory) => Box::new(churn::Churn::prepare(*memory, machine)?),
            Self::Stream(memory) => Box::new(stream::Stream::prepare(*memory, machine)?),
            Self::TlbFriendly(config) => {
                Box::new(tlb_friendly::TlbFriendly::prepare(*config, machine)?)
            }
            Self::RandomAccess(config) => {
                Box::new(random_access::RandomAccess::prepare(config.clone(), machine, threads)?)
            }
            Self::BTree(memory) => Box::new(btree::BTree::prepare(*memory, machine)?),
            Self::BTreeGrown(memory) => {
                Box::new(btree_grown::GrownTree::prepare(*memory, machine)?)
            }
            Self::Memcached(memory) => {
                Box::new(memcached::Memcached::prepare(*memory, machine, threads)?)
            }
        })
    }
}

#[cfg(test)]
mod tests;
