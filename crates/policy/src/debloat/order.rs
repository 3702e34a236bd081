//! Orders: the rank of a huge page among those to split.

use serde::{Deserialize, Serialize};

use super::Candidate;

/// Order in which huge pages are split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Address order, one process after the other: the baseline. HawkEye scans a process from its
    /// lowest address, splits each huge page with a zero-filled page, then continues with the next
    /// process (EMD, section 3).
    Hawkeye,
    /// Highest bucket of bloat density first (EMD, section 4.2).
    Emd {
        /// Number of buckets; the paper has ten.
        buckets: u32,
    },
    /// Highest bloat density first.
    Exact,
    /// Most freed bytes per time that the split costs. Density alone assumes that the most bloated
    /// huge page is the least used. That is wrong if its few used pages are the hottest.
    Heat,
}

/// Factor within which worth counts as equal: few samples give no better resolution, so density and
/// fairness decide.
const EQUAL_WITHIN: f64 = 2.0;

/// Gives candidates of equal worth the same class. The most valuable one starts the first class, so
/// that no class boundary is among the best by chance.
pub(super) fn by_worth(candidates: &mut [Candidate]) {
    candidates.sort_by(|a, b| b.worth.total_cmp(&a.worth));
    let (mut class, mut best) = (0, f64::INFINITY);
    for candidate in candidates {
        if candidate.worth * EQUAL_WITHIN < best {
            (class, best) = (class - 1, candidate.worth);
        }
        candidate.class = class;
    }
}

impl Order {
    /// EMD with the paper's ten buckets.
    pub const EMD: Self = Self::Emd { buckets: 10 };

    /// Returns the name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hawkeye => "hawkeye",
            Self::Emd { .. } => "emd",
            Self::Exact => "exact",
            Self::Heat => "heat",
        }
    }
    /// Whether stalls per region decide, so that processes must be sampled first.
    pub const fn needs_heat(self) -> bool {
        matches!(self, Self::Heat)
    }
    /// Returns the default fairness.
    pub(super) const fn fairness(self) -> super::Fairness {
        match self {
            Self::Hawkeye => super::Fairness::Off,
            _ => super::Fairness::RoundRobin,
        }
    }
    /// Returns the default number of huge pages of one process in a row: the paper's 100 for its
    /// orders, else few, so that small amounts are shared too.
    pub(super) const fn quantum(self) -> usize {
        match self {
            Self::Hawkeye | Self::Emd { .. } => 100,
            Self::Exact | Self::Heat => 8,
        }
    }
    pub(super) const fn is_from_the_paper(self) -> bool {
        matches!(self, Self::Hawkeye | Self::Emd { .. })
    }

    /// Returns the class of a huge page of `all` base pages with `zero_pages` zero-filled ones, by
    /// density alone. Higher classes go first.
    pub(super) fn class(self, zero_pages: u32, all: u32) -> i64 {
        match self {
            Self::Hawkeye => 0,
            Self::Emd { buckets } => {
                // The paper's ten buckets of 512 pages are 50 wide; the last one has the remaining
                // 12.
                let width = (u64::from(all) * 500 / 512 / u64::from(buckets.max(1))).max(1);
                let bucket = (u64::from(zero_pages) / width).min(u64::from(buckets.max(1)) - 1);
                i64::try_from(bucket).unwrap_or(i64::MAX)
            }
            Self::Exact | Self::Heat => zero_pages.into(),
        }
    }
}
