//! Turns: which of the processes that may be promoted is tried next. Pure.
//!
//! A process gains by huge pages only while it runs, so an idle one waits. A try costs the process
//! samples and half a trial, so the next one follows after a rest that doubles without a gain, or
//! once the process has grown.

use std::collections::BTreeMap;

use hugepilot_record::ProcessId;
use hugepilot_units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

use super::history::{Key, key_of};
use super::rules::{ProcessFacts, Rule, allowed_by};

/// CPU time of a process per second, below which it counts as idle.
const MIN_CPU: f64 = 0.05;
/// Growth of the resident memory after which a process is tried again.
const GROWTH: f64 = 0.25;
/// Doublings of the rest of a process without a gain: from ten minutes to ten hours.
const MAX_DOUBLINGS: u32 = 6;

/// A process that was tried.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Tried {
    at: Nanos,
    resident: Bytes,
    /// Tries without a gain since the last one with a gain.
    futile: u32,
}

/// A process of an earlier scan.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Seen {
    at: Nanos,
    cpu: Nanos,
    tried: Option<Tried>,
}

/// Process whose turn it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Index of its rule.
    pub rule: usize,
    /// The process.
    pub process: ProcessId,
    /// CPU time per second of time.
    pub cpus: f64,
}

/// Processes of a scan that a rule allows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scan {
    /// Those whose turn it is, busiest first.
    pub turns: Vec<Turn>,
    /// Number of those that hardly run.
    pub idle: u64,
    /// Number of those that were tried and rest.
    pub resting: u64,
    /// Number of those that no earlier scan found, so that their CPU time says nothing about now.
    pub new: u64,
}

/// Earlier scans and tries of all processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<(Key, Seen)>", into = "Vec<(Key, Seen)>")]
pub struct Turns(BTreeMap<Key, Seen>);

/// A key of a JSON object is a string.
impl From<Turns> for Vec<(Key, Seen)> {
    fn from(turns: Turns) -> Self {
        turns.0.into_iter().collect()
    }
}

impl From<Vec<(Key, Seen)>> for Turns {
    fn from(seen: Vec<(Key, Seen)>) -> Self {
        Self(seen.into_iter().collect())
    }
}

impl Turns {
    /// Notes a scan at `now`, and returns the processes whose turn it is. Processes that the scan
    /// did not find are forgotten. `rest`: the pause after a try.
    pub fn next(&mut self, scan: &[ProcessFacts], rules: &[Rule], now: Nanos, rest: Nanos) -> Scan {
        let (mut found, mut seen) = (Scan::default(), BTreeMap::new());
        for process in scan {
            let Some(rule) = allowed_by(rules, process) else { continue };
            let key = key_of(&process.id);
            let past = self.0.get(&key).copied();
            let tried = past.and_then(|past| past.tried);
            seen.insert(key, Seen { at: now, cpu: process.cpu, tried });
            let cpus = past.map(|past| cpus(&past, process, now));
            match cpus {
                None => found.new += 1,
                Some(_) if tried.is_some_and(|tried| !tried.is_over(process, now, rest)) => {
                    found.resting += 1;
                }
                Some(cpus) if cpus < MIN_CPU => found.idle += 1,
                Some(cpus) => {
                    found.turns.push(Turn { rule, process: process.id.clone(), cpus });
                }
            }
        }
        self.0 = seen;
        found.turns.sort_by(|a, b| b.cpus.total_cmp(&a.cpus));
        found
    }

    /// Notes a try of `process` that ended at `now`, with this resident memory. `gained`: `None` if
    /// the try was cut short.
    pub fn note_tried(
        &mut self,
        process: &ProcessId,
        now: Nanos,
        resident: Bytes,
        gained: Option<bool>,
    ) {
        if let Some(seen) = self.0.get_mut(&key_of(process)) {
            let futile = match (gained, seen.tried) {
                (Some(true), _) | (_, None) => 0,
                (Some(false), Some(tried)) => tried.futile + 1,
                (None, Some(tried)) => tried.futile,
            };
            seen.tried = Some(Tried { at: now, resident, futile });
        }
    }
}

impl Tried {
    /// Whether the process may be tried again.
    fn is_over(&self, process: &ProcessFacts, now: Nanos, rest: Nanos) -> bool {
        let rest = rest.get().saturating_mul(1 << self.futile.min(MAX_DOUBLINGS));
        let has_grown = process.resident.as_f64() >= (1.0 + GROWTH) * self.resident.as_f64();
        now >= self.at + Nanos::new(rest) || has_grown
    }
}

