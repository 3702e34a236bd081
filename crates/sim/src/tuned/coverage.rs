//! Access coverage: the base pages of a region that are used during an observation.

use serde::{Deserialize, Serialize};

/// Decaying mean of the access coverage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Coverage {
    /// Weight of the last observation.
    pub newest: f64,
    /// Whether the mean is an integer that begins at 0. If not, it begins with the coverage of the
    /// first observation in which the region is used.
    pub is_integer: bool,
}

impl Coverage {
    /// The artifact of the candidate cache paper.
    pub const PAPER: Self = Self { newest: 0.1, is_integer: false };
    /// The kernel of HawkEye.
    pub const KERNEL: Self = Self { newest: 0.4, is_integer: true };

    /// Returns the mean after an observation. It is 0 before the first with a use.
    pub(super) fn after(self, mean: f64, covered: u32) -> f64 {
        let next = mean + self.newest * (f64::from(covered) - mean);
        match () {
            () if self.is_integer => next.floor(),
            () if mean > 0.0 => next,
            () => f64::from(covered),
        }
    }
}

/// Base pages that count as used by a mean of the access coverage. Buckets end at integers, so that
/// it is rounded down.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(super) fn pages_of(mean: f64) -> u32 {
    if mean > 0.0 { mean.max(1.0) as u32 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of a region after each observation.
    fn pages(rules: Coverage, observed: &[u32]) -> Vec<u32> {
        let mut mean = 0.0;
        let mut next = |&covered: &u32| {
            mean = rules.after(mean, covered);
            pages_of(mean)
        };
        observed.iter().map(&mut next).collect()
    }

    /// Means by hand.
    #[test]
    fn means_are_those_of_the_sources() {
        // 500, 0.9 x 500 = 450, 405, then 364.5 + 51.2 = 415.7.
        assert_eq!(pages(Coverage::PAPER, &[0, 500, 0, 0, 512]), [0, 500, 450, 405, 415]);
        assert_eq!(
            pages(Coverage::PAPER, &[2, 0, 0, 0, 0, 0, 0, 0, 0]),
            [2, 1, 1, 1, 1, 1, 1, 1, 1]
        );
        // Integers: 0.4 x 500 = 200, 0.6 x 200 = 120, 72, then 43.2 + 204.8 = 248.
        assert_eq!(pages(Coverage::KERNEL, &[0, 500, 0, 0, 512]), [0, 200, 120, 72, 248]);
        // 1.2, 1.8 and 1.8 are 1: such a region stays in bin 0.
        assert_eq!(pages(Coverage::KERNEL, &[3, 3, 3]), [1, 1, 1]);
    }
}
