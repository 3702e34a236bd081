//! Markdown tables of the summaries. Pure.

use std::fmt::Write;

use super::super::records::circumstances;
use super::record::{Mode, Run};
use super::summary::{ModeSummary, ProgramSummary, Ratio, Shortage, mode, programs};
use super::timeline::SCALED;

const GIB: f64 = (1_u64 << 30) as f64;
const MIB: f64 = (1_u64 << 20) as f64;

const HEAD: &str = "\
| program | part in the mix | always / never | daemon / never | daemon / always | \
the same while memory is short | operations: always, daemon | \
huge MiB at most: always, daemon | promoted, split |
|---|---|---|---|---|---|---|---|---|\n";

/// Describes all runs. Runs whose windows are other shares of the timeline, or with another limit,
/// are another section.
pub(super) fn report(runs: &[Run]) -> String {
    let mut text = String::new();
    for runs in alike(runs) {
        let Some(first) = runs.first() else { continue };
        text.push_str(&circumstances(runs.iter().map(|run| &run.machine)));
        let gib = first.limit_bytes as f64 / GIB;
        let minutes = |run: &&Run| format!("{} {:.0}", run.mode.name(), run.seconds / 60.0);
        let minutes = runs.iter().map(minutes).collect::<Vec<_>>().join(", ");
        let _ = writeln!(text, "minutes: {minutes}; limit {gib:.1} GiB\n");
        text.push_str(HEAD);
        text.extend(programs(&runs).iter().map(line));
        text.push('\n');
        text.push_str(&by_mode(&runs));
        text.push('\n');
    }
    text
}

/// Runs whose windows are the same shares of the timeline, with the same limit.
pub(super) fn alike(runs: &[Run]) -> Vec<Vec<&Run>> {
    let mut groups: Vec<Vec<&Run>> = Vec::new();
    for run in runs {
        let same = |group: &&mut Vec<&Run>| {
            let of = |run: &Run| (run.seconds.min(SCALED), run.limit_bytes);
            of(group[0]) == of(run)
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(run),
            None => groups.push(vec![run]),
        }
    }
    groups
}

fn line(of: &ProgramSummary) -> String {
    let done = |ratio: Option<f64>| ratio.map_or_else(none, |ratio| format!("{ratio:.2}x"));
    let huge = |index: usize| {
        of.huge_bytes[index].map_or_else(none, |bytes| format!("{:.0}", bytes as f64 / MIB))
    };
    let cells = [
        of.program.name.to_owned(),
        of.program.about.to_owned(),
        ratio(of.always),
        ratio(of.daemon),
        ratio(of.daemon_over_always),
        ratio(of.while_short),
        format!("{}, {}", done(of.done_always), done(of.done_daemon)),
        format!("{}, {}", huge(1), huge(2)),
        format!("{}, {}", of.promoted, of.split),
    ];
    format!("| {} |\n", cells.join(" | "))
}

fn none() -> String {
    "-".to_owned()
}

fn ratio(of: Option<Ratio>) -> String {
    of.map_or_else(none, |Ratio { median, low, high, .. }| {
        format!("{median:.2}x ({low:.2}–{high:.2})")
    })
}

/// Value of a mode as text, if it has one.
type Cell<'a> = &'a dyn Fn(&ModeSummary) -> Option<String>;

/// Table of the modes that ran.
fn by_mode(runs: &[&Run]) -> String {
    let modes: Vec<ModeSummary> = Mode::ALL.into_iter().filter_map(|one| mode(runs, one)).collect();
    let mut text = String::from("| |");
    for one in &modes {
        let _ = write!(text, " {} |", one.mode.name());
    }
    let _ = writeln!(text, "\n|---|{}", "---|".repeat(modes.len()));
    let mut row = |name: &str, cell: Cell<'_>| {
        let cells = modes.iter().map(|one| cell(one).unwrap_or_else(none));
        let _ = writeln!(text, "| {name} | {} |", cells.collect::<Vec<_>>().join(" | "));
    };
    row("runs", &|one| Some(one.runs.to_string()));
    for (index, name) in ["first", "second"].into_iter().enumerate() {
        let shortage = move |one: &ModeSummary| one.shortages.get(index).copied();
        row(&format!("{name} shortage: ballast obtained, of wanted GiB"), &|one| {
            shortage(one).map(obtained)
        });
        row(&format!("{name} shortage: ballast held on average, of wanted"), &|one| {
            shortage(one).map(|one| percent(one.mean_ratio))
        });
        row(&format!("{name} shortage: ballast waited at the ceiling"), &|one| {
            shortage(one).map(|one| percent(one.waited_ratio))
        });
    }
    memory_rows(&mut row);
    daemon_rows(&mut row);
    text
}

