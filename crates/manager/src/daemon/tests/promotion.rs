//! Promotion by rules, and the history that it shares with splits.

use std::collections::BTreeSet;

use hugepilot_kernel::TargetState;
use hugepilot_policy::daemon::{Permission, Rule};
use hugepilot_policy::tune::Policy;
use hugepilot_reports::daemon::{ExclusionCause, Promoted, WaitingCause};
use hugepilot_reports::tune::TrialVerdict;
use hugepilot_units::Amount;

use super::*;
use crate::engine::tests::world::FIRST;

/// Program with `regions` regions on base pages, which stall `ratio` of their time on huge pages.
fn program(pid: i32, regions: u64, ratio: f64) -> (Rc<FakeTarget>, f64) {
    let mut fake = FakeTarget::with_regions(FIRST..FIRST + regions);
    fake.id = ProcessId { pid: Pid(pid), start_ticks: 7, command: "db".into() };
    (Rc::new(fake), ratio)
}

/// Machine with these programs, on which others use `others` MiB.
pub(super) fn machine(
    programs: Vec<(Rc<FakeTarget>, f64)>,
    others: impl Fn(f64) -> f64 + 'static,
) -> Sim {
    Sim { programs, seconds: 120, ..Sim::new(Vec::new(), others) }
}

pub(super) fn allowing(rule: Rule) -> Config {
    Config { rules: vec![Rule { promote: Permission::Allow, ..rule }], ..config() }
}

fn promoted(lines: &[DaemonLine]) -> Vec<Promoted> {
    let promoted = |line: &DaemonLine| match &line.event {
        Event::Promoted(promoted) | Event::WouldPromote(promoted) => Some(promoted.clone()),
        _ => None,
    };
    lines.iter().filter_map(promoted).collect()
}

fn huge(target: &FakeTarget) -> usize {
    target.pages.borrow().values().filter(|pages| pages.huge).count()
}

#[test]
fn a_calibration_waits_for_a_process_in_turn_and_for_memory() {
    // Memory is short from the first second to the 40th, and again from the 45th to the 60th.
    let short = |second: f64| second < 40.0 || (45.0..60.0).contains(&second);
    let of = |programs| {
        let sim = machine(programs, move |second| if short(second) { 900.0 } else { 100.0 });
        Sim { calibrating: 10.0, ..sim }
    };
    let sim = of(vec![program(1, 100, 0.6)]);
    let lines = sim.run(allowing(Rule::default()));
    let begun = sim.calibration.get().expect("a process is in turn");
    assert!((60.0..80.0).contains(&begun), "ended when memory was short, then begun at {begun} s");
    assert_eq!(promoted(&lines).len(), 1, "after that, it is promoted: {lines:?}");
    let idle = of(Vec::new());
    idle.run(allowing(Rule::default()));
    assert_eq!(idle.calibration.get(), None, "without a process in turn, none is made");
}

#[test]
fn a_process_is_promoted_where_it_gains_and_only_by_a_rule() {
    let programs = || vec![program(1, 300, 0.6), program(2, 300, 1.0)];
    let sim = machine(programs(), |_| 100.0);
    let lines = sim.run(allowing(Rule::default()));
    let done = promoted(&lines);
    assert_eq!(done.len(), 2, "{lines:?}");
    let of = |pid| done.iter().find(|promoted| promoted.pid == Pid(pid)).unwrap();
    assert_eq!(of(1).trial.unwrap().verdict, TrialVerdict::Gain);
    assert_eq!(of(2).trial.unwrap().verdict, TrialVerdict::NoGain);
    assert_eq!((of(1).huge_pages_promoted, of(2).huge_pages_promoted), (300, 0));
    assert_eq!((huge(&sim.programs[0].0), huge(&sim.programs[1].0)), (300, 0));
    let Some(Event::Stopped(totals)) = lines.last().map(|line| &line.event) else { panic!() };
    assert_eq!(totals.promoted_bytes, Bytes::mib(600));
    assert_eq!(*sim.watched.borrow(), [[Pid(1), Pid(2)]], "a try is not repeated soon");

    let sim = machine(programs(), |_| 100.0);
    assert!(promoted(&sim.run(config())).is_empty() && sim.watched.borrow().is_empty());
    let other = Rule { command: Some("mysqld".into()), ..Rule::default() };
    assert!(promoted(&sim.run(allowing(other))).is_empty() && sim.watched.borrow().is_empty());
}

