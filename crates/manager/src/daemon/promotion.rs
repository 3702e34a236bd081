//! Promotion while memory is plentiful: rounds of the engine on processes that the rules allow.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem::discriminant;

use hugepilot_kernel::{KernelError, access_error};
use hugepilot_policy::Guard;
use hugepilot_policy::daemon::{Choice, Key, Rule, Scan, Turn, Turns, key_of};
use hugepilot_policy::journal::JournalRound;
use hugepilot_policy::round::{Goal, Round};
use hugepilot_policy::tune::{ProcessState, State, TuneGoal};
use hugepilot_record::ProcessId;
use hugepilot_reports::daemon::{BlockedStalls, Event, ExclusionCause, Promoted, WaitingCause};
use hugepilot_reports::tune::block;
use hugepilot_units::{Bytes, Nanos, VirtAddr};

use super::forks::ForkRests;
use super::{ControlRequest, Daemon, Reading, System};
use crate::ManagerError;
use crate::engine::{Engine, World as _};
use crate::fold::Fold;
use crate::sampling::NotSampled;
use crate::tune::trial_report;

/// Time between two scans of the processes: 1,000 processes cost about 20 ms each time.
const SCAN_EVERY: Nanos = Nanos::seconds(30);
/// Time after a scan with a process that no earlier one found: two scans show how busy it is.
const SECOND_SCAN: Nanos = Nanos::seconds(3);
/// Least time between two causes why no process is tuned: memory use moves around a watermark.
const WAITING_EVERY: Nanos = Nanos::seconds(300);
/// Processes of a rule that are tuned at the same time.
const BATCH: usize = 4;
/// Longest work on a batch, besides the end of its trials and of what follows from them.
const LONGEST: Nanos = Nanos::seconds(20);
/// Longest work on a batch. A trial without a verdict until then returns to base pages: the CPU
/// budget does not suffice, or the process hardly runs.
const LONGEST_TRIAL: Nanos = Nanos::seconds(120);

/// Processes to promote, and the work in progress.
pub(super) struct Promotion<'a, S: System + 'a> {
    turns: Turns,
    next_scan: Nanos,
    scans: u64,
    pub(super) queue: VecDeque<Turn>,
    /// Past of the processes, by index of the rule: all processes of a rule share its budget.
    states: BTreeMap<usize, State>,
    pub(super) work: Option<Work<'a, S>>,
    pub(super) forks: ForkRests,
    /// Regions that a dry run would have promoted: each try of a process selects them again.
    planned: BTreeMap<Key, BTreeSet<VirtAddr>>,
    /// Cause that was logged last, and when.
    waiting: Option<(WaitingCause, Nanos)>,
}

/// Work on a batch of processes.
pub(super) struct Work<'a, S: System + 'a> {
    rule: usize,
    pub(super) turns: Vec<Turn>,
    engine: Engine<S::Watched<'a>>,
    begun: Nanos,
    /// The processes, with their rounds.
    folds: Vec<(ProcessId, Fold)>,
}

impl<S: System> Promotion<'_, S> {
    pub(super) fn new() -> Self {
        Self {
            turns: Turns::default(),
            next_scan: Nanos::ZERO,
            scans: 0,
            queue: VecDeque::new(),
            states: BTreeMap::new(),
            work: None,
            forks: ForkRests::default(),
            planned: BTreeMap::new(),
            waiting: None,
        }
    }

    /// Begins again with new rules. What was made by a rule that stays counts for its budget.
    pub(super) fn change_rules(&mut self, old: &[Rule], new: &[Rule]) {
        let mut states = std::mem::take(&mut self.states);
        let same = |rule| old.iter().position(|known| known == rule);
        let kept = new
            .iter()
            .enumerate()
            .filter_map(|(index, rule)| Some((index, states.remove(&same(rule)?)?)));
        let planned = std::mem::take(&mut self.planned);
        *self = Self { states: kept.collect(), planned, ..Self::new() };
    }

    /// Whether each process that was in turn at the second scan was tuned.
    pub(super) fn is_pass_done(&self) -> bool {
        self.scans >= 2 && self.work.is_none() && self.queue.is_empty()
    }
}

