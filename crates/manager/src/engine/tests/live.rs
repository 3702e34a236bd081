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
        let Round { snapshot, state, .. } = serde_json::from_str(line).unwrap();
        let world = Simulated::of([Program::new(1, vec![1.0])]);
        let mut engine = Engine::resume(world, goal, Guard::default(), true, state);
        let decisions = engine.run(snapshot, END).unwrap().decisions;
        let decided = serde_json::to_string(&decisions).unwrap();
        assert!(line.contains(&format!("\"decisions\":{decided},\"outcomes\"")), "{decided}");
        rounds += 1;
    }
    assert_eq!(rounds, 4);
}
