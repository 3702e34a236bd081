//! Grid graph, similar to a road network: few edges per vertex, long paths.

use super::blocks;
use crate::source::{Edge, EdgeSource};

/// Grid of `rows` × `columns` vertices with edges between neighbours, numbered by row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Vertices from top to bottom.
    pub rows: u64,
    /// Vertices from left to right.
    pub columns: u64,
    /// Whether edges have weights: from 1 to 255, by a hash of the two vertices.
    pub weighted: bool,
}

impl EdgeSource for Grid {
    fn vertices(&self) -> u64 {
        self.rows * self.columns
    }
    fn edges(&self) -> u64 {
        self.rows * self.columns.saturating_sub(1) + self.columns * self.rows.saturating_sub(1)
    }
    fn is_weighted(&self) -> bool {
        self.weighted
    }
    fn blocks(&self) -> usize {
        blocks(self.vertices())
    }
    fn block(&self, block: usize, mut each: impl FnMut(Edge)) {
        for from in super::block_of(block, self.vertices()) {
            let right = ((from + 1) % self.columns != 0).then_some(from + 1);
            let below = Some(from + self.columns).filter(|&to| to < self.vertices());
            for to in right.into_iter().chain(below) {
                let weight = if self.weighted { length(from, to) } else { 0 };
                each(Edge { from, to, weight });
            }
        }
    }
}

/// Hashes two numbers to a weight by part of the finaliser of `MurmurHash3`.
fn length(from: u64, to: u64) -> u64 {
    let mut hash = from.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ to;
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    (hash ^ (hash >> 33)) % 255 + 1
}
