//! Plan of the measurement: which programs, in which states, how often and for how long.
//!
//! It is fixed before measuring, so that no result decides which runs count. The runs are appended
//! to one file of the tree, and the report counts every line of it: those that failed, too, and
//! those that are missing.

use std::collections::BTreeMap;
use std::time::Duration;

use super::programs::PROGRAMS;
use super::record::{Record, State};

/// Rounds of each program of [`PROGRAMS`].
pub(super) const ROUNDS: usize = 5;
/// States in each round.
pub(super) const STATES: [State; 2] = [State::Tuned, State::All];
/// Length of each measured window.
pub(super) const WINDOW: Duration = Duration::from_secs(5);
/// File of the runs, below the root of the tree.
pub(super) const FILE: &str = "docs/runs/gain.ndjson";

/// Compares the tuned runs of a file with the plan: what is missing, beyond it, or failed.
pub(super) fn compared(records: &[Record]) -> String {
    let mut done: BTreeMap<&str, usize> = BTreeMap::new();
    let mut failed: BTreeMap<&str, usize> = BTreeMap::new();
    for record in records {
        match record {
            Record::Run(run) if run.state == State::Tuned => {
                *done.entry(&run.program).or_default() += 1;
            }
            Record::Run(_) => {}
            Record::Failure(failure) => *failed.entry(&failure.program).or_default() += 1,
        }
    }
    let of = |program: &str| {
        let count = |of: &BTreeMap<&str, usize>| of.get(program).copied().unwrap_or(0);
        count(&done) + count(&failed)
    };
    let names = || PROGRAMS.iter().map(|program| program.name);
    let missing: Vec<_> = names().map(|name| (name, ROUNDS.saturating_sub(of(name)))).collect();
    let beyond: Vec<_> = names().map(|name| (name, of(name).saturating_sub(ROUNDS))).collect();
    let failed: Vec<_> = failed.into_iter().collect();
    format!(
        "- planned: {ROUNDS} runs of each of {} programs; missing: {}; beyond: {}; failed: {}\n",
        PROGRAMS.len(),
        counts(&missing),
        counts(&beyond),
        counts(&failed),
    )
}

/// `NAME COUNT, …` without zeros.
fn counts(of: &[(&str, usize)]) -> String {
    let some = of.iter().filter(|(_, count)| *count > 0);
    let named: Vec<String> = some.map(|(name, count)| format!("{name} {count}")).collect();
    if named.is_empty() { "none".to_owned() } else { named.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::{failure, run};
    use super::*;

    #[test]
    fn missing_surplus_and_failed_runs_are_counted() {
        let mut records: Vec<Record> = Vec::new();
        for name in PROGRAMS.iter().map(|program| program.name) {
            let rounds = match name {
                "redis" => ROUNDS + 1,
                "pr-23" => ROUNDS - 2,
                _ => ROUNDS,
            };
            let tuned = (0..rounds).map(|round| run(name, State::Tuned, round, 1.1).into());
            records.extend(tuned);
            records.push(run(name, State::All, 0, 1.1).into());
        }
        records.push(failure("pr-23"));
        let planned = format!("- planned: 5 runs of each of {} programs", PROGRAMS.len());
        assert_eq!(
            compared(&records),
            format!("{planned}; missing: pr-23 1; beyond: redis 1; failed: pr-23 1\n")
        );
        let all = PROGRAMS.iter().map(|program| format!("{} 5", program.name));
        let all = all.collect::<Vec<_>>().join(", ");
        assert_eq!(
            compared(&[]),
            format!("{planned}; missing: {all}; beyond: none; failed: none\n")
        );
    }
}
