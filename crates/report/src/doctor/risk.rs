//! Settings of THP that hurt programs: sentences, and their part of the text.

use hugepilot_record::doctor::{DoctorReport, SettingRisk};

use crate::sentence::{Sentence, warning_lines};

impl Sentence for SettingRisk {
    fn text(&self) -> String {
        let of = |everywhere| if everywhere { "any memory" } else { "advised memory" };
        match *self {
            Self::FaultsCompact { everywhere } => format!(
                "defrag is always: a first touch of {} waits while the kernel compacts memory, for \
                 milliseconds; that hurts databases and other programs with latency goals",
                of(everywhere)
            ),
            Self::FreedMemoryRefills { max_ptes_none, everywhere } => format!(
                "khugepaged/max_ptes_none is {max_ptes_none}: khugepaged makes regions of {} huge \
                 of which most base pages are unused; memory that a program or debloat freed comes \
                 back",
                of(everywhere)
            ),
            Self::ScansWithoutPause { pause_ns } => format!(
                "khugepaged/scan_sleep_millisecs is {}: khugepaged uses a large part of a core",
                pause_ns.get() / 1_000_000
            ),
            Self::SmallerPages { page_bytes } => format!(
                "pages of {page_bytes} are always used at page faults: programs that touch a few \
                 bytes of each take up to {page_bytes} instead of a base page"
            ),
        }
    }
    fn help(&self) -> Vec<String> {
        const DIRECTORY: &str = "/sys/kernel/mm/transparent_hugepage";
        let set =
            |value: &str, file: &str| vec![format!("echo {value} | sudo tee {DIRECTORY}/{file}")];
        match self {
            Self::FaultsCompact { .. } => set("defer+madvise", "defrag"),
            Self::FreedMemoryRefills { .. } => set("0", "khugepaged/max_ptes_none"),
            Self::ScansWithoutPause { .. } => set("10000", "khugepaged/scan_sleep_millisecs"),
            Self::SmallerPages { page_bytes } => {
                set("madvise", &format!("hugepages-{}kB/enabled", page_bytes.get() >> 10))
            }
        }
    }
}

/// Settings that hurt programs, each with the command that changes it; empty without one.
pub(super) fn risks(report: &DoctorReport) -> String {
    if report.risks.is_empty() {
        return String::new();
    }
    format!("\nSettings that can hurt programs\n{}", warning_lines(&report.risks))
}
