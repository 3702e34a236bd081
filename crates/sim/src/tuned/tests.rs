use std::collections::BTreeSet;

use hugepilot_policy::round::{Goal, Header};
use hugepilot_policy::tune::{HawkeyeRules, KhugepagedRules, PccRules, Selection};
use hugepilot_record::PolicyName;
use hugepilot_record::trace::TraceMapping;
use hugepilot_units::{AddrRange, Amount, Share, VirtAddr};

use super::*;
use crate::Preset;

/// Regions of the program; every fourth is hot.
const REGIONS: u64 = 256;
const START: u64 = 1 << 32;
/// Accesses of a simulated second.
const RATE: u64 = 20_000;

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Addresses that the program accesses: seven of eight to random lines of the hot regions.
fn accesses(seed: u64) -> impl Iterator<Item = u64> {
    let mut state = seed;
    std::iter::from_fn(move || {
        let draw = random(&mut state);
        let hot = !draw.is_multiple_of(8);
        let region = random(&mut state) % (REGIONS / 4) * 4;
        let region = if hot { region } else { random(&mut state) % REGIONS };
        Some(START + (region << 21) + random(&mut state) % (1 << 21))
    })
}

fn config(policy: Policy) -> TunedConfig {
    let goal = TuneGoal {
        policy,
        observe: Nanos::seconds(3),
        max_added: None,
        limits: hugepilot_policy::Limits {
            min_resident: Share::percent(0.0),
            ..hugepilot_policy::Limits::default()
        },
        ..TuneGoal::default()
    };
    TunedConfig {
        machine: MachineConfig::new(Preset::built_in("haswell").unwrap()),
        goal,
        rate: RATE,
        frames: None,
        coverage: Coverage { scan: Share::ALL, ..Coverage::PAPER },
        cost: CostModel::default(),
        giant: false,
    }
}

/// The machine after some simulated seconds, and its rounds.
fn simulate(config: TunedConfig, seconds: u64) -> (TunedMachine, Footprint, Vec<Round>) {
    let mut machine = TunedMachine::new(config);
    let (mut footprint, mut layout, mut rounds) = (Footprint::new(), Layout::default(), Vec::new());
    let range = AddrRange::at(VirtAddr::new(START), SIZES.huge.times(REGIONS));
    layout.set(0, vec![TraceMapping { range, name: "[anon]".to_owned() }]);
    // The program fills its memory first.
    let fill = (0..REGIONS << 9).map(|page| START + (page << 12));
    let mut batch = Batch::default();
    footprint.add(0, 0, fill, &mut batch);
    machine.run(&batch.without_runs());
    footprint.clear_covered();
    let (mut source, names) = (accesses(7), ["db".to_owned()]);
    let step = RATE / 4;
    for tick in 1..=seconds * 4 {
        batch.clear();
        footprint.add(0, 0, source.by_ref().take(step as usize), &mut batch);
        machine.run(&batch);
        if tick % 4 == 0 {
            machine.note_coverage(&footprint);
            footprint.clear_covered();
        }
        let (accesses, footprint, layout) = (tick * step, &footprint, &layout);
        rounds.extend(machine.decide(&View { accesses, names: &names, footprint, layout }));
    }
    (machine, footprint, rounds)
}

/// Promoted regions, and those of them that are hot.
fn promoted(machine: &TunedMachine, footprint: &Footprint) -> (usize, usize) {
    let huge: BTreeSet<u64> = (0..)
        .zip(footprint.regions())
        .filter(|&(number, _)| machine.machine().class(number) == PageClass::Huge)
        .map(|(_, region)| (region.address() - START) >> 21)
        .collect();
    (huge.len(), huge.iter().filter(|&&region| region % 4 == 0).count())
}

#[test]
fn a_small_budget_goes_to_the_hot_regions() {
    for policy in [Policy::Pcc(PccRules::default()), Policy::Heat] {
        let name = policy.name();
        let mut config = config(policy);
        config.goal.budget = Some(Amount::Bytes(SIZES.huge.times(64)));
        let (machine, footprint, _) = simulate(config, 40);
        let (all, hot) = promoted(&machine, &footprint);
        assert!(all <= 64 && hot >= 60, "{name}: {hot} of {all}");
        let none = simulate(self::config(Policy::Never), 40).0.machine().counts();
        let walks = machine.machine().counts().walks;
        assert!(walks * 4 < none.walks * 3, "{name}: {walks} of {}", none.walks);
    }
}

