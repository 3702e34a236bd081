//! Warnings about re-collapse, shortfalls and huge pages without an effect.

use hugepilot_kernel::{Root, recollapse_risk};
use hugepilot_record::{RecollapseRisk, SkipReason};
use hugepilot_reports::debloat::{DebloatReport, DebloatWarning};
use hugepilot_units::Share;

use super::DebloatOptions;
use crate::engine::splits::SplitProcess;

/// Reads whether khugepaged re-collapses bloated regions of `processes`.
pub(super) fn risk_for(root: &Root, processes: &[SplitProcess]) -> Option<RecollapseRisk> {
    let advised = |process: &SplitProcess| {
        process.is_advised(process.census.bloated.iter().map(|page| page.region))
    };
    if processes.is_empty() {
        return None;
    }
    recollapse_risk(root, processes.iter().any(advised))
}

/// Determines why less was freed than requested; `None` if enough was. `excluded` counts processes
/// that were excluded before the end.
fn shortfall(report: &DebloatReport, excluded: usize) -> Option<DebloatWarning> {
    let &DebloatReport { freed_bytes, requested_bytes, .. } = report;
    if report.dry_run || report.stopped.is_some() || freed_bytes >= requested_bytes {
        return None;
    }
    let protected = report.skipped.get(&SkipReason::Protected.to_string()).copied();
    Some(DebloatWarning::Shortfall {
        freed_bytes,
        requested_bytes,
        excluded_processes: excluded as u64,
        protected_huge_pages: protected.unwrap_or(0),
    })
}

/// Adds the warnings that follow from the report. `excluded` counts processes that were excluded
/// before the end.
pub(super) fn add(
    report: &mut DebloatReport,
    risk: Option<RecollapseRisk>,
    options: &DebloatOptions,
    excluded: usize,
) {
    let risk = risk.filter(|_| report.huge_pages_split > 0).map(DebloatWarning::RecollapseRisk);
    let some = |huge_pages: u64| Some(huge_pages).filter(|&count| count > 0);
    let recollapsed =
        some(report.recollapsed).map(|huge_pages| DebloatWarning::Recollapsed { huge_pages });
    let unread =
        some(report.unread_huge_pages).map(|huge_pages| DebloatWarning::Unread { huge_pages });
    let sampled = (options.part < Share::ALL)
        .then_some(DebloatWarning::Sampled { sample_ratio: options.part });
    let still = report.failed.get("still_huge").copied().and_then(some);
    let still = still.map(|huge_pages| DebloatWarning::StillHuge { huge_pages });
    let warnings = [risk, recollapsed, unread, sampled, shortfall(report, excluded), still];
    report.warnings.extend(warnings.into_iter().flatten());
}

#[cfg(test)]
mod tests {
    use hugepilot_units::Bytes;

    use super::*;

    #[test]
    fn a_shortfall_counts_exclusions_and_protected_pages() {
        let (freed_bytes, requested_bytes) = (Bytes::mib(3), Bytes::mib(4));
        let skipped = [("protected".to_owned(), 16)].into();
        let short =
            DebloatReport { freed_bytes, requested_bytes, skipped, ..DebloatReport::default() };
        let expected = DebloatWarning::Shortfall {
            freed_bytes,
            requested_bytes,
            excluded_processes: 2,
            protected_huge_pages: 16,
        };
        assert_eq!(shortfall(&short, 2), Some(expected));
        let enough = DebloatReport { requested_bytes: freed_bytes, ..short.clone() };
        assert_eq!(shortfall(&enough, 2), None);
        assert_eq!(shortfall(&DebloatReport { dry_run: true, ..short }, 2), None);
    }
}
