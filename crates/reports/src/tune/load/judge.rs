//! Load of the machine on both sides of the promotions: whether neighbours can explain a gain.
//!
//! Without interleaved windows, all values before precede all values after. Then a neighbour that
//! starts or ends meanwhile moves all of one side, and no count of values shows it.

use hugepilot_units::Nanos;

use super::{Load, LoadNumber, LoadReport};

/// Time of a side below which its load is unknown: the kernel counts in ticks of up to 10 ms.
const MIN_SIDE: Nanos = Nanos::millis(500);
/// Change of the CPUs that others use which counts, beside a share of them. An idle machine stays
/// below 0.05.
const OTHERS: f64 = 0.1;
/// Change of the stolen CPUs which counts, beside a share of them.
const STOLEN: f64 = 0.05;
/// Part of the larger side that does not count as a change: the clients of a server that became
/// faster use more CPU time, too.
const PART: f64 = 0.15;

/// CPU times of the machine since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadReading {
    /// Time of the reading.
    pub time: Nanos,
    /// CPU time of all processes.
    pub busy: Nanos,
    /// CPU time that the hypervisor took.
    pub stolen: Nanos,
    /// CPU time of the targets and of hugepilot.
    pub own: Nanos,
}

/// Judges the load before the first promotion, at `first_act`, and after the last one, at
/// `last_act`.
pub fn judge_load(readings: &[LoadReading], first_act: Nanos, last_act: Nanos) -> LoadReport {
    let begun = readings.partition_point(|reading| reading.time <= first_act);
    let settled = readings.partition_point(|reading| reading.time < last_act);
    let (before, after) = (load(&readings[..begun]), load(&readings[settled.max(begun)..]));
    let changed = before.zip(after).and_then(|(before, after)| changed(before, after));
    LoadReport { before, after, changed }
}

/// Mean load from the first to the last reading.
fn load(readings: &[LoadReading]) -> Option<Load> {
    let (first, last) = (readings.first()?, readings.last()?);
    let span = last.time - first.time;
    if span < MIN_SIDE {
        return None;
    }
    let cpus = |from: Nanos, to: Nanos| (to - from).as_seconds() / span.as_seconds();
    let others = cpus(first.busy, last.busy) - cpus(first.own, last.own);
    Some(Load { other_cpus: others.max(0.0), stolen_cpus: cpus(first.stolen, last.stolen) })
}

/// The number that changed; stolen time first, since it slows the target itself.
fn changed(before: Load, after: Load) -> Option<LoadNumber> {
    let numbers = [(LoadNumber::StolenCpus, STOLEN), (LoadNumber::OtherCpus, OTHERS)];
    let is_changed = |&(number, least): &(LoadNumber, f64)| {
        let (before, after) = (before.number(number), after.number(number));
        (after - before).abs() > least + PART * before.max(after)
    };
    numbers.into_iter().find(is_changed).map(|(number, _)| number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Readings each 0.1 s for 2 s with the load `before`, then for 2 s with `after`; the target
    /// uses one CPU in the first half and 0.9 in the second.
    fn readings(before: (u64, u64), after: (u64, u64)) -> Vec<LoadReading> {
        let mut now = LoadReading::default();
        let mut all = vec![now];
        for step in 0..40 {
            let is_first = step < 20;
            let ((others, stolen), own) = if is_first { (before, 100) } else { (after, 90) };
            now.time = now.time + Nanos::millis(100);
            now.own = now.own + Nanos::millis(own);
            now.busy = now.busy + Nanos::millis(own + others);
            now.stolen = now.stolen + Nanos::millis(stolen);
            all.push(now);
        }
        all
    }

    fn judged(before: (u64, u64), after: (u64, u64)) -> LoadReport {
        judge_load(&readings(before, after), Nanos::seconds(2), Nanos::seconds(2))
    }

    #[test]
    fn a_neighbour_that_came_or_went_is_a_change() {
        let same = judged((5, 0), (9, 1));
        assert!(same.is_alike(), "{same:?}");
        let before = same.before.unwrap();
        assert!((before.other_cpus - 0.05).abs() < 1e-9 && before.stolen_cpus == 0.0, "{same:?}");
        for (before, after, number) in [
            ((98, 0), (2, 0), LoadNumber::OtherCpus),
            ((2, 0), (98, 0), LoadNumber::OtherCpus),
            ((0, 12), (0, 0), LoadNumber::StolenCpus),
            ((98, 12), (2, 0), LoadNumber::StolenCpus),
        ] {
            let judged = judged(before, after);
            assert_eq!(judged.changed, Some(number), "{judged:?}");
            assert!(!judged.is_alike());
        }
        // The client of a server that is 1.2x as fast.
        assert!(judged((50, 0), (60, 0)).is_alike());
    }

    #[test]
    fn a_side_that_was_hardly_read_is_unknown() {
        let all = readings((5, 0), (5, 0));
        let late = judge_load(&all, Nanos::millis(300), Nanos::seconds(2));
        assert_eq!((late.before, late.changed), (None, None));
        assert!(!late.is_alike());
        assert!(!judge_load(&[], Nanos::ZERO, Nanos::ZERO).is_alike());
    }

    proptest! {
        #[test]
        fn both_directions_are_judged_alike(
            a in (0_u64..300, 0_u64..50),
            b in (0_u64..300, 0_u64..50),
        ) {
            let to_load = |(others, stolen): (u64, u64)| Load {
                other_cpus: others as f64 / 100.0,
                stolen_cpus: stolen as f64 / 100.0,
            };
            let (a, b) = (to_load(a), to_load(b));
            prop_assert_eq!(changed(a, b), changed(b, a));
            prop_assert_eq!(changed(a, a), None);
        }
    }
}
