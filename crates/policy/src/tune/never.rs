//! Policy `never`: no region.
//!
//! A control: the process is sampled and read as with other policies, and nothing is changed.

use hugepilot_record::Snapshot;

use super::interval::{Interval, next_interval};
use super::{Candidates, Decision, State, TuneGoal};

/// Decides one interval: counts what may be promoted, and its expected gain.
pub(super) fn decide(goal: &TuneGoal, snapshot: &Snapshot, mut state: State) -> Decision {
    let until = next_interval(snapshot.time, goal.observe);
    let mut interval = Interval::new(goal, snapshot, &mut state, 0, until);
    for (index, process) in snapshot.processes.iter().enumerate() {
        let past = state.of_mut(&process.id);
        let found = Candidates::eligible(&process.memory, &process.window, past, goal);
        interval.note(index, &found);
        interval.expect(index, &found);
    }
    Decision { processes: interval.finish(), state }
}
