//! One moment of one thread: where it was, and which address it was waiting for.

use hugepilot_units::{Nanos, VirtAddr};
use serde::{Deserialize, Serialize};

use crate::{Pid, Tid};

/// How the data address of a sample was found. Every report prints the shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provenance {
    /// Base and index registers still held what they held, or the hardware gave the address.
    Exact,
    /// An overwritten register was rebuilt from intact ones within the basic block.
    Recomputed,
    /// The load overwrote its own address (a pointer chase); the new value is the address used next.
    Next,
    /// No address: no memory operand, an ambiguous branch target, or unknown code.
    None,
}

/// How an instruction walks through memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Nothing says that its next address is near: each access may need its own translation.
    Scattered,
    /// It moves on by less than a page at a time: one translation serves many accesses.
    Streamed,
}

/// One sample of the stall-address sampler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// When, on the perf clock (`CLOCK_MONOTONIC`).
    pub time: Nanos,
    /// The process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// The instruction that was waiting; where that is unknown, the one after it.
    pub ip: VirtAddr,
    /// The data address it waited for.
    pub address: Option<VirtAddr>,
    /// How that address was found.
    pub provenance: Provenance,
    /// How the instruction walks through memory.
    pub pattern: Pattern,
    /// Where the thread's stack was; `None` when the source does not tell.
    pub stack: Option<VirtAddr>,
}

/// How many samples had which provenance, and how many were lost on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvenanceCounts {
    /// [`Provenance::Exact`].
    pub exact: u64,
    /// [`Provenance::Recomputed`].
    pub recomputed: u64,
    /// [`Provenance::Next`].
    pub next: u64,
    /// [`Provenance::None`].
    pub none: u64,
    /// Of `none`, those whose code could not be read or is not 64-bit code: nothing is known of them.
    pub undecoded: u64,
    /// Samples the kernel could not put into the ring.
    pub lost: u64,
    /// Times the kernel throttled the event.
    pub throttled: u64,
}

impl ProvenanceCounts {
    /// Counts one sample.
    pub fn count(&mut self, provenance: Provenance) {
        match provenance {
            Provenance::Exact => self.exact += 1,
            Provenance::Recomputed => self.recomputed += 1,
            Provenance::Next => self.next += 1,
            Provenance::None => self.none += 1,
        }
    }
    /// All samples that arrived.
    pub const fn total(&self) -> u64 {
        self.exact + self.recomputed + self.next + self.none
    }
    /// Samples with an address.
    pub const fn addressed(&self) -> u64 {
        self.exact + self.recomputed + self.next
    }
    /// What part of all samples `part` is; `None` when there are none.
    #[allow(clippy::cast_precision_loss)]
    pub fn ratio(&self, part: u64) -> Option<f64> {
        (self.total() > 0).then(|| part as f64 / self.total() as f64)
    }
    /// What came since `earlier`, a copy of these counts.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            exact: self.exact - earlier.exact,
            recomputed: self.recomputed - earlier.recomputed,
            next: self.next - earlier.next,
            none: self.none - earlier.none,
            undecoded: self.undecoded - earlier.undecoded,
            lost: self.lost - earlier.lost,
            throttled: self.throttled - earlier.throttled,
        }
    }
}