#[test]
fn policies_without_samples_promote_in_their_order() {
    let (machine, footprint, _) = simulate(config(Policy::Linux), 10);
    assert_eq!(promoted(&machine, &footprint).0, 256);
    let scan = KhugepagedRules { pages_to_scan: 8 * 512, ..KhugepagedRules::default() };
    let (machine, footprint, _) = simulate(config(Policy::Khugepaged(scan)), 34);
    // Scans after 3, 13, 23 and 33 s, of eight regions each, in the order of addresses.
    assert_eq!(promoted(&machine, &footprint), (32, 8));
    let (machine, footprint, _) = simulate(config(Policy::Hawkeye(HawkeyeRules::default())), 10);
    let (all, hot) = promoted(&machine, &footprint);
    assert_eq!((all, hot), (24, 24), "three intervals");
}

#[test]
fn scarce_frames_stop_a_policy_that_does_not_know() {
    let mut config = config(Policy::All);
    config.frames = Some(10);
    let (machine, footprint, rounds) = simulate(config, 10);
    assert_eq!(promoted(&machine, &footprint).0, 10);
    assert_eq!(rounds[0].rows[0].outcome.attempts.stopped, Some(Stop::NoHugePages));
}

/// Two of ten huge pages are demoted, so that two of four promotions find one.
#[test]
fn frames_of_demoted_regions_are_free_again() {
    let mut config = config(Policy::All);
    config.frames = Some(10);
    let (mut machine, footprint, rounds) = simulate(config, 10);
    assert_eq!((machine.frames, promoted(&machine, &footprint).0), (Some(0), 10));
    let mut decided = rounds[0].rows[0].decision.clone();
    decided.demote = decided.promote[..2].iter().map(|one| one.region).collect();
    decided.promote = decided.promote[20..24].to_vec();
    let (accesses, layout) = (RATE * 11, &Layout::default());
    let view = View { accesses, names: &[], footprint: &footprint, layout };
    let outcome = machine.act(0, &decided, &view);
    assert_eq!((outcome.demotions.len(), outcome.attempts.acts.len()), (2, 2));
    assert_eq!(outcome.attempts.stopped, Some(Stop::NoHugePages));
    assert_eq!((machine.frames, promoted(&machine, &footprint).0), (Some(0), 10));
}

#[test]
fn a_simulated_decision_is_the_live_one_on_the_same_snapshot() {
    for name in PolicyName::ALL {
        let Some(policy) = Policy::of(name) else { continue };
        let (machine, _, rounds) = simulate(config(policy), 20);
        assert!(!rounds.is_empty(), "{name}");
        for round in rounds {
            // As a journal has it: what `explain` reads of a live tune.
            let line = serde_json::to_string(&round).unwrap();
            let read: Round = serde_json::from_str(&line).unwrap();
            let again = read.again(&machine.config().goal);
            assert!(again.decisions().eq(round.decisions()), "{name}, round {}", round.number);
        }
    }
}

/// Snapshots, states and decisions of live runs. The simulated machine, whose state is set to that
/// of the run, makes the same decisions, byte for byte.
#[test]
fn the_decision_of_a_live_run_is_the_simulated_one() {
    let (mut machine, mut rounds, mut promotions) = (None, 0, 0);
    for line in hugepilot_testkit::LIVE_JOURNAL.lines() {
        if let Ok(Header { goal: Goal::Tune(goal), .. }) = serde_json::from_str(line) {
            let any = config(Policy::Never);
            machine = Some(TunedMachine::new(TunedConfig { goal: *goal, ..any }));
            continue;
        }
        let machine = machine.as_mut().unwrap();
        let round: Round = serde_json::from_str(line).unwrap();
        let snapshot = round.snapshot();
        machine.state = round.state;
        for decision in machine.begin(snapshot).decisions() {
            promotions += decision.promote.len();
            let decided = serde_json::to_string(&decision).unwrap();
            assert!(
                line.contains(&format!("\"decision\":{decided},\"outcome\"")),
                "{} decides {decided}",
                machine.config.goal.policy.name()
            );
        }
        rounds += 1;
    }
    // `heat` observes in its first round.
    assert_eq!((rounds, promotions), (4, 24));
}

