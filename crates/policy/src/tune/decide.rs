//! Decision of a round: the phases of all processes, then their shares of the limits.

use hugepilot_record::{ProcessDecision, ProcessMemory, Promotion, Snapshot};
use serde::{Deserialize, Serialize};

use super::allowance::Allowance;
use super::exchange::exchange;
use super::process::{Moment, ProcessRound, Wish};
use super::{Candidate, Policy, State, TuneGoal};
use crate::round::{ProcessOutcome, Round, Row};

/// Decisions of a round, and the state for the next one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Decision for each process of the snapshot, in its order.
    pub processes: Vec<ProcessDecision>,
    /// State for the next round, before the outcomes of this one are noted.
    pub state: State,
}

impl Decision {
    /// Starts round `number`; no act is carried out yet. `state` becomes the state after the
    /// decision; outcomes are noted there, and in the rows.
    pub fn begin(self, number: u64, snapshot: Snapshot, state: &mut State) -> Round {
        let Snapshot { time, processes, interrupted } = snapshot;
        let before = std::mem::replace(state, self.state);
        let rows = processes.into_iter().zip(self.processes).map(|(seen, decision)| {
            let after = state.of(&seen.id).cloned();
            Row { seen, decision, outcome: ProcessOutcome::default(), after }
        });
        let (rows, place) = (rows.collect(), state.place.clone());
        Round { number, time, interrupted, state: before, rows, place }
    }
}

impl TuneGoal {
    /// Decides one round.
    pub fn decide(&self, snapshot: &Snapshot, state: &State) -> Decision {
        let mut state = state.clone();
        for process in &snapshot.processes {
            state.of_mut(&process.id).note_memory(&process.memory);
        }
        match &self.policy {
            Policy::Heat => self.decide_by_heat(snapshot, state),
            Policy::Pcc(rules) => rules.decide(self, snapshot, state),
            Policy::Hawkeye(rules) => rules.decide(self, snapshot, state),
            Policy::Khugepaged(rules) => rules.decide(self, snapshot, state),
            Policy::Linux => super::linux::decide(self, snapshot, state),
            Policy::All => super::all::decide(self, snapshot, state),
            Policy::Never => super::never::decide(self, snapshot, state),
            Policy::Schedule(rules) => rules.decide(self, snapshot, state),
        }
    }

    fn decide_by_heat(&self, snapshot: &Snapshot, mut state: State) -> Decision {
        let mut allowance = Allowance::new(self, &state);
        // The hottest regions of all processes get a budget, not those of the first verdict.
        let trials = if self.budget.is_some() { state.in_trial() } else { Vec::new() };
        let contest = state.place.contest.take().filter(|_| trials.is_empty());
        let mut rounds: Vec<ProcessRound<'_>> = snapshot
            .processes
            .iter()
            .map(|process| {
                let time = snapshot.time;
                let past = state.of_mut(&process.id).clone();
                let waits = trials.iter().any(|&pid| pid != process.id.pid);
                let has_won = contest.as_ref().is_some_and(|one| one.is_won_by(process.id.pid));
                let is_last = snapshot.interrupted;
                let moment = Moment { time, waits, allowance, has_won, is_last };
                ProcessRound::decide(self, process, past, moment)
            })
            .collect();
        let refused = grant(&mut rounds, &mut allowance);
        state.place.contest = exchange(&mut rounds, &refused, contest, self.regions_per_round);
        let mut decisions = Vec::with_capacity(rounds.len());
        for round in rounds {
            let (decision, past) = round.finish();
            *state.of_mut(&decision.process) = past;
            decisions.push(decision);
        }
        Decision { processes: decisions, state }
    }
}

/// Grants the wishes of all processes, largest saving first. A trial is not divided among rounds:
/// its pairs are compared at the same time. Returns the wishes for which the budget, or the system
/// at the last attempt, has no huge page left, by the place of the process.
fn grant(rounds: &mut [ProcessRound<'_>], allowance: &mut Allowance) -> Vec<(usize, Wish)> {
    let mut refused = Vec::new();
    let mut wishes: Vec<(usize, Wish)> = Vec::new();
    for (index, round) in rounds.iter_mut().enumerate() {
        wishes.extend(round.take_wishes().into_iter().map(|wish| (index, wish)));
    }
    wishes.sort_by(|(_, a), (_, b)| b.saving.total_cmp(&a.saving));
    for (index, wish) in wishes {
        let candidate = wish.candidate;
        let round = &mut rounds[index];
        if allowance.is_full() && !round.is_in_trial() {
            round.is_cut = true;
            continue;
        }
        match allowance.take(&round.seen.memory, candidate.added) {
            Ok(()) => {
                let ratio = candidate.heat / round.samples();
                round.decision.promote.push(promotion(&round.seen.memory, &candidate, ratio));
                if round.lacks_huge_pages() {
                    refused.push((index, wish));
                }
            }
            Err(reason) => {
                round.decision.skip(reason, candidate.stalls);
                if allowance.is_spent(&round.seen.memory) {
                    refused.push((index, wish));
                }
            }
        }
    }
    refused
}

/// Promotion of a candidate with this share of the samples.
pub(super) fn promotion(memory: &ProcessMemory, one: &Candidate, heat_ratio: f64) -> Promotion {
    let mapping = memory.mapping_of(one.region);
    Promotion {
        region: one.region,
        heat_ratio,
        sampled_pages: one.sampled_pages,
        added: one.added.total,
        lazily_freed: one.added.lazily_freed,
        mapping: mapping.map_or_else(String::new, |mapping| mapping.label().to_owned()),
    }
}
