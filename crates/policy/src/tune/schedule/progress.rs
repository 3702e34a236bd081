//! Progress of a schedule in a process.

use std::collections::{BTreeMap, BTreeSet};

use hugepilot_record::schedule::{FoundBy, ScheduleAction};
use hugepilot_record::{ProcessSnapshot, SkipReason, Skips};
use hugepilot_reports::tune::{PlannedEvent, ScheduleReport};
use hugepilot_units::{Nanos, Region};
use serde::{Deserialize, Serialize};

use super::place::Place;
use super::{Judge, ProcessState, ScheduleRules, TuneGoal};
use crate::tune::state::is_default;

/// Progress of a schedule in a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScheduleProgress {
    /// Time at which the process was first seen; `None` before its first decision.
    pub(super) since: Option<Nanos>,
    /// Events that were due.
    pub(super) next: u32,
    /// Those that are not done, by time.
    pub(super) waiting: Vec<Waiting>,
    /// Those that are done.
    pub(super) done: Done,
}

/// Due event that is not done.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Waiting {
    /// Position of the event.
    pub(super) event: u32,
    /// Region and time of the last try; `None` before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tried: Option<(Region, Nanos)>,
    /// Number of tries.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) tries: u32,
    /// Why it waits; `None` if it was tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<SkipReason>,
    /// How its mapping was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) found: Option<FoundBy>,
    /// Whether the size of the mapping differs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_resized: bool,
}

impl Waiting {
    pub(super) const fn new(event: u32) -> Self {
        Self { event, tried: None, tries: 0, reason: None, found: None, is_resized: false }
    }

    pub(super) const fn note_try(&mut self, region: Region, now: Nanos) {
        (self.tried, self.reason) = (Some((region, now)), None);
        self.tries = self.tries.saturating_add(1);
    }
}

/// Events that are done, by their end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Done {
    promoted: u64,
    demoted: u64,
    superseded: u64,
    failed: u64,
    skipped: Skips,
    by_ordinal: u64,
    by_size: u64,
    not_found: u64,
    resized: u64,
}

impl Done {
    fn found(&mut self, waiting: &Waiting) {
        *match waiting.found {
            Some(FoundBy::Ordinal) => &mut self.by_ordinal,
            Some(FoundBy::Size) => &mut self.by_size,
            None => &mut self.not_found,
        } += 1;
        self.resized += u64::from(waiting.is_resized);
    }

    pub(super) fn skip(&mut self, waiting: &Waiting, reason: SkipReason) {
        self.found(waiting);
        *self.skipped.entry(reason).or_insert(0) += 1;
    }

    fn apply(&mut self, waiting: &Waiting, action: ScheduleAction) {
        self.found(waiting);
        match action {
            ScheduleAction::Promote => self.promoted += 1,
            ScheduleAction::Demote => self.demoted += 1,
        }
    }
}

impl ScheduleProgress {
    /// Whether the policy is another, or there was no decision.
    pub fn is_empty(&self) -> bool {
        self.since.is_none()
    }

    /// Whether no count can overflow.
    pub(crate) fn is_sound(&self) -> bool {
        let done = &self.done;
        let counts = [
            done.promoted,
            done.demoted,
            done.superseded,
            done.failed,
            done.by_ordinal,
            done.by_size,
            done.not_found,
            done.resized,
        ];
        let all = counts.iter().chain(done.skipped.values());
        all.max().is_none_or(|&most| most <= u64::from(u32::MAX))
    }

    /// Ends the events that were tried with success, or too often.
    pub(super) fn settle(&mut self, rules: &ScheduleRules, past: &ProcessState, goal: &TuneGoal) {
        let done = &mut self.done;
        self.waiting.retain_mut(|waiting| {
            let event = rules.events.get(waiting.event as usize);
            let Some((&(_, action, ..), (region, at))) = event.zip(waiting.tried) else {
                return true;
            };
            let history = past.regions.get(&region).copied().unwrap_or_default();
            let changed = match action {
                ScheduleAction::Promote => history.promoted,
                ScheduleAction::Demote => history.demoted,
            };
            if changed.is_some_and(|changed| changed >= at) {
                done.apply(waiting, action);
                return false;
            }
            if waiting.tries >= goal.max_tries {
                done.found(waiting);
                done.failed += 1;
                return false;
            }
            waiting.tried = None;
            true
        });
    }

