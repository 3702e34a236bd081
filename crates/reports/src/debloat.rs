//! The report of `hugepilot debloat`, schema `hugepilot.debloat/2`.

pub(crate) mod text;

use std::collections::BTreeMap;

use hugepilot_record::sentence::{Sentence, counted};
use hugepilot_record::{ExcludedCount, Pid, Prediction, RecollapseRisk, Stop, processes_were};
use hugepilot_units::{Bytes, Share};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Value of `schema`.
pub const SCHEMA: &str = "hugepilot.debloat/2";

/// Value of `backend`: hugepilot itself splits each huge page.
pub const BACKEND: &str = "split";

fn backend() -> String {
    BACKEND.to_owned()
}

/// Report of one debloating.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DebloatReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// [`BACKEND`]; the report of the other backend has [`crate::shrink::BACKEND`].
    #[serde(default = "backend")]
    pub backend: String,
    /// Order of huge pages, as on the command line.
    pub order: String,
    /// How processes shared, as on the command line.
    pub fairness: String,
    /// Huge pages of one process in a row.
    pub quantum: u64,
    /// Whether nothing was changed. `freed_bytes` and `huge_pages_split` of the processes are then
    /// predictions. If `bloat_error_bytes` is above 0, these and the predicted slowdown are also
    /// estimates for all huge pages.
    pub dry_run: bool,
    /// Zero-filled bytes in all huge pages, without those of protected processes; an estimate if
    /// the census was sampled. A lower bound if `unread_huge_pages` is above 0.
    pub bloat_bytes: Bytes,
    /// Memory that large pages hold and the processes do not map, without that of protected
    /// processes; `None` without CAP_SYS_ADMIN.
    #[serde(default)]
    pub stranded_bytes: Option<Bytes>,
    /// Twice the standard error of `bloat_bytes`; 0 for a full census.
    pub bloat_error_bytes: Bytes,
    /// Bytes to free.
    pub requested_bytes: Bytes,
    /// Bytes freed, according to the pagemap; with `dry_run`, bytes that would be freed.
    pub freed_bytes: Bytes,
    /// Decrease of the resident sets, from smaps. Processes may also grow or shrink by themselves.
    pub rss_drop_bytes: i64,
    /// Verified splits; with `dry_run`, planned ones.
    pub huge_pages_split: u64,
    /// Huge pages of all processes before, including those that may not be split.
    pub huge_pages_before: u64,
    /// Huge pages after; of a process that ended, the number after the last split.
    pub huge_pages_after: u64,
    /// Split huge pages that were re-collapsed by the end.
    pub recollapsed: u64,
    /// Huge pages that could not be read, so that their bloat is unknown.
    #[serde(default)]
    pub unread_huge_pages: u64,
    /// Bytes of huge pages that the census covered.
    pub scanned_bytes: Bytes,
    /// Time of the census.
    pub scan_seconds: f64,
    /// Time of splitting, including verification.
    pub split_seconds: f64,
    /// Part of `split_seconds` spent in the kernel's splits.
    pub split_call_seconds: f64,
    /// Predicted slowdown of all processes together; `None` without samples, splits or calibration.
    pub predicted_slowdown: Option<Prediction>,
    /// Skipped huge pages by reason.
    pub skipped: BTreeMap<String, u64>,
    /// Failed splits by errno; `still_huge` if the call succeeded and the page stayed huge.
    pub failed: BTreeMap<String, u64>,
    /// The processes.
    pub processes: Vec<ProcessDebloat>,
    /// Cause of an early end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Stop>,
    /// Risks, shortfalls and exclusions.
    pub warnings: Vec<DebloatWarning>,
}

/// Process in the report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessDebloat {
    /// The process.
    pub pid: Pid,
    /// Name of the process.
    pub command: String,
    /// Zero-filled bytes in its huge pages before; an estimate if the census was sampled.
    pub bloat_bytes_before: Bytes,
    /// The same, less the split huge pages.
    pub bloat_bytes_after: Bytes,
    /// Memory that its large pages held before and that it did not map; `None` without
    /// CAP_SYS_ADMIN.
    #[serde(default)]
    pub stranded_bytes: Option<Bytes>,
    /// Bytes freed, according to the pagemap.
    pub freed_bytes: Bytes,
    /// Huge pages split.
    pub huge_pages_split: u64,
    /// Huge pages before.
    pub huge_pages_before: u64,
    /// Huge pages after.
    pub huge_pages_after: u64,
    /// Expected share of its stall samples on split huge pages; `None` without samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split_heat_ratio: Option<f64>,
}

