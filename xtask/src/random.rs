//! Random choices, repeatable by seed.

/// SplitMix64 (Steele and others, 2014).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Stream number `stream` of `seed`.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut random = Self(seed);
        Self(random.bits() ^ stream.wrapping_mul(0xd1b5_4a32_d192_ed03))
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Number from 0 to `limit` − 1; `limit` must not be 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.bits() % limit
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

    /// Puts `items` into a random order, each with the same probability (Fisher and Yates).
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let chosen = self.below(last as u64 + 1);
            items.swap(last, usize::try_from(chosen).expect("an index"));
        }
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

    #[test]
    fn every_order_comes_equally_often_and_repeats_with_its_seed() {
        let order = |stream| {
            let mut items = [0, 1, 2];
            Random::new(7, stream).shuffle(&mut items);
            items
        };
        let mut counts = std::collections::BTreeMap::new();
        for stream in 0..6000 {
            assert_eq!(order(stream), order(stream));
            *counts.entry(order(stream)).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 6);
        assert!(counts.values().all(|count| (800..1200).contains(count)), "{counts:?}");
    }
}
