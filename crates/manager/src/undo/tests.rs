use std::cell::RefCell;
use std::rc::Rc;

use hugepilot_kernel::fake::{FakeTarget, Script};
use hugepilot_policy::round::{self, Row};
use hugepilot_policy::tune::{Place, State};
use hugepilot_record::{
    Act, ActOutcome, Attempts, Headroom, Next, Pressure, ProcessDecision, ProcessMemory,
    ProcessSnapshot, Skips, SplitAct, VmFlags, Window,
};
use hugepilot_units::{AddrRange, Bytes, Nanos, PageSizes};

use super::*;

fn id(pid: i32, start_ticks: u64) -> ProcessId {
    ProcessId { pid: Pid(pid), start_ticks, command: "db".to_owned() }
}

/// Heap of regions 1 to 99, and a stack that ends at this number of pages.
fn mappings(stack_end: u64) -> Vec<Mapping> {
    let range =
        |from: u64, to: u64| AddrRange::new(VirtAddr::new(from << 21), VirtAddr::new(to << 21));
    let mut stack = Mapping::anonymous(range(1000, stack_end));
    (stack.kind, stack.name) = (MappingKind::Stack, "[stack]".to_owned());
    vec![Mapping::anonymous(range(1, 100)), stack]
}

/// A round of process 7 that promotes some regions and demotes others.
fn round(start_ticks: u64, stack_end: u64, verified: &[u64], demoted: &[u64]) -> Round {
    let id = id(7, start_ticks);
    let act = |&region: &u64, outcome| Act {
        region: Region::new(region),
        took: Nanos::ZERO,
        calls: 1,
        outcome,
    };
    let mut acts: Vec<Act> = verified.iter().map(|one| act(one, ActOutcome::Verified)).collect();
    acts.push(act(&90, ActOutcome::Failed(Errno::EAGAIN)));
    acts.push(act(&91, ActOutcome::NotVerified));
    let demotions = demoted.iter().map(|&region| SplitAct {
        region: Region::new(region),
        took: Nanos::ZERO,
        outcome: SplitOutcome::Freed(Bytes::ZERO),
    });
    let memory = ProcessMemory {
        time: Nanos::ZERO,
        sizes: PageSizes::X86_64,
        mappings: mappings(stack_end),
        heat: Vec::new(),
        stacks: BTreeSet::new(),
        pages: BTreeMap::new(),
        thp_disabled: false,
        untouched: Bytes::ZERO,
        headroom: Headroom::UNLIMITED,
        pressure: Pressure::default(),
    };
    let process = ProcessSnapshot { id: id.clone(), window: Window::default(), memory };
    let decision = ProcessDecision {
        process: id,
        promote: Vec::new(),
        demote: Vec::new(),
        eligible: 0,
        skipped: Skips::new(),
        skipped_stalls: BTreeMap::new(),
        expected: None,
        next: Next::End,
    };
    let outcome = round::ProcessOutcome {
        attempts: Attempts { acts, ..Attempts::default() },
        demotions: demotions.collect(),
        ..round::ProcessOutcome::default()
    };
    Round {
        number: 1,
        time: Nanos::ZERO,
        interrupted: false,
        state: State::default(),
        rows: vec![Row { seen: process, decision, outcome, after: None }],
        place: Place::default(),
    }
}

/// Process 7 of the journal, with huge regions of which a few base pages are zero-filled.
fn process(regions: &[u64]) -> FakeTarget {
    let mut target = FakeTarget::with_bloat(regions.iter().map(|&region| (region, 5)));
    (target.id, target.mappings) = (id(7, 40), mappings(2000));
    target
}

fn promotions(rounds: &[Round]) -> Promotions {
    let mut promotions = Promotions::default();
    rounds.iter().for_each(|round| promotions.add(round));
    promotions
}

/// Undoes `rounds` on `target`. Returns the only process of the report, and the splits that were
/// asked for.
fn undone(rounds: &[Round], target: FakeTarget, dry_run: bool) -> (UndoneProcess, Vec<u64>) {
    let target = Rc::new(target);
    let open = |pid| {
        assert_eq!(pid, Pid(7));
        Ok(target.clone() as Rc<dyn Target>)
    };
    let mut report = promotions(rounds).undo(dry_run, 0, &open, &|| false);
    assert_eq!(report.processes.len(), 1);
    let asked = target.asked.borrow().iter().map(|region| region.get()).collect();
    (report.processes.remove(0), asked)
}

#[test]
fn what_the_tune_left_huge_returns_to_base_pages() {
    let rounds = [round(40, 2000, &[1, 2, 3, 4], &[]), round(40, 2000, &[5], &[3])];
    // Region 4 was split, 5 is not mapped any more, and 6 became huge without hugepilot.
    let target = process(&[1, 2, 6]);
    let (undone, asked) = undone(&rounds, target, false);
    assert_eq!((undone.state, asked), (UndoState::Running, vec![1, 2]));
    let counts = (undone.promoted_regions, undone.returned_regions, undone.not_huge_regions);
    assert_eq!(counts, (4, 2, 2));
    assert!(undone.skipped.is_empty() && undone.failed.is_empty());
}

