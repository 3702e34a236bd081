//! Ledger of a process: the regions that the rounds of a tune selected, and what became of each.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::Sum;

use hugepilot_record::{ProcessMemory, Promotion, SkipReason, SplitOutcome, Stop};
use hugepilot_reports::tune::{ExecReport, FreedBy, RegionState, SelectedRegion};
use hugepilot_units::{Nanos, PageSizes, Region};

use crate::round::{Row, is_split};
use crate::tune::AddedMemory;

/// Selected regions of a process. A region that was selected again has the values of its last
/// round.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    regions: BTreeMap<Region, Entry>,
    freed_by: Option<FreedBy>,
}

/// Numbers of distinct regions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerCounts {
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
    /// Cause that freed all regions of a process at once.
    freed_by: Option<FreedBy>,
}

impl LedgerCounts {
    /// Returns the cause that freed every promoted region at once; `None` if one is left.
    pub fn freed_by(&self) -> Option<FreedBy> {
        self.freed_by.filter(|_| self.kept == 0 && self.lost > 0)
    }
}

impl Sum for LedgerCounts {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            attempted: sum.attempted + one.attempted,
            verified: sum.verified + one.verified,
            kept: sum.kept + one.kept,
            demoted: sum.demoted + one.demoted,
            lost: sum.lost + one.lost,
            freed_by: sum.freed_by.or(one.freed_by),
        })
    }
}

#[derive(Clone, Debug)]
struct Entry {
    selected: SelectedRegion,
    /// End of the round that promoted it; `None` if none did.
    promoted: Option<Nanos>,
    /// Memory that its huge page added.
    added: AddedMemory,
    /// Whether it was huge until the last reading, which found its memory unmapped.
    just_unmapped: bool,
}

impl Entry {
    fn is(&self, state: RegionState) -> bool {
        self.selected.state == Some(state)
    }

    fn may_be_huge(&self) -> bool {
        self.is(RegionState::Huge) || self.is(RegionState::Lost)
    }

    fn note_huge(&mut self, is_huge: bool) {
        if self.may_be_huge() {
            let state = if is_huge { RegionState::Huge } else { RegionState::Lost };
            self.selected.state = Some(state);
        }
    }
}

impl Ledger {
    /// Notes which regions are huge in `memory`. What was promoted after it was read is unknown.
    pub fn note_memory(&mut self, memory: &ProcessMemory) {
        for (&region, one) in &mut self.regions {
            if one.promoted.is_some_and(|end| memory.time > end) {
                let is_mapped = memory.mapping_of(region).is_some();
                one.just_unmapped = one.is(RegionState::Huge) && !is_mapped;
                one.note_huge(memory.is_huge(region));
            }
        }
    }

    /// Notes which regions are huge now, by `is_huge`; `None` if that is unknown. Asks only about
    /// those that the tune did not return.
    pub fn note_huge(&mut self, is_huge: impl Fn(Region) -> Option<bool>) {
        for (&region, one) in self.regions.iter_mut().filter(|(_, one)| one.may_be_huge()) {
            if let Some(is_huge) = is_huge(region) {
                one.note_huge(is_huge);
            }
        }
    }

    /// Notes that the process ended. What it unmapped just before stayed huge to its end.
    pub fn note_end(&mut self) {
        self.regions
            .values_mut()
            .filter(|one| one.just_unmapped)
            .for_each(|one| one.note_huge(true));
    }

    /// Notes that all memory was freed.
    pub fn note_freed(&mut self, cause: FreedBy) {
        self.note_huge(|_| Some(false));
        self.freed_by = Some(cause);
    }

    /// Adds the program to those that an exec replaced, if it had promoted regions.
    pub fn note_exec(&self, is_in_trial: bool, exec: &mut Option<ExecReport>) {
        let LedgerCounts { kept, lost, .. } = self.counts();
        if kept + lost > 0 {
            let exec = exec.get_or_insert_default();
            exec.programs += 1;
            exec.freed_regions += kept + lost;
            exec.trials += u64::from(is_in_trial);
        }
    }