impl<S: System> Work<'_, S> {
    /// Adds a round.
    fn note(&mut self, round: &Round, dry_run: bool) {
        for (id, fold) in &mut self.folds {
            fold.add(round, self.engine.state(), Some(id.pid), dry_run);
        }
    }

    /// Whether nothing is left to do: the time of the work is over, or no process changes further.
    fn is_over(&self) -> bool {
        let state = |id: &ProcessId| self.engine.state().of(id);
        let is_calm = |(id, fold): &(ProcessId, Fold)| {
            fold.shown().is_some() && state(id).is_none_or(ProcessState::is_calm)
        };
        let is_trying =
            |(id, _): &(ProcessId, Fold)| state(id).is_some_and(ProcessState::is_trying);
        let took = self.engine.world.now() - self.begun;
        self.engine.is_done()
            || self.engine.world.is_over()
            || self.folds.iter().all(is_calm)
            || took >= LONGEST && !self.folds.iter().any(is_trying)
            || took >= LONGEST_TRIAL
    }
}

impl<'a, S: System> Daemon<'a, S> {
    /// Whether memory is plentiful, and a rule allows promotion.
    pub(super) fn may_promote(&self, reading: &Reading) -> bool {
        let marks = self.config.watermarks();
        let is_plentiful = !reading.is_limited() || marks.is_low(reading);
        self.config.allowed() > 0 && self.scope.gate.is_resting() && is_plentiful
    }

    /// Promotes until `end`, if memory is plentiful and a rule allows it. Otherwise, ends the work
    /// in progress: what an open trial promoted returns to base pages.
    pub(super) fn promote(&mut self, reading: &Reading, end: Nanos) {
        self.note_forks();
        self.end_work_of_forks(reading);
        let may_promote = self.may_promote(reading);
        let keeps = may_promote && !self.config.dry_run;
        self.system.keep_reserve(if keeps { self.config.reserve } else { Bytes::ZERO });
        if !may_promote {
            self.system.stop_calibrating();
            self.end_work(reading);
            self.note_scarce(reading);
            return;
        }
        while self.system.now() < end && self.system.asked() == ControlRequest::Nothing {
            let pause = self.budget.pause(self.system.now(), self.system.cpu_time());
            if pause > Nanos::ZERO {
                self.rest(end.min(self.system.now() + pause));
            } else if self.promotion.work.is_some() || self.begin_work(reading) {
                self.run_round(reading, end);
            } else {
                return;
            }
            if self.system.asked() == ControlRequest::Nothing
                && self.promotion.work.as_ref().is_some_and(Work::is_over)
            {
                self.end_work(reading);
            }
        }
    }

    /// Runs a round of the work, if one is due before `end`.
    fn run_round(&mut self, reading: &Reading, end: Nanos) {
        let Some(work) = &mut self.promotion.work else { return };
        // Half an arm of a trial would compare less. Headroom is read again before each region.
        match work.engine.round(end, end + LONGEST) {
            Ok(Some(round)) => {
                work.note(&round, self.config.dry_run);
                let goal = work.engine.goal().clone();
                self.note_round(goal, round);
            }
            Ok(None) => {}
            // A process lives and cannot be read any more.
            Err(_) => self.end_work(reading),
        }
    }

    /// Makes no changes until `end`. Samples are taken on: that is what the next change needs.
    fn rest(&mut self, end: Nanos) {
        match &mut self.promotion.work {
            Some(work) => work.engine.world.observe(end),
            None => self.system.wait(end - self.system.now()),
        }
    }

    /// Adds a round to the history and to the journal.
    fn note_round(&mut self, goal: TuneGoal, round: Round) {
        self.note_history(&round);
        self.log.round(&Goal::Tune(Box::new(goal)), &JournalRound::Tune(Box::new(round)));
    }

    fn note_history(&mut self, round: &Round) {
        let now = self.system.now();
        for row in &round.rows {
            let key = key_of(&row.seen.id);
            for change in row.changes().filter(|change| change.is_verified) {
                match change.is_promotion {
                    true => self.history.note_promoted(key, change.region, now),
                    false => self.history.note(key, change.region, now, true),
                }
            }
        }
    }

