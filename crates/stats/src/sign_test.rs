//! One-sided sign test (Conover, *Practical Nonparametric Statistics*, 3.4).
//!
//! Without an effect each round is the toss of a coin, whatever the distribution of the noise.

/// Probability of a false positive.
pub const LEVEL: f64 = 0.05;

/// Fewest rounds that can reach [`LEVEL`].
pub const MIN_ROUNDS: u32 = 5;

/// Whether `wins` of `rounds` are more than chance gives at [`LEVEL`].
pub fn is_significant(wins: u32, rounds: u32) -> bool {
    required_wins(rounds).is_some_and(|required| wins >= required)
}

/// Fewest wins in `rounds` that are significant at [`LEVEL`]; `None` if even all of them are not.
pub fn required_wins(rounds: u32) -> Option<u32> {
    let (mut term, mut tail) = (0.5_f64.powf(f64::from(rounds)), 0.0);
    let mut required = None;
    for wins in (0..=rounds).rev() {
        tail += term;
        if tail > LEVEL {
            break;
        }
        required = Some(wins);
        term *= f64::from(wins) / f64::from(rounds - wins + 1);
    }
    required
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn required_wins_match_the_published_table() {
        // Conover's table of the binomial distribution, p = 0.5: least k with P(X >= k) <= 0.05.
        let table = [
            (0, None),
            (4, None),
            (5, Some(5)),
            (6, Some(6)),
            (8, Some(7)),
            (10, Some(9)),
            (20, Some(15)),
        ];
        for (rounds, wins) in table {
            assert_eq!(required_wins(rounds), wins, "{rounds}");
        }
        // Normal approximation: 500 + 1.645 · √250, and half a toss.
        assert_eq!(required_wins(1000), Some(527));
    }

    #[test]
    fn the_fewest_rounds_can_be_significant() {
        assert!(!is_significant(MIN_ROUNDS - 1, MIN_ROUNDS - 1));
        assert!(is_significant(MIN_ROUNDS, MIN_ROUNDS) && !is_significant(4, MIN_ROUNDS));
    }
}
