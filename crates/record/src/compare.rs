//! A program run in several modes, in turns: the report of `hugepilot compare`, schema `hugepilot.compare/2`.
//!
//! If you change a field here, say so in CHANGELOG.md; if you remove or redefine one, raise the number in [`SCHEMA`].

use hugepilot_stats::{PairedRatio, Spread, lower_median, median};
use hugepilot_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::run::{Mode, Run};

/// The value of `schema`.
pub const SCHEMA: &str = "hugepilot.compare/2";

/// What one mode gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModeReport {
    /// Which.
    pub mode: Mode,
    /// Runs that were made of it; none where it is not to be had here.
    pub runs: u32,
    /// Of them, those that did not end with success.
    pub failed_runs: u32,
    /// Whether memory was on the pages that the mode is for, in at least half of the runs of which that is known; of `base`: on none.
    /// `None` where it is known of none.
    pub took_effect: Option<bool>,
    /// What was seen, or why not.
    pub reason: String,
    /// What to change, as a command where there is one.
    pub fix: Option<String>,
    /// From the first instruction to the end.
    pub wall_seconds: Option<Spread>,
    /// CPU time in user mode.
    pub user_seconds: Option<Spread>,
    /// CPU time in the kernel.
    pub system_seconds: Option<Spread>,
    /// Share of its runnable time that it waited for a processor, in the median; `None` when not
    /// measured.
    #[serde(default)]
    pub processor_wait_ratio: Option<f64>,
    /// Page faults, in the median.
    pub page_faults: Option<u64>,
    /// Resident memory at its peak, hugetlb pages not included: the largest of all runs; so with the next two.
    pub rss_peak_bytes: Option<Bytes>,
    /// On transparent huge pages.
    pub thp_peak_bytes: Option<Bytes>,
    /// On pages of pools.
    pub hugetlb_peak_bytes: Option<Bytes>,
    /// Loads looked up in the data TLB, in the median; `None` where nothing counts them.
    pub dtlb_loads: Option<u64>,
    /// Of them, those that missed.
    pub dtlb_load_misses: Option<u64>,
    /// The misses' share of the loads.
    pub dtlb_miss_ratio: Option<f64>,
    /// Page walks for data.
    pub page_walks: Option<u64>,
    /// Share of samples that waited for scattered memory, in a run of its own that is not timed.
    pub stall_ratio: Option<f64>,
    /// How many times as fast as `base` in the same round: over 1 is faster.
    pub speedup_over_base: Option<PairedRatio>,
    /// The same by CPU time.
    #[serde(default)]
    pub cpu_speedup_over_base: Option<PairedRatio>,
    /// How many times as fast as the same allocator without huge pages ([`Mode::without_huge_pages`]), in the same round; `None`
    /// where it has no other allocator, or that was not run.
    #[serde(default)]
    pub speedup_over_same_allocator: Option<PairedRatio>,
    /// The same by CPU time.
    #[serde(default)]
    pub cpu_speedup_over_same_allocator: Option<PairedRatio>,
}

