//! Explanation of a journal: every round is decided again, compared, and summed up.

use hugepilot_reports::explain::{
    ExplainReport, ExplainedDaemon, ExplainedProcess, ExplainedRound, ExplainedSplits, SCHEMA,
    TimeOrigin,
};
use hugepilot_units::{Nanos, VirtAddr};

use crate::journal::JournalRound;
use crate::round::Goal;
use crate::{debloat, tune};

/// Regions to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShownRegions {
    /// Each that a round promotes, demotes or splits.
    Acted,
    /// The one that holds an address.
    At(VirtAddr),
}

/// Selection of what to show. The rest is decided again, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// Position of the only round to show; `None` for all.
    pub round: Option<u64>,
    /// Regions to show.
    pub regions: Option<ShownRegions>,
}

/// A round that was decided again.
pub(crate) struct Explained {
    /// Time of the decision.
    pub(crate) time: Nanos,
    pub(crate) decisions: u64,
    /// Decisions that came out the same.
    pub(crate) reproduced: u64,
    /// Processes of a tune.
    pub(crate) processes: Vec<ExplainedProcess>,
    /// Splits of a debloat.
    pub(crate) splits: Option<ExplainedSplits>,
    /// Decision of the daemon about itself.
    pub(crate) daemon: Option<ExplainedDaemon>,
}

/// Fold over the rounds of a journal.
#[derive(Debug)]
pub struct Explainer {
    shown: Shown,
    first: Option<Nanos>,
    report: ExplainReport,
}

impl Explainer {
    /// Starts with no round. `started`: start of the recording with the journal, from which times
    /// count; `None` for a journal alone, whose times count from its first observation.
    pub fn new(shown: Shown, started: Option<Nanos>) -> Self {
        let schema = SCHEMA.to_owned();
        let origin = started.map_or_else(TimeOrigin::default, |_| TimeOrigin::RecordingStart);
        let report = ExplainReport { schema, origin, ..ExplainReport::default() };
        Self { shown, first: started, report }
    }

    /// Decides the next round again, and adds it. Ignores one of another kind than its goal.
    pub fn add(&mut self, goal: &Goal, round: &JournalRound) {
        let number = self.report.rounds + 1;
        let is_shown = self.shown.round.is_none_or(|only| only == number);
        let regions = self.shown.regions.filter(|_| is_shown);
        let explained = match (goal, round) {
            (Goal::Tune(goal), JournalRound::Tune(round)) => {
                tune::explain::explain(goal, round, regions)
            }
            (Goal::Debloat(policy), JournalRound::Debloat(round)) => {
                debloat::explain::explain(policy, round, regions)
            }
            (Goal::Daemon, JournalRound::Daemon(round)) => {
                let daemon = round.explain();
                Explained {
                    time: round.time,
                    decisions: 1,
                    reproduced: u64::from(daemon.reproduced),
                    processes: Vec::new(),
                    splits: None,
                    daemon: Some(daemon),
                }
            }
            _ => return,
        };
        let first = *self.first.get_or_insert_with(|| round.begin());
        let report = &mut self.report;
        report.rounds = number;
        report.decisions += explained.decisions;
        report.reproduced_decisions += explained.reproduced;
        if explained.reproduced < explained.decisions {
            report.differing_rounds.push(number);
        }
        if is_shown {
            report.shown.push(ExplainedRound {
                round: number,
                seconds: (explained.time - first).as_seconds(),
                processes: explained.processes,
                splits: explained.splits,
                daemon: explained.daemon,
            });
        }
    }

    /// Returns the report. `cut_bytes` is the length of an incomplete last line.
    pub fn finish(self, cut_bytes: u64) -> ExplainReport {
        ExplainReport { cut_bytes, ..self.report }
    }
}
