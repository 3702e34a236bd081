//! State of each tuned address space: before the first promotion, and since. Each has addresses, a
//! budget and verified promotions of its own.

use std::collections::BTreeMap;

use hugepilot_kernel::Claim;
use hugepilot_policy::Share;
use hugepilot_record::tune::Prediction;
use hugepilot_record::{Outcome, Pick, Pid, ProcessId, RegionPages};
use hugepilot_units::{Bytes, Region};

/// Failures after which a region is skipped.
const MAX_TRIES: u32 = 3;

/// State of one address space.
#[derive(Debug, Default)]
pub(super) struct SpaceState {
    /// Start time of its process, which differs from that of a later process with the same pid.
    start_ticks: u64,
    /// Memory on huge pages before the first promotion.
    pub(super) huge_before: Bytes,
    /// Samples before the first promotion.
    pub(super) untouched: Share,
    /// Predicted gain of the first plan.
    pub(super) predicted: Option<Prediction>,
    /// Whether a promotion was tried.
    pub(super) acted: bool,
    /// Claim, from the first promotion on.
    pub(super) claim: Option<Claim>,
    picked: BTreeMap<Region, PickState>,
}

/// State of a selected region.
#[derive(Debug, Default)]
struct PickState {
    /// Share of the samples of its last plan.
    heat_ratio: f64,
    failures: u32,
    verified: bool,
}

impl SpaceState {
    /// Notes the state before the first promotion.
    pub(super) fn note_before(&mut self, huge: Bytes, samples: Share) {
        if !self.acted {
            (self.huge_before, self.untouched) = (huge, samples);
        }
    }
    /// Remainder of `budget` with `huge` bytes on huge pages now. Huge pages from before the tune
    /// do not count, and those that the program has freed since can be spent again.
    pub(super) fn left_of(&self, budget: Bytes, huge: Bytes) -> Bytes {
        budget - (huge - self.huge_before)
    }
    /// Whether a region is a candidate: not if it was promoted and is still huge, or always fails.
    pub(super) fn may_pick(&self, region: Region, pages: Option<&RegionPages>) -> bool {
        self.picked.get(&region).is_none_or(|picked| {
            let done = picked.verified && pages.is_none_or(|pages| pages.huge);
            !done && picked.failures < MAX_TRIES
        })
    }
    /// Notes the outcome of a selected region; `None` if nothing was done.
    pub(super) fn note(&mut self, pick: &Pick, outcome: Option<Outcome>) {
        let picked = self.picked.entry(pick.region).or_default();
        picked.heat_ratio = pick.heat_ratio;
        picked.verified |= outcome == Some(Outcome::Verified);
        picked.failures += u32::from(outcome.is_some_and(|outcome| outcome != Outcome::Verified));
        self.acted |= outcome.is_some();
    }
    /// Regions that were verified on huge pages.
    pub(super) fn verified(&self) -> u64 {
        self.picked.values().filter(|picked| picked.verified).count() as u64
    }
    /// Share of the samples of their plans, of all selected regions together. It is at most 1:
    /// later plans have more samples, so the shares can add up to more.
    pub(super) fn heat_ratio(&self) -> f64 {
        self.picked.values().fold(0.0_f64, |sum, picked| sum + picked.heat_ratio).min(1.0)
    }
}

/// Address spaces that were planned for.
#[derive(Debug, Default)]
pub(super) struct AddressSpaces(BTreeMap<Pid, SpaceState>);

impl AddressSpaces {
    /// State of process `id`; a new one before its first plan.
    pub(super) fn of(&mut self, id: &ProcessId) -> &mut SpaceState {
        let new = || SpaceState { start_ticks: id.start_ticks, ..SpaceState::default() };
        let tuned = self.0.entry(id.pid).or_insert_with(new);
        if tuned.start_ticks != id.start_ticks {
            *tuned = new();
        }
        tuned
    }
    /// State of process `id`; `None` before its first plan.
    pub(super) fn known(&self, id: &ProcessId) -> Option<&SpaceState> {
        self.0.get(&id.pid).filter(|tuned| tuned.start_ticks == id.start_ticks)
    }
    /// Drops all states except those that `stays` selects.
    pub(super) fn retain(&mut self, stays: impl Fn(Pid) -> bool) {
        self.0.retain(|&pid, _| stays(pid));
    }
}