    /// Ends the tried events of a dry run.
    pub(super) fn settle_untried(&mut self, rules: &ScheduleRules) {
        let done = &mut self.done;
        self.waiting.retain(|waiting| {
            let event = rules.events.get(waiting.event as usize);
            let Some((&(_, action, ..), _)) = event.zip(waiting.tried) else { return true };
            done.apply(waiting, action);
            false
        });
    }

    /// Ends the events that a later one of the same region replaces.
    pub(super) fn supersede(&mut self, rules: &ScheduleRules) {
        let place = |waiting: &Waiting| {
            let &(_, _, mapping, index) = rules.events.get(waiting.event as usize)?;
            Some((mapping, index))
        };
        let mut last = BTreeMap::new();
        for waiting in &self.waiting {
            last.insert(place(waiting), waiting.event);
        }
        let before = self.waiting.len();
        self.waiting.retain(|waiting| last.get(&place(waiting)) == Some(&waiting.event));
        self.done.superseded += (before - self.waiting.len()) as u64;
    }

    /// Returns the counts of all events so far, with the outcomes of the last round in `past`.
    pub fn report(
        &self,
        rules: &ScheduleRules,
        past: &ProcessState,
        goal: &TuneGoal,
    ) -> ScheduleReport {
        let mut now = self.clone();
        now.settle(rules, past, goal);
        let (mut waiting, mut pending) = (Skips::new(), 0);
        for one in &now.waiting {
            now.done.found(one);
            match one.reason {
                Some(reason) => *waiting.entry(reason).or_insert(0) += 1,
                None => pending += 1,
            }
        }
        let Done { promoted, demoted, superseded, failed, .. } = now.done;
        ScheduleReport {
            program: rules.header.program.clone(),
            source: rules.header.source.clone(),
            policy: rules.header.policy.clone(),
            events: rules.events.len() as u64,
            due_events: u64::from(now.next),
            promoted_events: promoted,
            demoted_events: demoted,
            superseded_events: superseded,
            failed_events: failed,
            pending_events: pending,
            skipped: now.done.skipped,
            waiting,
            found_by_ordinal: now.done.by_ordinal,
            found_by_size: now.done.by_size,
            not_found: now.done.not_found,
            resized: now.done.resized,
            planned: Vec::new(),
        }
    }

    /// Returns the events that became due since `before`, as they are in `process`. A demotion that
    /// follows a promotion of its region could be applied.
    pub fn planned(
        &self,
        before: &Self,
        rules: &ScheduleRules,
        process: &ProcessSnapshot,
        past: &ProcessState,
        goal: &TuneGoal,
    ) -> Vec<PlannedEvent> {
        let due: Vec<Waiting> = (before.next..self.next).map(Waiting::new).collect();
        let memory = &process.memory;
        let place = Place::new(rules, memory, Judge::new(memory, past, goal), &due);
        let earlier = rules.events.iter().take(before.next as usize);
        let promotions = earlier.filter(|(_, action, ..)| *action == ScheduleAction::Promote);
        let mut promoted: BTreeSet<(u32, u64)> =
            promotions.map(|&(_, _, mapping, index)| (mapping, index)).collect();
        let plan = |waiting: &Waiting| {
            let &(after, action, at, index) = rules.events.get(waiting.event as usize)?;
            let region = place.region(at, index);
            let skip = place.of(action, at, index).err().filter(|&reason| {
                reason != SkipReason::AlreadySplit || !promoted.contains(&(at, index))
            });
            if action == ScheduleAction::Promote {
                promoted.insert((at, index));
            }
            Some(PlannedEvent {
                seconds: after.as_seconds(),
                action,
                mapping: rules.mappings.get(at as usize)?.clone(),
                index,
                start: region.map(|region| region.range(memory.sizes).start),
                found_by: place.found(at).0,
                skip,
            })
        };
        due.iter().filter_map(plan).collect()
    }
}
