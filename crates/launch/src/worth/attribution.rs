//! Whose a gain is: that of huge pages, or of the allocator that brings them.
//!
//! The same allocator without huge pages is run in the same rounds, and what the pages give is the quotient of the two within each
//! round: those of different rounds would hold what else the machine did meanwhile.

use hugepilot_record::compare::{CompareReport, ModeReport, SameAllocator};
use hugepilot_record::run::Mode;
use hugepilot_stats::PairedRatio;
use hugepilot_units::Bytes;

use super::rule::{MIN_GAIN, is_faster};
use super::{huge, rounds};

/// The gain of a mode.
#[derive(Clone, Copy)]
pub(super) enum Gain {
    /// It has no other allocator than `base`.
    OfPages,
    /// Its allocator was not run alone, as this mode.
    Unknown(Mode),
    /// It was.
    Shared(SameAllocator),
}

impl Gain {
    /// That of `best`: by its further rounds, where they tell, else by the first.
    pub(super) fn of(report: &CompareReport, best: &ModeReport) -> Self {
        let Some(control) = best.mode.without_huge_pages() else { return Self::OfPages };
        let again = report.confirmation.as_ref().filter(|found| found.mode == best.mode);
        let at_first = || {
            report.modes.iter().find_map(|plain| SameAllocator::of(report.decided_by, best, plain))
        };
        again
            .and_then(|found| found.same_allocator)
            .or_else(at_first)
            .map_or(Self::Unknown(control), Self::Shared)
    }

    pub(super) const fn same_allocator(self) -> Option<SameAllocator> {
        match self {
            Self::Shared(plain) => Some(plain),
            _ => None,
        }
    }

    /// Huge pages where they gain for sure, the allocator where they do not even look so; else it is not known which.
    pub(super) fn what_pays(self) -> &'static str {
        match self {
            Self::OfPages => "Huge pages pay",
            Self::Shared(plain) if is_faster(plain.speedup_over_same_allocator) => "Huge pages pay",
            Self::Shared(_) if self.is_allocators() => {
                "The allocator pays, and its huge pages add nothing"
            }
            _ => "It pays",
        }
    }

    /// Whether it is had without huge pages as well, and that is sure.
    fn is_allocators(self) -> bool {
        self.same_allocator().is_some_and(
            |SameAllocator {
                 speedup_over_base: alone, speedup_over_same_allocator: pages, ..
             }| { pages.median < MIN_GAIN && is_faster(alone) },
        )
    }

    /// How much is whose; and where huge pages are not needed, that.
    pub(super) fn shares(self, report: &CompareReport, pays: bool) -> String {
        let SameAllocator { mode, speedup_over_base: alone, speedup_over_same_allocator: pages } =
            match self {
                Self::OfPages => return String::new(),
                Self::Unknown(control) if pays => {
                    return format!(
                        " How much of that is its allocator's is not known without {control}."
                    );
                }
                Self::Unknown(_) => return String::new(),
                Self::Shared(plain) => plain,
            };
        let had = report.modes.iter().find(|plain| plain.mode == mode).map_or(Bytes::ZERO, huge);
        let had = if had == Bytes::ZERO { "none".to_owned() } else { had.to_string() };
        let PairedRatio { median, faster_rounds: faster, rounds: all, .. } = pages;
        let advice = if pays && self.is_allocators() {
            format!(" Run it with {mode}.")
        } else {
            String::new()
        };
        format!(
            " Of that, {mode} (with {had} on huge pages) gives {:.2}x, and the pages {median:.2}x, faster in {faster} of {}.{advice}",
            alone.median,
            rounds(all)
        )
    }
}
