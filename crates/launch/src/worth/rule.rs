//! Rule that separates a gain from noise.
//!
//! With nine modes and five rounds of noise, some mode often beats `base` in each round, and that
//! one becomes the best. So these rounds only choose the best, and further rounds of its own judge
//! it (Cox, *A note on data-dependent significance levels*, Biometrika 1975). There the sign test
//! counts the rounds in which it was faster (Conover, *Practical Nonparametric Statistics*, 3.4):
//! without an effect each round is the toss of a coin, whatever the size and the shape of the
//! noise.

use hugepilot_reports::compare::{Confirmation, DecidingTime};
use hugepilot_stats::{MIN_ROUNDS, PairedRatio, is_significant};

/// Smallest gain worth a change of how a program is started.
pub(super) const MIN_GAIN: f64 = 1.02;

/// Confirmation rounds after `rounds` first rounds: the same number, but enough for the sign test.
pub const fn confirming_rounds(rounds: u32) -> u32 {
    if rounds < MIN_ROUNDS { MIN_ROUNDS } else { rounds }
}

/// Whether the mode took effect, is significantly faster, and never failed.
pub(super) fn is_confirmed(confirmation: &Confirmation, time: DecidingTime) -> bool {
    let took_effect = confirmation.effect.took_effect == Some(true);
    let is_faster = confirmation.speedup(time).is_some_and(is_faster);
    took_effect && is_faster && confirmation.failed_rounds == 0
}

/// Whether it is faster in significantly many rounds, and by enough.
pub(super) fn is_faster(ratio: PairedRatio) -> bool {
    is_significant(ratio.faster_rounds, ratio.rounds) && ratio.median >= MIN_GAIN
}

/// Whether it is slower in significantly many rounds, and by enough.
pub(super) fn is_slower(ratio: PairedRatio) -> bool {
    is_significant(ratio.rounds - ratio.faster_rounds, ratio.rounds)
        && ratio.median <= 1.0 / MIN_GAIN
}

/// Whether it is faster by [`is_faster`], or in all rounds if these are too few for the test.
pub(super) fn seems_faster(ratio: PairedRatio) -> bool {
    let all = ratio.rounds < MIN_ROUNDS && ratio.faster_rounds == ratio.rounds;
    is_faster(ratio) || all && ratio.median >= MIN_GAIN
}