#[test]
fn a_dry_run_counts_the_same_and_asks_for_nothing() {
    let rounds = [round(40, 2000, &[1, 2, 3, 4], &[]), round(40, 2000, &[5], &[3])];
    let mut target = process(&[1, 2, 6]);
    // Another run changes it, and one region is locked.
    target.claimed.set(true);
    let locked = AddrRange::new(VirtAddr::new(2 << 21), VirtAddr::new(3 << 21));
    let flags = VmFlags::parse("lo");
    target.mappings.insert(0, Mapping { flags, ..Mapping::anonymous(locked) });
    let (undone, asked) = undone(&rounds, target, true);
    assert_eq!((undone.returned_regions, undone.not_huge_regions, asked), (1, 2, vec![]));
    assert_eq!((undone.state, undone.skipped["mlocked"]), (UndoState::Running, 1));
}

#[test]
fn another_process_or_program_is_never_touched() {
    let rounds = [round(40, 2000, &[1, 2], &[])];
    let mut reused = process(&[1, 2]);
    reused.id.start_ticks = 41;
    let mut other = process(&[1, 2]);
    other.mappings = mappings(2001);
    let mut unknown = process(&[1, 2]);
    unknown.mappings.pop();
    let gone = process(&[1, 2]);
    gone.state.set(TargetState::Gone);
    let execed = process(&[1, 2]);
    execed.state.set(TargetState::Execed);
    let claimed = process(&[1, 2]);
    claimed.claimed.set(true);
    for (target, state) in [
        (reused, UndoState::PidReused),
        (other, UndoState::OtherProgram),
        (unknown, UndoState::OtherProgram),
        (gone, UndoState::Ended),
        (execed, UndoState::OtherProgram),
        (claimed, UndoState::Stopped { cause: Stop::InUse }),
    ] {
        let (undone, asked) = undone(&rounds, target, false);
        assert_eq!((undone.state, undone.returned_regions, asked), (state, 0, vec![]));
    }
}

#[test]
fn a_program_started_in_the_same_process_has_regions_of_its_own() {
    let rounds = [round(40, 1999, &[1, 2], &[]), round(40, 2000, &[3], &[])];
    let (undone, asked) = undone(&rounds, process(&[1, 2, 3]), false);
    assert_eq!((undone.promoted_regions, asked), (1, vec![3]));
}

#[test]
fn failures_are_counted_by_errno_and_a_missing_permission_stops() {
    let rounds = [round(40, 2000, &[1, 2, 3], &[])];
    let script = [Script::Fail(Errno::EINVAL), Script::FakeSuccess];
    let (failed, _) = undone(&rounds, process(&[1, 2, 3]).scripted(script), false);
    assert_eq!(failed.returned_regions, 1);
    assert_eq!(failed.failed, [("EINVAL".to_owned(), 1), ("still_huge".to_owned(), 1)].into());
    let denied = process(&[1, 2, 3]).scripted([Script::Fail(Errno::EPERM)]);
    let (denied, _) = undone(&rounds, denied, false);
    assert_eq!(denied.state, UndoState::Stopped { cause: Stop::NotPermitted });
}

#[test]
fn what_ends_while_it_is_undone_has_ended() {
    let rounds = [round(40, 2000, &[1, 2, 3], &[])];
    let target = process(&[1, 2, 3]).scripted([Script::Succeed, Script::Die]);
    let (undone, _) = undone(&rounds, target, false);
    assert_eq!((undone.state, undone.returned_regions), (UndoState::Ended, 1));
    assert!(undone.failed.is_empty(), "{undone:?}");
}

#[test]
fn a_process_that_has_ended_or_that_was_demoted_is_no_error() {
    let gone = |pid| Err(KernelError::NoProcess { pid });
    let rounds = [round(40, 2000, &[1], &[])];
    let report = promotions(&rounds).undo(false, 12, &gone, &|| false);
    assert_eq!((report.processes[0].state, report.cut_bytes), (UndoState::Ended, 12));
    let interrupted = promotions(&rounds).undo(false, 0, &|_| Ok(Rc::new(process(&[1]))), &|| true);
    assert_eq!(interrupted.processes[0].state, UndoState::Stopped { cause: Stop::Interrupted });
    let rounds = [round(40, 2000, &[1], &[]), round(40, 2000, &[], &[1])];
    let opened = RefCell::new(0);
    let open = |pid| {
        *opened.borrow_mut() += 1;
        gone(pid)
    };
    let report = promotions(&rounds).undo(false, 0, &open, &|| false);
    assert!(report.processes.is_empty() && *opened.borrow() == 0);
}

fn undone_regions(promotions: &Promotions) -> Vec<u64> {
    let all = promotions.processes.values().flat_map(|process| &process.regions);
    all.map(|region| region.get()).collect()
}

#[test]
fn saved_regions_are_restored_for_their_process_only() {
    let rounds = [round(40, 2000, &[1, 2], &[])];
    let (promotions, mut other) = (promotions(&rounds), Promotions::default());
    let id = promotions.processes().next().unwrap().clone();
    other.restore(promotions.saved(&id).unwrap().as_bytes()).unwrap();
    assert_eq!(other.saved(&id), promotions.saved(&id));
    assert_eq!(other.saved(&ProcessId { start_ticks: 1, ..id.clone() }), None);
    let second = self::promotions(&[round(40, 2000, &[2, 3], &[])]);
    other.drop_regions(&id, &second);
    assert_eq!(undone_regions(&other), [1], "the second tune returned its own");
    other.drop_regions(&id, &promotions);
    assert_eq!(other.saved(&id), None);
    assert!(other.restore(b"{}").is_err());
}
