//! Histogram of stack distances, and the miss-ratio curve out of it.

use serde::{Deserialize, Serialize};

/// Sub-buckets of a power of two: distances are rounded by less than 1 / 16.
const SUB_BITS: u32 = 4;
const BUCKETS: usize = (33 - SUB_BITS as usize) << SUB_BITS;

/// Counts of accesses by their distance. Distances below 32 are exact, above in steps of 1 / 16.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    cold: u64,
    /// Accesses for each that was counted.
    weight: f64,
}

/// Point of a miss-ratio curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MissRatio {
    /// Entries of a fully associative table with LRU replacement.
    pub entries: u64,
    /// Share of the accesses that miss in it.
    pub ratio: f64,
}

#[allow(clippy::cast_precision_loss)]
impl Histogram {
    /// Creates an empty histogram. Each count stands for `weight` accesses.
    pub fn new(weight: f64) -> Self {
        Self { counts: vec![0; BUCKETS], cold: 0, weight }
    }

    /// Counts `accesses` with a distance, `None` for the first use of a page.
    #[inline]
    pub fn add(&mut self, distance: Option<u64>, accesses: u64) {
        match distance {
            Some(distance) => self.counts[bucket(distance)] += accesses,
            None => self.cold += accesses,
        }
    }

    /// Returns the accesses.
    pub fn accesses(&self) -> f64 {
        self.cold() + self.counts.iter().sum::<u64>() as f64 * self.weight
    }
    /// Returns the first uses.
    pub fn cold(&self) -> f64 {
        self.cold as f64 * self.weight
    }

    /// Returns the accesses by least distance of their bucket, without empty ones.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, f64)> {
        let filled = self.counts.iter().enumerate().filter(|&(_, &count)| count > 0);
        filled.map(|(at, &count)| (lowest(at), count as f64 * self.weight))
    }

    /// Returns the share of accesses that miss in a table of `entries`: those with that distance or
    /// more, and first uses.
    pub fn miss_ratio(&self, entries: u64) -> f64 {
        let missed: f64 = self
            .buckets()
            .filter(|&(distance, _)| distance >= entries)
            .map(|(_, count)| count)
            .sum();
        (missed + self.cold()) / self.accesses().max(f64::MIN_POSITIVE)
    }

    /// Returns the miss ratio at each power of two, to the first size at which only first uses
    /// miss.
    pub fn curve(&self) -> Vec<MissRatio> {
        let mut points = Vec::new();
        for log in 0..=32 {
            let entries = 1 << log;
            points.push(MissRatio { entries, ratio: self.miss_ratio(entries) });
            if self.buckets().all(|(distance, _)| distance < entries) {
                break;
            }
        }
        points
    }
}

/// Returns the bucket of a distance; those above 2³² share the last.
#[allow(clippy::cast_possible_truncation)]
fn bucket(distance: u64) -> usize {
    let distance = distance.min(u64::from(u32::MAX));
    let log = (distance | 1 << SUB_BITS).ilog2();
    let (shift, row) = (log - SUB_BITS, (log - SUB_BITS) as usize);
    (row << SUB_BITS) + (distance >> shift) as usize
}

/// Returns the least distance of a bucket.
fn lowest(bucket: usize) -> u64 {
    let row = (bucket >> SUB_BITS).saturating_sub(1);
    ((bucket - (row << SUB_BITS)) as u64) << row
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_bucket_contains_its_distance(distance in 0u64..1 << 32) {
            let low = lowest(bucket(distance));
            prop_assert!(low <= distance && distance - low <= distance / 16);
            prop_assert_eq!(bucket(low), bucket(distance));
            prop_assert!(bucket(distance) < BUCKETS);
        }
    }

    #[test]
    fn the_curve_falls_to_the_first_uses() {
        let mut histogram = Histogram::new(1.0);
        for (distance, accesses) in [(None, 10), (Some(0), 50), (Some(3), 30), (Some(4), 10)] {
            histogram.add(distance, accesses);
        }
        let curve: Vec<_> =
            histogram.curve().iter().map(|point| (point.entries, point.ratio)).collect();
        assert_eq!(curve, [(1, 0.5), (2, 0.5), (4, 0.2), (8, 0.1)]);
    }
}
