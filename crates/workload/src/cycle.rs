//! A random cycle through cache lines: each load yields the address of the next.
//!
//! The order is Sattolo's shuffle (S. Sattolo, "An algorithm to generate a random cyclic
//! permutation", 1986): a random permutation that is a single cycle, so a walk from any line visits
//! all lines before it repeats.

use super::rng::Rng;

/// Words in a cache line of 64 bytes. Larger lines are visited more than once per walk, which is
/// harmless.
const WORDS_PER_LINE: usize = 8;

/// Cache lines of several blocks of memory of equal size, numbered in order.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    /// First word of each block.
    pub(crate) starts: Vec<usize>,
    /// Words of each block.
    pub(crate) words: usize,
}

impl Lines {
    /// Returns the number of lines.
    pub(crate) fn len(&self) -> usize {
        self.starts.len() * (self.words / WORDS_PER_LINE)
    }

    /// Returns the first word of a line, by its index.
    pub(crate) fn word(&self, number: usize) -> usize {
        let per_piece = self.words / WORDS_PER_LINE;
        self.starts[number / per_piece] + number % per_piece * WORDS_PER_LINE
    }

    /// Writes the cycle into `memory`. One random access per line: about 2 s per GiB on base pages.
    pub(crate) fn link(&self, memory: &mut [u64], rng: &mut Rng) {
        for word in (0..self.len()).map(|number| self.word(number)) {
            memory[word] = word as u64;
        }
        for number in (1..self.len()).rev() {
            memory.swap(self.word(number), self.word(rng.below(number)));
        }
    }

    /// Returns the first word of walker `index` of `count`.
    pub(crate) fn start(&self, index: usize, count: usize) -> usize {
        self.word(self.len() / count * index)
    }
}

/// Walks `steps` lines from word `at` and returns the last word: about 100 ns a step from DRAM.
#[inline(never)]
pub(crate) fn chase(memory: &[u64], mut at: usize, steps: u64) -> usize {
    for _ in 0..steps {
        at = memory[at] as usize;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cycle_is_single_and_visits_exactly_the_lines() {
        for seed in 0..20 {
            let lines = Lines { starts: vec![640, 0, 256], words: 64 };
            let mut memory = vec![u64::MAX; 704];
            lines.link(&mut memory, &mut Rng::new(seed, 0));
            let mut visited = Vec::new();
            let mut at = lines.start(1, 2);
            for _ in 0..lines.len() {
                visited.push(at);
                at = chase(&memory, at, 1);
            }
            assert_eq!(at, lines.start(1, 2), "back where it began");
            visited.sort_unstable();
            let expected: Vec<usize> = [0, 256, 640]
                .into_iter()
                .flat_map(|start| (start..start + 64).step_by(8))
                .collect();
            assert_eq!(visited, expected);
            assert_eq!(memory.iter().filter(|&&word| word != u64::MAX).count(), 24);
        }
    }

    #[test]
    fn seeds_give_different_cycles() {
        let lines = Lines { starts: vec![0], words: 1 << 12 };
        let linked = |seed| {
            let mut memory = vec![0; 1 << 12];
            lines.link(&mut memory, &mut Rng::new(seed, 0));
            memory
        };
        assert_eq!(linked(1), linked(1));
        assert_ne!(linked(1), linked(2));
    }
}
