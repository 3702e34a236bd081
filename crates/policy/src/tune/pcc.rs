//! Policy `pcc`: the promotion candidate cache (Manocha et al., MICRO'23, sections 3.2 and 3.3).
//!
//! A table of each process holds its regions with the most stalls. At each interval, the first
//! candidates of all tables are promoted, by frequency or in turn, those of preferred processes
//! before all others. If the budget is spent, promoted regions that went cold are demoted for
//! hotter candidates.
//!
//! The paper counts page walks in a table of each core; here stall samples count, in a table of
//! each process. There is no trial: the policy promotes whatever is hot.

use hugepilot_record::Snapshot;
use hugepilot_units::{Nanos, Region};
use serde::{Deserialize, Serialize};

use super::interval::{Interval, Ranked, next_interval};
use super::{Candidate, Candidates, Decision, State, TuneGoal};

/// Order in which the candidates of several processes are promoted (section 3.3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Selection {
    /// Most stalls first, of whichever process.
    #[default]
    HighestFrequency,
    /// Processes in turn, a candidate of each.
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
    /// Order among processes.
    pub selection: Selection,
    /// Preferred processes, by pid or name, whose candidates come first (section 3.3.2: process
    /// bias).
    pub bias: Vec<String>,
    /// Stalls of a candidate over those of a promoted region from which the candidate gets its
    /// huge page (section 3.3.3).
    pub demotion_ratio: f64,
}

impl Default for PccRules {
    fn default() -> Self {
        Self {
            entries: 128,
            promotions: 128,
            selection: Selection::HighestFrequency,
            bias: Vec::new(),
            demotion_ratio: 2.0,
        }
    }
}

/// A promoted region, by the place of its process.
#[derive(Clone, Copy)]
struct Promoted {
    process: usize,
    region: Region,
    stalls: u32,
}

impl PccRules {
    /// Decides one interval for all processes of the snapshot.
    pub(super) fn decide(
        &self,
        goal: &TuneGoal,
        snapshot: &Snapshot,
        mut state: State,
    ) -> Decision {
        let until = next_interval(snapshot.time, goal.observe);
        let mut interval = Interval::new(goal, snapshot, &mut state, self.promotions, until);
        let (mut tables, mut held) = (Vec::new(), Vec::new());
        for (index, process) in snapshot.processes.iter().enumerate() {
            let past = state.of_mut(&process.id);
            held.push(past.regions.values().filter(|past| past.promoted.is_some()).count());
            let mut found = Candidates::of(&process.memory, &process.window, past, goal);
            // A table has counts of its own only: neighbours have no entry.
            found.regions.retain(|candidate| candidate.stalls > 0);
            found.regions.sort_by(|a, b| b.stalls.cmp(&a.stalls).then(a.region.cmp(&b.region)));
            interval.note(index, &found);
            interval.expect(index, &found);
            found.regions.truncate(self.entries);
            tables.push(found.regions);
        }
        let refused = interval.grant(&self.rank(snapshot, &tables, &held));
        self.demote(&refused, promoted(snapshot, &mut state, goal.observe), &mut interval);
        Decision { processes: interval.finish(), state }
    }

    /// Candidates of all tables in the order of promotion. `held`: regions of each process that are
    /// promoted already. Turns go on from there, so that all processes get the same number even if
    /// an interval has one promotion.
    fn rank(&self, snapshot: &Snapshot, tables: &[Vec<Candidate>], held: &[usize]) -> Vec<Ranked> {
        let is_biased = |index: usize| {
            let id = &snapshot.processes[index].id;
            self.bias.iter().any(|who| *who == id.command || *who == id.pid.to_string())
        };
        let turns = tables.iter().zip(held).enumerate().flat_map(|(process, (table, &held))| {
            (held..).zip(table).map(move |(turn, &one)| (turn, (process, one)))
        });
        let mut all: Vec<(usize, Ranked)> = turns.collect();
        // The sorts are stable, so the order of a table and that of the processes break ties.
        match self.selection {
            Selection::HighestFrequency => {
                all.sort_by_key(|(_, (_, one))| std::cmp::Reverse(one.stalls));
            }
            Selection::RoundRobin => all.sort_by_key(|&(turn, _)| turn),
        }
        all.sort_by_key(|&(_, (process, _))| !is_biased(process));
        all.into_iter().map(|(_, ranked)| ranked).collect()
    }

    /// Demotes the coldest promoted regions for hotter candidates, which get the huge pages in the
    /// next interval: until then the budget holds whatever fails.
    fn demote(&self, refused: &[Ranked], mut promoted: Vec<Promoted>, interval: &mut Interval<'_>) {
        promoted.sort_by_key(|one| (one.stalls, one.region));
        let refused = refused.iter().take(self.promotions);
        for (&(_, candidate), cold) in refused.zip(&promoted) {
            let least = self.demotion_ratio * f64::from(cold.stalls.max(1));
            if f64::from(candidate.stalls) < least {
                break;
            }
            interval.demote(cold.process, cold.region);
        }
    }
}

/// Regions that this policy promoted at least two intervals ago: younger ones still have stalls
/// from before.
fn promoted(snapshot: &Snapshot, state: &mut State, interval: Nanos) -> Vec<Promoted> {
    let mut all = Vec::new();
    for (process, seen) in snapshot.processes.iter().enumerate() {
        let past = state.of_mut(&seen.id);
        let old = past.regions.iter().filter(|(_, past)| {
            past.promoted.is_some_and(|at| snapshot.time - at >= interval + interval)
        });
        all.extend(old.map(|(&region, _)| Promoted {
            process,
            region,
            stalls: seen.window.of(region),
        }));
    }
    all
}
