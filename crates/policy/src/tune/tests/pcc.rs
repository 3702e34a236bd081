//! The policy `pcc` in processes whose counts are known.

use hugepilot_record::{ProcessSnapshot, Window};

use super::super::{PccRules, Policy, Selection};
use super::*;

/// A process whose regions have these stalls.
fn seen(program: &Program, stalls: &[u32]) -> ProcessSnapshot {
    let regions = (FIRST..).map(Region::new).zip(stalls.iter().copied());
    let window = Window {
        until: program.time,
        cpu: Some(Nanos::seconds(3)),
        samples: stalls.iter().map(|&count| u64::from(count)).sum(),
        stalls: regions.filter(|&(_, count)| count > 0).collect(),
        ..Window::starting(program.time - Nanos::seconds(3))
    };
    ProcessSnapshot { id: program.id(), window, memory: program.memory() }
}

/// Promotions in each process of one interval. Regions of process 7 have ten stalls each, and those
/// of process 8 five.
fn promoted(regions: usize, rules: PccRules) -> Vec<usize> {
    let processes = [(7, 10), (8, 5)].map(|(pid, stalls)| {
        let mut program = Program::uniform(1, regions);
        program.pid = pid;
        seen(&program, &vec![stalls; regions])
    });
    let goal = TuneGoal { policy: Policy::Pcc(rules), ..TuneGoal::default() };
    let snapshot = hugepilot_record::Snapshot {
        time: Nanos::seconds(100),
        processes: processes.to_vec(),
        interrupted: false,
    };
    let decision = goal.decide(&snapshot, &State::default());
    decision.processes.iter().map(|process| process.promote.len()).collect()
}

#[test]
fn selection_divides_an_interval_as_the_paper_says() {
    use Selection::{HighestFrequency, RoundRobin};
    let rules = |selection, bias: &[i32]| PccRules {
        promotions: 80,
        selection,
        bias: bias.iter().map(ToString::to_string).collect(),
        ..PccRules::default()
    };
    assert_eq!(promoted(60, rules(HighestFrequency, &[])), [60, 20]);
    assert_eq!(promoted(60, rules(RoundRobin, &[])), [40, 40]);
    for selection in [HighestFrequency, RoundRobin] {
        assert_eq!(promoted(60, rules(selection, &[8])), [20, 60]);
    }
    assert_eq!(promoted(60, rules(HighestFrequency, &[7, 8])), [60, 20]);
    assert_eq!(promoted(60, rules(RoundRobin, &[7, 8])), [40, 40]);
}

/// Regions that `promotions` per interval promote of a process with two cores, in order. The first
/// core has regions 0, 1, 2, 3 and 6 with 100 stalls, less 1 for each; the second has 4, 5 and 6
/// with 10.
fn promoted_by_cores(selection: Selection, promotions: usize, intervals: usize) -> Vec<u64> {
    let rules = PccRules { promotions, selection, ..PccRules::default() };
    let goal = TuneGoal { policy: Policy::Pcc(rules), ..TuneGoal::default() };
    let mut program = Program::uniform(1, 7);
    let (mut state, mut all) = (State::default(), Vec::new());
    let core = |counts: &[(u64, u32)]| -> std::collections::BTreeMap<Region, u32> {
        counts.iter().map(|&(region, count)| (Region::new(FIRST + region), count)).collect()
    };
    let cores = vec![
        core(&[(0, 100), (1, 99), (2, 98), (3, 97), (6, 96)]),
        core(&[(4, 10), (5, 9), (6, 8)]),
    ];
    for _ in 0..intervals {
        let mut seen = seen(&program, &[100, 99, 98, 97, 10, 9, 104]);
        seen.window.stalls.retain(|region, _| !program.huge.contains(region));
        seen.window.cores = cores.clone();
        let snapshot = hugepilot_record::Snapshot {
            time: program.time,
            processes: vec![seen],
            interrupted: false,
        };
        let decision = goal.decide(&snapshot, &state);
        state = decision.state;
        let decided = &decision.processes[0];
        all.extend(decided.promote.iter().map(|promotion| promotion.region.get() - FIRST));
        program.act(decided, state.of_mut(&decided.process));
        program.time = program.time + Nanos::seconds(3);
    }
    all
}

/// Section 5.2: round robin distributes huge pages equally across threads, until a table has no
/// candidate left.
#[test]
fn cores_take_turns_by_round_robin() {
    use Selection::{HighestFrequency, RoundRobin};
    assert_eq!(promoted_by_cores(HighestFrequency, 4, 1), [6, 0, 1, 2]);
    assert_eq!(promoted_by_cores(RoundRobin, 4, 1), [0, 4, 1, 5]);
    // The second core gets region 6, which both have; then the first goes on alone.
    assert_eq!(promoted_by_cores(RoundRobin, 7, 1), [0, 4, 1, 5, 2, 6, 3]);
    // Turns go on in the next interval.
    assert_eq!(promoted_by_cores(RoundRobin, 1, 7), [0, 4, 1, 5, 2, 6, 3]);
}

#[test]
fn a_table_holds_a_number_of_candidates() {
    let rules = PccRules { promotions: 1000, ..PccRules::default() };
    assert_eq!(promoted(300, rules.clone()), [128, 128]);
    assert_eq!(promoted(300, PccRules { entries: 10, ..rules }), [10, 10]);
}

#[test]
fn a_cold_region_gives_its_huge_page_to_a_hotter_one() {
    let goal = TuneGoal {
        policy: Policy::Pcc(PccRules::default()),
        budget: Some(Amount::Bytes(SIZES.huge.times(2))),
        ..TuneGoal::default()
    };
    let mut program = Program::uniform(1, 4);
    let mut state = State::default();
    let mut round = |program: &mut Program, stalls: [u32; 4]| {
        let processes = vec![seen(program, &stalls)];
        let snapshot =
            hugepilot_record::Snapshot { time: program.time, processes, interrupted: false };
        let decision = goal.decide(&snapshot, &state);
        state = decision.state;
        let decided = &decision.processes[0];
        program.act(decided, state.of_mut(&decided.process));
        program.time = program.time + Nanos::seconds(3);
        program.huge.iter().map(|region| region.get() - FIRST).collect::<Vec<_>>()
    };
    assert_eq!(round(&mut program, [9, 8, 1, 1]), [0, 1]);
    // Stalls from before the promotion prove nothing yet.
    assert_eq!(round(&mut program, [9, 0, 9, 1]), [0, 1]);
    assert_eq!(round(&mut program, [9, 0, 9, 1]), [0], "demoted");
    assert_eq!(round(&mut program, [9, 0, 9, 1]), [0, 2], "the next interval promotes");
    // Less than twice as hot.
    program.time = program.time + Nanos::seconds(9);
    assert_eq!(round(&mut program, [9, 0, 9, 17]), [0, 2]);
    assert_eq!(round(&mut program, [9, 90, 9, 1]), [0, 2], "what was demoted is not promoted");
}
