//! Policy `schedule`: promotions and demotions at the times that a file has.
//!
//! A simulator, or an earlier tune, decided them. An event is due at its time since the process was
//! first seen. Its region is found by mapping and index ([`find_mappings`]), whatever the
//! addresses.
//!
//! An event that cannot be applied yet waits and is retried: its mapping may not exist, less than
//! half of the region may be resident, or a limit is reached. A later event of the same region
//! replaces one that waits. It needs no samples.

mod find;
mod from_journal;
mod place;
mod progress;

use std::collections::{BTreeMap, BTreeSet};

use hugepilot_record::schedule::{Schedule, ScheduleAction, ScheduleHeader, ScheduledMapping};
use hugepilot_record::{Mapping, Next, ProcessSnapshot, Snapshot};
use hugepilot_units::{Nanos, PageSizes, Region};
use serde::{Deserialize, Serialize};

pub use find::{FoundMapping, find_mappings, index_of, region_at};
pub use from_journal::{JournalSchedule, NoSchedule};
pub use progress::ScheduleProgress;

use super::candidates::Judge;
use super::interval::{Interval, Ranked};
use super::{Candidate, Candidates, Decision, ProcessState, State, TuneGoal};
use place::{Place, Placed};
use progress::Waiting;

/// Time from the first sight of a process to its first decision.
pub(super) const FIRST_LOOK: Nanos = Nanos::millis(50);
/// Least time between two decisions.
const LEAST_WAIT: Nanos = Nanos::millis(20);
/// Part of the age of a waiting event after which it is retried.
const RETRY: u64 = 4;

/// Event with its time: since the process was first seen.
pub(super) type DueEvent = (Nanos, ScheduleAction, u32, u64);

/// Rules of the policy `schedule`: the events by time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScheduleRules {
    /// Header of the file.
    pub header: ScheduleHeader,
    /// Mappings of the events.
    pub(crate) mappings: Vec<ScheduledMapping>,
    /// Time, action, position of the mapping, and index of the region; earliest first.
    pub(crate) events: Vec<DueEvent>,
}

/// Event that has no time in the live run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoTime {
    /// Nothing relates its time to seconds.
    #[error("event {0} has no seconds, and the header has no duration of the run")]
    NoSeconds(usize),
    /// Nothing relates its time to a share of the run.
    #[error("event {0} has no share of the run, and the header has no total to compute it")]
    NoShare(usize),
}

impl ScheduleRules {
    /// Makes the rules of a schedule. `duration` is the expected one of the live run, of which
    /// events are shares; `None` for the seconds of the events.
    ///
    /// # Errors
    /// The first event, from 1, that has no such time.
    pub fn new(schedule: &Schedule, duration: Option<Nanos>) -> Result<Self, NoTime> {
        let header = schedule.header();
        let mut events = Vec::with_capacity(schedule.events().len());
        for (number, event) in (1..).zip(schedule.events()) {
            let seconds = match duration {
                Some(duration) => header
                    .share_of(&event.at)
                    .map(|share| share * duration.as_seconds())
                    .ok_or(NoTime::NoShare(number)),
                None => header.seconds_of(&event.at).ok_or(NoTime::NoSeconds(number)),
            }?;
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let after = Nanos::new((seconds * 1e9).round() as u64);
            events.push((after, event.action, event.mapping, event.index));
        }
        // The sort is stable: events of the same time keep the order of the file.
        events.sort_by_key(|&(after, ..)| after);
        let mappings = schedule.mappings().to_vec();
        Ok(Self { header: header.clone(), mappings, events })
    }

    /// Returns the number of events.
    pub fn events(&self) -> usize {
        self.events.len()
    }

    /// Returns the time of the last event; zero without one.
    pub fn end(&self) -> Nanos {
        self.events.last().map_or(Nanos::ZERO, |&(after, ..)| after)
    }

    /// Whether every event has a mapping.
    pub(crate) fn is_sound(&self) -> bool {
        let has_mapping = |&(_, _, mapping, _): &DueEvent| (mapping as usize) < self.mappings.len();
        self.events.len() <= u32::MAX as usize && self.events.iter().all(has_mapping)
    }

