//! Schedule of the promotions and demotions in a journal.

use std::collections::BTreeMap;

use hugepilot_record::schedule::{
    Schedule, ScheduleAction, ScheduleEvent, ScheduleHeader, ScheduleProblem, ScheduleTime,
};
use hugepilot_record::{Pid, PolicyName};
use hugepilot_units::{Bytes, Nanos};

use super::{first_seen, index_of};
use crate::journal::JournalRound;
use crate::round::{Goal, Row};

/// Cause why a journal has no schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSchedule {
    /// No promotion in it was verified.
    #[error("the journal has no verified promotion")]
    NoPromotion,
    /// All are of memory without a mapping, by which schedules know a region.
    #[error("the journal does not have the mappings of the promoted regions")]
    NoMapping,
    /// An event that a schedule cannot have.
    #[error("{0}")]
    Problem(#[from] ScheduleProblem),
}

/// A process of a journal.
#[derive(Debug)]
struct Replayed {
    command: String,
    since: Nanos,
    until: Nanos,
    region_bytes: Bytes,
    policy: PolicyName,
    promotions: u64,
    events: Vec<ScheduleEvent>,
}

/// Fold over the rounds of a journal, which makes a schedule of the process with the most
/// promotions.
#[derive(Debug, Default)]
pub struct JournalSchedule {
    /// Processes, by pid and start time.
    processes: BTreeMap<(Pid, u64), Replayed>,
    /// Acts on regions that no mapping held when they were decided.
    lost: u64,
    /// Promotions among them.
    lost_promotions: u64,
}

impl JournalSchedule {
    /// Adds a round. Ignores those of a debloat.
    pub fn add(&mut self, goal: &Goal, round: &JournalRound) {
        let (Goal::Tune(goal), JournalRound::Tune(round)) = (goal, round) else { return };
        let policy = goal.policy.name();
        for row in &round.rows {
            self.add_process(policy, round.time, row);
        }
    }

    fn add_process(&mut self, policy: PolicyName, time: Nanos, row: &Row) {
        let Row { seen, outcome, .. } = row;
        let (id, memory) = (&seen.id, &seen.memory);
        let entry = self.processes.entry((id.pid, id.start_ticks));
        let replayed = entry.or_insert_with(|| Replayed {
            command: id.command.clone(),
            since: first_seen(seen, time),
            until: time,
            region_bytes: memory.sizes.huge,
            policy,
            promotions: 0,
            events: Vec::new(),
        });
        replayed.until = outcome.ended.unwrap_or(time).max(replayed.until);
        let mut at = outcome.begun.unwrap_or(time);
        for change in row.changes() {
            let seconds = Some((at - replayed.since).as_seconds());
            at = at + change.took;
            if !change.is_verified {
                continue;
            }
            let promotions = u64::from(change.is_promotion);
            let Some((mapping, index)) = index_of(&memory.mappings, change.region, memory.sizes)
            else {
                self.lost += 1;
                self.lost_promotions += promotions;
                continue;
            };
            let at = ScheduleTime { seconds, ..ScheduleTime::default() };
            let action = match change.is_promotion {
                true => ScheduleAction::Promote,
                false => ScheduleAction::Demote,
            };
            replayed.promotions += promotions;
            replayed.events.push(ScheduleEvent { at, action, mapping, index });
        }
        // In a simulation, acts take no time of the round.
        replayed.until = replayed.until.max(at);
    }

    /// Returns the schedule, and the number of acts of the journal that it does not have: those of
    /// other processes, and those on unknown mappings.
    ///
    /// # Errors
    /// No promotion was verified, none is of a mapping, or a schedule cannot have one of the
    /// events.
    pub fn finish(self) -> Result<(Schedule, u64), NoSchedule> {
        let all: u64 = self.processes.values().map(|one| one.events.len() as u64).sum();
        // Of several with as many, the first by pid.
        let most = self.processes.into_values().rev().max_by_key(|one| one.promotions);
        let Some(replayed) = most.filter(|one| one.promotions > 0) else {
            let has_lost = self.lost_promotions > 0;
            return Err(if has_lost { NoSchedule::NoMapping } else { NoSchedule::NoPromotion });
        };
        let mut schedule = Schedule::new(ScheduleHeader {
            program: replayed.command,
            source: "hugepilot tune".to_owned(),
            policy: replayed.policy.to_string(),
            region_bytes: replayed.region_bytes,
            seconds: Some((replayed.until - replayed.since).as_seconds()),
            ..ScheduleHeader::default()
        })?;
        for event in replayed.events {
            schedule.push(event)?;
        }
        let others = all - schedule.events().len() as u64;
        Ok((schedule, others + self.lost))
    }
}