/// Two threads of one process: the first one walks 7 of 8 times.
#[test]
fn cores_get_the_same_number_of_huge_pages_by_round_robin() {
    let huge_of_threads = |selection| {
        let rules = PccRules { selection, promotions: 8, ..PccRules::default() };
        let mut config = config(Policy::Pcc(rules));
        config.goal.budget = Some(Amount::Bytes(SIZES.huge.times(32)));
        let mut machine = TunedMachine::new(config);
        let (mut footprint, mut layout) = (Footprint::new(), Layout::default());
        let range = AddrRange::at(VirtAddr::new(START), SIZES.huge.times(REGIONS));
        layout.set(0, vec![TraceMapping { range, name: "[anon]".to_owned() }]);
        let (mut state, names, step) = (3, ["db".to_owned()], RATE / 4);
        for tick in 1..=80 {
            let mut batch = Batch::default();
            for (thread, count) in [(0, step / 8 * 7), (1, step / 8)] {
                let half = u64::from(thread) * REGIONS / 2;
                let own = |_| {
                    let region = half + random(&mut state) % (REGIONS / 2);
                    START + (region << 21) + random(&mut state) % (1 << 21)
                };
                footprint.add(0, thread, (0..count).map(own), &mut batch);
            }
            machine.run(&batch);
            let (accesses, footprint, layout) = (tick * step, &footprint, &layout);
            machine.decide(&View { accesses, names: &names, footprint, layout });
        }
        let is_first = |act: &&TunedAct| {
            footprint.regions()[act.region as usize].address() < START + (REGIONS << 20)
        };
        let first = machine.acts().iter().filter(is_first).count();
        (first, machine.acts().len() - first)
    };
    assert_eq!(huge_of_threads(Selection::RoundRobin), (16, 16));
    assert_eq!(huge_of_threads(Selection::HighestFrequency), (32, 0));
}

#[test]
fn a_gain_is_found_by_a_trial_and_spread() {
    let (machine, footprint, rounds) = simulate(config(Policy::Heat), 40);
    assert_eq!(promoted(&machine, &footprint).1, 64);
    let trial = rounds.last().unwrap().state.processes().next().unwrap().trial;
    assert!(trial.is_some(), "{:?}", rounds.last().unwrap().state);
    // A new window begins with the round that requests it.
    for (round, next) in rounds.iter().zip(&rounds[1..]) {
        let is_new = next.rows[0].seen.window.since == round.time;
        let next = round.rows[0].decision.next;
        assert_eq!(is_new, matches!(next, Next::Restart(..) | Next::Renew(_)), "{next:?}");
    }
}

#[test]
fn huge_pages_that_walk_give_a_giant_page() {
    // A line of each 2 MiB region of 4 GiB in turn: 2048 huge pages, more than the TLB holds.
    let goal = TuneGoal { observe: Nanos::seconds(1), ..config(Policy::Never).goal };
    let base = MachineConfig::new(Preset::built_in("broadwell").unwrap());
    let machine = MachineConfig { first_class: PageClass::Huge, ..base };
    for giant in [false, true] {
        let config = TunedConfig {
            machine: machine.clone(),
            goal: goal.clone(),
            giant,
            ..config(Policy::Never)
        };
        let mut machine = TunedMachine::new(config);
        let (mut footprint, layout) = (Footprint::new(), Layout::default());
        let names = ["scan".to_owned()];
        for tick in 1..=8_u64 {
            let mut batch = Batch::default();
            let turn = (0..2048_u64).cycle().take(RATE as usize);
            footprint.add(0, 0, turn.map(|region| region << 21), &mut batch);
            machine.run(&batch);
            let (accesses, footprint, layout) = (tick * RATE, &footprint, &layout);
            machine.decide(&View { accesses, names: &names, footprint, layout });
        }
        assert_eq!(machine.giants(), if giant { 4 } else { 0 });
        let walks = machine.machine().counts().walks;
        assert_eq!(walks < RATE * 3, giant, "{walks}");
    }
}