    /// Decides a round.
    pub(super) fn decide(
        &self,
        goal: &TuneGoal,
        snapshot: &Snapshot,
        mut state: State,
    ) -> Decision {
        let regions = goal.round_regions();
        let mut interval = Interval::new(goal, snapshot, &mut state, regions, snapshot.time);
        let mut due: Vec<(Nanos, usize, Ranked)> = Vec::new();
        let mut all = Vec::with_capacity(snapshot.processes.len());
        for (index, process) in snapshot.processes.iter().enumerate() {
            let past = state.of_mut(&process.id);
            let mut progress = std::mem::take(&mut past.schedule);
            self.advance(goal, process, snapshot.time, &mut progress);
            progress.settle(self, past, goal);
            progress.supersede(self);
            let found = self.place(goal, process, past, &mut progress, &mut |demoted| {
                interval.demote(index, demoted);
            });
            interval.note(index, &found.candidates);
            if !found.candidates.regions.is_empty() {
                interval.expect(index, &found.candidates);
            }
            let candidates = found.candidates.regions.iter().zip(&found.events);
            due.extend(candidates.map(|(&one, &(after, at))| (after, at, (index, one))));
            all.push(progress);
        }
        // The sort is stable: of the same time, the order is that of processes, then of events.
        due.sort_by_key(|&(after, ..)| after);
        for (_, at, (index, candidate)) in due {
            let waiting = &mut all[index].waiting[at];
            match interval.grant_one(index, &candidate) {
                Ok(()) => waiting.note_try(candidate.region, snapshot.time),
                Err(reason) => waiting.reason = reason,
            }
        }
        for (index, (process, mut progress)) in snapshot.processes.iter().zip(all).enumerate() {
            if goal.model_only {
                progress.settle_untried(self);
            }
            let next = self.next(goal, snapshot, &progress, interval.is_full());
            interval.set_next(index, next);
            state.of_mut(&process.id).schedule = progress;
        }
        Decision { processes: interval.finish(), state }
    }

    /// Returns the regions of the events that are due at `now`, whose pages a decision needs; in
    /// the first decision and in the plan of a dry run, of all events.
    pub(super) fn needed_regions(
        &self,
        goal: &TuneGoal,
        past: Option<&ProcessState>,
        mappings: &[Mapping],
        sizes: PageSizes,
        now: Nanos,
    ) -> BTreeSet<Region> {
        let past = past.map(|past| &past.schedule).filter(|_| !goal.model_only);
        let known = past.and_then(|past| Some((past, past.since?)));
        let due: Vec<&DueEvent> = match known {
            None => self.events.iter().collect(),
            Some((past, since)) => {
                let coming = self.events.iter().skip(past.next as usize);
                let coming = coming.take_while(|&&(after, ..)| after <= now - since);
                let event = |waiting: &Waiting| self.events.get(waiting.event as usize);
                past.waiting.iter().filter_map(event).chain(coming).collect()
            }
        };
        let wanted: BTreeSet<u32> = due.iter().map(|&&(_, _, mapping, _)| mapping).collect();
        let is_wanted = |at: usize| u32::try_from(at).is_ok_and(|at| wanted.contains(&at));
        let found = find_mappings(&self.mappings, mappings, sizes, is_wanted);
        let region = |&&(_, _, mapping, index): &&DueEvent| {
            let found = found.get(mapping as usize).copied().flatten()?;
            region_at(&mappings[found.position], index, sizes)
        };
        due.iter().filter_map(region).collect()
    }

    /// Adds the events whose time has come; in the plan of a dry run, all.
    fn advance(
        &self,
        goal: &TuneGoal,
        process: &ProcessSnapshot,
        now: Nanos,
        progress: &mut ScheduleProgress,
    ) {
        let since = *progress.since.get_or_insert_with(|| first_seen(process, now));
        let is_whole_plan = goal.model_only && !goal.persistent;
        let due = if is_whole_plan {
            self.events.len()
        } else {
            self.events.partition_point(|&(after, ..)| after <= now - since)
        };
        // A journal may have any number.
        let from = (progress.next as usize).min(due);
        progress.waiting.extend((from as u32..due as u32).map(Waiting::new));
        progress.next = progress.next.max(due as u32);
    }

