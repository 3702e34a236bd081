//! The orders: how soon a huge page is split.

use super::Candidate;

/// How the next huge page to split is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Address order, one process after the other: the baseline. HawkEye scans a process from its lowest address and splits
    /// what has any zero page, then goes on to the next (EMD, section 3).
    Hawkeye,
    /// Highest bucket of bloat density first (EMD, section 4.2).
    Emd {
        /// Buckets; the paper has ten.
        buckets: u32,
    },
    /// Highest bloat density first.
    Exact,
    /// Most freed bytes for the time that the split costs. Density alone takes the emptiest huge page to be the least
    /// used; where the few used pages of an empty one are the hottest of all, that is wrong.
    Heat,
}

/// Worth is alike within this factor: from so few samples it is not known better, and density and fairness decide.
const ALIKE: f64 = 2.0;

/// Gives those of like worth the same class. The most worthy one begins the first class, so that no bound between two classes
/// lies by chance among the best.
pub(super) fn by_worth(candidates: &mut [Candidate]) {
    candidates.sort_by(|a, b| b.worth.total_cmp(&a.worth));
    let (mut class, mut best) = (0, f64::INFINITY);
    for one in candidates {
        if one.worth * ALIKE < best {
            (class, best) = (class - 1, one.worth);
        }
        one.class = class;
    }
}

impl Order {
    /// EMD as the paper has it.
    pub const EMD: Self = Self::Emd { buckets: 10 };

    /// The name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hawkeye => "hawkeye",
            Self::Emd { .. } => "emd",
            Self::Exact => "exact",
            Self::Heat => "heat",
        }
    }
    /// Whether the stalls of each region decide, so that the processes must be observed first.
    pub const fn needs_heat(self) -> bool {
        matches!(self, Self::Heat)
    }
    /// How its processes share, unless the user says otherwise.
    pub(super) const fn fairness(self) -> super::Fairness {
        match self {
            Self::Hawkeye => super::Fairness::Off,
            _ => super::Fairness::RoundRobin,
        }
    }
    /// Huge pages of one process in a row: the paper's 100 where the paper decides, else few, so that also a small amount is
    /// shared.
    pub(super) const fn quantum(self) -> usize {
        match self {
            Self::Hawkeye | Self::Emd { .. } => 100,
            Self::Exact | Self::Heat => 8,
        }
    }
    pub(super) const fn is_of_the_paper(self) -> bool {
        matches!(self, Self::Hawkeye | Self::Emd { .. })
    }

    /// The class of a huge page of `all` base pages, `zero_pages` of them zero-filled, where the cost is not known. Higher goes
    /// first.
    pub(super) fn class(self, zero_pages: u32, all: u32) -> i64 {
        match self {
            Self::Hawkeye => 0,
            Self::Emd { buckets } => {
                // The paper's ten buckets of 512 pages are 50 wide, and the last one has the 12 that are over.
                let width = (u64::from(all) * 500 / 512 / u64::from(buckets.max(1))).max(1);
                let bucket = (u64::from(zero_pages) / width).min(u64::from(buckets.max(1)) - 1);
                i64::try_from(bucket).unwrap_or(i64::MAX)
            }
            Self::Exact | Self::Heat => zero_pages.into(),
        }
    }
}
