//! Rounds of a journal in a recording: what each did, and the heat and the pages that it read.

use std::collections::{BTreeMap, HashMap};

use hugepilot_policy::debloat::round::SplitRound;
use hugepilot_policy::journal::{JournalLines, JournalRound};
use hugepilot_policy::round::{Round, is_split};
use hugepilot_record::{
    Mapping, MappingKind, Pid, ProcessId, ProcessSnapshot, SplitOutcome, Window,
};
use hugepilot_units::{Bytes, Nanos, Region};
use serde_json::Value;

use super::census::ProcessCensus;
use crate::{HeatSlice, HotRegion, Line, MappingPages, PageSlice, RecordedProcess};

/// Processes whose windows are kept at most.
const MAX_PROCESSES: usize = 1024;
/// Rounds kept at most, each process a row.
const MAX_ROWS: usize = 10_000;

/// Round of a process: its samples, its selection, and its changes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RoundRow {
    /// Time of the decision, as `explain` has it.
    pub(crate) decided: Nanos,
    /// End of its actions.
    pub(crate) time: Nanos,
    pub(crate) id: ProcessId,
    /// Stall samples that the decision was made of.
    pub(crate) samples: Option<u64>,
    /// Regions that it selected.
    pub(crate) selected: u64,
    /// Regions that were verified on huge pages, and those that returned to base pages.
    pub(crate) promoted: u64,
    pub(crate) demoted: u64,
    /// Huge pages that were split to free memory, and the memory.
    pub(crate) split: u64,
    pub(crate) freed: Bytes,
    /// Why its acts ended early.
    pub(crate) stopped: Option<String>,
}

impl RoundRow {
    /// Its changes, in words; `None` without any.
    pub(crate) fn change(&self) -> Option<String> {
        let parts = [(self.promoted, "promoted"), (self.demoted, "demoted"), (self.split, "split")];
        let parts = parts.into_iter().filter(|(count, _)| *count > 0);
        let parts: Vec<String> = parts.map(|(count, what)| format!("{count} {what}")).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// The rounds so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rounds {
    lines: JournalLines,
    pub(crate) rows: Vec<RoundRow>,
    pub(crate) ignored: u64,
    /// The last census of each process.
    pub(crate) census: BTreeMap<Pid, ProcessCensus>,
    /// Window and time of the pages of each process in its last round.
    last: HashMap<Pid, (Window, Nanos)>,
}

impl Rounds {
    /// Adds a line of the journal. Returns what it shows of the processes, as lines of a recording.
    ///
    /// # Errors
    /// The cause, if the line is damaged.
    pub(crate) fn add(&mut self, line: Value) -> Result<Vec<Line>, String> {
        match self.lines.round(line).map_err(|error| error.to_string())? {
            None => Ok(Vec::new()),
            Some(JournalRound::Tune(round)) => Ok(self.add_tune(&round)),
            Some(JournalRound::Debloat(round)) => Ok(self.add_splits(&round)),
            Some(JournalRound::Daemon(_)) => Ok(Vec::new()),
        }
    }

    fn push(&mut self, row: RoundRow) {
        if self.rows.len() < MAX_ROWS {
            self.rows.push(row);
        } else {
            self.ignored += 1;
        }
    }

    fn add_tune(&mut self, round: &Round) -> Vec<Line> {
        let mut lines = Vec::new();
        for row in &round.rows {
            let (process, outcome) = (&row.seen, &row.outcome);
            lines.push(Line::Process(recorded(round.time, &process.id)));
            let pid = process.id.pid;
            if self.last.len() < MAX_PROCESSES || self.last.contains_key(&pid) {
                lines.extend(self.heat(process));
                lines.extend(self.pages(process));
                self.last.insert(pid, (process.window.clone(), process.memory.time));
            }
            self.push(RoundRow {
                decided: round.time,
                time: outcome.ended.unwrap_or(round.time),
                id: process.id.clone(),
                samples: Some(process.window.samples),
                selected: row.decision.promote.len() as u64,
                promoted: outcome.attempts.verified(),
                demoted: outcome.demoted(),
                split: 0,
                freed: Bytes::ZERO,
                stopped: outcome.attempts.stopped.map(|stop| stop.to_string()),
            });
        }
        lines
    }