#[test]
fn nothing_is_promoted_while_memory_is_short() {
    let sim = machine(vec![program(1, 300, 0.6)], |_| 700.0);
    sim.run(allowing(Rule::default()));
    assert_eq!(huge(&sim.programs[0].0), 0, "between the watermarks");
    assert!(sim.watched.borrow().is_empty());
}

#[test]
fn a_trial_is_taken_back_when_memory_gets_short() {
    let (target, ratio) = program(1, 300, 0.6);
    let (seen, is_short) = (Rc::clone(&target), Cell::new(false));
    let sim = machine(vec![(target, ratio)], move |_| {
        is_short.set(is_short.get() || huge(&seen) > 0);
        if is_short.get() { 900.0 } else { 100.0 }
    });
    let lines = sim.run(allowing(Rule::default()));
    let done = promoted(&lines);
    assert_eq!(done.len(), 1, "{lines:?}");
    assert_eq!(huge(&sim.programs[0].0), 0);
    assert!(done[0].huge_pages_demoted > 0, "{done:?}");
}

#[test]
fn the_processes_of_a_rule_share_its_budget() {
    let programs = vec![program(1, 200, 0.6), program(2, 200, 0.6)];
    let sim = machine(programs, |_| 100.0);
    let budget = Some(Amount::Bytes(Bytes::mib(300)));
    sim.run(allowing(Rule { budget, ..Rule::default() }));
    let all: usize = sim.programs.iter().map(|(target, _)| huge(target)).sum();
    assert!((140..=150).contains(&all), "{all}");
}

/// A program whose mapping is known to the census.
pub(super) fn bloated_program(pid: i32, regions: u64, zeros: u64) -> (Rc<FakeTarget>, f64) {
    let (target, ratio) = program(pid, regions, 0.6);
    let mut target = Rc::into_inner(target).unwrap();
    let sizes = PageSizes::X86_64;
    let start = Region::new(FIRST).range(sizes).start;
    let range = AddrRange::at(start, sizes.huge.times(regions));
    let mapping = Mapping::anonymous(range);
    target.mappings = vec![Mapping { huge: range.len(), ..mapping }];
    let zeros = (FIRST..FIRST + regions).map(|region| (Region::new(region), zeros));
    target.zeros = RefCell::new(zeros.collect());
    (Rc::new(target), ratio)
}

fn first_split(lines: &[DaemonLine]) -> Option<f64> {
    let first = lines.iter().find(|line| matches!(line.event, Event::Freed(_)));
    first.map(|line| line.unix_seconds - BEGIN.as_seconds())
}

#[test]
fn what_was_promoted_is_not_split_soon() {
    let promoted = bloated_program(1, 100, 400);
    let mut sim = machine(vec![promoted], |second| if second < 60.0 { 100.0 } else { 900.0 });
    sim.fakes = vec![Rc::clone(&sim.programs[0].0)];
    sim.seconds = 1000;
    let split = first_split(&sim.run(allowing(Rule::default()))).unwrap();
    assert!((600.0..900.0).contains(&split), "{split}");
}

#[test]
fn what_was_split_is_not_promoted_soon() {
    let split = bloated_program(1, 100, 200);
    let pages = &split.0.pages;
    pages.borrow_mut().values_mut().for_each(|pages| pages.huge = true);
    // Memory is short until the huge pages are split.
    let mut sim = machine(vec![split], |second| if second < 2.0 { 800.0 } else { 100.0 });
    let target = Rc::clone(&sim.programs[0].0);
    sim.fakes = vec![Rc::clone(&target)];
    sim.seconds = 500;
    let lines = sim.run(allowing(Rule::default()));
    assert!(first_split(&lines).is_some_and(|second| second < 2.0), "{lines:?}");
    let split: Vec<Region> = target.asked.borrow().clone();
    let pages = target.pages.borrow();
    assert!(!split.is_empty() && split.iter().all(|region| !pages[region].huge));
}

#[test]
fn a_budget_holds_for_all_batches_of_a_rule() {
    let programs = (1..=6).map(|pid| program(pid, 100, 0.6)).collect();
    let mut sim = machine(programs, |_| 100.0);
    sim.seconds = 300;
    let budget = Some(Amount::Bytes(Bytes::mib(500)));
    sim.run(allowing(Rule { budget, ..Rule::default() }));
    assert!(sim.watched.borrow().len() >= 2, "{:?}", sim.watched);
    let all: usize = sim.programs.iter().map(|(target, _)| huge(target)).sum();
    assert!((200..=250).contains(&all), "{all}");
}

