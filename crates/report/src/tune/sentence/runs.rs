//! Sentences on runs of a program that tune starts.

use hugepilot_record::tune::Variant;

use crate::record::process_count;

/// The name of a variant in sentences.
const fn name(variant: Variant) -> &'static str {
    match variant {
        Variant::Baseline => "baseline",
        Variant::Tuned => "tuned",
        Variant::AllHuge => "all-huge",
    }
}

/// Returns the sentence for runs of a variant that failed.
pub(super) fn runs_failed(variant: Variant, failed: u64, runs: u64) -> String {
    format!(
        "{failed} of {runs} {} {} without success; the time of a failed run means little",
        name(variant),
        if runs == 1 { "run ended" } else { "runs ended" }
    )
}

/// Returns the sentence for processes that runs of a variant left behind.
pub(super) fn processes_left(variant: Variant, processes: u64) -> String {
    let (name, processes) = (name(variant), process_count(processes));
    format!("{name} runs left {processes} running; hugepilot ended them")
}
