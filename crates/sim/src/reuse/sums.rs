//! Tree of sums: how many bits of a row of words are set before a word.
//!
//! Each child of a node has the sum of its siblings before it. There are as many steps for each
//! word, so that no branch depends on it.

/// Children of a node of the two lowest levels. A node has the size of a cache line, and its sums
/// are below 2^16: two levels have 1,024 words.
const LOW: usize = 32;
/// Children of a node above.
const HIGH: usize = 16;

/// The tree. Lanes of 16 bits need half the instructions of lanes of 32 bits.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    low: [Vec<[u16; LOW]>; 2],
    /// The levels above, from below.
    high: Vec<Vec<[u32; HIGH]>>,
}

impl Sums {
    /// Creates a tree of words without set bits.
    pub(super) fn new(words: usize) -> Self {
        let first = words.div_ceil(LOW);
        let mut places = first.div_ceil(LOW);
        let low = [vec![[0; LOW]; first], vec![[0; LOW]; places]];
        let mut high = Vec::new();
        while places > 1 {
            places = places.div_ceil(HIGH);
            high.push(vec![[0; HIGH]; places]);
        }
        Self { low, high }
    }

    /// Removes a set bit of `word`. Returns the set bits of all words before it.
    #[inline]
    pub(super) fn remove(&mut self, word: usize) -> u32 {
        let (mut place, mut sum) = (word, 0);
        for level in &mut self.low {
            let (node, child) = (&mut level[place / LOW], place % LOW);
            sum += u32::from(node[child]);
            let masks = &MASKS_LOW[LOW - 1 - child..][..LOW];
            for (sum, mask) in node.iter_mut().zip(masks) {
                *sum = sum.wrapping_add(*mask);
            }
            place /= LOW;
        }
        for level in &mut self.high {
            let (node, child) = (&mut level[place / HIGH], place % HIGH);
            sum += node[child];
            let masks = &MASKS_HIGH[HIGH - 1 - child..][..HIGH];
            for (sum, mask) in node.iter_mut().zip(masks) {
                *sum = sum.wrapping_add(*mask);
            }
            place /= HIGH;
        }
        sum
    }

    /// Adds set bits of a word.
    #[allow(clippy::cast_possible_truncation)]
    pub(super) fn add(&mut self, word: usize, count: u32) {
        let mut place = word;
        for level in &mut self.low {
            for sum in &mut level[place / LOW][place % LOW + 1..] {
                *sum += count as u16;
            }
            place /= LOW;
        }
        for level in &mut self.high {
            for sum in &mut level[place / HIGH][place % HIGH + 1..] {
                *sum += count;
            }
            place /= HIGH;
        }
    }
}

/// A window of it has -1 for each child after one. Compilers make vectors of that, not of
/// comparisons.
const MASKS_LOW: [u16; 2 * LOW] = {
    let mut masks = [0; 2 * LOW];
    let mut at = LOW;
    while at < masks.len() {
        masks[at] = u16::MAX;
        at += 1;
    }
    masks
};
const MASKS_HIGH: [u32; 2 * HIGH] = {
    let mut masks = [0; 2 * HIGH];
    let mut at = HIGH;
    while at < masks.len() {
        masks[at] = u32::MAX;
        at += 1;
    }
    masks
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Words for all levels, against a sum of the words before.
    #[test]
    fn sums_are_those_of_the_words_before() {
        let mut words: Vec<u64> =
            (1..20_000u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
        let mut sums = Sums::new(words.len());
        for (word, bits) in words.iter().enumerate() {
            sums.add(word, bits.count_ones());
        }
        for at in (0..words.len()).rev().step_by(7).chain((0..words.len()).step_by(13)) {
            let expected: u32 = words[..at].iter().map(|word| word.count_ones()).sum();
            words[at] &= words[at] - 1;
            assert_eq!(sums.remove(at), expected, "word {at}");
        }
    }
}
