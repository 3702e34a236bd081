//! Random choices, repeatable by seed.

use std::time::{SystemTime, UNIX_EPOCH};

use hugepilot_stats::{SplitMix64, mix};

/// Seed of six digits at most, from the clock.
pub(crate) fn new_seed() -> u64 {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::from(clock.subsec_nanos()) % 1_000_000
}

/// Random choices.
#[derive(Clone, Debug)]
pub(crate) struct Random(SplitMix64);

impl Random {
    /// Stream number `stream` of `seed`.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let first = mix(seed);
        Self(SplitMix64::new(first ^ stream.wrapping_mul(0xd1b5_4a32_d192_ed03)))
    }

    /// Number from 0 to `limit` − 1; `limit` must not be 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0.bits() % limit
    }

    /// Whether an event with probability 1 / `n` happened.
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Picks one of `choices`, which must not be empty.
    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        let chosen = self.below(choices.len() as u64);
        choices[usize::try_from(chosen).expect("an index")]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_streams_differ() {
        let numbers = |seed, stream| -> Vec<u64> {
            let mut random = Random::new(seed, stream);
            (0..100).map(|_| random.below(1 << 40)).collect()
        };
        assert_eq!(numbers(1, 0), numbers(1, 0));
        assert_ne!(numbers(1, 0), numbers(1, 1));
        assert_ne!(numbers(1, 0), numbers(2, 0));
    }

    #[test]
    fn every_choice_comes() {
        let mut random = Random::new(7, 0);
        let mut counts = [0; 5];
        for _ in 0..1000 {
            counts[random.pick(&[0, 1, 2, 3, 4])] += 1;
        }
        assert!(counts.iter().all(|&count| count > 150), "{counts:?}");
        assert_eq!((0..1000).filter(|_| random.one_in(1)).count(), 1000);
    }
}
