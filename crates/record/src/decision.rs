//! Decision: what a round does in each process.

use std::collections::BTreeMap;

use hugepilot_units::{Bytes, Nanos, Region};
use serde::{Deserialize, Serialize};

use crate::{Prediction, ProcessId, SkipReason, Skips};

/// Region to promote.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Promotion {
    /// Region.
    pub region: Region,
    /// Expected share of all samples of its process.
    pub heat_ratio: f64,
    /// Distinct base pages with samples.
    pub sampled_pages: u32,
    /// Memory that the huge page adds: its base pages that are not resident, and those that the
    /// program freed lazily.
    pub added: Bytes,
    /// The second of these, which a split does not return.
    #[serde(default, skip_serializing_if = "Bytes::is_zero")]
    pub lazily_freed: Bytes,
    /// Label of its mapping.
    pub mapping: String,
}

/// Next thing that the engine does with a process, after acting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Next {
    /// Observe for this time, then read the memory again.
    Observe(Nanos),
    /// Observe until this time of the monotonic clock, then read the memory again.
    Until(Nanos),
    /// Observe for this time. The memory need not be read again.
    Peek(Nanos),
    /// Start a new window after the first time, and observe for the second. The memory need not be
    /// read again.
    Restart(Nanos, Nanos),
    /// Start a new window now, observe for this time, then read the memory again.
    Renew(Nanos),
    /// Nothing more can change.
    End,
}

/// Expected speedup of a process, by the model.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Expected {
    /// If all eligible memory is on huge pages.
    pub eligible: Prediction,
    /// If all memory is that pays within the limits.
    pub chosen: Prediction,
}

/// Decision for one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessDecision {
    /// The process.
    pub process: ProcessId,
    /// Regions to promote, in this order.
    pub promote: Vec<Promotion>,
    /// Regions to return to base pages.
    pub demote: Vec<Region>,
    /// Regions that may be promoted, whatever the budget, without those already promoted.
    pub eligible: u64,
    /// Regions skipped, by reason.
    pub skipped: Skips,
    /// Stalls on skipped regions, by reason.
    pub skipped_stalls: BTreeMap<SkipReason, u64>,
    /// Expected speedup, in the round that judged it.
    pub expected: Option<Expected>,
    /// Next step.
    pub next: Next,
}

impl ProcessDecision {
    /// Counts a skipped region.
    pub fn skip(&mut self, reason: SkipReason, stalls: u32) {
        *self.skipped.entry(reason).or_insert(0) += 1;
        *self.skipped_stalls.entry(reason).or_insert(0) += u64::from(stalls);
    }
    /// Share of all samples of the process on the regions to promote.
    pub fn heat_ratio(&self) -> f64 {
        self.promote.iter().fold(0.0, |sum, promotion| sum + promotion.heat_ratio)
    }
}
