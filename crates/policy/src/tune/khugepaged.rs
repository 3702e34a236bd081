//! Policy `khugepaged`: a cursor through the address spaces, as the kernel's thread of that name.
//!
//! At each scan, the next regions in the order of processes and addresses are promoted, whatever
//! their use. It needs no samples.

use std::collections::BTreeMap;

use hugepilot_record::{Pid, SkipReason, Snapshot};
use hugepilot_units::{Nanos, Region};
use serde::{Deserialize, Serialize};

use super::interval::{Interval, Ranked};
use super::state::Cursor;
use super::{Candidate, Candidates, Decision, State, TuneGoal};
use crate::mapping_skip;

/// Rules of the policy `khugepaged`, as below `/sys/kernel/mm/transparent_hugepage/khugepaged`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KhugepagedRules {
    /// Base pages of a scan, of all processes together; a region counts as a whole.
    pub pages_to_scan: u64,
    /// Time between two scans.
    pub scan_sleep: Nanos,
    /// Most base pages of a region that are neither resident nor swapped out.
    pub max_ptes_none: u64,
}

impl Default for KhugepagedRules {
    /// The kernel's own.
    fn default() -> Self {
        Self { pages_to_scan: 4096, scan_sleep: Nanos::seconds(10), max_ptes_none: 511 }
    }
}

/// A region of a scan, by the place of its process.
struct Scanned {
    pid: Pid,
    region: Region,
    process: usize,
    /// `None` if a rule forbids its promotion.
    candidate: Option<Candidate>,
}

impl KhugepagedRules {
    /// Decides one scan, or that it is not due yet.
    pub(super) fn decide(
        &self,
        goal: &TuneGoal,
        snapshot: &Snapshot,
        mut state: State,
    ) -> Decision {
        let due = state.place.cursor.map_or(snapshot.time, |last| last.time + self.scan_sleep);
        let is_due = due <= snapshot.time;
        let until = if is_due { snapshot.time + self.scan_sleep } else { due };
        let mut interval = Interval::new(goal, snapshot, &mut state, usize::MAX, until);
        let mut regions = Vec::new();
        for (index, process) in snapshot.processes.iter().enumerate() {
            let past = state.of_mut(&process.id);
            let found = Candidates::eligible(&process.memory, &process.window, past, goal);
            interval.note(index, &found);
            interval.expect(index, &found);
            regions.extend(scannable(snapshot, index, &found));
        }
        if is_due && !snapshot.interrupted {
            let ranked = self.scan(snapshot, regions, &mut state, &mut interval);
            interval.grant(&ranked);
        }
        Decision { processes: interval.finish(), state }
    }

    /// Candidates among the next regions after the cursor, which moves on. A scan passes each
    /// region once at most.
    fn scan(
        &self,
        snapshot: &Snapshot,
        mut regions: Vec<Scanned>,
        state: &mut State,
        interval: &mut Interval<'_>,
    ) -> Vec<Ranked> {
        regions.sort_by_key(|one| (one.pid, one.region));
        let last = state.place.cursor.map(|cursor| (cursor.pid, cursor.region));
        let start =
            regions.partition_point(|one| last.is_some_and(|last| (one.pid, one.region) <= last));
        let (mut pages, mut ranked) = (0, Vec::new());
        for one in regions[start..].iter().chain(&regions[..start]) {
            if pages >= self.pages_to_scan {
                break;
            }
            let memory = &snapshot.processes[one.process].memory;
            pages += memory.sizes.base_per_huge();
            state.place.cursor =
                Some(Cursor { pid: one.pid, region: one.region, time: snapshot.time });
            let Some(candidate) = one.candidate else { continue };
            let used = memory.pages.get(&one.region).map_or(0, |one| one.resident + one.swapped);
            if memory.sizes.base_per_huge().saturating_sub(used) > self.max_ptes_none {
                interval.skip(one.process, SkipReason::TooFewResident, &candidate);
            } else {
                ranked.push((one.process, candidate));
            }
        }
        ranked
    }
}

/// Regions that a scan passes: those with known pages in mappings that may have huge pages.
fn scannable(snapshot: &Snapshot, index: usize, found: &Candidates) -> Vec<Scanned> {
    let process = &snapshot.processes[index];
    let (pid, memory) = (process.id.pid, &process.memory);
    let by_region: BTreeMap<Region, Candidate> =
        found.regions.iter().map(|candidate| (candidate.region, *candidate)).collect();
    let mut regions = Vec::new();
    for mapping in memory.mappings.iter().filter(|mapping| mapping_skip(mapping).is_none()) {
        let Some(inside) = memory.sizes.span_inside(mapping.range) else { continue };
        regions.extend(memory.pages.range(inside).map(|(&region, _)| Scanned {
            pid,
            region,
            process: index,
            candidate: by_region.get(&region).copied(),
        }));
    }
    regions
}
