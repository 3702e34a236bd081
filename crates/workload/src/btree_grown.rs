//! `btree-grown`: random lookups in a B+-tree that grew by insertion.
//!
//! The loader of [`btree`](super::btree) lays bloat out. Here insertions leave the bloat. The
//! entries belong to tenants, as in the index of a shared store, and the size of a tenant falls as
//! one over its rank (Zipf's law). Entries are inserted in random order, until the memory is used
//! up.
//!
//! A tenant begins with a group of its own: a node and room for its 510 leaves of 4 KiB, reserved
//! together, as in a full CSB+-tree (Rao and Ross, *Making B+-Trees Cache Conscious in Main
//! Memory*, SIGMOD 2000). A full leaf is split in two. Of a full group, the upper half of the
//! leaves moves to a new group, and the leaves that it leaves are used again. Groups are taken in
//! the order of need, so those of large and small tenants lie side by side.
//!
//! So most huge pages belong to small tenants and are nearly empty, as in figure 4b of EMD (Gangar
//! et al., ISMM 2025), but where the others are is chance. Only leaves that were never used are
//! zero-filled; the stale ones of a group that was split are not.

use std::ops::Range;

use hugepilot_kernel::AnonMap;
use hugepilot_units::{AddrRange, PageSizes};

use super::btree::{GROUP, GROUP_WORDS, MAX_KEYS, NODE, NODE_WORDS, last_not_above};
use super::lookups::{Index, readers};
use super::memory::reserve;
use super::rng::mix;
use super::{MemoryConfig, MemoryLimits, Worker, Workload};
use crate::{Result, WorkloadError};

pub(super) const NAME: &str = "btree-grown";

/// Nodes of a group before its leaves. The first holds the number of leaves, then the first key of
/// each. The second holds the number of leaves that were ever used, then the place of each: first
/// of the leaves in key order, then of those that are free again.
const HEADS: usize = 2;
const MAX_LEAVES: usize = NODE_WORDS - HEADS;
/// Bits of a key below its tenant.
const TENANT_SHIFT: u32 = 40;
/// Least number of groups.
const MIN_GROUPS: usize = 8;

pub(super) struct GrownTree {
    arena: AnonMap,
    /// First key of each group and its place, in key order.
    root: Vec<(u64, usize)>,
    entries: usize,
    keys: Keys,
    seed: u64,
    sizes: PageSizes,
}

/// Keys by their number in the order of insertion.
#[derive(Clone, Copy, Debug)]
struct Keys {
    seed: u64,
    tenants: u64,
}

impl Keys {
    /// Returns key `number`: a tenant of random rank, and a random number.
    ///
    /// Each octave of ranks gets as many keys as the next one, so the size of a tenant falls as one
    /// over its rank, in steps.
    #[inline]
    fn key(self, number: u64) -> u64 {
        let random = mix(mix(number) ^ self.seed);
        let octaves = u64::from(self.tenants.ilog2()) + 1;
        let octave = ((random >> 32) * octaves) >> 32;
        let rank = (1 << octave) | (random & ((1 << octave) - 1));
        let tenant = if rank > self.tenants { rank / 2 } else { rank };
        (tenant << TENANT_SHIFT) | (mix(random ^ self.seed) >> (64 - TENANT_SHIFT))
    }
}

impl GrownTree {
    /// Reserves the groups that fit into the footprint, and inserts until none is left: 10 s for
    /// 2 GiB.
    pub(super) fn prepare(config: MemoryConfig, machine: &MemoryLimits) -> Result<Self> {
        let footprint = config.fitting(NAME, 100, machine)?;
        let groups = (footprint.get() / GROUP.get()) as usize;
        if groups < MIN_GROUPS {
            let (value, min) = (config.footprint, GROUP.times(MIN_GROUPS as u64));
            return Err(WorkloadError::TooSmall { flag: "--footprint", value, min });
        }
        // An eighth of the groups comes from splits.
        let keys = Keys { seed: config.seed, tenants: (groups - groups / 8) as u64 };
        let mut tree = Self {
            arena: reserve(NAME, footprint, config.pages, machine.sizes)?,
            root: Vec::with_capacity(groups),
            entries: 0,
            keys,
            seed: config.seed,
            sizes: machine.sizes,
        };
        while tree.insert(keys.key(tree.entries as u64)) {
            tree.entries += 1;
        }
        Ok(tree)
    }