    fn add_splits(&mut self, round: &SplitRound) -> Vec<Line> {
        let mut lines = Vec::new();
        for (at, row) in round.rows.iter().enumerate() {
            let id = &row.seen.census.process;
            lines.push(Line::Process(recorded(round.time, id)));
            if self.census.len() < MAX_PROCESSES || self.census.contains_key(&id.pid) {
                self.census.insert(id.pid, ProcessCensus::of(row, round.dry_run));
            }
            let acts = &row.outcome.acts;
            let freed = acts.iter().map(|act| match act.outcome {
                SplitOutcome::Freed(bytes) => bytes,
                _ => Bytes::ZERO,
            });
            let stopped = row.outcome.ended.or(round.stopped);
            self.push(RoundRow {
                decided: round.time,
                time: round.time,
                id: id.clone(),
                samples: row.seen.stalls.as_ref().map(|all| {
                    all.values().fold(0, |sum: u64, one| sum.saturating_add(u64::from(*one)))
                }),
                selected: round.plan.splits.iter().filter(|split| split.process == at).count()
                    as u64,
                promoted: 0,
                demoted: 0,
                split: acts.iter().filter(|act| is_split(act)).count() as u64,
                freed: freed.sum(),
                stopped: stopped.map(|stop| stop.to_string()),
            });
        }
        lines
    }

    /// Stall samples of a process since its last round.
    fn heat(&self, process: &ProcessSnapshot) -> Option<Line> {
        let (window, pid) = (&process.window, process.id.pid);
        let before = self.last.get(&pid).map(|(before, _)| before);
        let before = before.filter(|before| before.until > window.since);
        // The counts of a window that was faded were halved.
        let halves = before.map_or(0, |before| u32::from(before.since != window.since));
        let old = |count: u64| count >> halves;
        let more = |now: u64, before: Option<u64>| now.saturating_sub(before.map_or(0, old));
        let (stalls, earlier) = (stalls(window), before.map(stalls).unwrap_or_default());
        let regions = stalls.iter().filter_map(|(region, &count)| {
            let count = more(count, earlier.get(region).copied());
            let huge = process.memory.pages.get(region).map(|pages| pages.huge);
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            (count > 0).then_some(HotRegion(*region, count, 0, huge))
        });
        let regions: Vec<HotRegion> = regions.collect();
        let samples = more(window.samples, before.map(|before| before.samples));
        let unknown = more(window.unknown, before.map(|before| before.unknown));
        let since = before.map_or(window.since, |before| before.until.max(window.since));
        let scattered: u64 = regions.iter().map(|region| u64::from(region.1)).sum();
        (samples > 0).then(|| {
            Line::Heat(HeatSlice {
                time: window.until,
                length: window.until - since,
                pid,
                samples,
                addressed: samples.saturating_sub(unknown),
                // A simulated table may drop a region and count it from 0 again.
                scattered: scattered.min(samples),
                regions,
                mappings: Vec::new(),
                threads: Vec::new(),
            })
        })
    }

    /// Mappings of a process, if they were read since its last round.
    fn pages(&self, process: &ProcessSnapshot) -> Option<Line> {
        let (time, pid) = (process.memory.time, process.id.pid);
        if self.last.get(&pid).is_some_and(|(_, last)| *last >= time) {
            return None;
        }
        let mappings = process.memory.mappings.iter().filter(|one| one.resident > Bytes::ZERO);
        let mappings = mappings.map(mapping_pages).collect();
        Some(Line::Pages(PageSlice { time, pid, mappings }))
    }
}

fn recorded(time: Nanos, id: &ProcessId) -> RecordedProcess {
    RecordedProcess { time, id: id.clone(), threads: Vec::new() }
}

fn mapping_pages(mapping: &Mapping) -> MappingPages {
    let huge = mapping.huge.get();
    let is_hugetlb = mapping.kind == MappingKind::Hugetlb;
    MappingPages {
        range: mapping.range,
        name: mapping.label().to_owned(),
        resident_bytes: mapping.resident.get(),
        thp_bytes: if is_hugetlb { 0 } else { huge },
        hugetlb_bytes: if is_hugetlb { huge } else { 0 },
    }
}

/// Stalls of both kinds by region.
fn stalls(window: &Window) -> BTreeMap<Region, u64> {
    let mut all = BTreeMap::<Region, u64>::new();
    for (&region, &count) in window.stalls.iter().chain(&window.chases) {
        let sum = all.entry(region).or_default();
        *sum = sum.saturating_add(u64::from(count));
    }
    all
}
