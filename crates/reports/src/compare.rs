//! Report of `hugepilot compare`, schema `hugepilot.compare/2`: a program in several page modes.

pub(crate) mod text;

mod mode;
mod verdict;

use hugepilot_record::Mode;
use hugepilot_record::sentence::{Sentence, counted};
use hugepilot_stats::PairedRatio;
use hugepilot_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::run::{CompareWarning, Effect, Run};

pub use mode::ModeReport;
pub use verdict::{BestMode, Conclusion, GainSource, Verdict};

/// The value of `schema`.
pub const SCHEMA: &str = "hugepilot.compare/2";

/// Report of one comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CompareReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Requested rounds; each has one run of each mode.
    pub rounds: u32,
    /// Requested modes, `base` first, unavailable ones last.
    pub modes: Vec<ModeReport>,
    /// Further rounds of the best of several modes, which decide; `None` for a single mode, and if
    /// none was ahead.
    #[serde(default)]
    pub confirmation: Option<Confirmation>,
    /// Reach of the data TLB.
    pub tlb_reach: Reach,
    /// Error of counting TLB loads and misses; `None` if they were counted.
    pub counters_unavailable: Option<String>,
    /// Cause of missing stall samples; `None` if stalls were sampled.
    pub stalls_unavailable: Option<StallsUnavailable>,
    /// Time that decides the verdict: CPU time if `base` mostly waited for a processor.
    #[serde(default)]
    pub decided_by: DecidingTime,
    /// Whether a signal ended it early.
    pub interrupted: bool,
    /// Whether a mode is faster than `base` by more than noise.
    pub pays: bool,
    /// Verdict.
    pub verdict: Verdict,
    /// Further observations.
    pub warnings: Vec<CompareWarning>,
}

impl CompareReport {
    /// The runs of `base`, if there are any.
    pub fn base(&self) -> Option<&ModeReport> {
        self.modes.iter().find(|mode| mode.mode == Mode::Base && mode.runs > 0)
    }
}

/// Reach of the data TLB on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reach {
    /// Memory that it maps with base pages.
    pub base_bytes: Bytes,
    /// Memory that it maps with 2 MiB pages.
    pub huge_bytes: Bytes,
    /// Whether the CPU is unknown, so that both are assumed.
    pub assumed: bool,
}

/// Counts of the processor in one run; `None` where it does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Loads in the data TLB.
    pub loads: Option<u64>,
    /// Loads that missed.
    pub load_misses: Option<u64>,
    /// Page walks for data.
    pub walks: Option<u64>,
}

/// Cause of missing stall samples. JSON carries the variant as `code`, and the sentence as `text`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Sentence)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum StallsUnavailable {
    /// `--no-stalls`.
    #[text("--no-stalls")]
    NotRequested,
    /// Too few samples for a share.
    #[text(
        "{} too few; the program takes too little CPU time",
        counted(*samples, "sample is", "samples are")
    )]
    FewSamples {
        /// Samples.
        samples: u64,
    },
    /// The sampler counts page walks, not time.
    #[text("{sampler} samples page walks, not time")]
    SamplesPageWalks {
        /// Name of the sampler.
        sampler: String,
    },
    /// Sampling failed.
    #[text("{error}")]
    Failed {
        /// Error.
        error: String,
    },
}

/// Share of runnable time spent waiting for a processor above which wall time misleads.
const MAX_WAIT: f64 = 0.2;

/// Time by which modes are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DecidingTime {
    /// Time from the first instruction to the end.
    #[default]
    Wall,
    /// User and system time: other programs occupied the processors.
    Cpu,
}

impl DecidingTime {
    /// CPU time, if `base` waited for a processor more than a fifth of its runnable time.
    pub fn of(base: &ModeReport) -> Self {
        match base.processor_wait_ratio {
            Some(ratio) if ratio > MAX_WAIT => Self::Cpu,
            _ => Self::Wall,
        }
    }
}

/// Speedup of `other` over `base`, round by round.
///
/// A round with a failed run does not count. `None` if no round counts, or one took no time.
pub fn speedup(time: DecidingTime, base: &[Run], other: &[Run]) -> Option<PairedRatio> {
    let succeeded = |pair: &(&Run, &Run)| pair.0.ending.is_success() && pair.1.ending.is_success();
    let rounds = base.iter().zip(other).filter(succeeded);
    let seconds = |run: &Run| match time {
        DecidingTime::Wall => run.wall_seconds,
        DecidingTime::Cpu => run.cpu_seconds(),
    };
    PairedRatio::of(rounds.map(|(base, other)| (seconds(base), seconds(other))))
}

