//! Kronecker graphs of Graph500, as the GAP benchmark suite makes them. Their few hubs are the
//! target of page-size management.
//!
//! Both vertices of an edge are drawn bit by bit, highest bit first. One random number falls into
//! one of four quadrants with probabilities A = 0.57, B = 0.19, C = 0.19 and D = 0.05. Comparisons
//! with three bounds determine the quadrant, so the numbers of a block become two streams of bits,
//! 16 at a time and without a branch. An edge is a run of `scale` bits of each stream.

use super::permutation::Permutation;
use super::{BLOCK, Weights, block_of, numbers};
use crate::source::{Edge, EdgeSource};

/// Conversion of a random number to a quadrant. The resulting graphs differ in a few edges from
/// scale 16 on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rng {
    /// Integers, as in the suite since October 2023: the same with every compiler.
    #[default]
    Whole,
    /// 32-bit floating point, as before: the graphs of the papers, and published GAP graphs.
    Float,
}

/// Kronecker graph of 2^`scale` vertices, with `degree` times as many edges before deduplication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kronecker {
    /// Base-2 logarithm of the vertices, at most 32.
    pub scale: u32,
    /// Edges per vertex.
    pub degree: u64,
    /// Whether edges have weights.
    pub weighted: bool,
    /// Conversion of random numbers.
    pub rng: Rng,
    /// Whether vertices are relabelled, so that an ID does not reveal a degree. The shuffle of the
    /// suite depends on the C++ library; this one is the same everywhere.
    pub shuffled: bool,
}

/// Least random numbers that yield a 1 bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bounds {
    /// Bound of the source vertex.
    from: u32,
    /// Bound of the target vertex for numbers below `from`.
    to: u32,
    /// Bound of the target vertex for numbers from `from` on.
    both: u32,
}

impl Bounds {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // as the suite does
    fn of(rng: Rng) -> Self {
        match rng {
            Rng::Whole => {
                let part = |share: f64| (share * f64::from(u32::MAX)) as u32;
                let (a, b, c) = (part(0.57), part(0.19), part(0.19));
                Self { from: a + b, to: a + 1, both: a + b + c + 1 }
            }
            Rng::Float => {
                let (a, b, c) = (0.57f32, 0.19f32, 0.19f32);
                Self {
                    from: least(|share| share >= a + b),
                    to: least(|share| share > a),
                    both: least(|share| share > a + b + c),
                }
            }
        }
    }
}

/// Finds the least number whose share of 2³², as a C++ library computes it, satisfies a monotone
/// condition.
#[allow(clippy::cast_precision_loss)] // the loss is what makes these graphs differ
fn least(condition: impl Fn(f32) -> bool) -> u32 {
    let share = |number: u32| (number as f32 / 4_294_967_296.0).min(1.0 - f32::EPSILON / 2.0);
    let (mut low, mut high) = (0, u32::MAX);
    while low < high {
        let middle = low + (high - low) / 2;
        if condition(share(middle)) { high = middle } else { low = middle + 1 }
    }
    low
}

/// Streams of bits, each bit from one random number.
struct Streams {
    from: Vec<u16>,
    to: Vec<u16>,
}

impl Streams {
    /// Draws at least `bits` bits.
    fn of(block: usize, bits: usize, bounds: Bounds) -> Self {
        let (mut numbers, words) = (numbers(block), bits.div_ceil(16));
        // Three more words, so that a run of bits at any position is one read.
        let mut streams =
            Self { from: Vec::with_capacity(words + 42), to: Vec::with_capacity(words + 42) };
        while streams.from.len() < words + 3 {
            for sixteen in numbers.words().chunks_exact(16) {
                let (mut from, mut to) = (0, 0);
                for (i, &number) in sixteen.iter().enumerate() {
                    let begins = number >= bounds.from;
                    let ends = (number >= bounds.to && !begins) || number >= bounds.both;
                    from |= u16::from(begins) << i;
                    to |= u16::from(ends) << i;
                }
                streams.from.push(from);
                streams.to.push(to);
            }
        }
        streams
    }

    /// Reads up to 32 bits from `at` as a number, highest bit first.
    #[inline]
    fn run(stream: &[u16], at: usize, bits: u32) -> u64 {
        let four = &stream[at / 16..at / 16 + 4];
        let word = four.iter().rev().fold(0, |word, &part| word << 16 | u64::from(part));
        (word >> (at % 16)).reverse_bits().unbounded_shr(64 - bits)
    }
}

impl EdgeSource for Kronecker {
    super::scaled!();
    fn block(&self, block: usize, mut each: impl FnMut(Edge)) {
        const { assert!(BLOCK <= 1 << 18) };
        let (range, scale) = (block_of(block, self.edges()), self.scale as usize);
        #[allow(clippy::cast_possible_truncation)] // at most a block
        let count = (range.end - range.start) as usize;
        let streams = Streams::of(block, count * scale, Bounds::of(self.rng));
        let permutation = self.shuffled.then(|| Permutation::new(self.scale));
        let name = |number| permutation.map_or(number, |permutation| permutation.of(number));
        let mut weights = self.weighted.then(|| Weights::of(block));
        for i in 0..count {
            let from = name(Streams::run(&streams.from, i * scale, self.scale));
            let to = name(Streams::run(&streams.to, i * scale, self.scale));
            each(Edge { from, to, weight: weights.as_mut().map_or(0, Weights::next) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reference implementation: one number per bit, one comparison after the other.
    fn by_reference(kronecker: &Kronecker, block: usize) -> Vec<(u64, u64)> {
        let mut drawn = numbers(block);
        let edge = |_| {
            let (mut from, mut to) = (0, 0);
            for _ in 0..kronecker.scale {
                let number = drawn.next();
                #[allow(clippy::cast_precision_loss)]
                let (below, upper, corner) = match kronecker.rng {
                    Rng::Whole => {
                        let (a, b, c) = (2_448_131_358u32, 816_043_786, 816_043_786);
                        (number < a + b, number > a, number > a + b + c)
                    }
                    Rng::Float => {
                        let share = number as f32 / 4_294_967_296.0f32;
                        (share < 0.57 + 0.19, share > 0.57f32, share > 0.57 + 0.19 + 0.19)
                    }
                };
                (from, to) = (from << 1, to << 1);
                if below {
                    to += u64::from(upper);
                } else {
                    from += 1;
                    to += u64::from(corner);
                }
            }
            (from, to)
        };
        block_of(block, kronecker.edges()).map(edge).collect()
    }

    #[test]
    fn bit_streams_match_the_reference() {
        for (scale, degree) in [(0, 3), (1, 16), (10, 16), (15, 9), (17, 3), (31, 1)] {
            for rng in [Rng::Whole, Rng::Float] {
                let kronecker = Kronecker { scale, degree, weighted: false, rng, shuffled: false };
                let last = kronecker.blocks().min(3) - 1;
                let mut edges = Vec::new();
                kronecker.block(last, |edge| edges.push((edge.from, edge.to)));
                assert_eq!(edges, by_reference(&kronecker, last), "scale {scale}, {rng:?}");
            }
        }
    }
}
