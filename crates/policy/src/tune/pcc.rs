//! Policy `pcc`: the promotion candidate cache (Manocha et al., MICRO'23, sections 3.2 and 3.3).
//!
//! A table of each process holds its regions with the most stalls. At each interval, the first
//! candidates of all tables are promoted, by frequency or in turn, those of preferred processes
//! before all others. If the budget is spent, promoted regions that went cold are demoted for
//! hotter candidates.
//!
//! The paper counts page walks in a table of each core; here stall samples count, in a table of
//! each process. There is no trial: the policy promotes whatever is hot.

use hugepilot_record::{Next, Pid, ProcessDecision, ProcessSnapshot, SkipReason, Snapshot};
use hugepilot_units::{Nanos, Region};
use serde::{Deserialize, Serialize};

use super::allowance::Allowance;
use super::decide::promotion;
use super::expected::expected;
use super::{Candidate, Candidates, Decision, Phase, State, TuneGoal};

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
    /// Preferred processes, whose candidates come first (section 3.3.2: process bias).
    pub bias: Vec<Pid>,
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

/// Candidate of a process, by its place in the snapshot.
type Ranked = (usize, Candidate);

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
        let (mut decisions, mut tables) = (Vec::new(), Vec::new());
        let mut allowance = Allowance::of_interval(goal, &state, self.promotions);
        for process in &snapshot.processes {
            let past = state.of_mut(&process.id);
            past.phase = Phase::Watching { idle: 0 };
            let mut found = Candidates::of(&process.memory, &process.window, past, goal);
            // A table has counts of its own only: neighbours have no entry.
            found.regions.retain(|candidate| candidate.stalls > 0);
            found.regions.sort_by(|a, b| b.stalls.cmp(&a.stalls).then(a.region.cmp(&b.region)));
            let mut decision = decision(goal, process, &found, snapshot.time);
            decision.expected = expected(goal, &process.memory, &process.window, &found, allowance);
            decisions.push(decision);
            found.regions.truncate(self.entries);
            tables.push(found.regions);
        }
        if snapshot.interrupted || goal.model_only {
            decisions.iter_mut().for_each(|decision| decision.next = Next::End);
        }
        if !snapshot.interrupted {
            let ranked = self.rank(snapshot, &tables);
            let refused = self.grant(&ranked, snapshot, &mut allowance, &mut decisions);
            self.demote(&refused, promoted(snapshot, &mut state, goal.observe), &mut decisions);
        }
        Decision { processes: decisions, state }
    }

    /// Candidates of all tables in the order of promotion.
    fn rank(&self, snapshot: &Snapshot, tables: &[Vec<Candidate>]) -> Vec<Ranked> {
        let is_biased = |index: usize| self.bias.contains(&snapshot.processes[index].id.pid);
        let turns = tables.iter().enumerate().flat_map(|(process, table)| {
            table.iter().enumerate().map(move |(turn, &one)| (turn, (process, one)))
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

    /// Promotes the first candidates that the limits allow. Returns those that no budget is left
    /// for.
    #[allow(clippy::cast_precision_loss)]
    fn grant(
        &self,
        ranked: &[Ranked],
        snapshot: &Snapshot,
        allowance: &mut Allowance,
        decisions: &mut [ProcessDecision],
    ) -> Vec<Ranked> {
        let mut refused = Vec::new();
        for &(index, candidate) in ranked {
            if allowance.is_full() {
                break;
            }
            let (process, decision) = (&snapshot.processes[index], &mut decisions[index]);
            match allowance.take(&process.memory, candidate.added) {
                Ok(()) => {
                    let samples = process.window.samples.max(1) as f64;
                    let ratio = f64::from(candidate.stalls) / samples;
                    decision.promote.push(promotion(&process.memory, &candidate, ratio));
                }
                Err(reason) => {
                    decision.skip(reason, candidate.stalls);
                    if reason == SkipReason::OverBudget && refused.len() < self.promotions {
                        refused.push((index, candidate));
                    }
                }
            }
        }
        refused
    }

    /// Demotes the coldest promoted regions for hotter candidates, which get the huge pages in the
    /// next interval: until then the budget holds whatever fails.
    fn demote(
        &self,
        refused: &[Ranked],
        mut promoted: Vec<Promoted>,
        decisions: &mut [ProcessDecision],
    ) {
        promoted.sort_by_key(|one| (one.stalls, one.region));
        for (&(_, candidate), cold) in refused.iter().zip(&promoted) {
            let least = self.demotion_ratio * f64::from(cold.stalls.max(1));
            if f64::from(candidate.stalls) < least {
                break;
            }
            decisions[cold.process].demote.push(cold.region);
        }
    }
}

/// Decision about a process without promotions so far: the next reading is at the end of the
/// interval, the same for all processes.
fn decision(
    goal: &TuneGoal,
    process: &ProcessSnapshot,
    found: &Candidates,
    time: Nanos,
) -> ProcessDecision {
    let interval = goal.observe.get().max(1);
    let rest = interval - time.get() % interval;
    // The first interval of a process may be longer, none is much shorter.
    let rest = if rest < interval / 2 { rest + interval } else { rest };
    ProcessDecision {
        process: process.id.clone(),
        promote: Vec::new(),
        demote: Vec::new(),
        eligible: found.regions.len() as u64,
        skipped: found.skipped.clone(),
        skipped_stalls: found.skipped_stalls.clone(),
        expected: None,
        next: Next::Observe(Nanos::new(rest)),
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