impl ModeReport {
    /// Speedup over `base` by `time`.
    pub const fn speedup(&self, time: DecidingTime) -> Option<PairedRatio> {
        match time {
            DecidingTime::Wall => self.speedup_over_base,
            DecidingTime::Cpu => self.cpu_speedup_over_base,
        }
    }
    /// One that is not to be had, and why.
    pub fn unavailable(mode: Mode, reason: String, fix: Option<String>) -> Self {
        Self {
            mode,
            runs: 0,
            failed_runs: 0,
            took_effect: Some(false),
            reason,
            fix,
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
    /// Takes in what its runs took.
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
    /// Takes in the counts of its runs.
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

/// What the processor counted in one run; each `None` where it does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Loads looked up in the data TLB.
    pub loads: Option<u64>,
    /// Of them, those that missed.
    pub load_misses: Option<u64>,
    /// Page walks for data.
    pub walks: Option<u64>,
}

/// How many times as fast `ours` is as `base`, round by round. A run that did not end with success has no speed: its round
/// does not count. `None` where no round does, or one took no time.
pub fn speedup(time: DecidingTime, base: &[Run], ours: &[Run]) -> Option<PairedRatio> {
    let succeeded = |pair: &(&Run, &Run)| pair.0.ending.is_success() && pair.1.ending.is_success();
    let rounds = base.iter().zip(ours).filter(succeeded);
    let seconds = |run: &Run| match time {
        DecidingTime::Wall => run.wall_seconds,
        DecidingTime::Cpu => run.cpu_seconds(),
    };
    PairedRatio::of(rounds.map(|(base, ours)| (seconds(base), seconds(ours))))
}

/// Share of runnable time spent waiting for a processor from which wall time says little.
const MUCH_WAIT: f64 = 0.2;

/// The time by which modes are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DecidingTime {
    /// From the first instruction to the end.
    #[default]
    Wall,
    /// User and system time: other programs took the processors.
    Cpu,
}

impl DecidingTime {
    /// CPU time, if `base` waited for a processor more than a fifth of its runnable time.
    pub fn of(base: &ModeReport) -> Self {
        match base.processor_wait_ratio {
            Some(ratio) if ratio > MUCH_WAIT => Self::Cpu,
            _ => Self::Wall,
        }
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Further rounds of the mode alone that looked best in the first ones, which say nothing of these; of `base`, and of the same
/// allocator without huge pages where that was run at first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Confirmation {
    /// Which.
    pub mode: Mode,
    /// As in [`ModeReport`], of these rounds.
    #[serde(default)]
    pub took_effect: Option<bool>,
    /// What was seen, or why not.
    #[serde(default)]
    pub reason: String,
    /// Rounds that do not count, because the program failed with it, and not with `base`.
    #[serde(default)]
    pub failed_rounds: u32,
    /// How many times as fast as `base` in the same round.
    pub speedup_over_base: Option<PairedRatio>,
    /// The same by CPU time.
    #[serde(default)]
    pub cpu_speedup_over_base: Option<PairedRatio>,
    /// The same allocator without huge pages.
    #[serde(default)]
    pub same_allocator: Option<SameAllocator>,
}

/// An allocator without huge pages beside itself with them, by the deciding time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SameAllocator {
    /// Which mode.
    pub mode: Mode,
    /// How many times as fast as `base` in the same round.
    pub speedup_over_base: PairedRatio,
    /// How many times as fast as it the mode with huge pages was, in the same round.
    pub speedup_over_same_allocator: PairedRatio,
}

impl Confirmation {
    /// Speedup over `base` by `time`.
    pub const fn speedup(&self, time: DecidingTime) -> Option<PairedRatio> {
        match time {
            DecidingTime::Wall => self.speedup_over_base,
            DecidingTime::Cpu => self.cpu_speedup_over_base,
        }
    }
    /// Of runs of `base` and of `ours` in turns, with what `mode` says of the latter.
    pub fn of(
        time: DecidingTime,
        mode: &ModeReport,
        same_allocator: Option<&ModeReport>,
        base: &[Run],
        ours: &[Run],
    ) -> Self {
        let fails = |pair: &(&Run, &Run)| pair.0.ending.is_success() && !pair.1.ending.is_success();
        Self {
            mode: mode.mode,
            took_effect: mode.took_effect,
            reason: mode.reason.clone(),
            failed_rounds: count(base.iter().zip(ours).filter(fails).count()),
            speedup_over_base: speedup(DecidingTime::Wall, base, ours),
            cpu_speedup_over_base: speedup(DecidingTime::Cpu, base, ours),
            same_allocator: same_allocator.and_then(|other| SameAllocator::of(time, mode, other)),
        }
    }
}

impl SameAllocator {
    /// Where both were run, and `same_allocator` was what it should be.
    pub fn of(time: DecidingTime, mode: &ModeReport, same_allocator: &ModeReport) -> Option<Self> {
        let served = same_allocator.took_effect == Some(true)
            && mode.mode.without_huge_pages() == Some(same_allocator.mode);
        Some(Self {
            mode: same_allocator.mode,
            speedup_over_base: same_allocator.speedup(time).filter(|_| served)?,
            speedup_over_same_allocator: match time {
                DecidingTime::Wall => mode.speedup_over_same_allocator?,
                DecidingTime::Cpu => mode.cpu_speedup_over_same_allocator?,
            },
        })
    }
}

/// What the data TLB maps on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reach {
    /// With base pages.
    pub base_bytes: Bytes,
    /// With 2 MiB pages.
    pub huge_bytes: Bytes,
    /// Whether the processor is not in the table, so that these are assumed.
    pub assumed: bool,
}

