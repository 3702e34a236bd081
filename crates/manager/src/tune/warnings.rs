//! What makes a tune report less trustworthy, in words, with what to do about it.

use hugepilot_record::tune::TuneReport;

/// Fewer samples say little about a share.
const FEW_SAMPLES: u64 = 200;

/// The warnings that follow from the report. `share` is the part of all samples that the target had; `samples_time` says
/// whether samples stand for time.
pub(super) fn warnings(report: &TuneReport, share: f64, samples_time: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    let sampler = &report.sampler;
    if report.target_ended {
        let gone = if report.verified_regions > 0 { ", and its huge pages with it" } else { "" };
        warnings.push(format!(
            "process {} ended before the tune did{gone}: what could be measured until then is reported",
            report.target.pid
        ));
    }
    if (1..FEW_SAMPLES).contains(&sampler.samples) {
        warnings.push(format!(
            "only {} samples: the target was mostly idle, so shares are rough; look longer with --observe",
            sampler.samples
        ));
    }
    if let Some(none) =
        sampler.none_ratio.filter(|&ratio| ratio > 0.5 && sampler.samples >= FEW_SAMPLES)
    {
        warnings.push(format!(
            "{:.0} % of the samples gave no address: the program computes more than it waits, or its code could not be \
             read",
            none * 100.0
        ));
    }
    if sampler.lost > 0 {
        warnings
            .push(format!("{} samples were lost; sample more slowly with --rate", sampler.lost));
    }
    if sampler.throttled > 0 {
        warnings.push(format!(
            "the kernel throttled sampling {} times (perf_cpu_time_max_percent); shares still hold",
            sampler.throttled
        ));
    }
    if share < 0.8 && sampler.samples > 0 {
        warnings.push(format!(
            "the target had {:.0} % of the samples; the rest fell on other processes that it started",
            share * 100.0
        ));
    }
    if report.predicted_speedup.is_none() && !report.selected.is_empty() {
        let why = if samples_time {
            "this machine is not calibrated (--calibration off, too little free memory, or no huge pages to be had)"
        } else {
            "this source samples page walks, and their share is no share of time"
        };
        warnings.push(format!("no prediction: {why}"));
    }
    if let Some(&unseen) = report.failed.get("not_verified") {
        warnings.push(format!(
            "{unseen} promotions were reported as done by the kernel, and no huge page was there: not counted"
        ));
    }
    warnings
}
