//! Symmetry of an edge list, tested in one pass and without memory.

/// Sums of hashes of edges and of their reverses: equal for the same edges in any order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Symmetry {
    forward: u64,
    backward: u64,
    /// Self-loops, which are their own reverse.
    pub(super) loops: u64,
}

impl Symmetry {
    /// Adds an edge.
    #[inline]
    pub(super) const fn add(&mut self, from: u64, to: u64, weight: u64) {
        if from == to {
            self.loops += 1;
        } else if from < to {
            self.forward = self.forward.wrapping_add(hash(from, to, weight));
        } else {
            self.backward = self.backward.wrapping_add(hash(to, from, weight));
        }
    }
    /// Merges the sums of two sets of edges.
    #[must_use]
    pub(super) const fn and(self, other: Self) -> Self {
        Self {
            forward: self.forward.wrapping_add(other.forward),
            backward: self.backward.wrapping_add(other.backward),
            loops: self.loops + other.loops,
        }
    }
    /// Whether each edge occurs with its reverse. Wrong for about one file in 2^64 by chance.
    pub(super) const fn is_symmetric(self) -> bool {
        self.forward == self.backward
    }
    /// Whether `other` holds the reverses of these edges.
    pub(super) const fn is_reverse_of(self, other: Self) -> bool {
        self.forward == other.backward
            && self.backward == other.forward
            && self.loops == other.loops
    }
}

/// Hashes three numbers by two multiplications, each of which folds its 128 bits: a mixer for each
/// number takes longer than reading the file.
#[inline]
const fn hash(from: u64, to: u64, weight: u64) -> u64 {
    let both = fold(
        from ^ 0x9e37_79b9_7f4a_7c15,
        to.wrapping_add(weight.wrapping_mul(0xd6e8_feb8_6659_fd93)) ^ 0xbf58_476d_1ce4_e5b9,
    );
    fold(both, 0x94d0_49bb_1331_11eb)
}

#[inline]
#[allow(clippy::cast_possible_truncation)] // the lower half
const fn fold(one: u64, other: u64) -> u64 {
    let product = (one as u128).wrapping_mul(other as u128);
    (product >> 64) as u64 ^ product as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(edges: &[(u64, u64, u64)]) -> Symmetry {
        let mut sum = Symmetry::default();
        edges.iter().for_each(|&(from, to, weight)| sum.add(from, to, weight));
        sum
    }

    #[test]
    fn a_missing_reverse_and_a_different_weight_are_detected() {
        assert!(of(&[(1, 2, 3), (5, 1, 1), (2, 1, 3), (1, 5, 1), (4, 4, 9)]).is_symmetric());
        assert!(!of(&[(1, 2, 3), (2, 1, 4)]).is_symmetric());
        assert!(!of(&[(1, 2, 0)]).is_symmetric());
        assert!(!of(&[(1, 2, 0), (2, 1, 0), (2, 1, 0)]).is_symmetric());
        assert!(of(&[(1, 2, 3), (7, 2, 1)]).is_reverse_of(of(&[(2, 7, 1), (2, 1, 3)])));
        assert!(!of(&[(1, 2, 3)]).is_reverse_of(of(&[(1, 2, 3)])));
    }
}
