//! File length: a file is read in one sitting.

use super::Report;

/// Lines of a file at most.
const LIMIT: usize = 450;

/// Reports a file that is too long.
pub(super) fn check(path: &str, text: &str, report: &mut Report) {
    let lines = text.lines().count();
    if lines > LIMIT {
        report.finding(path, format!("{lines} lines; at most {LIMIT}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_are_refused() {
        for (lines, findings) in [(450, 0), (451, 1)] {
            let mut report = Report::default();
            check("a.rs", &"\n".repeat(lines), &mut report);
            assert_eq!(report.findings.len(), findings, "{lines}");
        }
    }
}
