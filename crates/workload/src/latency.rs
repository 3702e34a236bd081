//! Times of batches of operations, counted in buckets: 30 KiB and a few cycles per batch.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

/// Buckets per doubling: a resolution of 1.6 %.
const PER_DOUBLING: u64 = 64;
const BITS: u32 = PER_DOUBLING.trailing_zeros();

/// Times of batches of one size, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latencies {
    /// Batches in each bucket; grows to the longest time.
    buckets: Vec<u64>,
    count: u64,
    longest_ns: u64,
}

/// Times of batches of [`RunConfig::steps`](super::RunConfig::steps) operations, over all threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Latency {
    /// Operations in a batch.
    pub batch_ops: u64,
    /// Number of timed batches; only whole batches are timed.
    pub batches: u64,
    /// Median, in nanoseconds; at most 1.6 % too high.
    pub p50_ns: u64,
    /// 99th percentile, in nanoseconds; at most 1.6 % too high.
    pub p99_ns: u64,
    /// Maximum, in nanoseconds; exact.
    pub max_ns: u64,
}

impl Latencies {
    /// Counts one batch.
    pub(crate) fn add(&mut self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).min(u64::MAX >> 1);
        let bucket = bucket_of(ns);
        if bucket >= self.buckets.len() {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.count += 1;
        self.longest_ns = self.longest_ns.max(ns);
    }

    /// Adds the counts of another thread.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.buckets.resize(self.buckets.len().max(other.buckets.len()), 0);
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
        self.count += other.count;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }

    /// Returns the percentiles for batches of `batch_ops`; zero if no batch was timed.
    pub(crate) fn summary(&self, batch_ops: u64) -> Latency {
        let (p50_ns, p99_ns) = (self.percentile(50), self.percentile(99));
        Latency { batch_ops, batches: self.count, p50_ns, p99_ns, max_ns: self.longest_ns }
    }

    /// Returns the upper end of the bucket that holds the batch of rank `percent`.
    fn percentile(&self, percent: u64) -> u64 {
        let rank = (self.count * percent).div_ceil(100);
        let mut seen = 0;
        let reached = |&count: &u64| {
            seen += count;
            seen >= rank
        };
        self.buckets.iter().position(reached).map_or(0, end_of).min(self.longest_ns)
    }
}

/// Returns the bucket of a time: times below [`PER_DOUBLING`] have a bucket each, doublings above
/// are divided evenly.
fn bucket_of(ns: u64) -> usize {
    let shift = (ns | PER_DOUBLING).ilog2() - BITS;
    (u64::from(shift) * PER_DOUBLING + (ns >> shift)) as usize
}

/// Returns the longest time of a bucket.
fn end_of(bucket: usize) -> u64 {
    let doubling = (bucket as u64 / PER_DOUBLING).saturating_sub(1);
    ((bucket as u64 - doubling * PER_DOUBLING + 1) << doubling) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_falls_into_a_narrow_bucket_in_order() {
        let mut last = 0;
        for ns in
            (0..5000).chain((13..40).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1]))
        {
            let bucket = bucket_of(ns);
            assert!(bucket == last || bucket == last + 1 || ns > 5000, "{ns}");
            assert!(
                (ns..=ns + ns / PER_DOUBLING).contains(&end_of(bucket)),
                "{ns} ends at {}",
                end_of(bucket)
            );
            last = bucket;
        }
    }

    #[test]
    fn percentiles_are_those_of_the_times() {
        let (mut some, mut others) = (Latencies::default(), Latencies::default());
        (1..=900).for_each(|us| some.add(Duration::from_micros(us)));
        (901..=1000).for_each(|us| others.add(Duration::from_micros(us)));
        some.merge(&others);
        let latency = some.summary(7);
        assert_eq!((latency.batch_ops, latency.batches, latency.max_ns), (7, 1000, 1_000_000));
        assert!((500_000..=508_000).contains(&latency.p50_ns), "{latency:?}");
        assert!((990_000..=1_000_000).contains(&latency.p99_ns), "{latency:?}");
    }

    #[test]
    fn one_slow_batch_shows_in_the_maximum_only() {
        let mut times = Latencies::default();
        (0..999).for_each(|_| times.add(Duration::from_nanos(40)));
        times.add(Duration::from_secs(3));
        let latency = times.summary(1);
        assert_eq!((latency.p50_ns, latency.p99_ns, latency.max_ns), (40, 40, 3_000_000_000));
        assert_eq!(Latencies::default().summary(1).max_ns, 0);
    }
}
