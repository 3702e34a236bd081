//! Buckets of vertices by distance, for one thread.

use std::collections::BTreeMap;

use crate::Width;

/// Ring of buckets: an edge leads from the current bucket at most the largest weight ahead.
pub(super) struct Buckets<V> {
    ring: Vec<Vec<V>>,
    /// Buckets beyond the ring, which few graphs have.
    beyond: BTreeMap<u64, Vec<V>>,
    width: Steps,
    /// Current bucket.
    now: u64,
    spare: Vec<V>,
}

/// Width of a bucket. A power of two, the usual choice, needs no division per edge.
#[derive(Clone, Copy)]
enum Steps {
    Shift(u32),
    Width(u64),
}

/// Most buckets in the ring: empty ones are scanned one by one.
const MAX_RING: u64 = 1 << 12;

impl<V: Width> Buckets<V> {
    /// Makes buckets of `width` for edge weights up to `heaviest`.
    pub(super) fn new(width: u64, heaviest: u64) -> Self {
        let len = (heaviest / width).saturating_add(2).min(MAX_RING).next_power_of_two();
        let ring = (0..len).map(|_| Vec::new()).collect();
        let width = if width.is_power_of_two() {
            Steps::Shift(width.trailing_zeros())
        } else {
            Steps::Width(width)
        };
        Self { ring, beyond: BTreeMap::new(), width, now: 0, spare: Vec::new() }
    }

    /// Returns the bucket of a distance.
    #[inline]
    fn of(&self, far: V) -> u64 {
        match self.width {
            Steps::Shift(bits) => far.at() as u64 >> bits,
            Steps::Width(width) => far.at() as u64 / width,
        }
    }

    /// Returns the least distance of a bucket.
    pub(super) fn begin(&self, bucket: u64) -> u64 {
        match self.width {
            Steps::Shift(bits) => bucket << bits,
            Steps::Width(width) => bucket * width,
        }
    }

    #[inline]
    fn place(&self, bucket: u64) -> usize {
        #[allow(clippy::cast_possible_truncation)] // masked by the length
        let place = bucket as usize & (self.ring.len() - 1);
        place
    }

    /// Adds a vertex to the bucket of its distance.
    #[inline]
    pub(super) fn push(&mut self, vertex: V, far: V) {
        let bucket = self.of(far);
        if bucket - self.now < self.ring.len() as u64 {
            let place = self.place(bucket);
            self.ring[place].push(vertex);
        } else {
            self.beyond.entry(bucket).or_default().push(vertex);
        }
    }

    /// Takes the vertices of a bucket if there are some and fewer than `few`.
    pub(super) fn take_few(&mut self, bucket: u64, few: usize) -> Option<Vec<V>> {
        let place = self.place(bucket);
        let spare = std::mem::take(&mut self.spare);
        let vertices = &mut self.ring[place];
        if vertices.is_empty() || vertices.len() >= few {
            self.spare = spare;
            return None;
        }
        Some(std::mem::replace(vertices, spare))
    }

    /// Keeps an empty vector for reuse.
    pub(super) fn reuse(&mut self, room: Vec<V>) {
        self.spare = room;
    }

    /// Returns the first non-empty bucket from `bucket` on; `u64::MAX` if all are empty.
    pub(super) fn first(&self, bucket: u64) -> u64 {
        let len = self.ring.len() as u64;
        let near = (bucket..bucket.saturating_add(len))
            .find(|&bucket| !self.ring[self.place(bucket)].is_empty());
        let far = self.beyond.first_key_value().map(|(&bucket, _)| bucket);
        near.into_iter().chain(far).min().unwrap_or(u64::MAX)
    }

    /// Makes a bucket the current one, before which all are empty, and returns its vertices.
    pub(super) fn bucket(&mut self, bucket: u64) -> &mut Vec<V> {
        self.now = bucket;
        // Buckets that the ring reaches now.
        while let Some(entry) = self.beyond.first_entry() {
            if *entry.key() - bucket >= self.ring.len() as u64 {
                break;
            }
            let (near, mut vertices) = entry.remove_entry();
            let place = self.place(near);
            self.ring[place].append(&mut vertices);
        }
        let place = self.place(bucket);
        &mut self.ring[place]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vertices_come_by_distance_also_from_beyond_the_ring() {
        let mut buckets = Buckets::<u32>::new(3, u64::from(u32::MAX));
        let far = [5, 0, 70_000, 4_000_000_000, 8, 70_001, 12_288 * 3, 2];
        (0..8).zip(far).for_each(|(vertex, far)| buckets.push(vertex, far));
        let (mut bucket, mut order) = (0, Vec::new());
        loop {
            bucket = buckets.first(bucket);
            if bucket == u64::MAX {
                break;
            }
            let mut vertices = std::mem::take(buckets.bucket(bucket));
            assert!(vertices.iter().all(|&v| u64::from(far[v as usize]) / 3 == bucket));
            vertices.sort_unstable();
            order.extend(vertices);
        }
        assert_eq!(order, [1, 7, 0, 4, 6, 2, 5, 3]);
    }

    #[test]
    fn the_largest_distance() {
        let mut buckets = Buckets::<u64>::new(1, u64::MAX);
        let far = u64::MAX - 1;
        buckets.push(7, far);
        assert_eq!(buckets.first(0), far);
        assert_eq!(buckets.bucket(far), &[7]);
        assert_eq!(buckets.first(far), far);
    }
}
