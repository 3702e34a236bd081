//! Warnings about a report, which follow from the facts. Pure.

use hugepilot_reports::tune::{LoadReport, ScheduleReport, TuneReport, TuneWarning};

use super::finished::{Finished, TargetEnd, TargetFacts};

/// Samples below which shares are rough.
const FEW_SAMPLES: u64 = 200;
/// Share of samples without an address above which a report is in doubt.
const MOST: f64 = 0.5;
/// Share of the target in all samples below which a report is in doubt.
const MOSTLY_TARGET: f64 = 0.8;

impl Finished {
    /// Warnings about `report`, whose `warnings` are empty.
    pub(super) fn warnings(
        &self,
        target: &TargetFacts,
        end: &TargetEnd,
        report: &TuneReport,
    ) -> Vec<TuneWarning> {
        let mut all = of_report(report, end.share, self.samples_time);
        let calibration = &self.options.goal.calibration;
        let trial = report.forecast.trial.filter(|trial| trial.confirmed != Some(false));
        let bounds = trial.and_then(|trial| trial.low_ratio.zip(trial.high_ratio));
        if let (Some((low_ratio, high_ratio)), Some(shown)) = (bounds, target.fold.shown())
            && shown.contradicts((low_ratio, high_ratio), calibration)
        {
            all.push(TuneWarning::CalibrationContradicted { low_ratio, high_ratio });
        }
        all.extend((target.may_fork && end.forks == 0).then_some(TuneWarning::MayFork));
        let hidden = target.hidden_limit.clone();
        all.extend(hidden.map(|cgroup| TuneWarning::HiddenMemoryLimit { cgroup }));
        all.extend(self.progress_doubts.iter().cloned());
        all
    }
}

/// Warnings that follow from `report` alone. `target_ratio` is the share of the target in all
/// samples; `samples_time`: whether the sampler samples time.
fn of_report(report: &TuneReport, target_ratio: f64, samples_time: bool) -> Vec<TuneWarning> {
    let sampler = &report.sampler;
    let has_samples = sampler.samples > 0;
    // Without any prediction, the machine is not calibrated, unless too little is known of the
    // samples. Regions that a trial returned have none of their own.
    let is_unpredicted = has_samples
        && report.forecast.predicted_speedup.or(report.forecast.eligible_speedup).is_none()
        && !report.plan.selected.is_empty()
        && !sampler.is_mostly_unknown();
    let none_ratio =
        sampler.none_ratio.filter(|&none| none > MOST && sampler.samples >= FEW_SAMPLES);
    let scheduled = |events: fn(&ScheduleReport) -> u64| {
        report.schedule.as_ref().map(events).filter(|&events| events > 0)
    };
    let warnings = [
        report.target_ended.then_some(TuneWarning::TargetEnded {
            pid: report.target.pid,
            verified_regions: report.acts.verified_regions,
        }),
        (has_samples && sampler.samples < FEW_SAMPLES)
            .then_some(TuneWarning::FewSamples { samples: sampler.samples }),
        none_ratio.map(|none_ratio| TuneWarning::FewAddresses {
            none_ratio,
            undecoded_ratio: sampler.undecoded_ratio,
            unresolved_ratio: sampler.unresolved_ratio,
        }),
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
        load_changed(report),
        (report.acts.forks > 0).then_some(TuneWarning::Forks { forks: report.acts.forks }),
        scheduled(|one| one.not_found).map(|events| TuneWarning::MappingsNotFound { events }),
        scheduled(|one| one.resized).map(|events| TuneWarning::MappingsResized { events }),
        report
            .acts
            .failed
            .get("not_verified")
            .map(|&failed| failed.min(unverified(report)))
            .filter(|&promotions| promotions > 0)
            .map(|promotions| TuneWarning::NotVerified { promotions }),
    ];
    warnings.into_iter().flatten().collect()
}

/// The change of the load, if a gain was measured across it.
fn load_changed(report: &TuneReport) -> Option<TuneWarning> {
    let LoadReport { before, after, changed } =
        report.measured.load.filter(|_| report.measured.speedup.is_some())?;
    let (number, (before, after)) = changed.zip(before.zip(after))?;
    let [before_cpus, after_cpus] = [before, after].map(|load| load.number(number));
    Some(TuneWarning::LoadChanged { number, before_cpus, after_cpus })
}

/// Regions that no try verified on huge pages.
fn unverified(report: &TuneReport) -> u64 {
    report.plan.selected.iter().filter(|region| region.verified == Some(false)).count() as u64
}

#[cfg(test)]
mod tests {
    use hugepilot_record::Prediction;
    use hugepilot_reports::tune::SelectedRegion;
    use hugepilot_units::VirtAddr;

    use super::*;

    fn region(verified: bool) -> SelectedRegion {
        SelectedRegion {
            start: VirtAddr::new(0),
            mapping: String::new(),
            heat_ratio: 0.1,
            sampled_pages: 9,
            verified: Some(verified),
            state: None,
        }
    }

    #[test]
    fn a_machine_with_a_prediction_of_all_memory_is_calibrated() {
        let mut report = TuneReport::default();
        report.sampler.samples = 900;
        report.plan.selected = vec![region(true)];
        assert_eq!(of_report(&report, 1.0, true), [TuneWarning::NotCalibrated]);
        report.forecast.eligible_speedup = Some(Prediction { low: 1.0, median: 1.1, high: 1.2 });
        assert_eq!(of_report(&report, 1.0, true), [], "a trial returned what was selected");
    }

    #[test]
    fn a_region_that_a_later_try_promoted_has_no_warning() {
        let of = |verified| {
            let mut report = TuneReport::default();
            report.acts.failed.insert("not_verified".to_owned(), 2);
            report.plan.selected = vec![region(true), region(verified)];
            let found =
                |one: &TuneWarning| matches!(one, TuneWarning::NotVerified { promotions: 1 });
            of_report(&report, 1.0, true).iter().any(found)
        };
        assert_eq!([of(true), of(false)], [false, true]);
    }
}
