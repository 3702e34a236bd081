//! Regions that the rounds of a tune selected in a process, and what became of them.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::Sum;

use hugepilot_record::tune::SelectedRegion;
use hugepilot_record::{ProcessDecision, ProcessMemory, Promotion, SkipReason, SplitOutcome, Stop};
use hugepilot_units::{Nanos, PageSizes, Region};

use crate::round::{ProcessOutcome, is_split};

/// Selected regions of a process. A region that was selected again has the values of its last
/// round.
#[derive(Clone, Debug, Default)]
pub struct PickedRegions(BTreeMap<Region, Picked>);

/// Numbers of distinct regions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PickedCounts {
    /// Tried.
    pub attempted: u64,
    /// Verified on huge pages: the sum of the next three.
    pub verified: u64,
    /// On huge pages, as far as is known.
    pub kept: u64,
    /// Returned to base pages by the tune.
    pub demoted: u64,
    /// On base pages for another cause.
    pub lost: u64,
}

impl Sum for PickedCounts {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            attempted: sum.attempted + one.attempted,
            verified: sum.verified + one.verified,
            kept: sum.kept + one.kept,
            demoted: sum.demoted + one.demoted,
            lost: sum.lost + one.lost,
        })
    }
}

#[derive(Clone, Debug)]
struct Picked {
    selected: SelectedRegion,
    /// End of the round that promoted it; `None` if none did.
    promoted: Option<Nanos>,
    fate: Fate,
}

/// Fate of a region since its promotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Kept,
    Demoted,
    Lost,
}

impl Picked {
    fn is(&self, fate: Fate) -> bool {
        self.promoted.is_some() && self.fate == fate
    }

    fn note_huge(&mut self, is_huge: bool) {
        if self.fate != Fate::Demoted {
            self.fate = if is_huge { Fate::Kept } else { Fate::Lost };
        }
    }
}

impl PickedRegions {
    /// Notes which regions are huge in `memory`. What was promoted after it was read is unknown.
    pub fn note_memory(&mut self, memory: &ProcessMemory) {
        for (&region, one) in &mut self.0 {
            if one.promoted.is_some_and(|end| memory.time > end) {
                one.note_huge(memory.is_huge(region));
            }
        }
    }

    /// Notes which regions are huge now, by `is_huge`; `None` if that is unknown.
    pub fn note_huge(&mut self, is_huge: impl Fn(Region) -> Option<bool>) {
        for (&region, one) in self.0.iter_mut().filter(|(_, one)| one.promoted.is_some()) {
            if let Some(is_huge) = is_huge(region) {
                one.note_huge(is_huge);
            }
        }
    }

    /// Adds what a round selected and did. `dry_run`: it did nothing.
    pub fn add(
        &mut self,
        sizes: PageSizes,
        decision: &ProcessDecision,
        outcome: &ProcessOutcome,
        dry_run: bool,
    ) {
        for act in &outcome.demotions {
            let Some(one) = self.0.get_mut(&act.region) else { continue };
            match act.outcome {
                _ if is_split(act) => one.fate = Fate::Demoted,
                SplitOutcome::Skipped(SkipReason::AlreadySplit) => one.note_huge(false),
                _ => {}
            }
        }
        if outcome.journal.stopped == Some(Stop::TargetGone) {
            // Its end freed what should have returned.
            let freed: BTreeSet<Region> = decision.demote.iter().copied().collect();
            self.note_huge(|region| freed.contains(&region).then_some(false));
        }
        let verified = outcome.journal.verified_by_region();
        for promotion in &decision.promote {
            let answer = verified.get(&promotion.region).copied();
            if answer.is_some() || dry_run {
                let end = outcome.ended.filter(|_| answer == Some(true));
                self.pick(promotion, sizes, answer, end);
            }
        }
    }

    /// `end`: of the round that promoted it.
    fn pick(
        &mut self,
        promotion: &Promotion,
        sizes: PageSizes,
        verified: Option<bool>,
        end: Option<Nanos>,
    ) {
        let selected = SelectedRegion {
            start: promotion.region.range(sizes).start,
            mapping: promotion.mapping.clone(),
            heat_ratio: promotion.heat_ratio,
            sampled_pages: promotion.sampled_pages,
            verified,
        };
        // A failure leaves what became of an earlier promotion.
        let before = self.0.get(&promotion.region).filter(|_| end.is_none());
        let (promoted, fate) = before.map_or((end, Fate::Kept), |one| (one.promoted, one.fate));
        self.0.insert(promotion.region, Picked { selected, promoted, fate });
    }

    /// Returns all, in address order.
    pub fn selected(&self) -> impl Iterator<Item = &SelectedRegion> {
        self.0.values().map(|one| &one.selected)
    }

    /// Returns the promoted regions that are huge, as far as is known, with the end of the round
    /// that promoted each, and its share of the samples.
    pub fn kept(&self) -> impl Iterator<Item = (Region, Nanos, f64)> {
        let kept = self.0.iter().filter(|(_, one)| one.is(Fate::Kept));
        kept.filter_map(|(&region, one)| Some((region, one.promoted?, one.selected.heat_ratio)))
    }

    /// Returns the share of the samples on the regions that the tune did not return; `None` if
    /// there is none.
    pub fn heat_ratio(&self) -> Option<f64> {
        let chosen = self.0.values().filter(|one| !one.is(Fate::Demoted));
        chosen.map(|one| one.selected.heat_ratio).reduce(|sum, ratio| sum + ratio)
    }

    /// Returns their numbers.
    pub fn counts(&self) -> PickedCounts {
        let count =
            |is: &dyn Fn(&Picked) -> bool| self.0.values().filter(|one| is(one)).count() as u64;
        PickedCounts {
            attempted: count(&|one| one.selected.verified.is_some()),
            verified: count(&|one| one.promoted.is_some()),
            kept: count(&|one| one.is(Fate::Kept)),
            demoted: count(&|one| one.is(Fate::Demoted)),
            lost: count(&|one| one.is(Fate::Lost)),
        }
    }
}

#[cfg(test)]
mod tests;
