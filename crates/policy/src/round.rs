//! Round: one turn of the engine, as its journal has it. Rounds of splits are in
//! [`crate::debloat::round`].

use hugepilot_record::{Journal, ProcessDecision, Snapshot, SplitAct, SplitOutcome};
use hugepilot_units::Nanos;
use serde::{Deserialize, Serialize};

use crate::DebloatPolicy;
use crate::tune::{State, TuneGoal};

/// Round: snapshot and state, decisions, their outcomes, and the next state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Number, from 1.
    pub number: u64,
    /// The processes for which a decision was due.
    pub snapshot: Snapshot,
    /// State before the decision.
    pub state: State,
    /// Decision for each process of the snapshot.
    pub decisions: Vec<ProcessDecision>,
    /// Outcome for each.
    pub outcomes: Vec<ProcessOutcome>,
    /// State of these processes after the decision, before its outcomes are noted
    /// ([`State::part`]).
    pub next: State,
}

/// Name and version of journals.
pub const SCHEMA: &str = "hugepilot.journal/5";

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
    pub journal: Journal,
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
