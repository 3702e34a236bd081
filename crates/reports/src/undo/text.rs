//! Text and JSON of `hugepilot tune --undo`.

use std::fmt::Write;

use hugepilot_render::json::JsonReport;
use hugepilot_render::sentence::{Sentence, explain};
use serde_json::Value;

use crate::explain::text::{cut_line, regions};
use crate::undo::{UndoReport, UndoState, UndoneProcess};

/// Prints a line for each process, and its skipped and failed regions.
pub fn undo_text(report: &UndoReport) -> String {
    let mut text = String::new();
    if report.processes.is_empty() {
        text.push_str(match report.cut_bytes {
            0 => "the journal has no promotions to undo\n",
            _ => {
                "the whole rounds of the journal have no promotions to undo; those of its last \
                  round are unknown\n"
            }
        });
    }
    text.extend(report.processes.iter().map(|process| undone(process, report.dry_run)));
    if report.cut_bytes > 0 {
        let _ = writeln!(text, "note: {}", cut_line(report.cut_bytes));
    }
    text
}

/// The line of a process, and its help.
pub(crate) fn undone(process: &UndoneProcess, dry_run: bool) -> String {
    let UndoneProcess { command, pid, state, .. } = process;
    let what = match state {
        UndoState::Running => counts(process, dry_run),
        UndoState::Stopped { .. } | UndoState::Ended if process.returned_regions > 0 => {
            format!("{}; then: {}", counts(process, dry_run), state.text())
        }
        UndoState::Stopped { .. } => {
            format!("{}; {} left", state.text(), regions(process.promoted_regions))
        }
        _ => format!("{}; nothing is left to return", state.text()),
    };
    let help: String = state.help().iter().map(|help| format!("help: {help}\n")).collect();
    format!("{command} (pid {pid}): {what}\n{help}")
}

fn counts(process: &UndoneProcess, dry_run: bool) -> String {
    let UndoneProcess { promoted_regions: all, returned_regions: returned, .. } = process;
    let mut text = if dry_run {
        format!("would return {returned} of {} to base pages; nothing was changed", regions(*all))
    } else {
        format!("returned {returned} of {} to base pages", regions(*all))
    };
    if !process.freed_bytes.is_zero() {
        let _ = write!(text, ", which freed {}", process.freed_bytes);
    }
    if process.not_huge_regions > 0 {
        let _ = write!(text, "; {} were no longer huge", process.not_huge_regions);
    }
    for (label, counts) in [("skipped", &process.skipped), ("failed", &process.failed)] {
        let named: Vec<_> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
        if !named.is_empty() {
            let _ = write!(text, "; {label}: {}", named.join(", "));
        }
    }
    text
}

impl JsonReport for UndoReport {
    const EXPLAINS: bool = true;

    fn explain(&self, json: &mut Value) {
        for (index, process) in self.processes.iter().enumerate() {
            explain(json, &format!("/processes/{index}/state"), &process.state);
        }
    }
}

#[cfg(test)]
mod tests {
    use hugepilot_record::{Pid, Stop};
    use hugepilot_units::Bytes;

    use super::*;
    use crate::undo::SCHEMA;

    fn process(pid: i32, state: UndoState, returned: u64) -> UndoneProcess {
        UndoneProcess {
            pid: Pid(pid),
            command: "db".to_owned(),
            state,
            promoted_regions: 9,
            returned_regions: returned,
            freed_bytes: Bytes::mib(returned),
            not_huge_regions: 2,
            skipped: [("mlocked".to_owned(), 1)].into(),
            failed: [("EINVAL".to_owned(), 3)].into(),
        }
    }

    #[test]
    fn each_process_has_a_line_with_its_counts_or_its_cause() {
        let stopped = UndoState::Stopped { cause: Stop::Interrupted };
        let mut report = UndoReport {
            schema: SCHEMA.to_owned(),
            dry_run: false,
            processes: vec![
                process(1, UndoState::Running, 3),
                process(2, UndoState::PidReused, 0),
                process(3, stopped, 1),
                process(4, stopped, 0),
                process(5, UndoState::Ended, 0),
            ],
            cut_bytes: 7,
        };
        assert_eq!(
            undo_text(&report),
            "db (pid 1): returned 3 of 9 regions to base pages, which freed 3MiB; 2 were no longer \
             huge; skipped: mlocked 1; failed: EINVAL 3\n\
             db (pid 2): it has ended, and another process has its pid; nothing is left to \
             return\n\
             db (pid 3): returned 1 of 9 regions to base pages, which freed 1MiB; 2 were no longer \
             huge; skipped: mlocked 1; failed: EINVAL 3; then: interrupted\n\
             db (pid 4): interrupted; 9 regions left\n\
             db (pid 5): it has ended; nothing is left to return\n\
             note: the last line is incomplete (7 bytes), as after a kill; the rounds before it \
             were read\n"
        );
        (report.dry_run, report.cut_bytes) = (true, 0);
        report.processes.truncate(1);
        assert!(undo_text(&report).contains("would return 3 of 9 regions to base pages; nothing"));
        report.processes.clear();
        assert_eq!(undo_text(&report), "the journal has no promotions to undo\n");
        report.cut_bytes = 7;
        assert!(undo_text(&report).contains("those of its last round are unknown\nnote: "));
    }
}
