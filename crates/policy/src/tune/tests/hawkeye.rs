//! The policy `hawkeye` in a process whose access coverage is known.

use hugepilot_record::{ProcessSnapshot, RegionHeat, Snapshot, Window};

use super::super::{HawkeyeRules, Policy};
use super::*;

/// Regions that an interval promotes, in order. Each has a `coverage`, and more stalls than the one
/// before.
fn promoted(state: &mut State, coverage: &[u32], promotions: usize) -> Vec<u64> {
    let mut program = Program::uniform(1, coverage.len());
    let regions = || (FIRST..).map(Region::new);
    let heat = |(region, &sampled_pages): (Region, &u32)| RegionHeat {
        region,
        samples: 0,
        streamed: 0,
        tlb_held: 0,
        sampled_pages,
    };
    program.sampled = regions().zip(coverage).map(heat).collect();
    let stalls = regions().zip(1..=coverage.len() as u32).collect();
    let window = Window { samples: 100, stalls, ..Window::starting(program.time) };
    let seen = ProcessSnapshot { id: program.id(), window, memory: program.memory() };
    let snapshot = Snapshot { time: program.time, processes: vec![seen], interrupted: false };
    let rules = HawkeyeRules { promotions, ..HawkeyeRules::default() };
    let goal = TuneGoal { policy: Policy::Hawkeye(rules), ..TuneGoal::default() };
    let decision = goal.decide(&snapshot, state);
    *state = decision.state;
    decision.processes[0].promote.iter().map(|one| one.region.get() - FIRST).collect()
}

/// Lists by hand: bucket 1 has regions of 50 to 99 base pages, bucket 2 those of 100 to 149.
#[test]
fn regions_of_a_bucket_come_in_the_order_in_which_they_entered_it() {
    let mut state = State::default();
    // 2: [1]; 1: [0, 2, 3].
    assert!(promoted(&mut state, &[60, 100, 60, 60], 0).is_empty());
    // 1: [0, 2, 3, 1].
    assert!(promoted(&mut state, &[60, 99, 61, 60], 0).is_empty());
    // 2: [2]; 1: [0, 3, 1].
    assert!(promoted(&mut state, &[50, 99, 100, 60], 0).is_empty());
    let line = serde_json::to_string(&state).unwrap();
    state = serde_json::from_str(&line).unwrap();
    // 1: [0, 1, 2]: region 3 has no page in use.
    assert_eq!(promoted(&mut state, &[50, 99, 99, 0], 8), [0, 1, 2]);
    // 2: [3]; 1: [0, 1, 2].
    assert_eq!(promoted(&mut state, &[50, 99, 99, 100], 8), [3, 0, 1, 2]);
    // 1: [0, 1, 2, 3].
    assert_eq!(promoted(&mut state, &[50, 99, 99, 60], 3), [0, 1, 2]);
}

/// A share of 30 % of five regions is one and a half: the intervals have one and two by turns.
#[test]
fn the_pace_is_a_share_of_the_regions() {
    let rules = HawkeyeRules { pace: Some(Share::percent(30.0)), ..HawkeyeRules::default() };
    let observe = Nanos::seconds(30);
    let goal = TuneGoal { policy: Policy::Hawkeye(rules), observe, ..TuneGoal::default() };
    let counts = (1..=6).map(|number| {
        let mut program = Program::uniform(1, 5);
        program.time = Nanos::seconds(30 * number);
        program.sampled = (FIRST..FIRST + 5)
            .map(|region| RegionHeat {
                region: Region::new(region),
                samples: 0,
                streamed: 0,
                tlb_held: 0,
                sampled_pages: 60,
            })
            .collect();
        let window = Window::starting(program.time);
        let seen = ProcessSnapshot { id: program.id(), window, memory: program.memory() };
        let snapshot = Snapshot { time: program.time, processes: vec![seen], interrupted: false };
        goal.decide(&snapshot, &State::default()).processes[0].promote.len()
    });
    assert_eq!(counts.collect::<Vec<_>>(), [1, 2, 1, 2, 1, 2]);
    assert_eq!(HawkeyeRules::PACE.get(), 8.0 / 5120.0);
}
