//! Fairness: the process whose huge page is split next.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use hugepilot_record::Split;
use serde::{Deserialize, Serialize};

use super::{Candidate, DebloatView};

/// Fairness among processes that free memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fairness {
    /// None: within a class, one process after the other.
    Off,
    /// Round-robin within each class (EMD, section 4.3).
    RoundRobin,
    /// Bytes in proportion to each process's bloat.
    Bloat,
    /// Bytes in proportion to each process's weight.
    Weight,
}

impl Fairness {
    /// Returns the name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::RoundRobin => "round-robin",
            Self::Bloat => "bloat",
            Self::Weight => "weight",
        }
    }
}

/// Orders `candidates`: preferred processes first, then by class, and within a class by `fairness`.
pub(super) fn ordered(
    mut candidates: Vec<Candidate>,
    views: &[DebloatView<'_>],
    fairness: Fairness,
    quantum: usize,
) -> Vec<Split> {
    candidates.sort_by_key(|candidate| {
        let Split { process, region, .. } = candidate.split;
        (candidate.priority, Reverse(candidate.class), process, Reverse(candidate.within), region)
    });
    let mut splits = Vec::with_capacity(candidates.len());
    match fairness {
        Fairness::Off => splits.extend(candidates.iter().map(|candidate| candidate.split)),
        Fairness::RoundRobin => {
            for class in candidates.chunk_by(|a, b| (a.priority, a.class) == (b.priority, b.class))
            {
                round_robin(class, quantum.max(1), &mut splits);
            }
        }
        Fairness::Bloat | Fairness::Weight => {
            let weight = |process: usize| match fairness {
                Fairness::Bloat => views[process].census.bloat().as_f64(),
                _ => views[process].weight,
            };
            for priority in candidates.chunk_by(|a, b| a.priority == b.priority) {
                in_proportion(priority, &weight, &mut splits);
            }
        }
    }
    splits
}

/// Returns the candidates of each process, in their order.
fn by_process(candidates: &[Candidate]) -> Vec<VecDeque<Split>> {
    let mut queues: Vec<VecDeque<Split>> = Vec::new();
    let mut places = BTreeMap::new();
    for Candidate { split, .. } in candidates {
        let place = *places.entry(split.process).or_insert(queues.len());
        if place == queues.len() {
            queues.push(VecDeque::new());
        }
        queues[place].push_back(*split);
    }
    queues
}

fn round_robin(class: &[Candidate], quantum: usize, splits: &mut Vec<Split>) {
    let queues = by_process(class);
    let longest = queues.iter().map(VecDeque::len).max().unwrap_or(0);
    for start in (0..longest).step_by(quantum) {
        for queue in &queues {
            splits.extend(queue.iter().skip(start).take(quantum));
        }
    }
}

/// Always continues with the process that freed least for its weight, so every prefix of the plan
/// is in proportion.
fn in_proportion(candidates: &[Candidate], weight: &dyn Fn(usize) -> f64, splits: &mut Vec<Split>) {
    let mut queues: Vec<(f64, VecDeque<Split>)> =
        by_process(candidates).into_iter().map(|queue| (0.0, queue)).collect();
    for _ in candidates {
        let next = queues.iter_mut().min_by(|(a, _), (b, _)| a.total_cmp(b));
        let Some((freed, queue)) = next else { break };
        if let Some(split) = queue.pop_front() {
            *freed += split.frees.as_f64() / weight(split.process).max(f64::MIN_POSITIVE);
            splits.push(split);
        }
        queues.retain(|(_, queue)| !queue.is_empty());
    }
}
