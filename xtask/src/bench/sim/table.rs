//! Markdown tables of the records. Pure.

use std::fmt::Write as _;

use hugepilot_reports::sim::PolicyRun;
use serde::{Deserialize, Serialize};

use super::super::pairs::{self, none};
use super::super::records::circumstances;
use super::options::Part;
use super::record::{Record, Row};
use super::{agree, peers, processes, programs, replay, reuse, sizes, speed, threads, utility};

/// Describes the records of `parts`: the circumstances, and for each part its method, its table,
/// and its commands.
pub(super) fn report(records: &[Record], parts: &[Part]) -> String {
    let mut text = circumstances(records.iter().map(|record| &record.machine));
    for &part in parts {
        let of: Vec<&Record> = records.iter().filter(|record| record.row.part() == part).collect();
        if !of.is_empty() {
            let _ = write!(text, "\n### {}\n\n{}\n\n{}", part.name(), method(part), table(&of));
        }
    }
    text
}

fn table(records: &[&Record]) -> String {
    let mut text = String::new();
    let mut head = Vec::new();
    for row in rows(records) {
        let titles = row.head();
        if titles != head {
            let _ = writeln!(text, "{}| {} |", if head.is_empty() { "" } else { "\n" }, {
                titles.join(" | ")
            });
            let _ = writeln!(text, "|{}", "---|".repeat(titles.len()));
            head = titles;
        }
        let _ = writeln!(text, "| {} |", row.cells().join(" | "));
    }
    let mut commands: Vec<&str> = Vec::new();
    for record in records {
        if !commands.contains(&record.command.as_str()) {
            commands.push(&record.command);
        }
    }
    let _ = write!(text, "\n```text\n{}\n```\n", commands.join("\n"));
    text
}

/// Rows of the table, in the order of the first record of each.
fn rows(records: &[&Record]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for record in records {
        if !rows.iter_mut().any(|row| row.join(&record.row)) {
            rows.push(record.row.clone());
        }
    }
    rows
}

const fn method(part: Part) -> &'static str {
    match part {
        Part::Speed => speed::METHOD,
        Part::Peers => peers::METHOD,
        Part::Reuse => reuse::METHOD,
        Part::Utility => utility::METHOD,
        Part::Sizes => sizes::METHOD,
        Part::Threads => threads::METHOD,
        Part::Processes => processes::METHOD,
        Part::Replay => replay::METHOD,
        Part::Agree => agree::METHOD,
        Part::Programs => programs::METHOD,
    }
}

/// Share in percent: `4.2 %`.
pub(super) fn percent(ratio: f64) -> String {
    if ratio.is_finite() { format!("{:.1} %", ratio * 100.0) } else { none() }
}

/// Share in whole percent, without the unit.
pub(super) fn rounded(ratio: f64) -> String {
    // Zero is added so that a small negative share is not -0.
    if ratio.is_finite() { format!("{:.0}", (ratio * 100.0).round() + 0.0) } else { none() }
}

/// Shares in whole percent with a unit that holds for all, unless none is known: `66 / 65 %`.
pub(super) fn rounded_all(ratios: impl IntoIterator<Item = f64>) -> String {
    let all: Vec<String> = ratios.into_iter().map(rounded).collect();
    if all.iter().all(|one| *one == none()) { none() } else { format!("{} %", all.join(" / ")) }
}

/// Walks per access in percent, with two digits after the comma.
pub(super) fn walk_percent(ratio: f64) -> String {
    if ratio.is_finite() { format!("{:.2} %", ratio * 100.0) } else { none() }
}

/// Median with minimum and maximum.
pub(super) fn spread(values: impl IntoIterator<Item = f64>, digits: usize) -> String {
    pairs::spread(pairs::spread_of(values), digits)
}

/// `part` of `whole`; not a number without a whole.
pub(super) fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { f64::NAN }
}

/// Titles of columns by budget.
pub(super) fn budget_titles(
    budgets: impl IntoIterator<Item = f64>,
) -> impl Iterator<Item = String> {
    budgets.into_iter().map(|budget| format!("{:.0} %", budget * 100.0))
}

/// Promotions and demotions of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Acts {
    pub(super) promotions: u64,
    pub(super) demotions: u64,
}

impl Acts {
    pub(super) const fn of(run: &PolicyRun) -> Self {
        Self { promotions: run.promotions, demotions: run.demotions }
    }
}

/// Promotions and demotions of runs: `(12/0, 8/3)`.
pub(super) fn acts(all: impl IntoIterator<Item = Acts>) -> String {
    let each = |Acts { promotions, demotions }| format!("{promotions}/{demotions}");
    format!("({})", all.into_iter().map(each).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::super::records::append;
    use super::super::super::records::read;
    use super::super::super::records::tests::machine;
    use super::*;

    fn records() -> Vec<Record> {
        let record = |row| Record { row, command: "hugepilot sim".into(), machine: machine() };
        vec![
            record(Row::Sizes(sizes::Line {
                kernel: "pr".into(),
                order: "dbg".into(),
                preset: "zen5".into(),
                points: [(4, 0.1), (8, 0.25)]
                    .map(|(entries, avoided)| sizes::Point {
                        entries,
                        avoided,
                        acts: Acts { promotions: 5, demotions: 1 },
                    })
                    .to_vec(),
                ideal_ratio: 0.5,
            })),
            record(Row::Speed(speed::Line {
                tool: "sim tlb".into(),
                input: "random:1GiB".into(),
                cpus: Some(1),
                rates: vec![3e7, 2e7, 4e7],
                over_native: Vec::new(),
            })),
        ]
    }

    #[test]
    fn records_give_the_same_tables_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sim.ndjson");
        records().iter().for_each(|record| append(&file, record).unwrap());
        let again: Vec<Record> = read(&file).unwrap();
        assert_eq!(again, records());
        let text = report(&again, &Part::ALL);
        assert_eq!(text, report(&records(), &Part::ALL));
        assert!(text.starts_with("2026-01-02, 2 CPUs CPU, Linux 6.18, commit abc\n\n### speed"));
        assert!(text.contains("| sim tlb | random:1GiB | 1 | 30.0 (20.0–40.0) | - |\n"), "{text}");
        assert!(
            text.contains("\n| pr | dbg | zen5 | 10 % (5/1) | 25 % (5/1) | 50 % |\n"),
            "{text}"
        );
        assert_eq!(text.matches("hugepilot sim\n```").count(), 2);
        assert!(!report(&again, &[Part::Sizes]).contains("### speed"));
    }

    #[test]
    fn small_shares_round_to_zero_without_a_sign() {
        assert_eq!(rounded_all([-0.001, 0.655, f64::NAN]), "0 / 66 / - %");
        assert_eq!(rounded_all([f64::NAN]), "-");
    }

    #[test]
    fn columns_of_each_table_match() {
        for record in records() {
            assert_eq!(record.row.head().len(), record.row.cells().len());
        }
    }
}
