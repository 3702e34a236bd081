//! What one address space was like before we came, and what was tried in it. Another one starts afresh: its addresses, its
//! budget and its proof are its own.

use std::collections::BTreeMap;

use hugepilot_kernel::Claim;
use hugepilot_policy::Share;
use hugepilot_record::tune::Prediction;
use hugepilot_record::{Outcome, Pick, Pid, ProcessId, RegionPages};
use hugepilot_units::{Bytes, Region};

/// A region that failed so often is left alone.
const MAX_TRIES: u32 = 3;

/// What is known of one address space.
#[derive(Debug, Default)]
pub(super) struct SpaceState {
    /// When its process started; tells it from a later one with the same number.
    start_ticks: u64,
    /// Its memory on huge pages before the first promotion.
    pub(super) huge_before: Bytes,
    /// Its samples before the first promotion.
    pub(super) untouched: Share,
    /// What its first plan should gain.
    pub(super) predicted: Option<Prediction>,
    /// Whether a promotion was tried.
    pub(super) acted: bool,
    /// Held from the first promotion on.
    pub(super) claim: Option<Claim>,
    picked: BTreeMap<Region, PickState>,
}

/// What became of a region that was picked.
#[derive(Debug, Default)]
struct PickState {
    /// Its share of the samples that its last plan was made from.
    heat_ratio: f64,
    failures: u32,
    verified: bool,
}

impl SpaceState {
    /// Takes in how things stand, as long as nothing was tried.
    pub(super) fn look(&mut self, huge: Bytes, samples: Share) {
        if !self.acted {
            (self.huge_before, self.untouched) = (huge, samples);
        }
    }
    /// What is left of `budget` with `huge` bytes on huge pages now. What was huge before us costs nothing, and what we
    /// made and the program has given back since may be spent again.
    pub(super) fn left_of(&self, budget: Bytes, huge: Bytes) -> Bytes {
        budget - (huge - self.huge_before)
    }
    /// Whether a region is a candidate: neither one that we promoted and that is huge still, nor one that always fails.
    pub(super) fn may_pick(&self, region: Region, pages: Option<&RegionPages>) -> bool {
        self.picked.get(&region).is_none_or(|picked| {
            let done = picked.verified && pages.is_none_or(|pages| pages.huge);
            !done && picked.failures < MAX_TRIES
        })
    }
    /// Notes what became of a pick; `None` when nothing was done.
    pub(super) fn note(&mut self, pick: &Pick, outcome: Option<Outcome>) {
        let picked = self.picked.entry(pick.region).or_default();
        picked.heat_ratio = pick.heat_ratio;
        picked.verified |= outcome == Some(Outcome::Verified);
        picked.failures += u32::from(outcome.is_some_and(|outcome| outcome != Outcome::Verified));
        self.acted |= outcome.is_some();
    }
    /// Regions that were seen on a huge page after we promoted them.
    pub(super) fn verified(&self) -> u64 {
        self.picked.values().filter(|picked| picked.verified).count() as u64
    }
    /// The picks' share of the samples that their plans were made from, at most 1: a later plan has more samples, and its
    /// picks had time to gain on the earlier ones.
    pub(super) fn heat_ratio(&self) -> f64 {
        self.picked.values().fold(0.0_f64, |sum, picked| sum + picked.heat_ratio).min(1.0)
    }
}

/// The address spaces that were planned for.
#[derive(Debug, Default)]
pub(super) struct AddressSpaces(BTreeMap<Pid, SpaceState>);

impl AddressSpaces {
    /// That of process `id`; a new one where it was not planned for yet.
    pub(super) fn of(&mut self, id: &ProcessId) -> &mut SpaceState {
        let new = || SpaceState { start_ticks: id.start_ticks, ..SpaceState::default() };
        let tuned = self.0.entry(id.pid).or_insert_with(new);
        if tuned.start_ticks != id.start_ticks {
            *tuned = new();
        }
        tuned
    }
    /// That of process `id`, where it was planned for.
    pub(super) fn known(&self, id: &ProcessId) -> Option<&SpaceState> {
        self.0.get(&id.pid).filter(|tuned| tuned.start_ticks == id.start_ticks)
    }
    /// Forgets all but those that `stays` says.
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
    fn a_budget_is_spent_by_what_we_made_and_nothing_else() {
        let mut tuned = SpaceState::default();
        tuned.look(Bytes::mib(100), Share { scattered: 1, all: 2 });
        tuned.note(&pick(1, 0.5), Some(Outcome::Verified));
        tuned.look(Bytes::mib(106), Share { scattered: 9, all: 9 });
        assert_eq!(
            tuned.untouched,
            Share { scattered: 1, all: 2 },
            "of before the first promotion"
        );
        assert_eq!(tuned.left_of(Bytes::mib(10), Bytes::mib(106)), Bytes::mib(4));
        assert_eq!(
            tuned.left_of(Bytes::mib(10), Bytes::mib(90)),
            Bytes::mib(10),
            "given back, and more"
        );
    }

    #[test]
    fn what_is_done_or_hopeless_is_no_candidate() {
        let mut tuned = SpaceState::default();
        tuned.note(&pick(1, 0.1), Some(Outcome::Verified));
        assert!(!tuned.may_pick(Region::new(1), Some(&pages(1, true))));
        assert!(
            tuned.may_pick(Region::new(1), Some(&pages(1, false))),
            "the program took it apart"
        );
        for _ in 0..3 {
            assert!(tuned.may_pick(Region::new(2), Some(&pages(2, false))));
            tuned.note(&pick(2, 0.1), Some(Outcome::Failed(Errno::EAGAIN)));
        }
        assert!(!tuned.may_pick(Region::new(2), Some(&pages(2, false))));
        assert!(tuned.may_pick(Region::new(3), Some(&pages(3, true))), "huge, and not by us");
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
        assert!(spaces.known(&id(1, 11)).is_none(), "the number means another process now");
        assert!(!spaces.of(&id(1, 11)).acted);
        spaces.retain(|pid| pid != Pid(1));
        assert!(spaces.known(&id(1, 11)).is_none() && spaces.known(&id(2, 20)).is_some());
    }
}
