//! Access coverage: the base pages of a region that are used during an observation.

use hugepilot_policy::tune::HawkeyeRules;
use hugepilot_units::Share;
use serde::{Deserialize, Serialize};

use crate::runs::RegionPages;

/// Decaying mean of the access coverage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Coverage {
    /// Weight of the last observation.
    pub newest: f64,
    /// Whether the mean is an integer that begins at 0. If not, it begins with the coverage of the
    /// first observation in which the region is used.
    pub is_integer: bool,
    /// Share of the regions that an observation scans, on from where the last one ended.
    pub scan: Share,
}

impl Coverage {
    /// The mean of the published simulator of the candidate cache paper, and the scan limit of its
    /// text (section 5.1).
    pub const PAPER: Self = Self { newest: 0.1, is_integer: false, scan: HawkeyeRules::PACE };
    /// The kernel of HawkEye.
    pub const KERNEL: Self = Self { newest: 0.4, is_integer: true, scan: Share::ALL };

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

/// Scan through the regions in the order of their addresses, process by process.
#[derive(Clone, Debug, Default)]
pub(super) struct Scan {
    observations: u64,
    /// Number of the last region among all addresses and processes.
    last: Option<u64>,
}

impl Scan {
    /// Returns the regions of the next observation, by number in the footprint.
    pub(super) fn next(&mut self, share: Share, regions: &[RegionPages]) -> Vec<usize> {
        self.observations += 1;
        let most = share.turn_of(regions.len() as u64, self.observations);
        let mut order: Vec<usize> = (0..regions.len()).collect();
        if most >= regions.len() as u64 {
            return order;
        }
        // After the last one, then from the begin.
        order.sort_by_key(|&at| {
            let number = regions[at].number;
            (self.last.is_some_and(|last| number <= last), number)
        });
        order.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        self.last = order.last().map(|&at| regions[at].number).or(self.last);
        order
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
    use crate::runs::{Batch, Footprint};

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

    /// Regions 3, 1, 2 and 0 were used in this order. Half a region per observation.
    #[test]
    fn a_scan_goes_on_in_the_order_of_addresses() {
        let (mut footprint, mut batch) = (Footprint::new(), Batch::default());
        footprint.add(0, 0, [3, 1, 2, 0].map(|region: u64| region << 21), &mut batch);
        let mut scan = Scan::default();
        let mut all = Vec::new();
        for _ in 0..12 {
            all.push(scan.next(Share::percent(12.5), footprint.regions()));
        }
        let scanned: Vec<usize> = all.concat();
        assert_eq!(scanned, [3, 1, 2, 0, 3, 1]);
        assert!(all[0].is_empty());
        assert_eq!(scan.next(Share::ALL, footprint.regions()).len(), 4);
    }
}
