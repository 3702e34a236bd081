//! Uniform random graphs (Erdős and Rényi), as the GAP benchmark suite makes them.

use super::{Weights, block_of, numbers};
use crate::source::{Edge, EdgeSource};

/// Uniform random graph of 2^`scale` vertices, with `degree` times as many edges before
/// deduplication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uniform {
    /// Base-2 logarithm of the vertices, at most 32.
    pub scale: u32,
    /// Edges per vertex.
    pub degree: u64,
    /// Whether edges have weights.
    pub weighted: bool,
}

impl EdgeSource for Uniform {
    super::scaled!();
    fn block(&self, block: usize, mut each: impl FnMut(Edge)) {
        let (mask, mut drawn) = (self.vertices() - 1, numbers(block));
        let mut weights = self.weighted.then(|| Weights::of(block));
        for _ in block_of(block, self.edges()) {
            // The suite leaves the order of the two draws to its compiler, which draws the target
            // first.
            let to = u64::from(drawn.next()) & mask;
            let from = u64::from(drawn.next()) & mask;
            each(Edge { from, to, weight: weights.as_mut().map_or(0, Weights::next) });
        }
    }
}
