//! `btree`: random lookups in a B+-tree whose nodes are reserved for growth.
//!
//! The benchmark BTree of EMD (Gangar et al., ISMM 2025, figure 4b and table 4): an index that maps
//! 44 GB for 10 GB of nodes, with three kinds of huge pages: nearly all bloat, about half, none.
//!
//! The bloat comes from full CSB+-trees (Rao and Ross, *Making B+-Trees Cache Conscious in Main
//! Memory*, SIGMOD 2000). The children of a node are adjacent, so it needs no pointers to them, and
//! room for all its children is reserved with it. A node and its 511 leaves of 4 KiB take 2 MiB.
//! Each such group covers the same range of keys, but keys are not spread evenly. Of ten groups,
//! two are half full, seven have few leaves, one is full, in this order of the address space.
//! Leaves that do not exist yet were never written: 78 % of the memory is zero-filled on huge
//! pages, and not resident on base pages.
//!
//! A lookup reads the root, which the caches hold, then the inner node and the leaf of a random
//! key: two page walks on base pages, one on huge pages. Nodes are searched by interpolation, which
//! reads one or two cache lines of each. A binary search would stall on more lines and hide the
//! effect of pages. All keys are equally hot: 45 % of the lookups end in half-full groups, 10 % in
//! nearly empty ones, 45 % in full ones. Every value is checked.

use std::ops::Range;

use hugepilot_kernel::AnonMap;
use hugepilot_units::{AddrRange, Bytes, PageSizes};

use super::lookups::{Index, readers};
use super::memory::reserve;
use super::rng::mix;
use super::{MemoryConfig, MemoryLimits, Worker, Workload};
use crate::{Result, WorkloadError};

pub(super) const NAME: &str = "btree";

pub(super) const NODE: Bytes = Bytes::kib(4);
pub(super) const NODE_WORDS: usize = 512;
/// An inner node and its leaves. The inner node holds the number of leaves, then the first key of
/// each.
pub(super) const GROUP: Bytes = Bytes::mib(2);
pub(super) const GROUP_WORDS: usize = NODE_WORDS * NODE_WORDS;
const MAX_LEAVES: usize = NODE_WORDS - 1;
/// Entries of a leaf. It holds their number, an unused word, then each key with its value.
pub(super) const MAX_KEYS: usize = 255;

/// Leaves of the groups of each kind, in address order: a group uses 1/2, 1/32 or all of its
/// memory.
const LEAVES: [usize; 3] = [255, 15, MAX_LEAVES];
/// Size of a group's key range.
const KEYS_PER_GROUP: u64 = 1 << 32;

/// Adjacent groups with the same number of leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    groups: usize,
    leaves: usize,
    /// Entries of all groups before these.
    before: usize,
}

impl Kind {
    const fn per_group(self) -> usize {
        self.leaves * MAX_KEYS
    }
}

pub(super) struct BTree {
    arena: AnonMap,
    /// First key of each group, used as the root.
    root: Vec<u64>,
    kinds: [Kind; 3],
    entries: usize,
    seed: u64,
    sizes: PageSizes,
}

/// Kinds of `groups` groups: two of ten half full, one full, the others nearly empty; at least one
/// each.
fn kinds(groups: usize) -> [Kind; 3] {
    let (half, full) = (((groups * 2 + 5) / 10).max(1), ((groups + 5) / 10).max(1));
    let mut before = 0;
    let mut kind = |groups: usize, leaves: usize| {
        let kind = Kind { groups, leaves, before };
        before += groups * kind.per_group();
        kind
    };
    let [a, b, c] = LEAVES;
    [kind(half, a), kind(groups - half - full, b), kind(full, c)]
}

/// Returns the key of entry `at` of the `entries` of `group`: ascending, and spread over its range.
#[inline]
const fn key(group: usize, at: usize, entries: usize) -> u64 {
    group as u64 * KEYS_PER_GROUP + at as u64 * (KEYS_PER_GROUP / entries as u64)
}