#[test]
fn a_dry_run_promotes_nothing_and_counts_each_region_once() {
    let sim = machine(vec![program(1, 300, 0.6)], |_| 100.0);
    let cool_down = Nanos::seconds(1);
    let lines = sim.run(Config { dry_run: true, cool_down, ..allowing(Rule::default()) });
    let done = promoted(&lines);
    assert!(done.len() > 1 && done.iter().all(|one| one.trial.is_none()), "{lines:?}");
    assert!(done.iter().all(|one| (201..=300).contains(&one.huge_pages_promoted)), "{done:?}");
    assert!(sim.programs[0].0.asked.borrow().is_empty());
    assert!(!lines.iter().any(|line| matches!(line.event, Event::Promoted(_))), "{lines:?}");
    let Some(Event::Stopped(totals)) = lines.last().map(|line| &line.event) else { panic!() };
    assert!(totals.huge_pages_promoted <= 300, "each try has the same regions: {totals:?}");
    assert_eq!(totals.promoted_bytes, Bytes::mib(2).times(totals.huge_pages_promoted));
}

#[test]
fn a_policy_of_a_rule_is_used() {
    let sim = machine(vec![program(1, 300, 0.6)], |_| 100.0);
    let policy = Policy::Pcc(hugepilot_policy::tune::PccRules::default());
    let lines = sim.run(allowing(Rule { policy, ..Rule::default() }));
    assert!(promoted(&lines).iter().all(|promoted| promoted.trial.is_none()), "{lines:?}");
    assert!(huge(&sim.programs[0].0) > 100);
}

#[test]
fn one_pass_ends_after_each_process_was_tuned() {
    let programs = || vec![program(1, 300, 0.6), program(2, 300, 1.0)];
    let once = |rules: Config| Config { once: true, ..rules };
    let sim = machine(programs(), |_| 100.0);
    let lines = sim.run(once(allowing(Rule::default())));
    assert_eq!(promoted(&lines).len(), 2, "{lines:?}");
    assert!(sim.elapsed() < Nanos::seconds(30), "{:?}", sim.elapsed());
    // Without a rule, with memory that is short and cannot be freed, with no process.
    for (sim, config) in [
        (machine(programs(), |_| 100.0), config()),
        (machine(programs(), |_| 900.0), allowing(Rule::default())),
        (machine(Vec::new(), |_| 100.0), allowing(Rule::default())),
    ] {
        sim.run(once(config));
        assert!(sim.elapsed() < Nanos::seconds(10), "{:?}", sim.elapsed());
    }
}

#[test]
fn processes_that_end_in_a_trial_end_the_work() {
    let (target, ratio) = program(1, 300, 0.6);
    let seen = Rc::clone(&target);
    let sim = machine(vec![(target, ratio)], move |_| {
        if huge(&seen) > 0 {
            seen.state.set(TargetState::Gone);
        }
        100.0
    });
    let done = promoted(&sim.run(allowing(Rule::default())));
    assert_eq!(done.len(), 1, "{done:?}");
    assert!(huge(&sim.programs[0].0) < 300);
}

#[test]
fn a_new_configuration_keeps_what_a_rule_made_and_obeys_dry_run() {
    let budget = Some(Amount::Bytes(Bytes::mib(100)));
    let rule = || Rule { budget, ..Rule::default() };
    for (dry_run, all) in [(false, 50), (true, 50)] {
        let mut sim = machine(vec![program(1, 200, 0.6), program(2, 200, 0.6)], |_| 100.0);
        sim.seconds = 100;
        let mut rules = allowing(rule()).rules;
        rules.push(Rule { command: Some("other".into()), ..Rule::default() });
        let new = Config { rules, dry_run, cool_down: Nanos::seconds(1), ..config() };
        let asked = Cell::new(false);
        sim.meanwhile = Box::new(move |sim| {
            if sim.elapsed() > Nanos::seconds(40) && !asked.replace(true) {
                sim.reloads.borrow_mut().push_back(Ok(new.clone()));
            }
        });
        sim.run(Config { cool_down: Nanos::seconds(1), ..allowing(rule()) });
        let made: usize = sim.programs.iter().map(|(target, _)| huge(target)).sum();
        assert!(made <= all && made > 0, "{made}");
    }
}

