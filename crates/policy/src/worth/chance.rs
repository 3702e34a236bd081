//! Whether what looks faster is, and not only by luck.
//!
//! Of nine modes in five rounds of noise, some mode often beats `base` in each, and it is the one that is then called the best. So
//! the best is only chosen by these rounds, and judged by further ones of its own (Cox, *A note on data-dependent significance
//! levels*, Biometrika 1975). There the sign test counts the rounds in which it was faster (Conover, *Practical Nonparametric
//! Statistics*, 3.4): without any effect each is the toss of a coin, however large the noise and whatever its shape.

use hugepilot_record::compare::{Confirmation, Ratio};

/// How often chance alone may say yes.
const LEVEL: f64 = 0.05;
/// Of fewer rounds chance wins all more often than that.
pub(super) const MIN_ROUNDS: u32 = 5;
/// A gain below this is none to change a program's start for.
pub(super) const MIN_GAIN: f64 = 1.02;

/// Further rounds for the best mode of `rounds`: as many again, and enough to tell.
pub const fn confirming_rounds(rounds: u32) -> u32 {
    if rounds < MIN_ROUNDS { MIN_ROUNDS } else { rounds }
}

/// Whether it was faster in so many of them that it is, and by enough, by its pages, and the program never failed with it.
pub(super) fn is_confirmed(found: &Confirmation) -> bool {
    let took = found.took_effect == Some(true);
    took && found.speedup_over_base.is_some_and(is_faster) && found.failed_rounds == 0
}

/// Whether it was faster in so many rounds that it is, and by enough.
pub(super) fn is_faster(ratio: Ratio) -> bool {
    is_no_luck(ratio.faster_rounds, ratio.rounds) && ratio.median >= MIN_GAIN
}

/// The same of slower.
pub(super) fn is_slower(ratio: Ratio) -> bool {
    is_no_luck(ratio.rounds - ratio.faster_rounds, ratio.rounds) && ratio.median <= 1.0 / MIN_GAIN
}

/// As [`is_faster`], or where there are too few rounds to tell, faster in all of them.
pub(super) fn looks_faster(ratio: Ratio) -> bool {
    let all = ratio.rounds < MIN_ROUNDS && ratio.faster_rounds == ratio.rounds;
    is_faster(ratio) || all && ratio.median >= MIN_GAIN
}

fn is_no_luck(won: u32, rounds: u32) -> bool {
    enough(rounds).is_some_and(|enough| won >= enough)
}

/// The least number of heads that so many tosses of a coin give in at most [`LEVEL`] of all cases; `None` where not even all
/// of them do.
fn enough(tosses: u32) -> Option<u32> {
    let (mut chance, mut sum) = (0.5_f64.powf(f64::from(tosses)), 0.0);
    let mut least = None;
    for heads in (0..=tosses).rev() {
        sum += chance;
        if sum > LEVEL {
            break;
        }
        least = Some(heads);
        chance *= f64::from(heads) / f64::from(tosses - heads + 1);
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_heads_are_no_luck() {
        // Conover's table of the binomial distribution, p = 0.5: the least k with P(X >= k) <= 0.05.
        let table = [
            (0, None),
            (4, None),
            (5, Some(5)),
            (6, Some(6)),
            (8, Some(7)),
            (10, Some(9)),
            (20, Some(15)),
        ];
        for (tosses, heads) in table {
            assert_eq!(enough(tosses), heads, "{tosses}");
        }
        // By the normal distribution: 500 + 1.645 · √250 and half a toss.
        assert_eq!(enough(1000), Some(527));
        assert!((1..=200).all(|rounds| enough(confirming_rounds(rounds)).is_some()));
    }
}
