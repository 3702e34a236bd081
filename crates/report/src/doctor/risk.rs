//! Lists settings of THP that hurt programs.

use hugepilot_record::doctor::DoctorReport;

use crate::sentence::warning_lines;

/// Settings that hurt programs, each with the command that changes it; empty without one.
pub(super) fn risks(report: &DoctorReport) -> String {
    if report.risks.is_empty() {
        return String::new();
    }
    format!("\nSettings that can hurt programs\n{}", warning_lines(&report.risks))
}
