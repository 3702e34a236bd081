//! Measured speeds of a tune, and the speedups that follow from them.

use hugepilot_stats::Spread;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Activity, Certainty, Interval, LoadReport, Metric, NoMetric, SpeedRatio};

/// Gain of all huge pages below which a share of it would be noise.
const MIN_ALL_HUGE: f64 = 1.02;

/// Speed of one variant, in each unit in which it was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Performance {
    /// Wall time of whole runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<Spread>,
    /// Throughput that the demonstration's workload prints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ops_per_second: Option<Spread>,
    /// Progress metric, as matched by `--progress-regex`, in the unit of the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Spread>,
    /// Work for each second of CPU time, in the unit of a metric that was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work_per_cpu_second: Option<Spread>,
    /// Number of values of which these are the summaries: runs, windows, or progress metrics.
    #[serde(default)]
    pub values: u64,
}

impl Performance {
    /// Speedup over `base`, by medians in the first unit that both have: the progress metric, then
    /// throughput, then time, then work that was found.
    fn speedup_over(&self, base: Self, larger_is_better: bool) -> Option<f64> {
        let (this, base, is_larger_better) = self.common(base, larger_is_better)?;
        let (this, base) = (this.median, base.median);
        let ratio = if is_larger_better { this / base } else { base / this };
        Some(ratio).filter(|ratio| ratio.is_finite())
    }

    /// Summaries of both in the first unit that both have, and whether a larger value is better.
    pub(super) fn common(
        &self,
        other: Self,
        larger_is_better: bool,
    ) -> Option<(Spread, Spread, bool)> {
        let units = [
            (self.progress, other.progress, larger_is_better),
            (self.ops_per_second, other.ops_per_second, true),
            (self.seconds, other.seconds, false),
            (self.work_per_cpu_second, other.work_per_cpu_second, true),
        ];
        units.into_iter().find_map(|(this, other, larger)| Some((this?, other?, larger)))
    }
}

/// Measured activity and speeds of a tune.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measured {
    /// Activity after the last promotion; `None` if nothing was done.
    pub after: Option<Activity>,
    /// Metric of the performance, and thereby of `speedup`; `None` without a progress metric, and
    /// for runs and throughputs.
    pub metric: Option<Metric>,
    /// Cause why no metric was found; `None` if none was looked for.
    pub no_metric: Option<NoMetric>,
    /// Load of the machine before the promotions and after them; `None` if nothing was measured, or
    /// if untuned and tuned windows or runs are interleaved.
    pub load: Option<LoadReport>,
    /// Performance untuned.
    pub baseline: Option<Performance>,
    /// Performance tuned.
    pub tuned: Option<Performance>,
    /// Performance with all memory on huge pages.
    pub all_huge: Option<Performance>,
    /// Tuned over baseline, above 1 is faster; `None` if not measured.
    pub speedup: Option<f64>,
    /// 95 % confidence interval of `speedup`; `None` outside the demonstration, as are those of the
    /// next two.
    pub speedup_interval: Option<Interval>,
    /// Whether `speedup` can be chance; `None` without it.
    pub speedup_certainty: Option<Certainty>,
    /// All huge over baseline.
    pub all_huge_speedup: Option<f64>,
    /// 95 % confidence interval of `all_huge_speedup`.
    pub all_huge_speedup_interval: Option<Interval>,
    /// Whether `all_huge_speedup` can be chance; `None` without it.
    pub all_huge_speedup_certainty: Option<Certainty>,
    /// (speedup − 1) / (all-huge speedup − 1): 1 means as fast as with all memory on huge pages.
    pub all_huge_gain_ratio: Option<f64>,
    /// Confidence interval of `all_huge_gain_ratio`, at least 95 %; `None` if the all-huge gain may
    /// be zero.
    pub all_huge_gain_interval: Option<Interval>,
}

/// Speeds of the variants, with the speedups.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Runs {
    /// Performance untuned.
    pub baseline: Option<Performance>,
    /// Performance tuned.
    pub tuned: Option<Performance>,
    /// Performance with all memory on huge pages.
    pub all_huge: Option<Performance>,
    /// Tuned over baseline.
    pub speedup: Option<SpeedRatio>,
    /// All huge over baseline.
    pub all_huge_speedup: Option<SpeedRatio>,
    /// Share of the all-huge gain; `None` for that which follows from the two speedups.
    pub all_huge_gain: Option<SpeedRatio>,
}

