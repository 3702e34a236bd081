//! Reports of policies in simulated time.

use hugepilot_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{MappingCounts, PageSizeCounts, SimCounts, SimCpu, SimInput};

/// The value of `schema` of [`SimPolicyReport`].
pub const POLICY_SCHEMA: &str = "hugepilot.sim-policy/1";
/// The value of `schema` of [`SimUtilityReport`].
pub const UTILITY_SCHEMA: &str = "hugepilot.sim-utility/1";

/// Region that a policy may promote.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Candidate {
    /// Process, from 0.
    pub process: u16,
    /// Name of its mapping.
    pub mapping: String,
    /// Place among the mappings of that name, in address order, from 0; then former ones.
    pub ordinal: u64,
    /// Index of the region among the 2 MiB regions of the mapping, from that of its first address.
    pub index: u64,
    /// Size of the mapping.
    #[serde(default)]
    pub mapping_bytes: Bytes,
    /// Index among the aligned regions inside the mapping, as schedules have it; `null` at its
    /// border.
    #[serde(default)]
    pub inside_index: Option<u64>,
    /// In a promotion candidate cache: page walks, halved as often as all were. By access coverage:
    /// base pages used during an observation, as a decaying mean, rounded up.
    pub frequency: u64,
}

/// Cycles of the cost model. They are assumptions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostReport {
    /// Cycles of each access.
    pub access: f64,
    /// Cycles of each visit of a page.
    pub visit: f64,
    /// Cycles of each lookup in the L2 TLB.
    pub l2: f64,
    /// Cycles of each memory reference of a page walk.
    pub reference: f64,
}

/// Run of a policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyRun {
    /// Policy: a name of `tune --policy`, `prefix`, or `ideal` for huge pages from the begin.
    pub policy: String,
    /// Share of the memory that huge pages may have; `null` without a limit.
    pub budget_ratio: Option<f64>,
    /// Counts of all accesses.
    #[serde(flatten)]
    pub counts: SimCounts,
    /// Counts by page size, at the time of each access.
    #[serde(default)]
    pub per_page_size: Vec<PageSizeCounts>,
    /// Counts by mapping, most walks first.
    #[serde(default)]
    pub per_mapping: Vec<MappingCounts>,
    /// Regions promoted, demoted ones included.
    pub promotions: u64,
    /// Regions demoted.
    pub demotions: u64,
    /// Regions of 1 GiB promoted.
    pub giant_promotions: u64,
    /// Share of the used regions that are huge at the end.
    pub huge_ratio: f64,
    /// Share of the walks of base pages that this run avoids.
    pub walks_avoided_ratio: f64,
    /// Speedup over base pages by the cost model.
    pub speedup: f64,
}

/// Process of a run of a policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessRun {
    /// Process, from 0: its place among the sources.
    pub process: u16,
    /// Accesses.
    pub accesses: u64,
    /// Walks with base pages only.
    pub base_walks: u64,
    /// Walks with the policy.
    pub walks: u64,
    /// Walks with huge pages only.
    pub ideal_walks: u64,
    /// Regions used.
    pub regions: u64,
    /// Regions that are huge at the end.
    pub huge_regions: u64,
}

/// Report of `sim pcc`, `sim hawkeye`, `sim heat` and `sim prefix`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SimPolicyReport {
    /// [`POLICY_SCHEMA`].
    pub schema: String,
    /// Accesses.
    pub input: SimInput,
    /// CPU.
    pub cpu: SimCpu,
    /// Accesses between two decisions of the policy.
    pub interval: u64,
    /// Decisions that the run had.
    pub rounds: u64,
    /// Huge pages that the machine has; `null` for as many as wanted.
    pub frames: Option<u64>,
    /// Memory of which budgets are shares: that of the 2 MiB regions used by the end; `null` for
    /// that in use at each decision.
    #[serde(default)]
    pub budget_of_bytes: Option<Bytes>,
    /// Cost model.
    pub cost: CostReport,
    /// Base pages only.
    pub base: PolicyRun,
    /// The policy.
    pub run: PolicyRun,
    /// Huge pages only.
    pub ideal: PolicyRun,
    /// Processes, in the order of the sources.
    #[serde(default)]
    pub processes: Vec<ProcessRun>,
    /// Names of `--prefix` that no mapping has.
    #[serde(default)]
    pub prefix_not_found: Vec<String>,
    /// Candidates at the end, highest frequency first. For `pcc`, the entries of the candidate
    /// caches, summed over threads; for `hawkeye`, the regions on base pages with access coverage;
    /// empty for other policies.
    pub candidates: Vec<Candidate>,
}

/// Point of a utility curve: the runs of all policies with one budget.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UtilityPoint {
    /// Share of the memory that huge pages may have.
    pub budget_ratio: f64,
    /// A run for each policy.
    pub runs: Vec<PolicyRun>,
}

/// Report of `sim utility`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SimUtilityReport {
    /// [`UTILITY_SCHEMA`].
    pub schema: String,
    /// Accesses.
    pub input: SimInput,
    /// CPU.
    pub cpu: SimCpu,
    /// Accesses between two decisions of a policy.
    pub interval: u64,
    /// Huge pages that the machine has; `null` for as many as wanted.
    pub frames: Option<u64>,
    /// Memory of which budgets are shares: that of the 2 MiB regions used by the end; `null` for
    /// that in use at each decision.
    #[serde(default)]
    pub budget_of_bytes: Option<Bytes>,
    /// Cost model.
    pub cost: CostReport,
    /// Base pages only: budget 0.
    pub base: PolicyRun,
    /// Huge pages from the begin.
    pub ideal: PolicyRun,
    /// Names of `--prefix` that no mapping has.
    #[serde(default)]
    pub prefix_not_found: Vec<String>,
    /// Points, by budget.
    pub points: Vec<UtilityPoint>,
}
