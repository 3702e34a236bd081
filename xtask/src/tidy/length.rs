//! A file is read in one sitting: aim at 300 lines, think again at 500, split at 800.

use super::Report;

const LOOK: usize = 500;
const LIMIT: usize = 800;

pub(super) fn check(path: &str, text: &str, report: &mut Report) {
    let lines = text.lines().count();
    if lines > LIMIT {
        report.finding(path, format!("{lines} lines; {LIMIT} at most"));
    } else if lines > LOOK {
        report.note(path, format!("{lines} lines; can it be split?"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_are_noted_and_longer_ones_refused() {
        for (lines, notes, findings) in [(500, 0, 0), (501, 1, 0), (800, 1, 0), (801, 0, 1)] {
            let mut report = Report::default();
            check("a.rs", &"\n".repeat(lines), &mut report);
            assert_eq!((report.notes.len(), report.findings.len()), (notes, findings), "{lines}");
        }
    }
}