impl BTree {
    /// Reserves the groups that fit into the footprint, and loads all keys in order.
    pub(super) fn prepare(config: MemoryConfig, machine: &MemoryLimits) -> Result<Self> {
        let footprint = config.fitting(NAME, 100, machine)?;
        let groups = (footprint.get() / GROUP.get()) as usize;
        if groups < LEAVES.len() {
            let min = GROUP.times(LEAVES.len() as u64);
            return Err(WorkloadError::TooSmall {
                flag: "--footprint",
                value: config.footprint,
                min,
            });
        }
        let mut arena = reserve(NAME, footprint, config.pages, machine.sizes)?;
        let kinds = kinds(groups);
        let leaves = kinds.iter().flat_map(|kind| std::iter::repeat_n(kind.leaves, kind.groups));
        let mut root = Vec::with_capacity(groups);
        for ((number, group), leaves) in
            arena.words_mut().chunks_exact_mut(GROUP_WORDS).enumerate().zip(leaves)
        {
            load(group, number, leaves);
            root.push(key(number, 0, leaves * MAX_KEYS));
        }
        let entries = kinds.iter().map(|kind| kind.groups * kind.per_group()).sum();
        Ok(Self { arena, root, kinds, entries, seed: config.seed, sizes: machine.sizes })
    }

    /// Returns the value of `key`.
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        let all = self.root.len() as u64 * KEYS_PER_GROUP;
        let (group, keys) = last_not_above(key, self.root.len(), |i| self.root[i], 0..all)?;
        let group = self.arena.words()[group * GROUP_WORDS..].first_chunk::<GROUP_WORDS>()?;
        let (leaf, keys) =
            last_not_above(key, (group[0] as usize).min(MAX_LEAVES), |i| group[1 + i], keys)?;
        let leaf = group[(leaf + 1) * NODE_WORDS..].first_chunk::<NODE_WORDS>()?;
        let (at, keys) =
            last_not_above(key, (leaf[0] as usize).min(MAX_KEYS), |i| leaf[2 + 2 * i], keys)?;
        (keys.start == key).then(|| leaf[3 + 2 * at])
    }
}

/// Returns the last of `count` ordered keys that is not above `key`, and the range up to the next
/// key; `None` if all are above. Starts at the position that evenly spread keys would have.
#[inline]
pub(super) fn last_not_above(
    key: u64,
    count: usize,
    key_of: impl Fn(usize) -> u64,
    range: Range<u64>,
) -> Option<(usize, Range<u64>)> {
    let Range { start, end } = range;
    // Below 2^32 · 511, or for the root below 2^32 · groups · groups: no overflow up to a TiB.
    let guess = key.saturating_sub(start).checked_mul(count as u64)? / (end - start).max(1);
    let mut at = (guess as usize).min(count.checked_sub(1)?);
    let mut from = key_of(at);
    while from > key {
        at = at.checked_sub(1)?;
        from = key_of(at);
    }
    loop {
        let next = if at + 1 < count { key_of(at + 1) } else { end };
        if next > key || at + 1 >= count {
            return Some((at, from..next));
        }
        (at, from) = (at + 1, next);
    }
}

/// Writes the inner node and the `leaves` of a group.
fn load(group: &mut [u64], number: usize, leaves: usize) {
    let entries = leaves * MAX_KEYS;
    let (inner, children) = group.split_at_mut(NODE_WORDS);
    inner[0] = leaves as u64;
    for (child, leaf) in children.chunks_exact_mut(NODE_WORDS).take(leaves).enumerate() {
        leaf[0] = MAX_KEYS as u64;
        for at in 0..MAX_KEYS {
            let key = key(number, child * MAX_KEYS + at, entries);
            leaf[2 + 2 * at] = key;
            leaf[3 + 2 * at] = mix(key);
        }
        inner[1 + child] = leaf[2];
    }
}

impl Workload for BTree {
    fn hot(&self) -> Vec<AddrRange> {
        vec![self.arena.range()]
    }

    fn footprint_bytes(&self) -> u64 {
        self.arena.range().len().get()
    }

    fn bloat_bytes(&self) -> Option<u64> {
        let used = |leaves: usize| {
            NODE.times(leaves as u64 + 1)
                .get()
                .next_multiple_of(self.sizes.base.get())
                .min(GROUP.get())
        };
        let bloat = |kind: &Kind| kind.groups as u64 * (GROUP.get() - used(kind.leaves));
        Some(self.kinds.iter().map(bloat).sum())
    }