fn memory_rows(row: &mut dyn FnMut(&str, Cell<'_>)) {
    row("memory GiB: mean, peak", &|one| {
        Some(format!("{:.2}, {:.2}", one.mean_used_bytes / GIB, one.peak_used_bytes / GIB))
    });
    row("on huge pages GiB: mean, peak", &|one| {
        Some(format!("{:.2}, {:.2}", one.mean_huge_bytes / GIB, one.peak_huge_bytes / GIB))
    });
    row("time in which a task stalled on memory (PSI)", &|one| Some(percent(one.stalled_ratio)));
    row("khugepaged, of one core", &|one| Some(percent(one.khugepaged_cpus)));
}

fn daemon_rows(row: &mut dyn FnMut(&str, Cell<'_>)) {
    row("daemon, of one core", &|one| Some(percent(one.daemon?.cpus)));
    row("daemon, peak resident MiB", &|one| Some(format!("{:.1}", one.daemon?.peak_bytes / MIB)));
    row("huge pages promoted, demoted after trials", &|one| {
        let daemon = one.daemon?;
        Some(format!("{:.0}, {:.0}", daemon.promoted, daemon.demoted))
    });
    row("huge pages split, freed MiB", &|one| {
        let daemon = one.daemon?;
        Some(format!("{:.0}, {:.0}", daemon.split, daemon.freed_bytes / MIB))
    });
    row("re-collapses", &|one| Some(format!("{:.0}", one.daemon?.recollapses)));
}

fn obtained(of: Shortage) -> String {
    let share = percent(of.held_bytes / of.wanted_bytes);
    format!("{:.2} of {:.2} ({share})", of.held_bytes / GIB, of.wanted_bytes / GIB)
}

fn percent(ratio: f64) -> String {
    let percent = ratio * 100.0;
    if percent < 9.95 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

#[cfg(test)]
mod tests {
    use super::super::summary::tests::run;
    use super::super::timeline::MIX;
    use super::*;

    #[test]
    fn tables_have_equal_columns_and_a_line_for_each_program() {
        let text = report(&[run(Mode::Never, 1.0), run(Mode::Daemon, 1.2)]);
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
        let (programs, modes) = lines.split_at(2 + MIX.len());
        let columns = |line: &&str| line.matches('|').count();
        assert!(programs.iter().all(|line| columns(line) == columns(&programs[0])), "{text}");
        assert!(modes.iter().all(|line| columns(line) == 4), "{text}");
        assert!(text.starts_with(
            "2026-01-02, 2 CPUs CPU, Linux 6.18, commit abc\nminutes: never 10, daemon 10;"
        ));
        let hot = programs.iter().find(|line| line.starts_with("| mix-hot |")).unwrap();
        assert_eq!(
            *hot,
            "| mix-hot | memory-bound throughout | - | 1.20x (1.20–1.20) | - | - | -, 1.20x | \
             -, 512 | 7, 0 |"
        );
    }

    #[test]
    fn modes_are_columns_with_their_values() {
        let text = report(&[run(Mode::Daemon, 1.2), run(Mode::Never, 1.0)]);
        let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap();
        assert_eq!(line("| |"), "| | never | daemon |");
        assert_eq!(
            line("| first shortage: ballast obtained"),
            "| first shortage: ballast obtained, of wanted GiB | 1.00 of 2.00 (50 %) | \
             1.00 of 2.00 (50 %) |"
        );
        assert_eq!(line("| daemon, of one"), "| daemon, of one core | - | 2.0 % |");
        assert_eq!(line("| huge pages split"), "| huge pages split, freed MiB | - | 5, 10 |");
    }

    #[test]
    fn runs_with_other_windows_are_another_section() {
        let of_length = |seconds, mode| Run { seconds, ..run(mode, 1.0) };
        let runs = [
            of_length(180.0, Mode::Never),
            of_length(1800.0, Mode::Never),
            of_length(180.0, Mode::Daemon),
            of_length(600.0, Mode::Daemon),
        ];
        let groups = alike(&runs);
        assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2]);
        let text = report(&runs);
        assert!(text.contains("minutes: never 3, daemon 3; limit"), "{text}");
        assert!(text.contains("minutes: never 30, daemon 10; limit"), "{text}");
    }

    #[test]
    fn small_shares_have_a_decimal() {
        assert_eq!([0.0, 0.0123, 0.0994, 0.5].map(percent), ["0.0 %", "1.2 %", "9.9 %", "50 %"]);
    }
}
