//! Places of events in a process, and whether they can be applied there.

use hugepilot_record::schedule::{FoundBy, ScheduleAction};
use hugepilot_record::{ProcessMemory, SkipReason};
use hugepilot_units::{Bytes, Region};

use super::progress::Waiting;
use super::{FoundMapping, ScheduleRules, find_mappings, region_at};
use crate::mapping_split_skip;
use crate::tune::AddedMemory;
use crate::tune::candidates::Judge;

/// Event that can be applied.
pub(super) enum Placed {
    /// Promote the region, which adds memory.
    Promote(Region, AddedMemory),
    /// Demote the region.
    Demote(Region),
}

/// Mappings of a schedule in a process.
pub(super) struct Place<'a> {
    memory: &'a ProcessMemory,
    judge: Judge<'a>,
    found: Vec<Option<FoundMapping>>,
    /// Whether the regions of the schedule have the size of huge pages here.
    has_size: bool,
}

impl<'a> Place<'a> {
    /// Finds the mappings of the events that wait.
    pub(super) fn new(
        rules: &ScheduleRules,
        memory: &'a ProcessMemory,
        judge: Judge<'a>,
        waiting: &[Waiting],
    ) -> Self {
        let mut is_wanted = vec![false; rules.mappings.len()];
        for waiting in waiting {
            let event = rules.events.get(waiting.event as usize);
            let wanted = event.and_then(|&(_, _, mapping, _)| is_wanted.get_mut(mapping as usize));
            wanted.into_iter().for_each(|wanted| *wanted = true);
        }
        let (mappings, sizes) = (&memory.mappings, memory.sizes);
        let found = find_mappings(&rules.mappings, mappings, sizes, |at| is_wanted[at]);
        Self { memory, judge, found, has_size: rules.header.region_bytes == sizes.huge }
    }

    fn mapping(&self, mapping: u32) -> Option<FoundMapping> {
        self.found.get(mapping as usize).copied().flatten()
    }

    /// Rule by which a mapping was found, and whether its size differs.
    pub(super) fn found(&self, mapping: u32) -> (Option<FoundBy>, bool) {
        let found = self.mapping(mapping);
        (found.map(|found| found.by), found.is_some_and(|found| found.is_resized))
    }

    /// Region of an event; `None` if the process does not have it.
    pub(super) fn region(&self, mapping: u32, index: u64) -> Option<Region> {
        let found = self.mapping(mapping).filter(|_| self.has_size)?;
        region_at(&self.memory.mappings[found.position], index, self.memory.sizes)
    }

    pub(super) fn sampled_pages(&self, region: Region) -> u32 {
        self.judge.sampled_pages(region)
    }

    /// Decides whether an event can be applied.
    ///
    /// # Errors
    /// The rule that forbids it.
    pub(super) fn of(
        &self,
        action: ScheduleAction,
        mapping: u32,
        index: u64,
    ) -> Result<Placed, SkipReason> {
        let region = self.region(mapping, index).ok_or(SkipReason::Unaligned)?;
        let found = self.mapping(mapping).ok_or(SkipReason::Unaligned)?;
        let mapping = &self.memory.mappings[found.position];
        match action {
            ScheduleAction::Promote => {
                let added = self.judge.added_by_schedule(mapping, region);
                // Pages of a mapping without resident memory are not read.
                let is_empty = mapping.resident == Bytes::ZERO;
                added.map(|added| Placed::Promote(region, added)).map_err(|reason| match reason {
                    SkipReason::Special if is_empty => SkipReason::TooFewResident,
                    reason => reason,
                })
            }
            ScheduleAction::Demote => {
                if let Some(reason) = mapping_split_skip(mapping) {
                    return Err(reason);
                }
                let is_huge = self.memory.pages.get(&region).is_some_and(|pages| pages.huge);
                if is_huge { Ok(Placed::Demote(region)) } else { Err(SkipReason::AlreadySplit) }
            }
        }
    }
}

/// Whether an event waits that a rule forbids now: the memory or a limit may change.
pub(super) const fn waits(reason: SkipReason) -> bool {
    matches!(
        reason,
        SkipReason::Unaligned
            | SkipReason::TooFewResident
            | SkipReason::LazilyFreed
            | SkipReason::MostlySwapped
            | SkipReason::SharedAfterFork
            | SkipReason::OverBudget
            | SkipReason::CgroupHeadroom
            | SkipReason::SystemHeadroom
            | SkipReason::MemoryPressure
    )
}
