//! Policy `all`: every eligible region, by process and address.
//!
//! The reference that other policies are compared with (all huge). It needs no samples, and spends
//! memory on regions without stalls.

use hugepilot_record::Snapshot;

use super::interval::{Interval, Ranked, next_interval};
use super::{Candidates, Decision, State, TuneGoal};

/// Decides one interval for all processes of the snapshot.
pub(super) fn decide(goal: &TuneGoal, snapshot: &Snapshot, mut state: State) -> Decision {
    let until = next_interval(snapshot.time, goal.observe);
    let mut interval = Interval::new(goal, snapshot, &mut state, goal.round_regions(), until);
    let mut ranked: Vec<Ranked> = Vec::new();
    for (index, process) in snapshot.processes.iter().enumerate() {
        let past = state.of_mut(&process.id);
        let found = Candidates::eligible(&process.memory, &process.window, past, goal);
        interval.note(index, &found);
        interval.expect(index, &found);
        ranked.extend(found.regions.into_iter().map(|candidate| (index, candidate)));
    }
    interval.grant_in_rounds(&ranked);
    Decision { processes: interval.finish(), state }
}
