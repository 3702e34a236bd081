//! Report of `tune --undo`: regions that a tune promoted, back on base pages.

pub(crate) mod text;

use std::collections::BTreeMap;

use hugepilot_record::sentence::Sentence;
use hugepilot_record::{Pid, Stop};
use hugepilot_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The value of `schema`.
pub const SCHEMA: &str = "hugepilot.undo/1";

/// Report of `tune --undo`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UndoReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// Whether nothing was changed, as requested.
    pub dry_run: bool,
    /// Processes in which the journal shows promotions.
    pub processes: Vec<UndoneProcess>,
    /// Bytes of an incomplete last line of the journal, which is skipped; 0 without one.
    pub cut_bytes: u64,
}

impl UndoReport {
    /// Regions of all processes that returned to base pages, or would.
    pub fn returned(&self) -> u64 {
        self.processes.iter().map(|process| process.returned_regions).sum()
    }
}

/// A process of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UndoneProcess {
    /// Its pid.
    pub pid: Pid,
    /// Its name, by the journal.
    pub command: String,
    /// State of the process.
    pub state: UndoState,
    /// Regions that the tune promoted and left on huge pages, by the journal.
    pub promoted_regions: u64,
    /// Regions that returned to base pages, verified; with `dry_run`, that would be tried.
    pub returned_regions: u64,
    /// Memory that the splits freed: base pages that huge pages added and the program never used.
    #[serde(default)]
    pub freed_bytes: Bytes,
    /// Regions that were on base pages already.
    pub not_huge_regions: u64,
    /// Regions skipped, by reason.
    pub skipped: BTreeMap<String, u64>,
    /// Regions that are still huge, by errno; `still_huge` counts successful calls without a
    /// change.
    pub failed: BTreeMap<String, u64>,
}

impl UndoneProcess {
    /// Regions that are still huge.
    pub fn left_regions(&self) -> u64 {
        match self.state {
            UndoState::Running | UndoState::Stopped { .. } => {
                let gone = self.returned_regions + self.not_huge_regions;
                self.promoted_regions.saturating_sub(gone)
            }
            UndoState::Ended | UndoState::PidReused | UndoState::OtherProgram => 0,
        }
    }
}

/// State of a process of the journal. JSON carries the variant as `code`, and the sentence as
/// `text`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Sentence)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum UndoState {
    /// Running the program that was tuned.
    #[text("it runs the program that was tuned")]
    Running,
    /// Ended.
    #[text("it has ended")]
    Ended,
    /// Ended, and another process has its pid.
    #[text("it has ended, and another process has its pid")]
    PidReused,
    /// Running another program, after an exec.
    #[text("it has started another program since")]
    OtherProgram,
    /// Not changed, or not to the end.
    #[text(of = cause)]
    Stopped {
        /// Cause.
        cause: Stop,
    },
}