    /// Returns the position in the root of the group with `key`, and the range of its keys; `None`
    /// if its tenant has no group.
    #[inline]
    fn group_of(&self, key: u64) -> Option<(usize, Range<u64>)> {
        let tenant = key >> TENANT_SHIFT;
        let at = self.root.partition_point(|&(first, _)| first <= key).checked_sub(1)?;
        let start = self.root[at].0;
        let end = (tenant + 1) << TENANT_SHIFT;
        let end = self.root.get(at + 1).map_or(end, |&(next, _)| next.min(end));
        (start >> TENANT_SHIFT == tenant).then_some((at, start..end))
    }

    #[inline]
    fn words(&self, group: usize) -> Option<&[u64; GROUP_WORDS]> {
        self.arena.words()[group * GROUP_WORDS..].first_chunk()
    }

    /// Returns the value of `key`.
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        let (at, range) = self.group_of(key)?;
        let group = self.words(self.root[at].1)?;
        let count = (group[0] as usize).min(MAX_LEAVES);
        let (leaf, range) = last_not_above(key, count, |i| group[1 + i], range)?;
        let place = (group[NODE_WORDS + 1 + leaf] as usize).min(MAX_LEAVES - 1);
        let leaf = group[(HEADS + place) * NODE_WORDS..].first_chunk::<NODE_WORDS>()?;
        let count = (leaf[0] as usize).min(MAX_KEYS);
        let (at, found) = last_not_above(key, count, |i| leaf[2 + 2 * i], range)?;
        (found.start == key).then(|| leaf[3 + 2 * at])
    }

    /// Inserts `key` with its value. Returns whether there was room.
    fn insert(&mut self, key: u64) -> bool {
        loop {
            let Some((at, _)) = self.group_of(key) else {
                let first = (key >> TENANT_SHIFT) << TENANT_SHIFT;
                let Some(group) = self.take_group() else { return false };
                let words = group_mut(&mut self.arena, group);
                (words[0], words[1], words[NODE_WORDS]) = (1, first, 1);
                self.add_to_root(first, group);
                continue;
            };
            let group = self.root[at].1;
            let words = group_mut(&mut self.arena, group);
            let leaf = words[1..=words[0] as usize].partition_point(|&first| first <= key) - 1;
            if add(leaf_mut(words, leaf), key) {
                return true;
            }
            if (words[0] as usize) < MAX_LEAVES {
                split_leaf(words, leaf);
                continue;
            }
            let Some(new) = self.take_group() else { return false };
            let first = self.split_group(group, new);
            self.add_to_root(first, new);
        }
    }

    /// Returns the next group; `None` if all are used.
    fn take_group(&self) -> Option<usize> {
        let used = self.root.len();
        (used < self.arena.words().len() / GROUP_WORDS).then_some(used)
    }

    fn add_to_root(&mut self, first: u64, group: usize) {
        let at = self.root.partition_point(|&(other, _)| other < first);
        self.root.insert(at, (first, group));
    }

    /// Moves the upper half of a full group to the empty group `new`. Returns its first key.
    fn split_group(&mut self, group: usize, new: usize) -> u64 {
        let (kept, moved) = (MAX_LEAVES / 2, MAX_LEAVES - MAX_LEAVES / 2);
        let words = self.arena.words_mut();
        let (from, to) = (group * GROUP_WORDS, new * GROUP_WORDS);
        words[from] = kept as u64;
        (words[to], words[to + NODE_WORDS]) = (moved as u64, moved as u64);
        words.copy_within(from + 1 + kept..from + 1 + MAX_LEAVES, to + 1);
        for leaf in 0..moved {
            let place = words[from + NODE_WORDS + 1 + kept + leaf] as usize;
            words[to + NODE_WORDS + 1 + leaf] = leaf as u64;
            let old = from + (HEADS + place) * NODE_WORDS;
            words.copy_within(old..old + NODE_WORDS, to + (HEADS + leaf) * NODE_WORDS);
        }
        words[to + 1]
    }
}