    /// Finds the regions of the waiting events. Ends those that can never be applied, and returns
    /// the promotions that are possible now.
    fn place(
        &self,
        goal: &TuneGoal,
        process: &ProcessSnapshot,
        past: &ProcessState,
        progress: &mut ScheduleProgress,
        demote: &mut dyn FnMut(Region),
    ) -> Possible {
        let memory = &process.memory;
        let place = Place::new(self, memory, Judge::new(memory, past, goal), &progress.waiting);
        let (mut possible, mut stalls) = (Possible::default(), BTreeMap::new());
        let now = memory.time;
        let mut left = Vec::with_capacity(progress.waiting.len());
        for mut waiting in std::mem::take(&mut progress.waiting) {
            let Some(&(after, action, mapping, index)) = self.events.get(waiting.event as usize)
            else {
                continue;
            };
            (waiting.found, waiting.is_resized) = place.found(mapping);
            let placed = place.of(action, mapping, index);
            waiting.reason = placed.as_ref().err().copied();
            match placed {
                Ok(Placed::Promote(region, added)) => {
                    let stalls = process.window.of(region);
                    let (heat, sampled_pages) = (f64::from(stalls), place.sampled_pages(region));
                    let one = Candidate { region, stalls, heat, sampled_pages, added };
                    possible.candidates.regions.push(one);
                    possible.events.push((after, left.len()));
                }
                Ok(Placed::Demote(region)) => {
                    demote(region);
                    waiting.note_try(region, now);
                }
                Err(reason) => {
                    let count = possible.candidates.skipped.entry(reason).or_insert(0);
                    *count += 1;
                    let region = place.region(mapping, index);
                    let count = region.map_or(0, |region| u64::from(process.window.of(region)));
                    *stalls.entry(reason).or_insert(0) += count;
                    if !place::waits(reason) {
                        progress.done.skip(&waiting, reason);
                        continue;
                    }
                }
            }
            left.push(waiting);
        }
        possible.candidates.skipped_stalls = stalls;
        progress.waiting = left;
        possible
    }

    /// Next step of a process.
    fn next(
        &self,
        goal: &TuneGoal,
        snapshot: &Snapshot,
        progress: &ScheduleProgress,
        is_full: bool,
    ) -> Next {
        let now = snapshot.time;
        let since = progress.since.unwrap_or(now);
        let is_whole_plan = goal.model_only && !goal.persistent;
        if snapshot.interrupted || is_whole_plan {
            return Next::End;
        }
        let event = self.events.get(progress.next as usize).map(|&(after, ..)| since + after);
        let retry = progress.waiting.iter().map(|waiting| waiting.event).max().map(|youngest| {
            let is_tried = progress.waiting.iter().any(|waiting| waiting.tried.is_some());
            let (after, ..) = self.events[youngest as usize];
            let age = Nanos::new((now - (since + after)).get() / RETRY);
            let wait = if is_tried { goal.settle } else { age.max(goal.settle) };
            now + wait.min(goal.observe.max(LEAST_WAIT))
        });
        match event.into_iter().chain(retry).min() {
            _ if is_full && retry.is_some() => Next::Until(now),
            Some(at) => Next::Until(at.max(now + LEAST_WAIT)),
            None => Next::End,
        }
    }
}

/// Promotions that are possible now, with the time of each event and its position among those that
/// wait.
#[derive(Default)]
struct Possible {
    candidates: Candidates,
    events: Vec<(Nanos, usize)>,
}

/// Time at which a process was first seen: with its first sample, or shortly before its first
/// decision.
fn first_seen(process: &ProcessSnapshot, now: Nanos) -> Nanos {
    let look = now - FIRST_LOOK;
    let sampled = Some(process.window.since).filter(|_| process.window.samples > 0);
    sampled.map_or(look, |since| since.min(look))
}
