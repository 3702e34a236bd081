//! Policy `linux`: first come, first served, as the kernel does with THP `always`.
//!
//! The kernel gives a huge page to each region at its first touch, until none is free. Here,
//! regions are promoted in the order in which a reading first saw them present, and by address
//! within a reading. It needs no samples.

use std::collections::{BTreeMap, BTreeSet};

use hugepilot_record::{ProcessMemory, Snapshot};
use hugepilot_units::{Nanos, Region};
use serde::{Deserialize, Serialize};

use super::interval::{Interval, Ranked, next_interval};
use super::{Candidate, Candidates, Decision, State, TuneGoal};

/// Regions of a process in the order in which they were first seen present, as runs of adjacent
/// ones. A region that has left is forgotten: if it returns, it is new.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FirstTouch(Vec<Run>);

/// First region, number of regions, and the time of the reading.
type Run = (Region, u64, Nanos);

impl FirstTouch {
    /// Whether no region was seen.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of regions; `None` if it is too large to be one of regions.
    pub fn regions(&self) -> Option<u64> {
        self.0.iter().try_fold(0_u64, |sum, &(first, count, _)| {
            first.get().checked_add(count)?;
            sum.checked_add(count)
        })
    }

    /// Returns each region with the time at which it was first seen, earliest first.
    pub fn order(&self) -> impl Iterator<Item = (Nanos, Region)> + '_ {
        self.0.iter().flat_map(|&(first, count, seen)| {
            (0..count).map(move |offset| (seen, Region::new(first.get() + offset)))
        })
    }

    /// Notes the regions that are present at `now`.
    fn note(&mut self, memory: &ProcessMemory, now: Nanos) {
        let present = memory.pages.values().filter(|pages| pages.huge || pages.resident > 0);
        let mut present: BTreeSet<Region> = present.map(|pages| pages.region).collect();
        let mut runs: Vec<Run> = Vec::new();
        let mut add = |seen: Nanos, region: Region| match runs.last_mut() {
            Some((first, count, time)) if *time == seen && first.get() + *count == region.get() => {
                *count += 1;
            }
            _ => runs.push((region, 1, seen)),
        };
        for (seen, region) in self.order() {
            if present.remove(&region) {
                add(seen, region);
            }
        }
        present.into_iter().for_each(|region| add(now, region));
        self.0 = runs;
    }
}

/// Decides one interval for all processes of the snapshot.
pub(super) fn decide(goal: &TuneGoal, snapshot: &Snapshot, mut state: State) -> Decision {
    let until = next_interval(snapshot.time, goal.observe);
    let mut interval = Interval::new(goal, snapshot, &mut state, goal.round_regions(), until);
    let mut queue: Vec<(Nanos, Ranked)> = Vec::new();
    for (index, process) in snapshot.processes.iter().enumerate() {
        let past = state.of_mut(&process.id);
        past.touched.note(&process.memory, snapshot.time);
        let mut found = Candidates::eligible(&process.memory, &process.window, past, goal);
        let by_region: BTreeMap<Region, Candidate> =
            found.regions.iter().map(|candidate| (candidate.region, *candidate)).collect();
        let order = past.touched.order();
        let ordered: Vec<(Nanos, Candidate)> =
            order.filter_map(|(seen, region)| Some((seen, *by_region.get(&region)?))).collect();
        found.regions = ordered.iter().map(|&(_, candidate)| candidate).collect();
        interval.note(index, &found);
        interval.expect(index, &found);
        queue.extend(ordered.into_iter().map(|(seen, candidate)| (seen, (index, candidate))));
    }
    // The sort is stable: within a reading, the order is that of processes, then of addresses.
    queue.sort_by_key(|&(seen, _)| seen);
    let ranked: Vec<Ranked> = queue.into_iter().map(|(_, ranked)| ranked).collect();
    interval.grant_in_rounds(&ranked);
    Decision { processes: interval.finish(), state }
}
