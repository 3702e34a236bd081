//! Controller of a tune: promotes the regions that pay, a process when its decision is due.

use std::collections::{BTreeMap, BTreeSet};

use hugepilot_kernel::{Claim, KernelError};
use hugepilot_policy::Guard;
use hugepilot_policy::daemon::{Key, key_of};
use hugepilot_policy::round::{ProcessOutcome, Round};
use hugepilot_policy::tune::{
    Decision, MIN_SAMPLES, NextDecision, Policy, ProcessState, State, TuneGoal, TunePhase,
};
use hugepilot_record::{
    Attempts, Next, Pid, ProcessDecision, ProcessId, ProcessSnapshot, Snapshot, Stop, Window,
};
use hugepilot_units::{Bytes, Nanos, Region};

use super::due::Due;
use super::until::Until;
use super::{Controller, Engine, NeededRegions, Scope, TuneWorld};
use crate::act::round::{Changes, PlannedAct, carry_out};
use crate::act::unreadable;

/// Controller of a tune, with its state.
pub struct Tuning {
    goal: TuneGoal,
    guard: Guard,
    /// Whether decisions are not carried out.
    dry_run: bool,
    pub(super) state: State,
    due: BTreeMap<Pid, Due>,
    /// Processes in view from the start, if the first observation is sampled closely.
    close: BTreeSet<Pid>,
    /// Claims of processes, so that no other run of hugepilot changes them. A process that the user
    /// did not name is claimed at its first change, until it starts another program.
    pub(crate) claims: BTreeMap<Key, Claim>,
    rounds: u64,
}

impl<W: TuneWorld> Engine<W, Tuning> {
    /// Makes an engine that has seen nothing.
    pub fn new(world: W, goal: TuneGoal, guard: Guard, dry_run: bool) -> Self {
        let (state, due) = (State::default(), BTreeMap::new());
        let view = if goal.looks_closely() { world.in_view(Scope::All) } else { Vec::new() };
        let close = view.into_iter().collect();
        let claims = BTreeMap::new();
        let controller = Tuning { goal, guard, dry_run, state, due, close, claims, rounds: 0 };
        let mut engine = Self { world, controller };
        engine.boost();
        engine
    }

    /// Goes on from the state of an earlier engine.
    pub fn resume(world: W, goal: TuneGoal, guard: Guard, dry_run: bool, state: State) -> Self {
        let mut engine = Self::new(world, goal, guard, dry_run);
        engine.controller.state = state;
        engine
    }

    /// Ends the engine, and returns its state.
    pub fn into_state(self) -> State {
        self.controller.state
    }

    /// Returns the goal.
    pub const fn goal(&self) -> &TuneGoal {
        &self.controller.goal
    }
    /// Returns the state after the last round.
    pub const fn state(&self) -> &State {
        &self.controller.state
    }

    /// Notes the resident memory of a process before its first decision, so that it counts for the
    /// limits that all share.
    pub fn note_resident(&mut self, id: &ProcessId, resident: Bytes) {
        self.controller.state.of_mut(id).resident = resident;
    }

    /// Runs the last round after an interruption, which demotes what open trials promoted;
    /// `None` without one.
    ///
    /// # Errors
    /// A process that lives cannot be read.
    pub fn abandon(&mut self) -> Result<Option<Round>, KernelError> {
        let (time, trials) = (self.world.now(), self.state().in_trial());
        for (pid, due) in &mut self.controller.due {
            due.at = trials.contains(pid).then_some(time);
        }
        let mut processes = Vec::new();
        let mut failure = None;
        for pid in trials {
            match self.process(pid, time) {
                Ok(process) => processes.extend(process),
                // The others return what they got.
                Err(error) => {
                    failure = failure.or((!error.is_gone()).then_some(error));
                    self.forget(pid);
                }
            }
        }
        match failure {
            Some(error) if processes.is_empty() => Err(error),
            _ if processes.is_empty() => Ok(None),
            _ => self.run(Snapshot { time, processes, interrupted: true }, time).map(Some),
        }
    }

    /// Whether no later round can change anything, of the processes in view.
    pub fn is_done(&self) -> bool {
        let due = &self.controller.due;
        !due.is_empty() && due.values().all(|due| due.at.is_none())
    }

    /// Whether a process is in a trial, or about to get what its verdict requires.
    pub fn is_settling(&self) -> bool {
        let settles = |state: &ProcessState| {
            matches!(state.phase, TunePhase::Trial { .. } | TunePhase::Spread { .. })
        };
        self.controller.state.processes().any(settles)
    }

