//! Generated graphs, the same on every machine and for any number of threads.

mod grid;
mod kronecker;
mod permutation;
mod twister;
mod uniform;

pub use grid::Grid;
pub use kronecker::{Kronecker, Rng};
pub use uniform::Uniform;

pub(crate) use self::permutation::Permutation;
use self::twister::Twister;

/// Seed of the GAP benchmark suite.
pub const SEED: u32 = 27_491_095;
/// Edges between two seedings of the random numbers, as in the GAP benchmark suite.
const BLOCK: u64 = 1 << 18;

/// Sizes of a source with 2^`scale` vertices and `degree` times as many edges.
macro_rules! scaled {
    () => {
        fn vertices(&self) -> u64 {
            1 << self.scale
        }
        fn edges(&self) -> u64 {
            self.degree << self.scale
        }
        fn is_weighted(&self) -> bool {
            self.weighted
        }
        fn blocks(&self) -> usize {
            super::blocks(self.edges())
        }
    };
}
use scaled;

/// Returns the number of blocks.
fn blocks(edges: u64) -> usize {
    usize::try_from(edges.div_ceil(BLOCK)).unwrap_or(usize::MAX)
}

/// Returns the edge indices of a block.
fn block_of(block: usize, edges: u64) -> std::ops::Range<u64> {
    let start = block as u64 * BLOCK;
    start..(start + BLOCK).min(edges)
}

/// Returns the random numbers of a block.
#[allow(clippy::cast_possible_truncation)] // seeds wrap, as those of the suite do
fn numbers(block: usize) -> Twister {
    Twister::new(SEED.wrapping_add(block as u32))
}

/// Weights from 1 to 255 for the edges of a block, as in the GAP benchmark suite: in edge order,
/// before deduplication.
struct Weights(Twister);

impl Weights {
    fn of(block: usize) -> Self {
        Self(numbers(block))
    }

    fn next(&mut self) -> u64 {
        // 2³² − 1 is a multiple of 255: the one remaining number is drawn again.
        loop {
            let drawn = self.0.next();
            if drawn != u32::MAX {
                return u64::from(drawn % 255) + 1;
            }
        }
    }
}