    fn workers(&mut self, threads: usize) -> Vec<Box<dyn Worker + '_>> {
        readers(self, self.seed, threads)
    }
}

impl BTree {
    /// Returns the key of an entry, by its index in key order.
    #[inline]
    fn key_of(&self, number: usize) -> u64 {
        let [_, second, third] = self.kinds;
        let kind = usize::from(number >= second.before) + usize::from(number >= third.before);
        let Kind { before, .. } = self.kinds[kind];
        let per_group = self.kinds[kind].per_group();
        let groups = self.kinds[..kind].iter().map(|kind| kind.groups).sum::<usize>();
        let number = number - before;
        key(groups + number / per_group, number % per_group, per_group)
    }
}

impl Index for BTree {
    const NAME: &'static str = NAME;
    const BATCH: u64 = 1 << 10;

    fn entries(&self) -> usize {
        self.entries
    }
    #[inline]
    fn look_up(&self, number: usize) -> Option<u64> {
        self.get(self.key_of(number))
    }
    #[inline]
    fn expected(&self, number: usize) -> u64 {
        mix(self.key_of(number))
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::tests::ROOMY;
    use super::*;
    use hugepilot_kernel::Pages;

    fn tree(mib: u64) -> BTree {
        let config = MemoryConfig {
            footprint: Bytes::mib(mib),
            pages: Pages::Base,
            ..MemoryConfig::DEFAULT
        };
        BTree::prepare(config, &ROOMY).unwrap()
    }

    #[test]
    fn every_entry_is_found_and_nothing_between_them() {
        let tree = tree(8);
        let mut last = None;
        for number in 0..tree.entries() {
            let key = tree.key_of(number);
            assert!(last < Some(key), "keys are in order");
            last = Some(key);
            assert_eq!(tree.get(key), Some(mix(key)));
            assert_eq!(tree.get(key + 1), None);
        }
        assert_eq!(tree.entries(), (255 + 2 * 15 + 511) * 255);
        assert_eq!(tree.get(u64::MAX), None);
    }

    #[test]
    fn a_search_is_right_however_unevenly_keys_are_spread() {
        for keys in [[10, 11, 12, 99], [10, 97, 98, 99], [10, 11, 98, 99]] {
            for key in 0..120 {
                let found = last_not_above(key, keys.len(), |i| keys[i], 10..100);
                let at = keys.iter().rposition(|&other| other <= key);
                let expected = at.map(|at| (at, keys[at]..*keys.get(at + 1).unwrap_or(&100)));
                assert_eq!(found, expected, "{key} in {keys:?}");
            }
        }
        assert_eq!(last_not_above(5, 0, |_| 0, 0..10), None);
    }

    #[test]
    fn groups_are_of_three_kinds_and_zero_elsewhere() {
        let tree = tree(64);
        let zero = |page: &&[u64]| page.iter().all(|&word| word == 0);
        let group = |group: &[u64]| group.chunks(NODE_WORDS).filter(zero).count();
        let zeros: Vec<usize> = tree.arena.words().chunks(GROUP_WORDS).map(group).collect();
        assert_eq!(zeros[..6], [256; 6]);
        assert_eq!(zeros[6..29], [496; 23]);
        assert_eq!(zeros[29..], [0; 3]);
        assert_eq!(tree.bloat_bytes(), Some(zeros.iter().sum::<usize>() as u64 * 4096));
    }

    #[test]
    fn bloat_is_about_that_of_the_paper() {
        // EMD, table 4: 34 of 44 GB are bloat, 77 %.
        for mib in [128, 512] {
            let tree = tree(mib);
            let percent = tree.bloat_bytes().unwrap() * 100 / tree.footprint_bytes();
            assert!((75..=80).contains(&percent), "{mib} MiB: {percent} %");
        }
    }

    #[test]
    fn too_little_for_three_groups_is_refused() {
        let config = MemoryConfig { footprint: Bytes::mib(4), ..MemoryConfig::DEFAULT };
        assert!(matches!(BTree::prepare(config, &ROOMY), Err(WorkloadError::TooSmall { .. })));
    }
}