    /// Begins the work on the next processes. Returns whether there are any.
    fn begin_work(&mut self, reading: &Reading) -> bool {
        self.drop_forked_turns();
        if self.promotion.queue.is_empty() {
            self.scan(reading);
        }
        // Calibrating takes memory and time, so only a process that is in turn justifies it.
        if self.promotion.queue.is_empty() || !self.system.is_calibrated() {
            return false;
        }
        let Some(first) = self.promotion.queue.pop_front() else { return false };
        let rule = first.rule;
        let mut turns = vec![first];
        self.promotion.queue.retain(|turn| {
            let joins = turn.rule == rule && turns.len() < BATCH;
            if joins {
                turns.push(turn.clone());
            }
            !joins
        });
        let mut batch: Vec<ProcessId> = turns.iter().map(|turn| turn.process.clone()).collect();
        self.log.sampled(&batch);
        let watched = match self.system.watch(&batch) {
            Ok((watched, not_sampled)) => {
                for NotSampled { id, error } in not_sampled {
                    batch.retain(|one| *one != id);
                    self.skip(reading, &id, &error);
                }
                watched
            }
            // None of them can be sampled: they ended, or permissions are missing.
            Err(error) => {
                self.skip_batch(reading, &batch, &error);
                return true;
            }
        };
        let now = self.system.now();
        let mut state = self.promotion.states.remove(&rule).unwrap_or_default();
        for id in &batch {
            let resting = self.history.resting(key_of(id), now, self.config.cool_down());
            state.begin_again(id, &resting);
        }
        let goal = self.goal_of(rule);
        let guard = Guard::default();
        let engine = Engine::resume(watched, goal, guard, self.config.dry_run, state);
        turns.retain(|turn| batch.contains(&turn.process));
        let folds = batch.into_iter().map(|id| (id, Fold::default())).collect();
        self.promotion.work = Some(Work { rule, turns, engine, begun: now, folds });
        true
    }

    /// Logs why the processes of a batch cannot be sampled, and lets them rest.
    fn skip_batch(&mut self, reading: &Reading, batch: &[ProcessId], error: &ManagerError) {
        for id in batch {
            match error {
                ManagerError::Sample { source, .. } => self.skip(reading, id, source),
                // They ended.
                _ => self.promotion.turns.note_tried(id, self.system.now(), Bytes::MAX, None),
            }
        }
    }

    /// Logs why a process cannot be sampled, and lets it rest.
    fn skip(&mut self, reading: &Reading, id: &ProcessId, error: &KernelError) {
        self.promotion.turns.note_tried(id, self.system.now(), Bytes::MAX, Some(false));
        if self.system.lives(key_of(id)) {
            let cause = ExclusionCause::Unreadable(access_error(error));
            self.log_skipped(reading, id, cause);
        }
    }

    fn goal_of(&self, rule: usize) -> TuneGoal {
        let rule = &self.config.rules[rule];
        TuneGoal {
            policy: rule.policy.clone(),
            budget: rule.budget,
            model_only: self.config.dry_run,
            // Time costs nothing here, samples do.
            enough_addresses: None,
            calibration: self.system.calibration(),
            ..TuneGoal::default()
        }
    }

    /// Looks for processes whose turn it is, if it is time to.
    fn scan(&mut self, reading: &Reading) {
        let now = self.system.now();
        if now < self.promotion.next_scan {
            return;
        }
        let is_first = self.promotion.scans == 0;
        self.promotion.scans += 1;
        self.promotion.next_scan = now + SCAN_EVERY;
        let with_cgroups = self.config.rules.iter().any(|rule| rule.cgroup.is_some());
        let facts = self.system.facts(self.config.min_huge, with_cgroups);
        let Ok(mut facts) = facts else { return };
        self.watch_forks(&facts);
        facts.retain(|fact| !self.rests_after_fork(reading, &fact.id));
        let (rules, rest) = (&self.config.rules, self.config.cool_down);
        let (rules, before) = (rules.clone(), self.promotion.turns.clone());
        let found = self.promotion.turns.next(&facts, &rules, now, rest);
        if !found.turns.is_empty() {
            let (turns, found) = (before, found.clone());
            let next = self.promotion.turns.clone();
            self.log_choice(now, Choice::Turns { rules, rest, facts, turns, found, next });
        }
        if is_first || found.new > 0 {
            self.promotion.next_scan = now + SECOND_SCAN;
        }
        self.note_waiting(reading, &found);
        self.promotion.queue = found.turns.into();
        let system = self.system;
        self.history.keep_living(|key| system.lives(key));
        self.promotion.planned.retain(|&key, _| system.lives(key));
        self.promotion.forks.rests.retain(|&key, _| system.lives(key));
        for state in self.promotion.states.values_mut() {
            state.keep(|pid, start_ticks| system.lives((pid, start_ticks)));
        }
    }

