//! Verdict of a comparison.

use hugepilot_record::Mode;
use hugepilot_stats::PairedRatio;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SameAllocator;

/// Verdict: the conclusion, and the source of the gain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// Conclusion.
    #[serde(flatten)]
    pub conclusion: Conclusion,
    /// Source of the gain of the best mode; `None` if no mode had huge pages.
    pub gain: Option<GainSource>,
    /// The allocator of the best mode without huge pages; `None` if the mode replaces none, or that
    /// was not run.
    pub same_allocator: Option<SameAllocator>,
}

impl Verdict {
    /// A verdict without a best mode.
    pub const fn without_best(conclusion: Conclusion) -> Self {
        Self { conclusion, gain: None, same_allocator: None }
    }
    /// Whether a mode pays.
    pub const fn pays(&self) -> bool {
        matches!(self.conclusion, Conclusion::Pays(_) | Conclusion::Confirmed(_))
    }
}

impl Default for Verdict {
    fn default() -> Self {
        Self::without_best(Conclusion::NoBase)
    }
}

/// Conclusion of a comparison. JSON carries the variant as `code`, and the whole verdict as `text`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum Conclusion {
    /// `base` was not run.
    NoBase,
    /// Every run of `base` failed.
    CommandFails,
    /// No mode had huge pages.
    NoHugePages,
    /// The only mode is faster in enough rounds, and by enough.
    Pays(BestMode),
    /// The best of several modes is so in the confirmation rounds.
    Confirmed(BestMode),
    /// The best of several modes is not so in the confirmation rounds; the ratio is of the first
    /// rounds.
    NotConfirmed(BestMode),
    /// The best of several modes was not run again.
    NotRepeated(BestMode),
    /// The only mode was faster in each round, but the rounds are too few.
    TooFewRounds(BestMode),
    /// Every mode with huge pages is slower.
    Slower(BestMode),
    /// The differences are within the noise.
    WithinNoise(BestMode),
    /// No mode gains enough.
    NoGain(BestMode),
}

/// Mode with the best median.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BestMode {
    /// Mode.
    pub mode: Mode,
    /// Speedup over `base` in the same round, by the deciding time.
    pub speedup: PairedRatio,
    /// The same by CPU time; `None` if not measured.
    pub cpu_speedup: Option<PairedRatio>,
}

/// Source of a gain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GainSource {
    /// Huge pages.
    Pages,
    /// The allocator; its huge pages add nothing.
    Allocator,
    /// Unknown: the allocator was not run alone, or the difference is not significant.
    Unknown,
}
