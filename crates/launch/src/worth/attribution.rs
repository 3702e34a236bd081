//! Attribution of a gain to huge pages, or to the allocator that brings them.
//!
//! The same allocator without huge pages runs in the same rounds. The gain of the pages is the
//! quotient of the two within each round: a quotient across rounds would include drift of the
//! machine.

use hugepilot_reports::compare::{CompareReport, GainSource, ModeReport, SameAllocator};

use super::rule::{MIN_GAIN, is_faster};

/// Gain of a mode, by what is known about its allocator.
#[derive(Clone, Copy)]
pub(super) enum Gain {
    /// The mode has the allocator of `base`.
    OfPages,
    /// The allocator was not run alone.
    Unknown,
    /// The allocator was run alone.
    Shared(SameAllocator),
}

impl Gain {
    /// Returns the gain of `best` from its confirmation rounds if they have it, else from the
    /// first.
    pub(super) fn of(report: &CompareReport, best: &ModeReport) -> Self {
        if best.mode.without_huge_pages().is_none() {
            return Self::OfPages;
        }
        let again = report.confirmation.as_ref().filter(|again| again.mode == best.mode);
        let first = || {
            report.modes.iter().find_map(|plain| SameAllocator::of(report.decided_by, best, plain))
        };
        again
            .and_then(|again| again.same_allocator)
            .or_else(first)
            .map_or(Self::Unknown, Self::Shared)
    }

    pub(super) const fn same_allocator(self) -> Option<SameAllocator> {
        match self {
            Self::Shared(plain) => Some(plain),
            _ => None,
        }
    }

    /// Pages if their gain is significant; the allocator if it alone is significantly faster and
    /// the pages add nothing; else unknown.
    pub(super) fn source(self) -> GainSource {
        match self {
            Self::OfPages => GainSource::Pages,
            Self::Unknown => GainSource::Unknown,
            Self::Shared(SameAllocator {
                speedup_over_base: alone,
                speedup_over_same_allocator: pages,
                ..
            }) => {
                if is_faster(pages) {
                    GainSource::Pages
                } else if pages.median < MIN_GAIN && is_faster(alone) {
                    GainSource::Allocator
                } else {
                    GainSource::Unknown
                }
            }
        }
    }
}