    /// Logs why no process is tuned, if a scan found none whose turn it is.
    fn note_waiting(&mut self, reading: &Reading, found: &Scan) {
        let &Scan { idle, resting, new, .. } = found;
        let min_resident_bytes = self.config.min_huge;
        match (&found.turns[..], idle + resting + new) {
            ([], 0) => self.log_waiting(reading, WaitingCause::NoProcess { min_resident_bytes }),
            // The first scan finds new processes only.
            ([], _) if self.promotion.scans > 1 => {
                self.log_waiting(reading, WaitingCause::NoneInTurn { idle, resting, new });
            }
            _ => {}
        }
    }

    /// Logs that memory is not plentiful, if a rule allows promotion.
    pub(super) fn note_scarce(&mut self, reading: &Reading) {
        if self.config.allowed() > 0 && !self.may_promote(reading) {
            self.log_waiting(reading, WaitingCause::MemoryScarce);
        }
    }

    /// Logs why no process is tuned, if the cause is new and none was logged a short time ago.
    fn log_waiting(&mut self, reading: &Reading, cause: WaitingCause) {
        let now = self.system.now();
        let is_said = self.promotion.waiting.is_some_and(|(last, at)| {
            discriminant(&last) == discriminant(&cause) || now < at + WAITING_EVERY
        });
        if !is_said {
            self.promotion.waiting = Some((cause, now));
            self.log(reading, Event::Waiting { cause });
        }
    }

    /// Lets the cause be logged again: the configuration changed.
    pub(super) fn forget_waiting(&mut self) {
        self.promotion.waiting = None;
    }

    /// Ends the work in progress, and logs what it did in each process. What an open trial promoted
    /// returns to base pages.
    pub(super) fn end_work(&mut self, reading: &Reading) {
        let Some(mut work) = self.promotion.work.take() else { return };
        let is_cut = !work.is_over();
        if let Ok(Some(round)) = work.engine.abandon() {
            work.note(&round, self.config.dry_run);
            let goal = work.engine.goal().clone();
            self.note_round(goal, round);
        }
        let now = self.system.now();
        let seconds = (now - work.begun).as_seconds();
        let Work { rule, engine, folds, .. } = work;
        let trial_rules = engine.goal().trial;
        let state = engine.into_state();
        for (id, fold) in folds {
            let (regions, new) = self.count_promoted(&id, &fold);
            // Work that was cut short says nothing about the gain.
            let gained = (regions > 0).then_some(true).or((!is_cut).then_some(false));
            let resident = fold.shown().map_or(Bytes::MAX, |shown| shown.resident);
            self.promotion.turns.note_tried(&id, now, resident, gained);
            let Some(shown) = fold.shown() else { continue };
            let past = state.of(&id);
            let trial = past.and_then(|past| past.trial);
            let promoted = Promoted {
                pid: id.pid,
                command: id.command,
                rule: rule as u64 + 1,
                huge_pages_promoted: regions,
                promoted_bytes: shown.huge.times(regions),
                huge_pages_demoted: fold.acts().demotions,
                trial: trial.map(|trial| trial_report(&trial, &trial_rules)),
                no_trial: past.and_then(|past| past.no_trial),
                expected_speedup: shown.expected.map(|expected| expected.chosen),
                blocked_by: block(&shown.skipped_stall_ratio)
                    .filter(|_| regions == 0)
                    .map(|(code, stall_ratio)| BlockedStalls { code, stall_ratio }),
                stopped: fold.stopped,
                failed: fold.acts().failed,
                seconds,
            };
            for sums in [&mut self.life.sums, &mut self.scope.stretch.sums] {
                sums.promoted_bytes += shown.huge.times(new);
                sums.huge_pages_promoted += new;
            }
            let event = if self.config.dry_run { Event::WouldPromote } else { Event::Promoted };
            self.log(reading, event(promoted));
        }
        self.promotion.states.insert(rule, state);
    }

    /// Counts the regions that work promoted in a process, or that a dry run would have promoted,
    /// and those of them that are not in the sums yet.
    fn count_promoted(&mut self, id: &ProcessId, fold: &Fold) -> (u64, u64) {
        if !self.config.dry_run {
            let regions = fold.counts().kept;
            return (regions, regions);
        }
        let planned = self.promotion.planned.entry(key_of(id)).or_default();
        let new = fold.selected().filter(|region| planned.insert(region.start)).count();
        (fold.selected().count() as u64, new as u64)
    }
}