/// The whole report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CompareReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Requested rounds; each has one run of each mode.
    pub rounds: u32,
    /// Each mode that was asked for, `base` first.
    pub modes: Vec<ModeReport>,
    /// Further rounds of the best of several modes, from which it is told whether it pays; `None` where none looked as if it
    /// did, and of a single mode, whose own rounds tell.
    #[serde(default)]
    pub confirmation: Option<Confirmation>,
    /// What the TLB maps.
    pub tlb_reach: Reach,
    /// Why loads and misses of the TLB were not counted, where they were not.
    pub counters_unavailable: Option<String>,
    /// Why stalls were not sampled, where they were not.
    pub stalls_unavailable: Option<String>,
    /// The time that decides the verdict: CPU time if `base` mostly waited for a processor.
    #[serde(default)]
    pub decided_by: DecidingTime,
    /// Whether Ctrl-C ended it early.
    pub interrupted: bool,
    /// Whether some mode is faster than `base` by more than noise.
    pub pays: bool,
    /// What to make of it.
    pub verdict: String,
    /// What makes this less trustworthy.
    pub warnings: Vec<String>,
}

impl CompareReport {
    /// What `base` gave, where it was run.
    pub fn base(&self) -> Option<&ModeReport> {
        self.modes.iter().find(|mode| mode.mode == Mode::Base && mode.runs > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{Ending, Peak};

    fn run(wall_seconds: f64, page_faults: u64, ending: Ending) -> Run {
        let peak = Peak { rss_peak_bytes: Bytes::mib(page_faults), ..Peak::default() };
        Run {
            ending,
            wall_seconds,
            stopped: false,
            user_seconds: wall_seconds,
            system_seconds: 0.0,
            processor_wait_seconds: None,
            page_faults,
            peak,
        }
    }

    #[test]
    fn a_mode_is_summed_up_by_medians_and_peaks_by_the_largest() {
        let runs = [
            run(3.0, 30, Ending::Exited(0)),
            run(1.0, 10, Ending::Exited(1)),
            run(2.0, 20, Ending::Exited(0)),
        ];
        let mut mode = ModeReport::unavailable(Mode::Thp, String::new(), None);
        mode.measure(&runs.iter().collect::<Vec<_>>());
        assert_eq!((mode.runs, mode.failed_runs), (3, 1));
        assert_eq!(mode.wall_seconds, Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!((mode.page_faults, mode.rss_peak_bytes), (Some(20), Some(Bytes::mib(30))));
        mode.measure(&[]);
        assert_eq!((mode.wall_seconds, mode.page_faults), (None, None));
    }

    #[test]
    fn runs_are_compared_within_their_round() {
        // The machine gets slower by the round, and the mode is twice as fast in each.
        let all = |seconds: &[f64]| {
            seconds.iter().map(|&wall| run(wall, 1, Ending::Exited(0))).collect::<Vec<_>>()
        };
        let mut ours = all(&[1.0, 2.0, 4.0]);
        let twice = |rounds| PairedRatio {
            low: 2.0,
            median: 2.0,
            high: 2.0,
            rounds,
            faster_rounds: rounds,
        };
        assert_eq!(speedup(DecidingTime::Wall, &all(&[2.0, 4.0, 8.0]), &ours), Some(twice(3)));
        ours[1] = run(0.1, 1, Ending::Exited(1));
        let without = speedup(DecidingTime::Wall, &all(&[2.0, 4.0, 8.0]), &ours);
        assert_eq!(without, Some(twice(2)), "who fails soon is not fast");
        assert_eq!(speedup(DecidingTime::Wall, &ours[1..2], &ours[..1]), None);
        assert_eq!(speedup(DecidingTime::Wall, &all(&[1.0]), &[]), None);
        assert_eq!(
            speedup(DecidingTime::Wall, &all(&[1.0]), &all(&[0.0])),
            None,
            "no time is no ratio"
        );
        let thp = ModeReport::unavailable(Mode::Thp, String::new(), None);
        let found = Confirmation::of(DecidingTime::Wall, &thp, None, &all(&[2.0, 4.0, 3.0]), &ours);
        assert_eq!(found.failed_rounds, 1);
        let ratio =
            PairedRatio { low: 0.75, median: 1.375, high: 2.0, rounds: 2, faster_rounds: 1 };
        assert_eq!(found.speedup_over_base, Some(ratio), "the failed one is no round");
    }

    #[test]
    fn counts_that_are_missing_stay_missing() {
        let mut mode = ModeReport::unavailable(Mode::Base, String::new(), None);
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