#[cfg(test)]
mod tests {
    use hugepilot_record::Errno;

    use super::*;

    fn id(pid: i32, start_ticks: u64) -> ProcessId {
        ProcessId { pid: Pid(pid), start_ticks, command: String::new() }
    }

    fn pick(region: u64, heat_ratio: f64) -> Pick {
        let (region, added) = (Region::new(region), Bytes::ZERO);
        Pick { region, heat_ratio, sampled_pages: 9, added, mapping: "[anon]".to_owned() }
    }

    fn pages(region: u64, huge: bool) -> RegionPages {
        RegionPages { region: Region::new(region), resident: 512, swapped: 0, huge, shared: 0 }
    }

    #[test]
    fn only_promotions_of_this_run_spend_the_budget() {
        let mut tuned = SpaceState::default();
        tuned.note_before(Bytes::mib(100), Share { scattered: 1, all: 2 });
        tuned.note(&pick(1, 0.5), Some(Outcome::Verified));
        tuned.note_before(Bytes::mib(106), Share { scattered: 9, all: 9 });
        assert_eq!(tuned.untouched, Share { scattered: 1, all: 2 }, "before the first promotion");
        assert_eq!(tuned.left_of(Bytes::mib(10), Bytes::mib(106)), Bytes::mib(4));
        assert_eq!(
            tuned.left_of(Bytes::mib(10), Bytes::mib(90)),
            Bytes::mib(10),
            "freed since, and more"
        );
    }

    #[test]
    fn promoted_and_failing_regions_are_not_candidates() {
        let mut tuned = SpaceState::default();
        tuned.note(&pick(1, 0.1), Some(Outcome::Verified));
        assert!(!tuned.may_pick(Region::new(1), Some(&pages(1, true))));
        assert!(tuned.may_pick(Region::new(1), Some(&pages(1, false))), "the program split it");
        for _ in 0..3 {
            assert!(tuned.may_pick(Region::new(2), Some(&pages(2, false))));
            tuned.note(&pick(2, 0.1), Some(Outcome::Failed(Errno::EAGAIN)));
        }
        assert!(!tuned.may_pick(Region::new(2), Some(&pages(2, false))));
        assert!(
            tuned.may_pick(Region::new(3), Some(&pages(3, true))),
            "promoted by another process"
        );
        assert_eq!(tuned.verified(), 1);
    }

    #[test]
    fn a_region_picked_twice_counts_once() {
        let mut tuned = SpaceState::default();
        assert!(tuned.heat_ratio().is_sign_positive(), "no -0 in the report");
        tuned.note(&pick(1, 0.25), None);
        assert!(!tuned.acted, "a dry run");
        tuned.note(&pick(1, 0.5), Some(Outcome::NotVerified));
        tuned.note(&pick(2, 0.25), Some(Outcome::Verified));
        assert_eq!(tuned.heat_ratio(), 0.75);
        tuned.note(&pick(3, 0.5), Some(Outcome::Verified));
        assert_eq!(tuned.heat_ratio(), 1.0);
    }

    #[test]
    fn each_address_space_has_its_own_and_keeps_it_while_others_are_tuned() {
        let mut spaces = AddressSpaces::default();
        spaces.of(&id(1, 10)).note(&pick(1, 0.5), Some(Outcome::Verified));
        assert!(!spaces.of(&id(2, 20)).acted);
        assert!(spaces.of(&id(1, 10)).acted && spaces.known(&id(1, 10)).is_some());
        assert!(spaces.known(&id(1, 11)).is_none(), "the pid belongs to another process now");
        assert!(!spaces.of(&id(1, 11)).acted);
        spaces.retain(|pid| pid != Pid(1));
        assert!(spaces.known(&id(1, 11)).is_none() && spaces.known(&id(2, 20)).is_some());
    }
}
