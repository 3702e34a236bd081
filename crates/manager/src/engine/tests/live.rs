//! Decisions about snapshots of live processes.

use hugepilot_policy::round::{Goal, Header};
use hugepilot_testkit::LIVE_JOURNAL;

use super::*;

/// The engine decides about stored snapshots as it did live, byte for byte. Crate `sim` tests the
/// same of the simulated machine.
#[test]
fn stored_snapshots_are_decided_as_the_live_ones_were() {
    let (mut current, mut rounds) = (None, 0);
    for line in LIVE_JOURNAL.lines() {
        if let Ok(Header { goal: Goal::Tune(goal), .. }) = serde_json::from_str(line) {
            current = Some(*goal);
            continue;
        }
        let goal = current.clone().unwrap();
        let stored: Round = serde_json::from_str(line).unwrap();
        let world = Simulated::of([Program::new(1, vec![1.0])]);
        let snapshot = stored.snapshot();
        let mut engine = Engine::resume(world, goal, Guard::default(), true, stored.state);
        let round = engine.run(snapshot, END).unwrap();
        for decision in round.decisions() {
            let decided = serde_json::to_string(decision).unwrap();
            assert!(line.contains(&format!("\"decision\":{decided},\"outcome\"")), "{decided}");
        }
        rounds += 1;
    }
    assert_eq!(rounds, 4);
}
