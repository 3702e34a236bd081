//! Sampler of a tune, and the addresses of its samples.

use std::collections::BTreeMap;

use hugepilot_record::ProvenanceCounts;
use hugepilot_units::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Largest share of samples of which nothing is known that still allows a verdict.
pub const MAX_UNKNOWN: f64 = 0.5;

/// Sampler, its samples, and the provenance of their addresses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SamplerReport {
    /// Name of the sampler, such as `cpu-clock`.
    pub source: String,
    /// Samples.
    pub samples: u64,
    /// Share of [`hugepilot_record::Provenance::Exact`]; `None` without samples, as are the next
    /// three.
    pub exact_ratio: Option<f64>,
    /// Share of [`hugepilot_record::Provenance::Recomputed`].
    pub recomputed_ratio: Option<f64>,
    /// Share of [`hugepilot_record::Provenance::Next`].
    pub next_ratio: Option<f64>,
    /// Share of [`hugepilot_record::Provenance::Fetch`].
    pub fetch_ratio: Option<f64>,
    /// Share of [`hugepilot_record::Provenance::None`].
    pub none_ratio: Option<f64>,
    /// Share of samples whose code could not be read or is not 64-bit code, part of `none_ratio`.
    pub undecoded_ratio: Option<f64>,
    /// Share of samples at a memory access whose address the registers do not give, part of
    /// `none_ratio`.
    pub unresolved_ratio: Option<f64>,
    /// Samples that the kernel could not deliver.
    pub lost: u64,
    /// Times that the kernel slowed the event down.
    pub throttled: u64,
    /// Share of the target's CPU time that sampling cost, from the measured cost of one sample;
    /// `None` if that was not measured.
    pub overhead_ratio: Option<f64>,
    /// Measured cost of one sample to the target; `None` if it was not measured.
    pub sample_cost_ns: Option<Nanos>,
    /// Better samplers, and hardware counters, that are unavailable, each with its cause.
    pub unavailable: BTreeMap<String, String>,
}

impl SamplerReport {
    /// Sets the shares of `counts`.
    #[must_use]
    pub fn with_counts(mut self, counts: &ProvenanceCounts) -> Self {
        self.samples = counts.total();
        self.exact_ratio = counts.ratio(counts.exact);
        self.recomputed_ratio = counts.ratio(counts.recomputed);
        self.next_ratio = counts.ratio(counts.next);
        self.fetch_ratio = counts.ratio(counts.fetch);
        self.none_ratio = counts.ratio(counts.none);
        self.undecoded_ratio = counts.ratio(counts.undecoded);
        self.unresolved_ratio = counts.ratio(counts.unresolved);
        self.lost = counts.lost;
        self.throttled = counts.throttled;
        self
    }

    /// Shares of the samples without decoded code, and of those at an access whose address the
    /// registers do not give.
    pub fn unknown(&self) -> [f64; 2] {
        [self.undecoded_ratio, self.unresolved_ratio].map(Option::unwrap_or_default)
    }

    /// Whether nothing is known of most samples.
    pub fn is_mostly_unknown(&self) -> bool {
        self.unknown().iter().sum::<f64>() > MAX_UNKNOWN
    }
}
