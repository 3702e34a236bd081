//! Round: one turn of the engine, as its journal has it. Rounds of splits are in
//! [`crate::debloat::round`].

use hugepilot_record::{
    Attempts, ProcessDecision, ProcessId, ProcessSnapshot, Snapshot, SplitAct, SplitOutcome,
};
use hugepilot_units::{Nanos, Region};
use serde::{Deserialize, Serialize};

use crate::DebloatPolicy;
use crate::tune::{Place, ProcessState, State, TuneGoal};

/// Round: the state before its decision, and a row for each process for which one was due.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Number, from 1.
    pub number: u64,
    /// Time of the decision, on the monotonic clock.
    pub time: Nanos,
    /// Whether the user interrupted, so that no later decision follows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
    /// State before the decision, of all processes in view: they share limits.
    pub state: State,
    /// The processes.
    pub rows: Vec<Row>,
    /// Place that the policy reached.
    pub place: Place,
}

/// A process in a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Its samples and memory, as the decision saw them.
    pub seen: ProcessSnapshot,
    /// The decision.
    pub decision: ProcessDecision,
    /// Its acts.
    pub outcome: ProcessOutcome,
    /// State after the decision, before the outcome is noted.
    pub after: Option<ProcessState>,
}

impl Row {
    /// Returns what the row changed or tried to, in the order of the acts: demotions first.
    pub fn changes(&self) -> impl Iterator<Item = Change> {
        let demoted = self.outcome.demotions.iter().map(|act| Change {
            region: act.region,
            is_promotion: false,
            took: act.took,
            is_verified: is_split(act),
        });
        let promoted = self.outcome.attempts.acts.iter().map(|act| Change {
            region: act.region,
            is_promotion: true,
            took: act.took,
            is_verified: act.is_verified(),
        });
        demoted.chain(promoted)
    }
}

/// Change of a region, or the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The region.
    pub region: Region,
    /// Whether to a huge page; otherwise to base pages.
    pub is_promotion: bool,
    /// Time of the act.
    pub took: Nanos,
    /// Whether the pages were read afterwards and are as intended.
    pub is_verified: bool,
}

impl Round {
    /// Returns what the decision saw, as a copy.
    pub fn snapshot(&self) -> Snapshot {
        let processes = self.rows.iter().map(|row| row.seen.clone()).collect();
        Snapshot { time: self.time, processes, interrupted: self.interrupted }
    }

    /// Decides the round again from its state and snapshot. Returns the round without outcomes.
    #[must_use]
    pub fn again(&self, goal: &TuneGoal) -> Self {
        let snapshot = self.snapshot();
        let decision = goal.decide(&snapshot, &self.state);
        decision.begin(self.number, snapshot, &mut self.state.clone())
    }

    /// Returns the decisions.
    pub fn decisions(&self) -> impl Iterator<Item = &ProcessDecision> + Clone {
        self.rows.iter().map(|row| &row.decision)
    }

    /// Returns the outcomes.
    pub fn outcomes(&self) -> impl Iterator<Item = &ProcessOutcome> {
        self.rows.iter().map(|row| &row.outcome)
    }

    /// Returns the processes.
    pub fn ids(&self) -> impl Iterator<Item = &ProcessId> {
        self.rows.iter().map(|row| &row.seen.id)
    }
}

/// Name and version of journals.
pub const SCHEMA: &str = "hugepilot.journal/6";

/// Version of hugepilot, which journals name.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Goal of rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// Rounds are [`Round`].
    Tune(Box<TuneGoal>),
    /// Rounds are [`crate::debloat::round::SplitRound`].
    Debloat(DebloatPolicy),
    /// Rounds are [`crate::daemon::DaemonRound`].
    Daemon,
}

/// First line of a journal, and each line before which the goal changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of hugepilot that wrote it.
    pub version: String,
    /// The goal of the rounds up to the next header.
    pub goal: Goal,
}

impl Header {
    /// Makes the header of rounds of `goal`.
    pub fn of(goal: Goal) -> Self {
        Self { schema: SCHEMA.to_owned(), version: VERSION.to_owned(), goal }
    }
}

/// Outcome of a decision for one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessOutcome {
    /// Start of the acts, also if the time was over before the first; `None` without a plan.
    pub begun: Option<Nanos>,
    /// End of the acts.
    pub ended: Option<Nanos>,
    /// Promotions.
    // Its name in journals of version 6.
    #[serde(rename = "journal")]
    pub attempts: Attempts,
    /// Demotions.
    pub demotions: Vec<SplitAct>,
}

impl ProcessOutcome {
    /// Returns the number of regions that returned to base pages.
    pub fn demoted(&self) -> u64 {
        self.demotions.iter().filter(|act| is_split(act)).count() as u64
    }
}

/// Whether the region is on base pages after the act.
pub fn is_split(act: &SplitAct) -> bool {
    matches!(act.outcome, SplitOutcome::Freed(_))
}

/// Outcome of a split in a word: `done`, or why not.
pub(crate) fn outcome_name(act: &SplitAct, done: &str) -> String {
    match act.outcome {
        SplitOutcome::Freed(_) => done.to_owned(),
        SplitOutcome::StillHuge => "still_huge".to_owned(),
        SplitOutcome::Failed(errno) => errno.to_string(),
        SplitOutcome::Skipped(reason) => reason.to_string(),
    }
}
