//! Rest of processes that fork: after a fork, their huge pages end with the next write to each.

use std::collections::BTreeMap;

use hugepilot_policy::daemon::{Key, ProcessFacts, Turn, allowed_by, key_of};
use hugepilot_record::ProcessId;
use hugepilot_reports::daemon::ExclusionCause;
use hugepilot_units::Nanos;

use super::promotion::Promotion;
use super::{Daemon, Reading, System};

/// Rest after a fork.
const REST: Nanos = Nanos::seconds(600);

/// Processes that may rest after a fork.
#[derive(Default)]
pub(super) struct ForkRests {
    /// Processes of the last scan whose rule does not ignore forks.
    watched: Vec<ProcessId>,
    /// End of the rest after the last fork of each, and whether that fork was seen.
    pub(super) rests: BTreeMap<Key, (Nanos, bool)>,
}

impl ForkRests {
    /// Whether the fork after which a process rests at this time was seen; `None` if it does not
    /// rest.
    fn seen(&self, id: &ProcessId, now: Nanos) -> Option<bool> {
        self.rests.get(&key_of(id)).filter(|(end, _)| now < *end).map(|&(_, seen)| seen)
    }
}

impl<S: System> Daemon<'_, S> {
    /// Watches the processes of a scan that the rules allow.
    pub(super) fn watch_forks(&mut self, facts: &[ProcessFacts]) {
        let rules = &self.config.rules;
        let rests = |fact: &&ProcessFacts| {
            allowed_by(rules, fact).is_some_and(|rule| !rules[rule].despite_forks)
        };
        let watched = facts.iter().filter(rests).map(|fact| fact.id.clone());
        self.promotion.forks.watched = watched.collect();
        self.note_forks();
    }

    /// Notes which processes fork now. One that had children before the first scan may fork, too,
    /// and rests, unless there is a single pass.
    pub(super) fn note_forks(&mut self) {
        let (now, system) = (self.system.now(), self.system);
        let ForkRests { watched, rests } = &mut self.promotion.forks;
        if watched.is_empty() {
            return;
        }
        let forked = system.forked();
        for id in watched {
            let forks = system.forks(id);
            let may_fork = forks.ended && !self.config.once;
            let first = (if may_fork { now + REST } else { now }, false);
            let rest = rests.entry(key_of(id)).or_insert(first);
            if forks.running || forked.contains(&id.pid) {
                *rest = (now + REST, true);
            }
        }
    }

    /// Whether a process rests after a fork, which is logged.
    pub(super) fn rests_after_fork(&mut self, reading: &Reading, id: &ProcessId) -> bool {
        let Some(seen) = self.promotion.forks.seen(id, self.system.now()) else { return false };
        self.log_skipped(reading, id, ExclusionCause::Forks { seen });
        true
    }

    /// Ends the work in progress if one of its processes forked: the next writes split what was
    /// promoted, and each copies a base page, so a trial would measure the fork. The others have
    /// their turn again at once.
    pub(super) fn end_work_of_forks(&mut self, reading: &Reading) {
        let now = self.system.now();
        let forks = &self.promotion.forks;
        let Some(work) = &self.promotion.work else { return };
        let has_forked = |turn: &Turn| forks.seen(&turn.process, now) == Some(true);
        let (forked, others): (Vec<Turn>, Vec<Turn>) =
            work.turns.iter().cloned().partition(has_forked);
        if forked.is_empty() {
            return;
        }
        self.end_work(reading);
        self.promotion.queue.extend(others);
        for turn in forked {
            self.rests_after_fork(reading, &turn.process);
        }
    }

    /// Drops processes from the queue that rest after a fork since the scan.
    pub(super) fn drop_forked_turns(&mut self) {
        let now = self.system.now();
        let Promotion { queue, forks, .. } = &mut self.promotion;
        queue.retain(|turn| forks.seen(&turn.process, now).is_none());
    }
}
