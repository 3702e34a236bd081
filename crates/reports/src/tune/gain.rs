//! Gain of a tune: the one figure that its report states, with its source.

use hugepilot_record::Prediction;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{TuneReport, TuneVerdict};

/// Share of the samples that stall, from which huge pages might pay.
pub const MIN_STALLS: f64 = 0.05;

/// Speedup from which a prediction is one of a gain: that of `tune --min-gain` by default.
pub const MIN_GAIN: f64 = 1.02;

/// Source of a predicted speedup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PredictedBy {
    /// A trial inside the process.
    Trial,
    /// The calibration of this machine, with assumptions.
    Model,
}

/// Gain of a tune, from its best source: a measurement, otherwise a trial, otherwise the model.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gain {
    /// Source.
    pub source: GainSource,
    /// Speedup: 1.25 means 25 % more work in the same time.
    pub speedup: f64,
    /// Lower bound; `None` for a measurement without a confidence interval.
    pub low: Option<f64>,
    /// Upper bound, as the lower one.
    pub high: Option<f64>,
}

/// Source of a gain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GainSource {
    /// Performance after over before, or tuned over untuned.
    Measured,
    /// A trial inside the process.
    Trial,
    /// The calibration of this machine, with assumptions.
    Model,
}

impl Gain {
    const fn predicted(source: GainSource, of: Prediction) -> Self {
        Self { source, speedup: of.median, low: Some(of.low), high: Some(of.high) }
    }
}

impl TuneReport {
    /// The gain; `None` if nothing is known of one. If no region was selected, the model's is that
    /// of all eligible memory, or of the blocked memory if that is the verdict.
    pub fn gain(&self) -> Option<Gain> {
        if let Some(speedup) = self.measured.speedup {
            let interval = self.measured.speedup_interval;
            let (low, high) = (interval.map(|one| one.low), interval.map(|one| one.high));
            return Some(Gain { source: GainSource::Measured, speedup, low, high });
        }
        match self.verdict() {
            TuneVerdict::WouldPromote
            | TuneVerdict::NoneSelected
            | TuneVerdict::NothingToGain
            | TuneVerdict::Blocked
            | TuneVerdict::NoGain
            | TuneVerdict::Promoted => {}
            // No region is left, or there never was one, to which a prediction could refer.
            _ => return None,
        }
        let source = match self.forecast.predicted_by {
            Some(PredictedBy::Trial) => GainSource::Trial,
            _ => GainSource::Model,
        };
        if self.verdict() == TuneVerdict::Blocked {
            return Some(Gain::predicted(GainSource::Model, self.forecast.blocked_speedup?));
        }
        let eligible = self.forecast.eligible_speedup.filter(|_| self.plan.selected.is_empty());
        Some(Gain::predicted(source, self.forecast.predicted_speedup.or(eligible)?))
    }

    /// The model's speedup of all eligible memory; `None` if the gain has a better source, beside
    /// which a figure of the model would say less.
    pub fn eligible_gain(&self) -> Option<Prediction> {
        let is_better = self.gain().is_some_and(|gain| gain.source != GainSource::Model);
        self.forecast.eligible_speedup.filter(|_| !is_better)
    }
}

#[cfg(test)]
mod tests {
    use hugepilot_record::Stop;
    use hugepilot_stats::Spread;

    use super::super::{Interval, Performance, Runs};
    use super::*;

    fn prediction(median: f64) -> Option<Prediction> {
        Some(Prediction { low: median - 0.01, median, high: median + 0.01 })
    }

    /// Source and speedup of the gain, and the model's figure beside it.
    fn stated(report: &TuneReport) -> (Option<(GainSource, f64)>, Option<f64>) {
        let gain = report.gain().map(|gain| (gain.source, gain.speedup));
        (gain, report.eligible_gain().map(|one| one.median))
    }

    #[test]
    fn a_measurement_outranks_a_trial_and_a_trial_the_model() {
        let mut promoted = TuneReport::default();
        (promoted.acts.attempted_regions, promoted.acts.verified_regions) = (8, 8);
        assert_eq!(stated(&promoted), (None, None));
        promoted.forecast.predicted_speedup = prediction(1.05);
        promoted.forecast.predicted_by = Some(PredictedBy::Model);
        promoted.forecast.eligible_speedup = prediction(1.06);
        assert_eq!(stated(&promoted), (Some((GainSource::Model, 1.05)), Some(1.06)));
        promoted.forecast.predicted_by = Some(PredictedBy::Trial);
        assert_eq!(stated(&promoted), (Some((GainSource::Trial, 1.05)), None));
        for by in [PredictedBy::Model, PredictedBy::Trial] {
            promoted.forecast.predicted_by = Some(by);
            let performance = |value: f64| {
                let progress = Spread::of(&[value]);
                Some(Performance { progress, values: 6, ..Performance::default() })
            };
            let runs = Runs::by_medians(performance(10.0), performance(8.0), None, false);
            promoted = promoted.with_runs(runs, []);
            assert_eq!(stated(&promoted), (Some((GainSource::Measured, 1.25)), None), "{by:?}");
        }
        assert_eq!(promoted.gain().unwrap().low, None);
        promoted.measured.speedup_interval = Some(Interval { low: 1.2, high: 1.3 });
        assert_eq!(promoted.gain().unwrap().low, Some(1.2));
    }

    #[test]
    fn without_a_selected_region_the_gain_is_that_of_all_eligible_memory() {
        let mut none = TuneReport::default();
        none.forecast.eligible_speedup = prediction(1.01);
        assert_eq!(stated(&none), (Some((GainSource::Model, 1.01)), Some(1.01)));
        none.stopped = Some(Stop::NoHugePages);
        assert_eq!(none.gain(), None, "nothing was changed");
    }
}
