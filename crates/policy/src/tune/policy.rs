//! Policies of a tune, by name.

use hugepilot_record::PolicyName;
use serde::{Deserialize, Serialize};

use super::{HawkeyeRules, KhugepagedRules, PccRules, ScheduleRules, Selection};

/// Policy that selects the regions, with its rules.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// Regions that pay, by a trial inside the process, or else by the calibrated model.
    #[default]
    Heat,
    /// The promotion candidate cache.
    Pcc(PccRules),
    /// First come, first served.
    Linux,
    /// A cursor through the address spaces.
    Khugepaged(KhugepagedRules),
    /// Highest access coverage first.
    Hawkeye(HawkeyeRules),
    /// Every eligible region.
    All,
    /// No region.
    Never,
    /// The events of a file.
    Schedule(Box<ScheduleRules>),
}

impl Policy {
    /// Returns the policy of this name with its default rules; `None` for an order of splitting,
    /// and for `schedule`, whose rules are those of a file.
    pub fn of(name: PolicyName) -> Option<Self> {
        Some(match name {
            PolicyName::Heat => Self::Heat,
            PolicyName::Pcc => Self::Pcc(PccRules::default()),
            PolicyName::Linux => Self::Linux,
            PolicyName::Khugepaged => Self::Khugepaged(KhugepagedRules::default()),
            PolicyName::Hawkeye => Self::Hawkeye(HawkeyeRules::default()),
            PolicyName::All => Self::All,
            PolicyName::Never => Self::Never,
            PolicyName::Emd | PolicyName::Exact | PolicyName::Schedule => return None,
        })
    }

    /// Returns the name on the command line and in reports.
    pub const fn name(&self) -> PolicyName {
        match self {
            Self::Heat => PolicyName::Heat,
            Self::Pcc(_) => PolicyName::Pcc,
            Self::Linux => PolicyName::Linux,
            Self::Khugepaged(_) => PolicyName::Khugepaged,
            Self::Hawkeye(_) => PolicyName::Hawkeye,
            Self::All => PolicyName::All,
            Self::Never => PolicyName::Never,
            Self::Schedule(_) => PolicyName::Schedule,
        }
    }

    /// Whether samples decide. If not, the policy selects in processes without any sample, too, and
    /// needs the pages of all their mappings.
    pub const fn needs_samples(&self) -> bool {
        matches!(self, Self::Heat | Self::Pcc(_) | Self::Hawkeye(_))
    }

    /// Whether the cores of a process take turns, so that [`hugepilot_record::Window::cores`] is
    /// read.
    pub fn turns_by_core(&self) -> bool {
        matches!(self, Self::Pcc(rules) if rules.selection == Selection::RoundRobin)
    }

    /// Whether regions of streams, and those that the TLB holds, are skipped.
    pub(super) const fn judges_heat(&self) -> bool {
        matches!(self, Self::Heat | Self::Pcc(_))
    }
}
