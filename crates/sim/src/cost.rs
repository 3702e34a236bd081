//! Cost model: cycles of accesses, out of the counts of a machine.

use serde::{Deserialize, Serialize};

use crate::machine::Counts;

/// Cycles that accesses cost, none of which overlap. A model, not a measurement: Agbarya et al.
/// (MICRO'20) found errors of 25 to 192 % in run times that such models predict.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostModel {
    /// Cycles of each access.
    pub access: f64,
    /// Cycles of each visit of a page: the first access of a run, which is assumed to miss the
    /// data caches.
    pub visit: f64,
    /// Cycles of a lookup in the L2 TLB.
    pub l2: f64,
    /// Cycles of a memory reference of a page walk.
    pub reference: f64,
}

impl Default for CostModel {
    fn default() -> Self {
        Self { access: 1.0, visit: 20.0, l2: 7.0, reference: 20.0 }
    }
}

impl CostModel {
    /// Returns the cycles of an access in a usual mix, at least those of an access that hits.
    pub fn mean(self) -> f64 {
        ((self.access + self.visit + self.l2 + self.reference) / 6.0).max(self.access)
    }

    /// Returns the cycles of `counts` with `visits` of pages.
    #[allow(clippy::cast_precision_loss)]
    pub fn cycles(&self, counts: Counts, visits: u64) -> f64 {
        self.access * counts.accesses as f64
            + self.visit * visits as f64
            + self.l2 * counts.l1_misses as f64
            + self.reference * counts.walk_references as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_add_up() {
        let counts = Counts { accesses: 100, l1_misses: 10, walks: 3, walk_references: 4 };
        let model = CostModel { access: 1.0, visit: 2.0, l2: 3.0, reference: 5.0 };
        assert!((model.cycles(counts, 7) - 164.0).abs() < 1e-9);
        assert!((CostModel::default().mean() - 8.0).abs() < 1e-9);
    }
}