/// CPU time of `process` per second since `past`.
fn cpus(past: &Seen, process: &ProcessFacts, now: Nanos) -> f64 {
    (process.cpu - past.cpu).as_seconds() / (now - past.at).as_seconds().max(1e-3)
}

#[cfg(test)]
mod tests {
    use hugepilot_record::Pid;

    use super::super::rules::Permission;
    use super::*;

    const REST: Nanos = Nanos::seconds(600);

    fn process(pid: i32, resident_mib: u64, cpu_ms: u64) -> ProcessFacts {
        ProcessFacts {
            id: ProcessId { pid: Pid(pid), start_ticks: 1, command: "db".into() },
            user: 0,
            user_name: None,
            cgroup: "/".into(),
            resident: Bytes::mib(resident_mib),
            cpu: Nanos::millis(cpu_ms),
        }
    }
    fn rules() -> [Rule; 1] {
        [Rule { promote: Permission::Allow, ..Rule::default() }]
    }
    fn next(turns: &mut Turns, scan: &[ProcessFacts], second: u64) -> Vec<i32> {
        let next = turns.next(scan, &rules(), Nanos::seconds(second), REST).turns;
        next.into_iter().map(|turn| turn.process.pid.0).collect()
    }

    #[test]
    fn the_busiest_comes_first_and_idle_ones_wait() {
        let mut turns = Turns::default();
        assert!(next(&mut turns, &[process(1, 100, 0), process(2, 100, 9000)], 0).is_empty());
        let scan = [process(1, 100, 5000), process(2, 100, 9400), process(3, 100, 9000)];
        assert_eq!(next(&mut turns, &scan, 10), [1], "4 % is idle; one scan is not enough");
        let scan = [process(1, 100, 6000), process(2, 100, 9500), process(3, 100, 19_000)];
        assert_eq!(next(&mut turns, &scan, 20), [3, 1]);
    }

    #[test]
    fn those_without_a_turn_are_counted_by_cause() {
        let mut turns = Turns::default();
        let counts = |turns: &mut Turns, scan: &[ProcessFacts], second| {
            let found = turns.next(scan, &rules(), Nanos::seconds(second), REST);
            (found.turns.len(), found.idle, found.resting, found.new)
        };
        let scan = |second: u64| [process(1, 100, 1000 * second), process(2, 100, 0)];
        assert_eq!(counts(&mut turns, &scan(0), 0), (0, 0, 0, 2));
        assert_eq!(counts(&mut turns, &scan(10), 10), (1, 1, 0, 0));
        turns.note_tried(&scan(10)[0].id, Nanos::seconds(10), Bytes::mib(100), Some(true));
        let later = [&scan(20)[..], &[process(3, 100, 0)]].concat();
        assert_eq!(counts(&mut turns, &later, 20), (0, 1, 1, 1));
    }

    #[test]
    fn no_process_has_a_turn_without_a_rule() {
        let mut turns = Turns::default();
        for second in [0, 10] {
            let scan = [process(1, 100, second * 1000)];
            assert_eq!(turns.next(&scan, &[], Nanos::seconds(second), REST), Scan::default());
        }
        assert!(turns.0.is_empty());
    }

    /// Scans every ten seconds; the process is busy. Returns the seconds of its turns.
    fn turns_until(end: u64, gained: Option<bool>, resident: impl Fn(u64) -> u64) -> Vec<u64> {
        let (mut turns, mut seconds) = (Turns::default(), Vec::new());
        for second in (0..end).step_by(10) {
            let scan = [process(1, resident(second), second * 1000)];
            if !next(&mut turns, &scan, second).is_empty() {
                seconds.push(second);
                let now = Nanos::seconds(second);
                turns.note_tried(&scan[0].id, now, scan[0].resident, gained);
            }
        }
        seconds
    }

    #[test]
    fn rests_double_without_a_gain_and_a_grown_process_is_tried_sooner() {
        assert_eq!(turns_until(2000, Some(true), |_| 100), [10, 610, 1210, 1810]);
        assert_eq!(turns_until(2000, None, |_| 100), [10, 610, 1210, 1810]);
        assert_eq!(turns_until(5000, Some(false), |_| 100), [10, 610, 1810, 4210]);
        let grows = |second| if second < 100 { 100 } else { 125 };
        assert_eq!(turns_until(700, Some(false), grows), [10, 100]);
    }

    #[test]
    fn a_process_that_ended_is_forgotten() {
        let mut turns = Turns::default();
        next(&mut turns, &[process(1, 100, 0)], 0);
        next(&mut turns, &[], 10);
        assert!(turns.0.is_empty());
    }
}
