//! Rounds of splits in a simulated world.

use hugepilot_kernel::KernelError;
use hugepilot_policy::{DebloatPolicy, Order, Priority};
use hugepilot_record::{SplitOutcome, SplitPlan};

use super::super::splits::{
    Extent, SplitProcess, SplitRule, SplitTarget, Splits, Splitting, Survey,
};
use super::*;
use crate::ManagerError;
use crate::act::round::{DoneAct, PlannedAct, StopRule};
use crate::daemon::tests::bloated;

/// Rule that frees an amount, within limits.
struct Freeing {
    wanted: Bytes,
    freed: Bytes,
    /// Whether the observation ends after a second.
    ends_early: bool,
    /// Huge pages that may be read.
    reads: usize,
    /// Excluded processes, and whether each had ended.
    excluded: Vec<(Pid, bool)>,
}

impl Default for Freeing {
    fn default() -> Self {
        let (wanted, freed) = (Bytes::gib(1), Bytes::ZERO);
        Self { wanted, freed, ends_early: false, reads: usize::MAX, excluded: Vec::new() }
    }
}

impl SplitRule for Freeing {
    fn observe(&mut self, world: &mut dyn World, end: Nanos) -> bool {
        world.observe(if self.ends_early { world.now() + Nanos::seconds(1) } else { end });
        !self.ends_early
    }

    fn policy(&self) -> DebloatPolicy {
        // One huge page of each process in turn.
        DebloatPolicy { quantum: 1, ..DebloatPolicy::new(Order::Exact) }
    }

    fn may_read(&mut self, _: Pid, _: u64, _: u64) -> Result<bool, ManagerError> {
        self.reads = self.reads.saturating_sub(1);
        Ok(self.reads > 0)
    }

    fn exclude(&mut self, id: &ProcessId, ended: bool, _: KernelError) -> Result<(), ManagerError> {
        self.excluded.push((id.pid, ended));
        Ok(())
    }

    fn surveyed(&mut self, _: &mut [SplitProcess], whole: bool) -> Result<bool, ManagerError> {
        Ok(whole)
    }

    fn planned(&mut self, _: &Survey, _: &SplitPlan) -> Result<Bytes, ManagerError> {
        Ok(self.wanted)
    }
}

impl StopRule<SplitProcess> for Freeing {
    type Error = ManagerError;

    fn may_act(&mut self, _: &PlannedAct<'_>) -> Result<bool, ManagerError> {
        Ok(self.freed < self.wanted)
    }

    fn acted(&mut self, _: &SplitProcess, done: &DoneAct<'_>) {
        let DoneAct::Split(act) = done else { panic!("{done:?}") };
        self.freed += act.outcome.freed();
    }
}

/// Engine for two processes, each with ten huge pages that are half empty.
fn engine_of(rule: Freeing, dry_run: bool) -> Engine<Simulated, Splitting<Freeing>> {
    let program = |pid| Program::on(bloated(pid, 10, 256).into(), Vec::new());
    let world = Simulated::of([1, 2].map(program));
    let target = |one: &Program| {
        let (id, priority) = (one.target.id.clone(), Priority::Normal);
        SplitTarget { id, priority, weight: 1.0 }
    };
    let targets = world.programs.values().map(target).collect();
    let extent = Extent { observe: Nanos::seconds(3), part: Share::ALL, dry_run };
    Engine::splitting(world, targets, extent, rule)
}

fn round(engine: &mut Engine<Simulated, Splitting<Freeing>>) -> Option<Splits> {
    engine.round(END, END).unwrap()
}

/// Splits that each process was asked for.
fn asked(engine: &Engine<Simulated, Splitting<Freeing>>) -> Vec<usize> {
    engine.world.programs.values().map(|one| one.target.asked.borrow().len()).collect()
}

#[test]
fn one_round_samples_plans_and_frees_an_amount_from_processes_in_turn() {
    let mut engine = engine_of(Freeing { wanted: Bytes::mib(7), ..Freeing::default() }, false);
    let splits = round(&mut engine).unwrap();
    assert_eq!((splits.survey.time >= Nanos::seconds(4), splits.wanted), (true, Bytes::mib(7)));
    assert!(splits.survey.processes.iter().all(|one| one.stalls.is_some()));
    assert_eq!((asked(&engine), engine.controller.rule.freed), (vec![4, 3], Bytes::mib(7)));
    let record = splits.into_round(None);
    assert_eq!(record.plan_again(&engine.controller.rule.policy()), record.plan);
    assert_eq!(record.rows.iter().map(|row| row.outcome.acts.len()).collect::<Vec<_>>(), [4, 3]);
    assert!(round(&mut engine).is_none(), "one round");
}

#[test]
fn samples_of_a_shorter_observation_do_not_count() {
    let mut engine = engine_of(Freeing { ends_early: true, ..Freeing::default() }, false);
    let survey = round(&mut engine).unwrap().survey;
    assert!(survey.time < Nanos::seconds(3), "{}", survey.time);
    assert!(survey.processes.iter().all(|one| one.stalls.is_none()));
}

#[test]
fn without_the_whole_census_nothing_is_split() {
    let mut engine = engine_of(Freeing { reads: 15, ..Freeing::default() }, false);
    assert!(round(&mut engine).is_none());
    assert_eq!(asked(&engine), [0, 0]);
}

#[test]
fn a_process_that_ended_or_runs_another_program_is_excluded() {
    for (ended, exec) in [(true, false), (false, true), (false, false)] {
        let mut engine = engine_of(Freeing::default(), false);
        let target = Rc::clone(&engine.world.program(1).target);
        match (ended, exec) {
            (true, _) => target.state.set(TargetState::Gone),
            (_, true) => target.state.set(TargetState::Execed),
            _ => target.unreadable.set(Some(Errno::EACCES)),
        }
        assert_eq!(round(&mut engine).unwrap().survey.processes.len(), 1);
        assert_eq!(engine.controller.rule.excluded, [(Pid(1), ended)]);
        assert_eq!(asked(&engine), [0, 10]);
    }
}

#[test]
fn a_process_that_executed_its_program_again_after_its_samples_is_excluded() {
    let mut engine = engine_of(Freeing::default(), false);
    engine.world.restarted.push(Pid(1));
    assert_eq!(round(&mut engine).unwrap().survey.processes.len(), 1);
    assert_eq!(engine.controller.rule.excluded, [(Pid(1), false)]);
    assert_eq!(asked(&engine), [0, 10]);
}

#[test]
fn the_end_of_a_process_ends_its_splits_only() {
    for (script, stop) in [(Script::Die, Stop::TargetGone), (Script::Exec, Stop::TargetExeced)] {
        let mut engine = engine_of(Freeing::default(), false);
        engine.world.program(2).target.script.borrow_mut().push_back(script);
        let record = round(&mut engine).unwrap().into_round(None);
        let ended: Vec<_> = record.rows.iter().map(|row| row.outcome.ended).collect();
        assert_eq!((ended, asked(&engine)), (vec![None, Some(stop)], vec![10, 1]));
        assert_eq!(record.rows[1].outcome.acts[0].outcome, SplitOutcome::Failed(Errno::ESRCH));
    }
}

#[test]
fn a_dry_run_says_what_splits_would_free() {
    let mut engine = engine_of(Freeing::default(), true);
    let record = round(&mut engine).unwrap().into_round(None);
    assert_eq!((asked(&engine), engine.controller.rule.freed), (vec![0, 0], Bytes::mib(20)));
    assert!(record.rows.iter().all(|row| row.outcome.acts.is_empty()));
    assert!(record.dry_run && record.plan.splits.len() == 20);
}
