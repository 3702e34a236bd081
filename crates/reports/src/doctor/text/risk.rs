//! Lists settings of THP that hurt programs.

use hugepilot_render::sentence::warning_lines;

use crate::doctor::DoctorReport;

/// Settings that hurt programs, each with the command that changes it; empty without one.
pub(super) fn risks(report: &DoctorReport) -> String {
    if report.risks.is_empty() {
        return String::new();
    }
    format!("\nSettings that can hurt programs\n{}", warning_lines(&report.risks))
}