    /// Adds what a round selected and did. `dry_run`: it did nothing.
    pub fn add(&mut self, row: &Row, dry_run: bool) {
        let Row { seen, decision, outcome, .. } = row;
        let sizes = seen.memory.sizes;
        for act in &outcome.demotions {
            let Some(one) = self.regions.get_mut(&act.region) else { continue };
            match act.outcome {
                _ if is_split(act) => one.selected.state = Some(RegionState::Demoted),
                SplitOutcome::Skipped(SkipReason::AlreadySplit) => one.note_huge(false),
                _ => {}
            }
        }
        if outcome.attempts.stopped == Some(Stop::TargetGone) {
            // Its end freed what should have returned.
            let freed: BTreeSet<Region> = decision.demote.iter().copied().collect();
            self.note_huge(|region| freed.contains(&region).then_some(false));
            self.freed_by = Some(FreedBy::End).filter(|_| !freed.is_empty());
        }
        let verified = outcome.attempts.verified_by_region();
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
        // A failure leaves what became of an earlier promotion.
        let before = self.regions.get(&promotion.region).filter(|_| end.is_none());
        let before = before.map(|one| (one.promoted, one.selected.state, one.added));
        let Promotion { added: total, lazily_freed, .. } = *promotion;
        let added = AddedMemory { total, lazily_freed };
        let (promoted, state, added) =
            before.unwrap_or((end, end.map(|_| RegionState::Huge), added));
        let selected = SelectedRegion {
            start: promotion.region.range(sizes).start,
            mapping: promotion.mapping.clone(),
            heat_ratio: promotion.heat_ratio,
            sampled_pages: promotion.sampled_pages,
            verified,
            state,
        };
        let entry = Entry { selected, promoted, added, just_unmapped: false };
        self.regions.insert(promotion.region, entry);
    }

    /// Returns all, in address order.
    pub fn selected(&self) -> impl Iterator<Item = &SelectedRegion> {
        self.regions.values().map(|one| &one.selected)
    }

    /// Returns the promoted regions that are huge, as far as is known, with the end of the round
    /// that promoted each, and its share of the samples.
    pub fn kept(&self) -> impl Iterator<Item = (Region, Nanos, f64)> {
        let kept = self.regions.iter().filter(|(_, one)| one.is(RegionState::Huge));
        kept.filter_map(|(&region, one)| Some((region, one.promoted?, one.selected.heat_ratio)))
    }

    /// Returns the memory that the promotions added and that was not returned: that of regions
    /// which are huge, as far as is known, and lazily freed memory also of regions that a split
    /// returned to base pages.
    pub fn added(&self) -> AddedMemory {
        let mut sum = AddedMemory::default();
        for one in self.regions.values() {
            let AddedMemory { total, lazily_freed } = one.added;
            match one.selected.state {
                Some(RegionState::Huge) => sum.total += total,
                Some(RegionState::Demoted) => sum.total += lazily_freed,
                _ => continue,
            }
            sum.lazily_freed += lazily_freed;
        }
        sum
    }

    /// Returns the share of the samples on the selected regions that are not on base pages again;
    /// `None` if there is none.
    pub fn heat_ratio(&self) -> Option<f64> {
        let is_left = |one: &&Entry| matches!(one.selected.state, None | Some(RegionState::Huge));
        let chosen = self.regions.values().filter(is_left);
        chosen.map(|one| one.selected.heat_ratio).reduce(|sum, ratio| sum + ratio)
    }

    /// Returns their numbers.
    pub fn counts(&self) -> LedgerCounts {
        let count = |is: &dyn Fn(&Entry) -> bool| {
            self.regions.values().filter(|one| is(one)).count() as u64
        };
        LedgerCounts {
            attempted: count(&|one| one.selected.verified.is_some()),
            verified: count(&|one| one.promoted.is_some()),
            kept: count(&|one| one.is(RegionState::Huge)),
            demoted: count(&|one| one.is(RegionState::Demoted)),
            lost: count(&|one| one.is(RegionState::Lost)),
            freed_by: self.freed_by,
        }
    }
}

#[cfg(test)]
mod tests;