    /// Notes when the first decisions about new processes are due, and drops old ones.
    fn admit(&mut self) {
        for pid in self.world.restarted() {
            self.drop_past(pid);
        }
        let scope = Scope::of(&self.controller.goal);
        let view = self.world.in_view(scope);
        self.controller.due.retain(|pid, _| view.contains(pid));
        for pid in view {
            let since = match self.world.window(pid) {
                Some(window) => window.since,
                None if scope == Scope::All => self.world.now(),
                None => continue,
            };
            let (is_close, tune) = (self.controller.close.contains(&pid), &self.controller.goal);
            let time = if is_close { tune.first_look() } else { tune.first_decision() };
            self.controller.due.entry(pid).or_insert(Due::first(since + time));
        }
    }

    /// Drops ended processes: their memory counts for no limit any more.
    fn drop_ended(&mut self) {
        let keys: Vec<_> = self.controller.state.keys().collect();
        for key in keys {
            if self.world.has_ended(key) {
                self.forget(key.0);
            }
        }
    }

    fn process(&mut self, pid: Pid, time: Nanos) -> Result<Option<ProcessSnapshot>, KernelError> {
        let Some(due) = self.controller.due.get_mut(&pid) else { return Ok(None) };
        let scope = Scope::of(&self.controller.goal);
        let few = self.world.window(pid).is_none_or(|window| window.samples < MIN_SAMPLES);
        if scope == Scope::Sampled && due.memory.is_none() && few {
            due.at = Some(time + self.controller.goal.observe);
            return Ok(None);
        }
        if due.reads_memory || due.memory.is_none() {
            let target = self.world.target(pid)?;
            let past = self.controller.state.of(target.id());
            let needed = self.controller.goal.needed_regions(past, target.sizes(), time);
            let needed = needed.as_ref().map(|needed| needed as NeededRegions<'_>);
            // Memory without samples has the huge pages to split.
            let lacks = past.is_some_and(ProcessState::lacks_huge_pages);
            let scope = if lacks { Scope::All } else { scope };
            let memory = self.world.memory(pid, scope, needed)?;
            due.memory = Some((target.id().clone(), memory));
        }
        let window = match self.world.window(pid) {
            Some(window) => window.clone(),
            None if scope == Scope::All => Window::starting(time),
            None => return Ok(None),
        };
        let read = due.memory.clone();
        Ok(read.map(|(id, memory)| ProcessSnapshot { id, window, memory }))
    }

    /// Samples processes in trials at the higher rate, and the close ones before their first
    /// decision.
    fn boost(&mut self) {
        let mut pids = self.controller.state.in_trial();
        pids.extend(self.controller.close.iter().filter(|&&pid| self.controller.state.is_new(pid)));
        pids.sort_unstable();
        self.world.boost(&pids);
    }

    fn act(
        &mut self,
        seen: &ProcessSnapshot,
        decided: &ProcessDecision,
        end: Nanos,
    ) -> ProcessOutcome {
        let id = &decided.process;
        let is_trial = |state: &State| state.of(id).is_some_and(ProcessState::is_in_trial);
        // A trial whose regions are kept needs no guard.
        let is_changed = !self.controller.dry_run && !decided.promote.is_empty();
        if is_trial(&self.controller.state) && !self.controller.goal.keep && is_changed {
            self.world.trial_begins(seen, &decided.promote);
        }
        let outcome = self.change(decided, end);
        if !is_trial(&self.controller.state) {
            self.world.trial_ended(id);
        }
        outcome
    }

    fn change(&mut self, decided: &ProcessDecision, end: Nanos) -> ProcessOutcome {
        let ProcessDecision { promote, demote, .. } = decided;
        let mut outcome = ProcessOutcome::default();
        if self.controller.dry_run || promote.is_empty() && demote.is_empty() {
            return outcome;
        }
        let pid = decided.process.pid;
        let target = match self.world.target(pid) {
            Ok(target) => target,
            Err(error) => {
                outcome.attempts.stopped = Some(unreadable(&error));
                return outcome;
            }
        };
        let key = key_of(target.id());
        let mut changes = Changes::new(self.controller.guard, self.controller.claims.remove(&key));
        let state = self.controller.state.of_mut(&decided.process);
        // Other policies demote what they promoted.
        let is_heat = self.controller.goal.policy == Policy::Heat;
        let is_spare = |region: &&Region| is_heat && !state.is_promoted(**region);
        let spare = demote.iter().filter(is_spare).count();
        // The kernel may have free huge pages by now. Without compaction, a split frees none.
        let may_split = spare == 0
            || target.free_huge() < target.sizes().huge.times(spare as u64)
                && self.world.may_compact();
        let mut demote = demote.clone();
        demote.retain(|region| may_split || !is_spare(&region));
        let demotions = demote.into_iter().map(|region| (0, PlannedAct::Demote(region)));
        let promotions = promote.iter().map(|one| (0, PlannedAct::Promote(one)));
        let begun = self.world.now();
        let (huge, done, all) = (target.sizes().huge, 0, promote.len());
        let mut until = Until { world: &mut self.world, state, pid, huge, end, done, all };
        let Ok(mut is_done) = carry_out(demotions, &mut [(&*target, &mut changes)], &mut until);
        if is_done {
            let splits = if spare > 0 { changes.outcome.demoted() } else { 0 };
            if splits > 0 && !until.is_over() {
                until.world.compact();
            }
            let Ok(rest) = carry_out(promotions, &mut [(&*target, &mut changes)], &mut until);
            is_done = rest;
            if changes.outcome.attempts.verified() < splits / 2 {
                let rest = self.controller.goal.horizon;
                until.state.rest_spare(until.world.now() + rest);
            }
        }
        outcome = changes.outcome;
        if !is_done {
            // The end of the time does not interrupt.
            let is_interrupted = self.world.is_interrupted();
            outcome.attempts.stopped = is_interrupted.then_some(Stop::Interrupted);
        }
        (outcome.begun, outcome.ended) = (Some(begun), Some(self.world.now()));
        self.controller.claims.extend(changes.claim.map(|claim| (key, claim)));
        outcome
    }

    /// Notes when the next decision is due.
    fn plan_next(&mut self, decided: &ProcessDecision, outcome: &ProcessOutcome) {
        let pid = decided.process.pid;
        let next = match self.waits(decided, &outcome.attempts) {
            Some(next) => next,
            None if self.ends(decided, outcome.attempts.stopped) => return,
            None => decided.next,
        };
        let length = self.world.window(pid).map_or(Nanos::ZERO, Window::length);
        let next = NextDecision::after(next, length, self.world.now());
        if next.fades {
            self.world.fade(pid);
        }
        let Some(due) = self.controller.due.get_mut(&pid) else { return };
        (due.at, due.reads_memory) = (next.at, next.reads_memory);
        if let Some(from) = next.window {
            self.world.restart(pid, from);
        }
    }

    /// Plans another attempt later, if no huge page is free. A trial goes on with the pairs
    /// that it has; without one, it begins again. `None` if that is not the cause, or if it was for
    /// too long.
    fn waits(&mut self, decided: &ProcessDecision, attempts: &Attempts) -> Option<Next> {
        if attempts.stopped != Some(Stop::NoHugePages) {
            return None;
        }
        let (now, persistent) = (self.world.now(), self.controller.goal.persistent);
        // An exchange may free huge pages.
        let exchanges = self.controller.state.exchanges(decided.process.pid);
        let state = self.controller.state.of_mut(&decided.process);
        state.forgive_lack(&attempts.acts);
        let in_trial = state.is_in_trial();
        let has_ended = matches!(state.phase, TunePhase::Ended);
        if has_ended || in_trial && attempts.verified() > 0 {
            return None;
        }
        let pause = state.wait_for_huge_pages(&attempts.acts, persistent || exchanges)?;
        // The next attempt follows at once: a free block does not stay free.
        let pause = if self.world.lacks_huge_pages() { Nanos::ZERO } else { pause };
        if in_trial {
            state.phase = TunePhase::Watching { idle: 0 };
            return Some(Next::Renew(pause));
        }
        // The policy may want to wait for longer.
        Some(match decided.next {
            Next::Until(time) => Next::Until(time.max(now + pause)),
            Next::Observe(time) => Next::Observe(time.max(pause)),
            Next::Renew(time) => Next::Renew(time.max(pause)),
            _ => Next::Observe(pause),
        })
    }

    /// Ends the work on a process if the cause of an early end of its acts requires it.
    fn ends(&mut self, decided: &ProcessDecision, stopped: Option<Stop>) -> bool {
        let pid = decided.process.pid;
        match stopped {
            None | Some(Stop::SlowCollapse) => return false,
            Some(Stop::TargetGone | Stop::TargetExeced) => {
                self.forget(pid);
                return true;
            }
            // A trial goes on with the pairs that it has; an interrupted one is abandoned.
            Some(
                Stop::NoHugePages
                | Stop::CgroupFull
                | Stop::MemoryPressure
                | Stop::RepeatedFailure
                | Stop::Interrupted,
            ) if self.controller.state.of_mut(&decided.process).is_in_trial() => return false,
            Some(_) => {}
        }
        self.controller.state.of_mut(&decided.process).phase = TunePhase::Ended;
        self.rest(pid);
        true
    }

    /// Once no trial is open, all processes that waited with the budget are decided together, and
    /// those that are watched: each may get a huge page of another.
    fn wake_waiting(&mut self) {
        if self.controller.goal.budget.is_none() || !self.controller.state.in_trial().is_empty() {
            return;
        }
        let (now, waiting) = (self.world.now(), self.controller.state.spreading());
        self.wake(&waiting, now);
        if self.controller.goal.policy == Policy::Heat {
            let watched = self.controller.state.watching();
            let due = watched.iter().filter_map(|pid| self.controller.due.get(pid)?.at);
            let first = due.min().unwrap_or(now);
            self.wake(&watched, first);
        }
    }

    /// Makes the decisions about these processes due at `time`, unless they are due before.
    fn wake(&mut self, pids: &[Pid], time: Nanos) {
        for pid in pids {
            let Some(due) = self.controller.due.get_mut(pid) else { continue };
            due.at = due.at.map(|at| at.min(time));
        }
    }

    /// Makes no further decision about a process.
    fn rest(&mut self, pid: Pid) {
        if let Some(due) = self.controller.due.get_mut(&pid) {
            due.at = None;
        }
        self.controller.close.remove(&pid);
    }

    /// Drops a process that ended or started another program, with its samples.
    fn forget(&mut self, pid: Pid) {
        self.drop_past(pid);
        self.world.forget(pid);
    }

    /// Drops what is known of the former program of a process, and its claim: another run of
    /// hugepilot may change it. One that the user named stays claimed until the end.
    fn drop_past(&mut self, pid: Pid) {
        self.controller.due.remove(&pid);
        self.controller.close.remove(&pid);
        self.controller.state.forget(pid);
        if !self.world.is_named(pid) {
            self.controller.claims.retain(|&(claimed, _), _| claimed != pid);
        }
    }
}

impl<W: TuneWorld> Controller<W> for Tuning {
    type Snapshot = Snapshot;
    type Decision = Decision;
    type Round = Round;
    type Error = KernelError;

