//! Figures of one mode.

use hugepilot_record::Mode;
use hugepilot_stats::{PairedRatio, Spread, lower_median, median};
use hugepilot_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Counts, DecidingTime, count};
use crate::run::{Effect, EffectCause, Run};

/// Runs of one mode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModeReport {
    /// Mode.
    pub mode: Mode,
    /// Runs in complete rounds; 0 if the mode is unavailable.
    pub runs: u32,
    /// Runs without success.
    pub failed_runs: u32,
    /// Runs in which the mode took effect.
    pub effective_runs: u32,
    /// Effect in at least half of the runs with a known one.
    #[serde(flatten)]
    pub effect: Effect,
    /// Time from the first instruction to the end.
    pub wall_seconds: Option<Spread>,
    /// CPU time in user mode.
    pub user_seconds: Option<Spread>,
    /// CPU time in the kernel.
    pub system_seconds: Option<Spread>,
    /// Median share of its runnable time that it waited for a processor; `None` if not measured.
    #[serde(default)]
    pub processor_wait_ratio: Option<f64>,
    /// Median of page faults.
    pub page_faults: Option<u64>,
    /// Peak resident set of all runs, without hugetlb pages.
    pub rss_peak_bytes: Option<Bytes>,
    /// Peak on transparent huge pages of all runs.
    pub thp_peak_bytes: Option<Bytes>,
    /// Peak on hugetlb pages of all runs.
    pub hugetlb_peak_bytes: Option<Bytes>,
    /// Median of loads in the data TLB; `None` without counters.
    pub dtlb_loads: Option<u64>,
    /// Median of their misses.
    pub dtlb_load_misses: Option<u64>,
    /// Share of loads that missed.
    pub dtlb_miss_ratio: Option<f64>,
    /// Median of page walks for data.
    pub page_walks: Option<u64>,
    /// Share of samples that stalled on scattered memory, from an untimed run.
    pub stall_ratio: Option<f64>,
    /// Speedup over `base` in the same round; above 1 is faster.
    pub speedup_over_base: Option<PairedRatio>,
    /// The same by CPU time.
    #[serde(default)]
    pub cpu_speedup_over_base: Option<PairedRatio>,
    /// Speedup over the same allocator without huge pages ([`Mode::without_huge_pages`]) in the
    /// same round; `None` if there is none, or it was not run.
    #[serde(default)]
    pub speedup_over_same_allocator: Option<PairedRatio>,
    /// The same by CPU time.
    #[serde(default)]
    pub cpu_speedup_over_same_allocator: Option<PairedRatio>,
}

impl ModeReport {
    /// A mode without runs, for `cause`.
    pub const fn unavailable(mode: Mode, cause: EffectCause) -> Self {
        Self {
            mode,
            runs: 0,
            failed_runs: 0,
            effective_runs: 0,
            effect: Effect::new(Some(false), cause),
            wall_seconds: None,
            user_seconds: None,
            system_seconds: None,
            processor_wait_ratio: None,
            page_faults: None,
            rss_peak_bytes: None,
            thp_peak_bytes: None,
            hugetlb_peak_bytes: None,
            dtlb_loads: None,
            dtlb_load_misses: None,
            dtlb_miss_ratio: None,
            page_walks: None,
            stall_ratio: None,
            speedup_over_base: None,
            cpu_speedup_over_base: None,
            speedup_over_same_allocator: None,
            cpu_speedup_over_same_allocator: None,
        }
    }
    /// Speedup over `base` by `time`.
    pub const fn speedup(&self, time: DecidingTime) -> Option<PairedRatio> {
        match time {
            DecidingTime::Wall => self.speedup_over_base,
            DecidingTime::Cpu => self.cpu_speedup_over_base,
        }
    }
    /// Peak memory on huge pages of any kind.
    pub fn huge_peak(&self) -> Bytes {
        let sizes = [self.thp_peak_bytes, self.hugetlb_peak_bytes];
        sizes.into_iter().flatten().sum()
    }
    /// Whether the program fails more often than with `base`.
    pub const fn fails_more_than(&self, base: &Self) -> bool {
        self.failed_runs > base.failed_runs
    }
    /// Summarises `runs`.
    pub fn measure(&mut self, runs: &[&Run]) {
        let spread = |of: &dyn Fn(&Run) -> f64| {
            Spread::of(&runs.iter().map(|run| of(run)).collect::<Vec<_>>())
        };
        let most = |of: &dyn Fn(&Run) -> Bytes| runs.iter().map(|run| of(run)).max();
        self.runs = count(runs.len());
        self.failed_runs = count(runs.iter().filter(|run| !run.ending.is_success()).count());
        self.wall_seconds = spread(&|run| run.wall_seconds);
        self.user_seconds = spread(&|run| run.user_seconds);
        self.system_seconds = spread(&|run| run.system_seconds);
        let waits = runs.iter().filter_map(|run| run.processor_wait_ratio());
        self.processor_wait_ratio = median(waits);
        self.page_faults = lower_median(runs.iter().map(|run| run.page_faults));
        self.rss_peak_bytes = most(&|run| run.peak.rss_peak_bytes);
        self.thp_peak_bytes = most(&|run| run.peak.thp_peak_bytes);
        self.hugetlb_peak_bytes = most(&|run| run.peak.hugetlb_peak_bytes);
    }
    /// Summarises the counts of its runs.
    #[allow(clippy::cast_precision_loss)]
    pub fn count(&mut self, counts: &[Counts]) {
        let of =
            |pick: &dyn Fn(&Counts) -> Option<u64>| lower_median(counts.iter().filter_map(pick));
        self.dtlb_loads = of(&|counts| counts.loads);
        self.dtlb_load_misses = of(&|counts| counts.load_misses);
        self.page_walks = of(&|counts| counts.walks);
        let ratio = |counts: &Counts| {
            Some(counts.load_misses? as f64 / counts.loads.filter(|&all| all > 0)? as f64)
        };
        let ratios: Vec<f64> = counts.iter().filter_map(ratio).collect();
        self.dtlb_miss_ratio = Spread::of(&ratios).map(|spread| spread.median);
    }
}

#[cfg(test)]
mod tests {
    use hugepilot_record::Ending;

    use super::*;
    use crate::compare::tests::run;

    #[test]
    fn modes_have_medians_of_times_and_maxima_of_peaks() {
        let runs = [
            run(3.0, 30, Ending::Exited(0)),
            run(1.0, 10, Ending::Exited(1)),
            run(2.0, 20, Ending::Exited(0)),
        ];
        let mut mode = ModeReport::unavailable(Mode::Thp, EffectCause::Unknown);
        mode.measure(&runs.iter().collect::<Vec<_>>());
        assert_eq!((mode.runs, mode.failed_runs), (3, 1));
        assert_eq!(mode.wall_seconds, Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!((mode.page_faults, mode.rss_peak_bytes), (Some(20), Some(Bytes::mib(30))));
        mode.measure(&[]);
        assert_eq!((mode.wall_seconds, mode.page_faults), (None, None));
    }

    #[test]
    fn counts_that_are_missing_stay_missing() {
        let mut mode = ModeReport::unavailable(Mode::Base, EffectCause::Unknown);
        let counts = |loads, load_misses| Counts { loads, load_misses, walks: None };
        mode.count(&[
            counts(Some(100), Some(7)),
            counts(Some(0), Some(0)),
            counts(Some(100), None),
        ]);
        assert_eq!(
            (mode.dtlb_loads, mode.dtlb_miss_ratio, mode.page_walks),
            (Some(100), Some(0.07), None)
        );
    }
}
