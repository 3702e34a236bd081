//! Return of all regions after the measurement (`tune --try`).

use std::fmt::Write;

use hugepilot_record::Answer;

use crate::tune::TuneReport;
use crate::undo::text::undone;

/// A line for each process whose regions were returned, and the next command; empty without
/// `--try`.
pub(super) fn tried(report: &TuneReport) -> String {
    let Some(tried) = &report.tried else { return String::new() };
    let mut text = String::new();
    for process in tried {
        let _ = write!(text, "after the trial: {}", undone(process, false));
    }
    let pid = report.target.pid;
    if report.left_regions() > 0 {
        let _ = writeln!(text, "help: return the rest: sudo hugepilot tune --undo -p {pid}");
    }
    if report.answer() == Answer::Gain {
        let _ = writeln!(text, "help: promote the regions to stay: sudo hugepilot tune -p {pid}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::stopped;
    use super::*;
    use crate::tune::Certainty;
    use crate::undo::UndoneProcess;

    #[test]
    fn a_trial_ends_with_the_return_of_its_regions_and_the_next_command() {
        assert_eq!(tried(&stopped()), "");
        let process: UndoneProcess = serde_json::from_value(serde_json::json!({
            "pid": stopped().target.pid, "command": "db", "state": {"code": "running"},
            "promoted_regions": 9, "returned_regions": 9, "not_huge_regions": 0, "skipped": {},
            "failed": {},
        }))
        .unwrap();
        let pid = process.pid;
        let mut report = TuneReport { tried: Some(vec![process]), ..stopped() };
        let measured = &mut report.measured;
        (measured.speedup, measured.speedup_certainty) = (Some(1.2), Some(Certainty::Certain));
        let returned =
            format!("after the trial: db (pid {pid}): returned 9 of 9 regions to base pages\n");
        let stay = format!("help: promote the regions to stay: sudo hugepilot tune -p {pid}\n");
        assert_eq!(tried(&report), format!("{returned}{stay}"));
        report.measured.speedup = Some(0.9);
        assert_eq!(tried(&report), returned, "it was slower");
        report.tried.as_mut().unwrap()[0].returned_regions = 8;
        let rest = format!("help: return the rest: sudo hugepilot tune --undo -p {pid}\n");
        assert!(tried(&report).ends_with(&rest));
    }
}
