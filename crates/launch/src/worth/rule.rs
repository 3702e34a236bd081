//! Whether what looks faster is, and not only by luck.
//!
//! Of nine modes in five rounds of noise, some mode often beats `base` in each, and it is the one that is then called the best. So
//! the best is only chosen by these rounds, and judged by further ones of its own (Cox, *A note on data-dependent significance
//! levels*, Biometrika 1975). There the sign test counts the rounds in which it was faster (Conover, *Practical Nonparametric
//! Statistics*, 3.4): without any effect each is the toss of a coin, however large the noise and whatever its shape.

use hugepilot_record::compare::{Confirmation, DecidingTime};
use hugepilot_stats::{MIN_ROUNDS, PairedRatio, is_significant};

/// A gain below this is none to change a program's start for.
pub(super) const MIN_GAIN: f64 = 1.02;

/// Further rounds for the best mode of `rounds`: as many again, and enough to tell.
pub const fn confirming_rounds(rounds: u32) -> u32 {
    if rounds < MIN_ROUNDS { MIN_ROUNDS } else { rounds }
}

/// Whether it was faster in so many of them that it is, and by enough, by its pages, and the program never failed with it.
pub(super) fn is_confirmed(found: &Confirmation, time: DecidingTime) -> bool {
    let took = found.took_effect == Some(true);
    took && found.speedup(time).is_some_and(is_faster) && found.failed_rounds == 0
}

/// Whether it was faster in so many rounds that it is, and by enough.
pub(super) fn is_faster(ratio: PairedRatio) -> bool {
    is_significant(ratio.faster_rounds, ratio.rounds) && ratio.median >= MIN_GAIN
}

/// The same of slower.
pub(super) fn is_slower(ratio: PairedRatio) -> bool {
    is_significant(ratio.rounds - ratio.faster_rounds, ratio.rounds)
        && ratio.median <= 1.0 / MIN_GAIN
}

/// As [`is_faster`], or where there are too few rounds to tell, faster in all of them.
pub(super) fn looks_faster(ratio: PairedRatio) -> bool {
    let all = ratio.rounds < MIN_ROUNDS && ratio.faster_rounds == ratio.rounds;
    is_faster(ratio) || all && ratio.median >= MIN_GAIN
}