fn group_mut(arena: &mut AnonMap, group: usize) -> &mut [u64] {
    &mut arena.words_mut()[group * GROUP_WORDS..][..GROUP_WORDS]
}

/// Returns leaf number `leaf` of a group, in key order.
fn leaf_mut(group: &mut [u64], leaf: usize) -> &mut [u64] {
    let place = group[NODE_WORDS + 1 + leaf] as usize;
    &mut group[(HEADS + place) * NODE_WORDS..][..NODE_WORDS]
}

/// Adds a key with its value to a leaf. Returns whether there was room.
fn add(leaf: &mut [u64], key: u64) -> bool {
    let count = leaf[0] as usize;
    let (pairs, _) = leaf[2..].as_chunks_mut::<2>();
    let at = pairs[..count].partition_point(|pair| pair[0] < key);
    let is_new = at == count || pairs[at][0] != key;
    if is_new && count == MAX_KEYS {
        return false;
    }
    if is_new {
        pairs.copy_within(at..count, at + 1);
        leaf[0] += 1;
    }
    (leaf[2 + 2 * at], leaf[3 + 2 * at]) = (key, mix(key));
    true
}

/// Moves the upper half of a full leaf to a new one behind it, of a group with room.
fn split_leaf(group: &mut [u64], leaf: usize) {
    let (count, used) = (group[0] as usize, group[NODE_WORDS] as usize);
    let places = &mut group[NODE_WORDS + 1..];
    if count == used {
        places[used] = used as u64;
    }
    let (old, new) = (places[leaf] as usize, places[count] as usize);
    places[leaf + 1..=count].rotate_right(1);
    group[NODE_WORDS] = used.max(count + 1) as u64;
    let kept = MAX_KEYS / 2;
    let [old, new] = [old, new].map(|place| (HEADS + place) * NODE_WORDS);
    group.copy_within(old + 2 + 2 * kept..old + 2 + 2 * MAX_KEYS, new + 2);
    (group[old], group[new]) = (kept as u64, (MAX_KEYS - kept) as u64);
    let first = group[new + 2];
    group.copy_within(2 + leaf..1 + count, 3 + leaf);
    (group[0], group[2 + leaf]) = (count as u64 + 1, first);
}

impl Workload for GrownTree {
    fn hot(&self) -> Vec<AddrRange> {
        vec![self.arena.range()]
    }

    fn footprint_bytes(&self) -> u64 {
        self.arena.range().len().get()
    }

    fn bloat_bytes(&self) -> Option<u64> {
        let base = self.sizes.base.get();
        let bloat = |group: &[u64; GROUP_WORDS]| {
            let used = NODE.times(HEADS as u64 + group[NODE_WORDS]);
            GROUP.get() - used.get().next_multiple_of(base).min(GROUP.get())
        };
        Some(self.arena.words().as_chunks().0.iter().map(bloat).sum())
    }

    fn workers(&mut self, threads: usize) -> Vec<Box<dyn Worker + '_>> {
        readers(self, self.seed, threads)
    }
}

impl Index for GrownTree {
    const NAME: &'static str = NAME;
    const BATCH: u64 = 1 << 10;

    fn entries(&self) -> usize {
        self.entries
    }
    #[inline]
    fn look_up(&self, number: usize) -> Option<u64> {
        self.get(self.keys.key(number as u64))
    }
    #[inline]
    fn expected(&self, number: usize) -> u64 {
        mix(self.keys.key(number as u64))
    }
}

#[cfg(test)]
mod tests;