/// Further rounds of the best mode, of `base`, and of the same allocator without huge pages if that
/// was run before. The first rounds say nothing about these.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Confirmation {
    /// Mode.
    pub mode: Mode,
    /// Effect in these rounds.
    #[serde(flatten)]
    pub effect: Effect,
    /// Rounds that do not count, because the program failed with the mode and not with `base`.
    #[serde(default)]
    pub failed_rounds: u32,
    /// Speedup over `base` in the same round.
    pub speedup_over_base: Option<PairedRatio>,
    /// The same by CPU time.
    #[serde(default)]
    pub cpu_speedup_over_base: Option<PairedRatio>,
    /// The same allocator without huge pages.
    #[serde(default)]
    pub same_allocator: Option<SameAllocator>,
}

impl Confirmation {
    /// Summarises runs of `base` and of `mode`, interleaved.
    pub fn of(
        time: DecidingTime,
        mode: &ModeReport,
        same_allocator: Option<&ModeReport>,
        base: &[Run],
        runs: &[Run],
    ) -> Self {
        let fails = |pair: &(&Run, &Run)| pair.0.ending.is_success() && !pair.1.ending.is_success();
        Self {
            mode: mode.mode,
            effect: mode.effect.clone(),
            failed_rounds: count(base.iter().zip(runs).filter(fails).count()),
            speedup_over_base: speedup(DecidingTime::Wall, base, runs),
            cpu_speedup_over_base: speedup(DecidingTime::Cpu, base, runs),
            same_allocator: same_allocator.and_then(|other| SameAllocator::of(time, mode, other)),
        }
    }
    /// Speedup over `base` by `time`.
    pub const fn speedup(&self, time: DecidingTime) -> Option<PairedRatio> {
        match time {
            DecidingTime::Wall => self.speedup_over_base,
            DecidingTime::Cpu => self.cpu_speedup_over_base,
        }
    }
}

/// An allocator without huge pages, beside the same with them, by the deciding time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SameAllocator {
    /// Mode without huge pages.
    pub mode: Mode,
    /// Its speedup over `base` in the same round.
    pub speedup_over_base: PairedRatio,
    /// Speedup of the mode with huge pages over it, in the same round.
    pub speedup_over_same_allocator: PairedRatio,
}

impl SameAllocator {
    /// The comparison of `mode` with `same_allocator`, if both were run and the latter took effect.
    pub fn of(time: DecidingTime, mode: &ModeReport, same_allocator: &ModeReport) -> Option<Self> {
        let served = same_allocator.effect.took_effect == Some(true)
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

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use hugepilot_record::Ending;

    use super::*;
    use crate::run::{EffectCause, Peak};

    pub(super) fn run(wall_seconds: f64, page_faults: u64, ending: Ending) -> Run {
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

    fn runs(seconds: &[f64]) -> Vec<Run> {
        seconds.iter().map(|&wall| run(wall, 1, Ending::Exited(0))).collect()
    }

    #[test]
    fn runs_are_compared_within_their_round() {
        // The machine slows down from round to round, and the mode is twice as fast in each.
        let (base, mut thp) = (runs(&[2.0, 4.0, 8.0]), runs(&[1.0, 2.0, 4.0]));
        let twice = |rounds| PairedRatio {
            low: 2.0,
            median: 2.0,
            high: 2.0,
            rounds,
            faster_rounds: rounds,
        };
        assert_eq!(speedup(DecidingTime::Wall, &base, &thp), Some(twice(3)));
        thp[1] = run(0.1, 1, Ending::Exited(1));
        let without = speedup(DecidingTime::Wall, &base, &thp);
        assert_eq!(without, Some(twice(2)), "a failed run is not fast");
        assert_eq!(speedup(DecidingTime::Wall, &thp[1..2], &thp[..1]), None);
        assert_eq!(speedup(DecidingTime::Wall, &runs(&[1.0]), &[]), None);
        let no_time = speedup(DecidingTime::Wall, &runs(&[1.0]), &runs(&[0.0]));
        assert_eq!(no_time, None, "no time, no ratio");
        let mode = ModeReport::unavailable(Mode::Thp, EffectCause::Unknown);
        let found =
            Confirmation::of(DecidingTime::Wall, &mode, None, &runs(&[2.0, 4.0, 3.0]), &thp);
        assert_eq!(found.failed_rounds, 1);
        let ratio =
            PairedRatio { low: 0.75, median: 1.375, high: 2.0, rounds: 2, faster_rounds: 1 };
        assert_eq!(found.speedup_over_base, Some(ratio), "the failed round does not count");
    }
}
