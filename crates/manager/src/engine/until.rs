//! Stop rule of the acts of a tune: until their end, or an interruption.

use std::convert::Infallible;

use hugepilot_policy::tune::ProcessState;
use hugepilot_record::{Pid, SkipReason, SplitOutcome};
use hugepilot_units::{Bytes, Nanos};

use super::TuneWorld;
use crate::act::round::{DoneAct, PlannedAct, StopRule};

/// Rule for the acts of one process. It notes them in the state of the process.
pub(super) struct Until<'a> {
    pub(super) world: &'a mut dyn TuneWorld,
    pub(super) state: &'a mut ProcessState,
    pub(super) pid: Pid,
    pub(super) huge: Bytes,
    /// End of the promotions.
    pub(super) end: Nanos,
    /// Promotions that were made, and those planned.
    pub(super) done: usize,
    pub(super) all: usize,
}

impl Until<'_> {
    /// Whether nothing more is to be promoted.
    pub(super) fn is_over(&self) -> bool {
        self.world.is_interrupted() || self.world.now() >= self.end
    }
}

impl<P> StopRule<P> for Until<'_> {
    type Error = Infallible;

    /// Demotions of what hugepilot promoted undo that, so nothing forbids them.
    fn may_act(&mut self, planned: &PlannedAct<'_>) -> Result<bool, Infallible> {
        let undoes = match *planned {
            PlannedAct::Promote(_) => false,
            PlannedAct::Demote(region) => self.state.is_promoted(region),
            PlannedAct::Split(_) => true,
        };
        Ok(undoes || !self.is_over())
    }

    fn rest(&mut self, time: Nanos) -> bool {
        self.world.observe((self.world.now() + time).min(self.end));
        true
    }

    fn acted(&mut self, _: &P, done: &DoneAct<'_>) {
        let now = self.world.now();
        match done {
            DoneAct::Promotion(promotion, act) => {
                self.state.note(act, promotion, self.huge, now);
                self.done += 1;
                self.world.acted(self.pid, self.done, self.all);
            }
            DoneAct::Split(act) => match act.outcome {
                SplitOutcome::Freed(_) => self.state.note_demoted(act.region, self.huge, now),
                SplitOutcome::Skipped(SkipReason::AlreadySplit) => {
                    self.state.note_lost(act.region, now);
                }
                _ => {}
            },
        }
    }
}