impl Runs {
    /// Speedups by the medians. `larger_is_better`: whether a larger progress metric is better.
    pub fn by_medians(
        baseline: Option<Performance>,
        tuned: Option<Performance>,
        all_huge: Option<Performance>,
        larger_is_better: bool,
    ) -> Self {
        let over = |this: Option<Performance>| {
            let median = this?.speedup_over(baseline?, larger_is_better)?;
            Some(SpeedRatio { median, interval: None })
        };
        let (speedup, all_huge_speedup) = (over(tuned), over(all_huge));
        Self { baseline, tuned, all_huge, speedup, all_huge_speedup, all_huge_gain: None }
    }
}

impl Measured {
    /// With these speeds, the certainty of the speedups, and the share of the all-huge gain.
    #[must_use]
    pub fn with_runs(self, runs: Runs) -> Self {
        let Runs { baseline, tuned, all_huge, speedup, all_huge_speedup, all_huge_gain } = runs;
        let certainty = |ratio: Option<SpeedRatio>, this: Option<Performance>| {
            let (base, this) = baseline.zip(this)?;
            Some(Certainty::of(base, this, ratio?.interval, self.load.as_ref()))
        };
        let both = speedup.zip(all_huge_speedup);
        let gain = both.filter(|(_, huge)| huge.median > MIN_ALL_HUGE).map(|(tuned, huge)| {
            let median = (tuned.median - 1.0) / (huge.median - 1.0);
            all_huge_gain.unwrap_or(SpeedRatio { median, interval: None })
        });
        let median = |ratio: SpeedRatio| ratio.median;
        let interval = |ratio: SpeedRatio| ratio.interval;
        Self {
            baseline,
            tuned,
            all_huge,
            speedup: speedup.map(median),
            speedup_interval: speedup.and_then(interval),
            speedup_certainty: certainty(speedup, tuned),
            all_huge_speedup: all_huge_speedup.map(median),
            all_huge_speedup_interval: all_huge_speedup.and_then(interval),
            all_huge_speedup_certainty: certainty(all_huge_speedup, all_huge),
            all_huge_gain_ratio: gain.map(median),
            all_huge_gain_interval: gain.and_then(interval),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ops(value: f64) -> Option<Performance> {
        let ops_per_second = Spread::of(&[value]);
        Some(Performance { ops_per_second, values: 6, ..Performance::default() })
    }

    #[test]
    fn both_speedups_have_a_certainty() {
        let measured = |runs| Measured::default().with_runs(runs);
        let of = |base, tuned| measured(Runs::by_medians(base, tuned, ops(12.0), false));
        let all_huge = of(ops(10.0), None);
        assert_eq!((all_huge.speedup, all_huge.speedup_certainty), (None, None));
        assert_eq!(all_huge.all_huge_speedup, Some(1.2));
        assert_eq!(all_huge.all_huge_speedup_certainty, Some(Certainty::Certain));
        let interval = Some(Interval { low: 0.9, high: 1.3 });
        let runs = Runs::by_medians(ops(10.0), None, ops(12.0), false);
        let all_huge_speedup = Some(SpeedRatio { median: 1.2, interval });
        let wide = measured(Runs { all_huge_speedup, ..runs });
        assert_eq!(wide.all_huge_speedup_certainty, Some(Certainty::Uncertain));
        let slower = of(ops(10.0), ops(9.0));
        assert_eq!(slower.speedup_certainty, Some(Certainty::Certain), "it is slower");
        let none = of(None, ops(9.0));
        assert_eq!((none.speedup_certainty, none.all_huge_speedup_certainty), (None, None));
    }

    #[test]
    fn performance_is_compared_in_a_unit_that_both_have() {
        let spread = |value| Spread::of(&[value]);
        let base =
            Performance { seconds: spread(10.0), progress: spread(4.0), ..Performance::default() };
        let both =
            Performance { seconds: spread(5.0), progress: spread(1.0), ..Performance::default() };
        assert_eq!(both.speedup_over(base, false), Some(4.0), "a metric that is a time");
        assert_eq!(both.speedup_over(base, true), Some(0.25), "a metric that is a throughput");
        let only_time = Performance { seconds: spread(5.0), ..Performance::default() };
        assert_eq!(only_time.speedup_over(base, true), Some(2.0), "less time is better");
        assert_eq!(only_time.speedup_over(Performance::default(), false), None);
    }
}
