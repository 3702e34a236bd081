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

/// A process with a budget of two huge pages, in rounds of 25 s. A window has 1,000 samples.
struct Exchange {
    goal: TuneGoal,
    program: Program,
    state: State,
}

impl Exchange {
    fn new(rules: PccRules) -> Self {
        let goal = TuneGoal {
            policy: Policy::Pcc(rules),
            budget: Some(Amount::Bytes(SIZES.huge.times(2))),
            ..TuneGoal::default()
        };
        Self { goal, program: Program::uniform(1, 4), state: State::default() }
    }

    /// Regions that are huge after a round with these stalls. `accessed`: the regions in use, if
    /// accessed bits are read.
    fn round(&mut self, stalls: [u32; 4], accessed: Option<&[u64]>) -> Vec<u64> {
        let mut seen = seen(&self.program, &stalls);
        seen.window.samples = 1_000;
        seen.window.accessed =
            accessed.map(|all| all.iter().map(|&one| Region::new(FIRST + one)).collect());
        let (time, processes) = (self.program.time, vec![seen]);
        let snapshot = hugepilot_record::Snapshot { time, processes, interrupted: false };
        let decision = self.goal.decide(&snapshot, &self.state);
        // As in a journal.
        let line = serde_json::to_string(&decision.state).unwrap();
        self.state = serde_json::from_str(&line).unwrap();
        let decided = &decision.processes[0];
        self.program.act(decided, self.state.of_mut(&decided.process));
        self.program.time = self.program.time + Nanos::seconds(25);
        self.program.huge.iter().map(|region| region.get() - FIRST).collect()
    }
}

/// Section 3.3.3: a huge page that still walks much goes; one that saves its walks stays, however
/// few are left.
#[test]
fn a_region_that_still_walks_gives_its_huge_page_to_a_candidate() {
    let mut one = Exchange::new(PccRules { demote: true, ..PccRules::default() });
    assert_eq!(one.round([90, 80, 50, 1], None), [0, 1]);
    // Stalls from before the promotion prove nothing yet.
    assert_eq!(one.round([90, 4, 50, 1], None), [0, 1]);
    assert_eq!(one.round([90, 4, 50, 1], None), [1], "region 0 is demoted");
    assert_eq!(one.round([90, 4, 50, 1], None), [1, 2], "the next interval promotes");
    let mut usual = Exchange::new(PccRules::default());
    for _ in 0..6 {
        assert_eq!(usual.round([90, 80, 50, 1], None), [0, 1], "an option");
    }
}

/// Each of these would return a huge page that saves as much as the candidate would: region 0
/// walks less than half of what it did; more than it did, so that the program has changed; or as
/// much as all do, so that a candidate would save nothing.
#[test]
fn a_huge_page_that_saves_is_kept() {
    let quiet = [[9, 4, 50, 1], [44, 4, 50, 1], [200, 4, 50, 1], [90, 80, 50, 1], [60, 4, 55, 1]];
    for stalls in quiet {
        let mut one = Exchange::new(PccRules { demote: true, ..PccRules::default() });
        assert_eq!(one.round([90, 80, 50, 1], None), [0, 1]);
        for _ in 0..8 {
            assert_eq!(one.round(stalls, None), [0, 1], "{stalls:?}");
        }
    }
}

/// Two observations without a use make a region cold; without accessed bits, none is.
#[test]
fn cold_memory_is_known_by_accessed_bits_only() {
    let rules = PccRules { demote_cold: true, ..PccRules::default() };
    let mut one = Exchange::new(rules.clone());
    let all: &[u64] = &[0, 1, 2, 3];
    assert_eq!(one.round([90, 80, 50, 1], Some(all)), [0, 1]);
    assert_eq!(one.round([9, 0, 50, 1], Some(&[0, 2, 3])), [0, 1]);
    assert_eq!(one.round([9, 0, 50, 1], Some(all)), [0, 1], "used again");
    assert_eq!(one.round([9, 0, 50, 1], Some(&[0, 2, 3])), [0, 1]);
    assert_eq!(one.round([9, 0, 50, 1], Some(&[0, 2, 3])), [0]);
    assert_eq!(one.round([9, 0, 50, 1], Some(&[0, 2, 3])), [0, 2]);
    let mut blind = Exchange::new(rules);
    for stalls in [[90, 80, 50, 1], [9, 0, 50, 1], [9, 0, 50, 1], [9, 0, 50, 1]] {
        assert_eq!(blind.round(stalls, None), [0, 1]);
    }
}

#[test]
fn an_early_decision_follows_the_begin_of_each_interval() {
    let rules = PccRules { early: Nanos::seconds(1), ..PccRules::default() };
    let goal = TuneGoal { observe: Nanos::seconds(30), ..Exchange::new(rules).goal };
    assert_eq!(goal.first_decision(), Nanos::seconds(1));
    let mut program = Program::uniform(1, 4);
    for (time, next) in [(1, 30), (30, 31), (31, 60), (60, 61)] {
        program.time = Nanos::seconds(time);
        let seen = ProcessSnapshot {
            window: Window::starting(program.time),
            id: program.id(),
            memory: program.memory(),
        };
        let snapshot = hugepilot_record::Snapshot {
            time: program.time,
            processes: vec![seen],
            interrupted: false,
        };
        let decision = goal.decide(&snapshot, &State::default());
        let expected = hugepilot_record::Next::Until(Nanos::seconds(next));
        assert_eq!(decision.processes[0].next, expected, "{time} s");
    }
}