    fn due(engine: &mut Engine<W, Self>) -> Option<Nanos> {
        engine.admit();
        if engine.is_done() || engine.world.is_over() {
            return None;
        }
        // Without a process in view, one may come.
        let next = engine.controller.due.values().filter_map(|due| due.at).min();
        Some(next.unwrap_or_else(|| engine.world.now() + engine.goal().settle))
    }

    /// Reads the processes that are due.
    fn snapshot(engine: &mut Engine<W, Self>) -> Result<Option<Snapshot>, KernelError> {
        engine.drop_ended();
        let time = engine.world.now();
        let due =
            engine.controller.due.iter().filter(|(_, due)| due.at.is_some_and(|at| at <= time));
        let due: Vec<Pid> = due.map(|(&pid, _)| pid).collect();
        let mut processes = Vec::new();
        for pid in due {
            match engine.process(pid, time) {
                Ok(process) => processes.extend(process),
                Err(error) if unreadable(&error) == Stop::TargetGone => engine.forget(pid),
                Err(error) => return Err(error),
            }
        }
        let snapshot = Snapshot { time, processes, interrupted: false };
        Ok((!snapshot.processes.is_empty()).then_some(snapshot))
    }

    fn decide(&self, snapshot: &Snapshot) -> Decision {
        self.goal.decide(snapshot, &self.state)
    }

    /// Acts on one process after another, and notes when its next decision is due.
    fn act(
        engine: &mut Engine<W, Self>,
        snapshot: Snapshot,
        decision: Decision,
        end: Nanos,
    ) -> Result<Round, KernelError> {
        let Tuning { rounds, state, .. } = &mut engine.controller;
        *rounds += 1;
        let mut round = decision.begin(*rounds, snapshot, state);
        for row in &mut round.rows {
            row.outcome = engine.act(&row.seen, &row.decision, end);
            engine.plan_next(&row.decision, &row.outcome);
        }
        engine.boost();
        engine.wake_waiting();
        Ok(round)
    }
}