#[test]
fn the_cause_why_no_process_is_tuned_is_logged_once() {
    let causes = |programs, rule, others: f64| {
        let lines = machine(programs, move |_| others).run(allowing(rule));
        let waiting = lines.into_iter().filter_map(|line| match line.event {
            Event::Waiting { cause } => Some(cause),
            _ => None,
        });
        waiting.collect::<Vec<WaitingCause>>()
    };
    let gains = || vec![program(1, 300, 0.6)];
    let min_resident_bytes = Bytes::mib(64);
    let other = Rule { command: Some("mysqld".into()), ..Rule::default() };
    assert_eq!(causes(gains(), other, 100.0), [WaitingCause::NoProcess { min_resident_bytes }]);
    assert_eq!(causes(gains(), Rule::default(), 700.0), [WaitingCause::MemoryScarce]);
    // Once it was tuned, it rests.
    let resting = WaitingCause::NoneInTurn { idle: 0, resting: 1, new: 0 };
    assert_eq!(causes(gains(), Rule::default(), 100.0), [resting]);
}

/// The first has a snapshot of three seconds each minute, the second had children before, and the
/// third forks although a rule ignores that.
#[test]
fn a_process_that_forks_is_not_promoted() {
    let mut ignored = FakeTarget::with_regions(FIRST..FIRST + 100);
    ignored.id = ProcessId { pid: Pid(3), start_ticks: 7, command: "ignored".into() };
    let sim = Sim {
        seconds: 900,
        forks: |pid, second| Forks { running: pid != Pid(2) && second % 60.0 < 3.0, ended: true },
        ..machine(vec![program(1, 100, 0.6), program(2, 100, 0.6), (Rc::new(ignored), 0.6)], |_| {
            100.0
        })
    };
    let ignoring = Rule {
        command: Some("ignored".to_owned()),
        promote: Permission::Allow,
        despite_forks: true,
        ..Rule::default()
    };
    let mut config = allowing(Rule::default());
    config.rules.insert(0, ignoring);
    let lines = sim.run(config);
    let first = |pid: i32| {
        let is_own =
            |line: &&DaemonLine| matches!(&line.event, Event::Promoted(one) if one.pid == Pid(pid));
        lines.iter().find(is_own).map(|line| line.unix_seconds - BEGIN.as_seconds())
    };
    assert_eq!(first(1), None, "{lines:?}");
    assert!(first(2).is_some_and(|second| (600.0..700.0).contains(&second)), "{:?}", first(2));
    assert!(first(3).is_some_and(|second| second < 100.0), "{:?}", first(3));
    let skipped = lines.iter().filter_map(|line| match &line.event {
        Event::Skipped { pid, cause: ExclusionCause::Forks { .. }, .. } => Some(pid.0),
        _ => None,
    });
    assert_eq!(skipped.collect::<BTreeSet<i32>>(), [1, 2].into(), "each says why, once");
}

/// The trial begins before the fork, of which the child ends between two readings. The other
/// process of the rule is tuned again.
#[test]
fn a_fork_ends_the_trial() {
    let (target, ratio) = program(1, 300, 0.6);
    let seen = Rc::clone(&target);
    let sim = Sim {
        forked: Box::new(move || if huge(&seen) > 0 { [Pid(1)].into() } else { BTreeSet::new() }),
        ..machine(vec![(target, ratio), program(2, 300, 0.6)], |_| 100.0)
    };
    let lines = sim.run(allowing(Rule::default()));
    let done = promoted(&lines);
    let of = |pid: i32| done.iter().filter(move |one| one.pid == Pid(pid)).collect::<Vec<_>>();
    assert_eq!(of(1).len(), 1, "{lines:?}");
    assert_eq!((of(1)[0].huge_pages_promoted, huge(&sim.programs[0].0)), (0, 0), "{lines:?}");
    assert!(of(1)[0].huge_pages_demoted > 0, "{done:?}");
    assert_eq!(of(2).len(), 2, "cut, and again: {lines:?}");
    // The 128 regions of the cut trial rest.
    assert_eq!((of(2)[1].huge_pages_promoted, huge(&sim.programs[1].0)), (172, 172), "{lines:?}");
    let skipped = |line: &&DaemonLine| {
        matches!(line.event, Event::Skipped { cause: ExclusionCause::Forks { seen: true }, .. })
    };
    assert_eq!(lines.iter().filter(skipped).count(), 1, "{lines:?}");
}
