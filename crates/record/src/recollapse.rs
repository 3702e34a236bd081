//! Re-collapse: split regions that become huge pages again, and its possible causes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The settings by which khugepaged collapses split regions.
///
/// It collapses a region whose empty base pages do not exceed `max_ptes_none`. Pages that a split
/// freed count as empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("sentence" = true))]
pub struct RecollapseRisk {
    /// Mode under which khugepaged collapses these regions.
    pub thp_enabled: ThpScope,
    /// `khugepaged/max_ptes_none`, above 0.
    pub max_ptes_none: u64,
}

/// Regions that khugepaged collapses, by `transparent_hugepage/enabled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ThpScope {
    /// All regions.
    Always,
    /// Regions for which the program requested huge pages (`MADV_HUGEPAGE`), as here.
    Madvise,
}

/// Possible causes of a re-collapse. New memory that a program maps at the same address is always
/// among them: neither the pagemap nor smaps shows the age of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum RecollapseCause {
    /// khugepaged, as it is set now, or new memory of the program.
    KhugepagedOrProgram(RecollapseRisk),
    /// The program or another tool: khugepaged, as it is set now, does not collapse these regions.
    NotKhugepaged,
}
