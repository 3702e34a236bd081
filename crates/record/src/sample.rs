//! A sample: a thread's instruction, and the address on which it stalled.

use hugepilot_units::{Nanos, VirtAddr};
use serde::{Deserialize, Serialize};

use crate::{Pid, Tid};

/// Origin of a sample's data address. Every report prints the shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provenance {
    /// Base and index registers were unchanged, or the hardware gave the address.
    Exact,
    /// An overwritten register was rebuilt from intact ones within the basic block.
    Recomputed,
    /// The load overwrote its own address (a pointer chase); the new value is the address used
    /// next.
    Next,
    /// The code was fetched: the address is that of the code.
    Fetch,
    /// No address: no memory operand, an ambiguous branch target, or unknown code.
    None,
}

/// Access pattern of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// The next address is not known to be near: each access may need its own translation.
    Scattered,
    /// The address advances by less than a page at a time: one translation serves many accesses.
    Streamed,
}

/// Sample of the stall-address sampler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Time on the perf clock (`CLOCK_MONOTONIC`).
    pub time: Nanos,
    /// The process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// The instruction that stalled; if unknown, the one after it.
    pub ip: VirtAddr,
    /// The data address on which it stalled.
    pub address: Option<VirtAddr>,
    /// Origin of that address.
    pub provenance: Provenance,
    /// Access pattern of the instruction.
    pub pattern: Pattern,
    /// Stack pointer of the thread; `None` if the sampler does not report it.
    pub stack: Option<VirtAddr>,
}

/// Samples by provenance, and lost samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvenanceCounts {
    /// [`Provenance::Exact`].
    pub exact: u64,
    /// [`Provenance::Recomputed`].
    pub recomputed: u64,
    /// [`Provenance::Next`].
    pub next: u64,
    /// [`Provenance::Fetch`].
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fetch: u64,
    /// [`Provenance::None`].
    pub none: u64,
    /// Samples in `none` whose code could not be read or is not 64-bit code.
    pub undecoded: u64,
    /// Samples in `none` at a memory access whose address the registers do not give; 0 in older
    /// recordings.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unresolved: u64,
    /// Samples that did not fit into the ring buffer.
    pub lost: u64,
    /// Times the kernel throttled the event.
    pub throttled: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(crate) const fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl ProvenanceCounts {
    /// Counts one sample.
    pub fn count(&mut self, provenance: Provenance) {
        match provenance {
            Provenance::Exact => self.exact += 1,
            Provenance::Recomputed => self.recomputed += 1,
            Provenance::Next => self.next += 1,
            Provenance::Fetch => self.fetch += 1,
            Provenance::None => self.none += 1,
        }
    }
    /// Returns all samples that arrived.
    pub const fn total(&self) -> u64 {
        self.addressed() + self.none
    }
    /// Returns the samples with an address.
    pub const fn addressed(&self) -> u64 {
        self.exact + self.recomputed + self.next + self.fetch
    }
    /// Returns `part` as a share of all samples; `None` without samples.
    #[allow(clippy::cast_precision_loss)]
    pub fn ratio(&self, part: u64) -> Option<f64> {
        (self.total() > 0).then(|| part as f64 / self.total() as f64)
    }
    /// Returns the counts since `earlier`, a copy of these counts.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            exact: self.exact - earlier.exact,
            recomputed: self.recomputed - earlier.recomputed,
            next: self.next - earlier.next,
            fetch: self.fetch - earlier.fetch,
            none: self.none - earlier.none,
            undecoded: self.undecoded - earlier.undecoded,
            unresolved: self.unresolved - earlier.unresolved,
            lost: self.lost - earlier.lost,
            throttled: self.throttled - earlier.throttled,
        }
    }
}