/// Warning of a debloating. JSON carries the variant as `code`, and the sentence as `text`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Sentence)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum DebloatWarning {
    /// khugepaged, as it is set now, collapses the split huge pages again.
    #[text(of = a)]
    RecollapseRisk(RecollapseRisk),
    /// Split huge pages were re-collapsed by the end.
    #[text(
        "{} re-collapsed by the end; khugepaged or the program did it, or the program mapped new \
         memory there",
        counted(*huge_pages, "split huge page was", "split huge pages were")
    )]
    Recollapsed {
        /// Number of these huge pages.
        huge_pages: u64,
    },
    /// Huge pages could not be read.
    #[text(
        "{} could not be read, because the program forbids it (PROT_NONE) or the memory is broken; \
         the bloat there is unknown, so the total is a lower bound",
        counted(*huge_pages, "huge page", "huge pages")
    )]
    Unread {
        /// Number of these huge pages.
        huge_pages: u64,
    },
    /// The census read only a sample of the huge pages.
    #[text(
        "only a sample of the huge pages was read; bloat, freed bytes, splits and slowdown are \
         estimates for all"
    )]
    Sampled {
        /// Requested share of the huge pages.
        sample_ratio: Share,
    },
    /// Less was freed than requested.
    #[text(
        "freed {freed_bytes} of {requested_bytes} requested: {}",
        shortfall_causes(*excluded_processes, *protected_huge_pages)
    )]
    Shortfall {
        /// Bytes freed.
        freed_bytes: Bytes,
        /// Bytes to free.
        requested_bytes: Bytes,
        /// Processes that were excluded before the end.
        excluded_processes: u64,
        /// Huge pages with bloat of protected processes.
        protected_huge_pages: u64,
    },
    /// The kernel reported success, but the huge pages stayed huge: they are pinned or shared.
    #[text(
        "{} not split, although the kernel reported success: it splits no pinned or shared page",
        counted(*huge_pages, "huge page was", "huge pages were")
    )]
    StillHuge {
        /// Number of these huge pages.
        huge_pages: u64,
    },
    /// A process was excluded before the end.
    #[text("process {pid} ({command}) was excluded before the end: {stop}")]
    ProcessExcluded {
        /// The process.
        pid: Pid,
        /// Name of the process.
        command: String,
        /// Cause.
        stop: Stop,
    },
    /// Processes of the cgroup could not be read.
    #[text(of = a)]
    Excluded(ExcludedCount),
    /// Some processes could not be sampled.
    #[text("{not_sampled} of {} not sampled: {error}", processes_were(*processes))]
    NotSampled {
        /// Number of these processes.
        not_sampled: u64,
        /// All processes.
        processes: u64,
        /// The error of one of them.
        error: String,
    },
    /// The limit of open files was too low to sample all processes; the smallest were skipped.
    #[text(
        "{not_sampled} of {} not sampled: the limit of open files is too low for all; the smallest \
         were omitted",
        processes_were(*processes)
    )]
    #[help("raise the limit: ulimit -n 65536 (or LimitNOFILE= of systemd)")]
    TooManyToSample {
        /// Processes not sampled.
        not_sampled: u64,
        /// All processes.
        processes: u64,
    },
    /// Sampling failed, so no slowdown is predicted.
    #[text("no slowdown is predicted: {error}")]
    NoPrediction {
        /// The error.
        error: String,
    },
}

/// Why less was freed than requested.
fn shortfall_causes(excluded_processes: u64, protected_huge_pages: u64) -> String {
    let mut causes = Vec::new();
    if excluded_processes > 0 {
        causes.push(processes_were(excluded_processes) + " excluded before the end");
    }
    if protected_huge_pages > 0 {
        let (one, several) = ("huge page with bloat is", "huge pages with bloat are");
        causes.push(counted(protected_huge_pages, one, several) + " protected");
    }
    if causes.is_empty() {
        causes.push("this order has no more huge pages to split".to_owned());
    }
    causes.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortfall_names_exclusions_before_the_end_of_the_plan() {
        let shortfall = |excluded_processes, protected_huge_pages| {
            let warning = DebloatWarning::Shortfall {
                freed_bytes: Bytes::mib(3),
                requested_bytes: Bytes::mib(4),
                excluded_processes,
                protected_huge_pages,
            };
            warning.text()
        };
        assert_eq!(
            shortfall(0, 0),
            "freed 3MiB of 4MiB requested: this order has no more huge pages to split"
        );
        assert!(shortfall(0, 16).ends_with(": 16 huge pages with bloat are protected"));
        assert!(shortfall(2, 0).ends_with(": 2 processes were excluded before the end"));
        assert!(
            shortfall(2, 16).ends_with("before the end, 16 huge pages with bloat are protected")
        );
    }
}
