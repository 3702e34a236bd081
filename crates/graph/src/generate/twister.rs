//! Mersenne Twister of 32 bits (Matsumoto and Nishimura, 1998), all words of a state at a time.
//!
//! The graphs of the GAP benchmark suite are defined by it. Loops over 624 words compile to vector
//! instructions.

/// Words of the state.
const WORDS: usize = 624;
/// Distance of the words that are mixed.
const SHIFT: usize = 397;

/// Sequence of 32-bit numbers.
#[derive(Clone, Debug)]
pub(super) struct Twister {
    state: [u32; WORDS],
    ready: [u32; WORDS],
    next: usize,
}

impl Twister {
    pub(super) fn new(seed: u32) -> Self {
        let mut state = [seed; WORDS];
        for i in 1..WORDS {
            let before = state[i - 1];
            #[allow(clippy::cast_possible_truncation)] // below 624
            let more = i as u32;
            state[i] = 1_812_433_253u32.wrapping_mul(before ^ (before >> 30)).wrapping_add(more);
        }
        Self { state, ready: [0; WORDS], next: WORDS }
    }

    #[inline]
    pub(super) fn next(&mut self) -> u32 {
        if self.next == WORDS {
            self.refill();
        }
        self.next += 1;
        self.ready[self.next - 1]
    }

    /// Returns the next 624 numbers. Discards the rest of the previous ones.
    pub(super) fn words(&mut self) -> &[u32; WORDS] {
        self.refill();
        self.next = WORDS;
        &self.ready
    }

    fn refill(&mut self) {
        let mix = |upper: u32, lower: u32| {
            let bits = (upper & 0x8000_0000) | (lower & 0x7FFF_FFFF);
            (bits >> 1) ^ (0u32.wrapping_sub(bits & 1) & 0x9908_B0DF)
        };
        let state = &mut self.state;
        // Each loop reads only words that it has not written, or wrote at least 227 steps before.
        for i in 0..WORDS - SHIFT {
            state[i] = state[i + SHIFT] ^ mix(state[i], state[i + 1]);
        }
        for i in WORDS - SHIFT..WORDS - 1 {
            state[i] = state[i + SHIFT - WORDS] ^ mix(state[i], state[i + 1]);
        }
        state[WORDS - 1] = state[SHIFT - 1] ^ mix(state[WORDS - 1], state[0]);
        for (word, ready) in state.iter().zip(&mut self.ready) {
            let mut word = *word;
            word ^= word >> 11;
            word ^= (word << 7) & 0x9D2C_5680;
            word ^= (word << 15) & 0xEFC6_0000;
            *ready = word ^ (word >> 18);
        }
        self.next = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The C++ standard states the 10,000th number of the default seed ([rand.predef]).
    #[test]
    fn the_ten_thousandth_number_is_that_of_the_standard() {
        let mut twister = Twister::new(5489);
        let last = (0..10_000).map(|_| twister.next()).last();
        assert_eq!(last, Some(4_123_659_995));
    }

    #[test]
    fn words_equal_single_numbers() {
        let (mut one, mut all) = (Twister::new(7), Twister::new(7));
        for _ in 0..3 {
            let words = *all.words();
            assert!(words.iter().all(|&word| word == one.next()));
        }
    }
}
