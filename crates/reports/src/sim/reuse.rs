//! Report of page reuse.

use hugepilot_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SimInput;

/// The value of `schema` of [`SimReuseReport`].
pub const REUSE_SCHEMA: &str = "hugepilot.sim-reuse/1";

/// Accesses with a stack distance.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReuseBucket {
    /// Least distance of the bucket: distinct pages since the last use of the page.
    pub distance: u64,
    /// Accesses.
    pub accesses: f64,
}

/// Point of a miss-ratio curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MissPoint {
    /// Entries of a fully associative TLB with LRU replacement.
    pub entries: u64,
    /// Share of the accesses that miss in it.
    pub miss_ratio: f64,
}

/// Reuse at one page size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReuseLevel {
    /// Page size.
    pub page_bytes: Bytes,
    /// First uses of a page.
    pub first_uses: f64,
    /// Accesses by stack distance, without empty buckets.
    pub histogram: Vec<ReuseBucket>,
    /// Miss-ratio curve.
    pub curve: Vec<MissPoint>,
}

/// Kind of page reuse (Manocha et al., MICRO'23, section 2.2), by mean time distance: accesses
/// between two uses.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum KindOfReuse {
    /// Below 1024 for the base page.
    TlbFriendly,
    /// At least 1024 for the base page and below for its region: a huge page pays.
    Hub,
    /// At least 1024 for both.
    LowReuse,
}

/// Pages of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KindShare {
    /// Kind.
    pub kind: KindOfReuse,
    /// Base pages.
    pub pages: u64,
    /// Their accesses.
    pub accesses: u64,
}

/// Base pages with a mean time distance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DistanceBucket {
    /// Least mean time distance of the bucket, a power of two: accesses between two uses. `null`
    /// for pages that were used once.
    pub distance: Option<u64>,
    /// Base pages.
    pub pages: u64,
    /// Their accesses.
    pub accesses: u64,
    /// Base pages whose 2 MiB region has such a distance.
    pub pages_by_region: u64,
    /// Base pages whose 1 GiB region has such a distance.
    #[serde(default)]
    pub pages_by_giant: u64,
}

/// Base pages by their mean time distance and that of their 2 MiB region: a cell of a scatter plot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PageCell {
    /// Least mean time distance of the cell, a power of two. `null` for pages that were used once.
    pub distance: Option<u64>,
    /// The same for the regions of the pages.
    pub region_distance: Option<u64>,
    /// Base pages.
    pub pages: u64,
}

/// Kinds and distances of the pages of a mapping.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MappingReuse {
    /// Process, from 0.
    pub process: u16,
    /// Name.
    pub mapping: String,
    /// Place among the mappings of that name, in address order, from 0; then former ones.
    pub ordinal: u64,
    /// Its kinds, without those that no page has.
    pub kinds: Vec<KindShare>,
    /// Its pages by mean time distance, nearest first, without empty buckets.
    #[serde(default)]
    pub distances: Vec<DistanceBucket>,
    /// Its pages by both distances, without empty cells.
    #[serde(default)]
    pub page_cells: Vec<PageCell>,
}

/// Report of `sim reuse`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SimReuseReport {
    /// [`REUSE_SCHEMA`].
    pub schema: String,
    /// Accesses.
    pub input: SimInput,
    /// Share of the pages whose stack distance was measured; below 1, counts are estimates.
    pub sampled_ratio: f64,
    /// Reuse at each page size.
    pub levels: Vec<ReuseLevel>,
    /// Kinds of all pages.
    pub kinds: Vec<KindShare>,
    /// All pages by mean time distance.
    #[serde(default)]
    pub distances: Vec<DistanceBucket>,
    /// All pages by their distance and that of their region.
    #[serde(default)]
    pub page_cells: Vec<PageCell>,
    /// Kinds by mapping, most accesses first.
    pub per_mapping: Vec<MappingReuse>,
}
