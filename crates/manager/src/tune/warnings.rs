//! Warnings that follow from the facts of a report.

use hugepilot_record::tune::{TuneReport, TuneWarning};

/// Samples below which shares are rough.
const FEW_SAMPLES: u64 = 200;
/// Share of samples without an address above which a report is in doubt.
const MOST: f64 = 0.5;
/// Share of the target in all samples below which a report is in doubt.
const MOSTLY_TARGET: f64 = 0.8;

/// Warnings about `report`. `target_ratio` is the share of the target in all samples;
/// `samples_time`: whether the sampler samples time.
pub(super) fn warnings(
    report: &TuneReport,
    target_ratio: f64,
    samples_time: bool,
) -> Vec<TuneWarning> {
    let sampler = &report.sampler;
    let has_samples = sampler.samples > 0;
    let is_unpredicted =
        has_samples && report.predicted_speedup.is_none() && !report.selected.is_empty();
    let none_ratio =
        sampler.none_ratio.filter(|&none| none > MOST && sampler.samples >= FEW_SAMPLES);
    let warnings = [
        report.target_ended.then_some(TuneWarning::TargetEnded {
            pid: report.target.pid,
            verified_regions: report.verified_regions,
        }),
        (has_samples && sampler.samples < FEW_SAMPLES)
            .then_some(TuneWarning::FewSamples { samples: sampler.samples }),
        none_ratio.map(|none_ratio| TuneWarning::FewAddresses { none_ratio }),
        (sampler.lost > 0).then_some(TuneWarning::SamplesLost { samples: sampler.lost }),
        (sampler.throttled > 0)
            .then_some(TuneWarning::SamplingThrottled { times: sampler.throttled }),
        (has_samples && target_ratio < MOSTLY_TARGET)
            .then_some(TuneWarning::OtherProcesses { target_ratio }),
        is_unpredicted.then_some(if samples_time {
            TuneWarning::NotCalibrated
        } else {
            TuneWarning::SamplesAreNotTime
        }),
        report
            .schedule
            .as_ref()
            .filter(|schedule| schedule.not_found > 0)
            .map(|schedule| TuneWarning::MappingsNotFound { events: schedule.not_found }),
        report
            .schedule
            .as_ref()
            .filter(|schedule| schedule.resized > 0)
            .map(|schedule| TuneWarning::MappingsResized { events: schedule.resized }),
        report
            .failed
            .get("not_verified")
            .map(|&promotions| TuneWarning::NotVerified { promotions }),
    ];
    warnings.into_iter().flatten().collect()
}
