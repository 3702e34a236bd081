//! Policy `pcc`: the promotion candidate cache (Manocha et al., MICRO'23, sections 3.2 and 3.3).
//!
//! A table of each process holds its regions with the most stalls. At each interval, the first
//! candidates of all tables are promoted, by frequency or in turn, those of preferred processes
//! before all others. If the budget is spent, promoted regions may be demoted for candidates
//! (`demotion.rs`): those that still walk much, and cold ones. Both are options.
//!
//! The paper counts page walks in a table of each core. A live process has one table of stall
//! samples. A simulation counts cores apart, so that the table of each takes its turn.
//!
//! There is no trial: the policy promotes whatever is hot.

mod demotion;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hugepilot_record::Snapshot;
use hugepilot_units::{Nanos, Region};
use serde::{Deserialize, Serialize};

use super::interval::{Interval, Ranked, next_interval};
use super::state::is_default;
use super::{Candidate, Candidates, Decision, State, TuneGoal};

/// Order in which the candidates of several tables are promoted (section 3.3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Selection {
    /// Most stalls first, of whichever process.
    #[default]
    HighestFrequency,
    /// Tables in turn, a candidate of each: of cores if their stalls are known, else of processes.
    RoundRobin,
}

/// Rules of the policy `pcc`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PccRules {
    /// Candidates that the table of a process holds (section 3.2.1: 128).
    pub entries: usize,
    /// Regions promoted in an interval, of all processes together (section 3.3.1: as many as a
    /// table holds).
    pub promotions: usize,
    /// Order among tables.
    pub selection: Selection,
    /// Preferred processes, by pid or name, whose candidates come first (section 3.3.2: process
    /// bias).
    pub bias: Vec<String>,
    /// Whether promoted regions that still walk much give up their huge pages for candidates that
    /// would save more, once the budget is spent (section 3.3.3).
    #[serde(default)]
    pub demote: bool,
    /// Whether promoted regions that were not used in the last observations by accessed bits do
    /// so, too. Where no accessed bits are read, none do.
    #[serde(default)]
    pub demote_cold: bool,
    /// Time after the begin of an interval at which it has a decision, too; 0 for none. The
    /// published simulator of the paper has one after 1 s.
    #[serde(default, skip_serializing_if = "is_default")]
    pub early: Nanos,
}

impl Default for PccRules {
    fn default() -> Self {
        Self {
            entries: 128,
            promotions: 128,
            selection: Selection::HighestFrequency,
            bias: Vec::new(),
            demote: false,
            demote_cold: false,
            early: Nanos::ZERO,
        }
    }
}

/// Candidates of a process or of one of its cores, the first one to promote first.
struct Table {
    /// Place of the process.
    process: usize,
    /// Turns that it had in earlier intervals.
    turn: usize,
    candidates: VecDeque<Candidate>,
}

impl PccRules {
    /// Decides one interval for all processes of the snapshot.
    pub(super) fn decide(
        &self,
        goal: &TuneGoal,
        snapshot: &Snapshot,
        mut state: State,
    ) -> Decision {
        let until = self.next_decision(snapshot.time, goal.observe);
        let mut interval = Interval::new(goal, snapshot, &mut state, self.promotions, until);
        let mut tables = Vec::new();
        for (index, process) in snapshot.processes.iter().enumerate() {
            let past = state.of_mut(&process.id);
            let held = past.regions.values().filter(|past| past.promoted.is_some()).count();
            let mut found = Candidates::of(&process.memory, &process.window, past, goal);
            // A table has counts of its own only: neighbours have no entry.
            found.regions.retain(|candidate| candidate.stalls > 0);
            found.regions.sort_by(|a, b| b.stalls.cmp(&a.stalls).then(a.region.cmp(&b.region)));
            interval.note(index, &found);
            interval.expect(index, &found);
            let cores = match self.selection {
                Selection::HighestFrequency => &[][..],
                Selection::RoundRobin => &process.window.cores[..],
            };
            tables.extend(self.tables(index, found.regions, cores, held));
        }
        let refused = interval.grant(&self.rank(snapshot, tables));
        if self.demote || self.demote_cold {
            self.note(snapshot, &interval, &mut state);
            let promoted = demotion::promoted(snapshot, &mut state, goal.observe);
            self.demote(&refused, snapshot, &promoted, &mut interval);
        }
        Decision { processes: interval.finish(), state }
    }

    /// Time of the decision after the one at `time`.
    fn next_decision(&self, time: Nanos, length: Nanos) -> Nanos {
        if self.early == Nanos::ZERO {
            return next_interval(time, length);
        }
        let begin = Nanos::new(time.get() - time.get() % length.get().max(1));
        let early = begin + self.early;
        if early > time { early } else { begin + length }
    }

    /// Tables of a process whose `found` candidates are in order: one, or those of its cores.
    /// `held`: its regions that are promoted already. Turns go on from there, so that all tables
    /// get the same number even if an interval has one promotion.
    fn tables(
        &self,
        process: usize,
        found: Vec<Candidate>,
        cores: &[BTreeMap<Region, u32>],
        held: usize,
    ) -> Vec<Table> {
        let table = |turn, candidates: Vec<Candidate>| Table {
            process,
            turn,
            candidates: candidates.into_iter().take(self.entries).collect(),
        };
        if cores.is_empty() {
            return vec![table(held, found)];
        }
        let of_core = |(core, counts): (usize, &BTreeMap<Region, u32>)| {
            let count = |one: &Candidate| counts.get(&one.region).copied().unwrap_or(0);
            let mut own: Vec<Candidate> =
                found.iter().filter(|one| count(one) > 0).copied().collect();
            own.sort_by_key(|one| (Reverse(count(one)), one.region));
            table((held + cores.len() - 1 - core) / cores.len(), own)
        };
        cores.iter().enumerate().map(of_core).collect()
    }

    /// Candidates of all tables in the order of promotion.
    fn rank(&self, snapshot: &Snapshot, tables: Vec<Table>) -> Vec<Ranked> {
        let is_biased = |index: usize| {
            let id = &snapshot.processes[index].id;
            self.bias.iter().any(|who| *who == id.command || *who == id.pid.to_string())
        };
        let mut all = match self.selection {
            Selection::HighestFrequency => by_frequency(tables),
            Selection::RoundRobin => in_turn(tables),
        };
        // The sort is stable, so the order from before breaks ties.
        all.sort_by_key(|&(process, _)| !is_biased(process));
        all
    }
}

/// Candidates with the most stalls first; the order of the processes, then that of a table, breaks
/// ties.
fn by_frequency(tables: Vec<Table>) -> Vec<Ranked> {
    let of_table = |table: Table| {
        let process = table.process;
        table.candidates.into_iter().map(move |one| (process, one))
    };
    let mut all: Vec<Ranked> = tables.into_iter().flat_map(of_table).collect();
    all.sort_by_key(|(_, one)| Reverse(one.stalls));
    all
}

/// Candidates of the tables in turn, first of the one that had the fewest turns. A candidate of
/// several cores takes one turn.
fn in_turn(mut tables: Vec<Table>) -> Vec<Ranked> {
    let (mut all, mut taken) = (Vec::new(), BTreeSet::new());
    let candidates: usize = tables.iter().map(|table| table.candidates.len()).sum();
    for _ in 0..candidates {
        tables.retain(|table| !table.candidates.is_empty());
        let Some(table) = tables.iter_mut().min_by_key(|table| table.turn) else { break };
        let Some(one) = table.candidates.pop_front() else { break };
        if taken.insert((table.process, one.region)) {
            all.push((table.process, one));
            table.turn += 1;
        }
    }
    all
}
