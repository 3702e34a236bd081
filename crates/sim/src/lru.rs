//! Fully associative table with exact least-recently-used replacement, in constant time.
//!
//! Entries are a ring in the order of use. An index finds them: a chain for each hash. It has many
//! more chains than entries, so that most searches end at the first entry or at none.

use crate::memory::bytes_of;

/// End of a chain.
const NONE: u16 = u16::MAX;
/// Chains of the index for each entry.
const CHAINS: usize = 32;

/// Table of keys.
#[derive(Clone, Debug)]
pub(crate) struct Lru {
    /// Entries; those in use are the newest ones of the ring.
    entries: Vec<Entry>,
    used: usize,
    newest: u16,
    /// First entry of each chain.
    chains: Vec<u16>,
}

/// Entry. One array, since an act uses all fields of a few entries.
#[derive(Clone, Copy, Debug)]
struct Entry {
    key: u32,
    /// Neighbours in the ring.
    newer: u16,
    older: u16,
    /// Next entry of the chain.
    next: u16,
}

impl Lru {
    /// Creates an empty table of 1 to 16,384 entries.
    #[allow(clippy::cast_possible_truncation)]
    pub(crate) fn new(entries: usize) -> Self {
        let entries = entries.clamp(1, 1 << 14);
        let count = entries as u16;
        let alone = |slot| Entry {
            key: 0,
            newer: (slot + count - 1) % count,
            older: (slot + 1) % count,
            next: NONE,
        };
        Self {
            entries: (0..count).map(alone).collect(),
            used: 0,
            newest: 0,
            chains: vec![NONE; (entries * CHAINS).next_power_of_two()],
        }
    }

    /// Uses `key`. Returns whether the table had it; if not, it replaces the oldest entry.
    #[inline(always)]
    pub(crate) fn touch(&mut self, key: u32) -> bool {
        let chain = self.chain(key);
        if let Some(slot) = self.find(chain, key) {
            self.move_to_front(slot);
            return true;
        }
        // The ring starts with all slots; unused ones are its oldest.
        let victim = self.entries[usize::from(self.newest)].newer;
        if self.used < self.entries.len() {
            self.used += 1;
        } else {
            self.unchain(victim);
        }
        let entry = &mut self.entries[usize::from(victim)];
        entry.key = key;
        entry.next = std::mem::replace(&mut self.chains[chain], victim);
        self.newest = victim;
        false
    }

    /// Whether the table has `key`; its place in the order stays.
    #[cfg(test)]
    pub(crate) fn contains(&self, key: u32) -> bool {
        self.find(self.chain(key), key).is_some()
    }

    /// Removes the entries that `stale` names. Cost: the size of the table.
    pub(crate) fn remove_if(&mut self, stale: impl Fn(u32) -> bool) {
        let (mut slot, mut kept) = (self.newest, Vec::with_capacity(self.used));
        for _ in 0..self.used {
            let Entry { key, older, .. } = self.entries[usize::from(slot)];
            if !stale(key) {
                kept.push(key);
            }
            slot = older;
        }
        if kept.len() < self.used {
            *self = Self::new(self.entries.len());
            for key in kept.into_iter().rev() {
                self.touch(key);
            }
        }
    }

    /// Returns the bytes of the table.
    pub(crate) const fn bytes(&self) -> u64 {
        bytes_of(self.entries.as_slice()) + bytes_of(self.chains.as_slice())
    }

    fn move_to_front(&mut self, slot: u16) {
        if slot == self.newest {
            return;
        }
        let oldest = self.entries[usize::from(self.newest)].newer;
        if slot != oldest {
            let Entry { newer, older, .. } = self.entries[usize::from(slot)];
            self.entries[usize::from(newer)].older = older;
            self.entries[usize::from(older)].newer = newer;
            self.entries[usize::from(slot)].newer = oldest;
            self.entries[usize::from(slot)].older = self.newest;
            self.entries[usize::from(oldest)].older = slot;
            self.entries[usize::from(self.newest)].newer = slot;
        }
        self.newest = slot;
    }

    #[allow(clippy::cast_possible_truncation)]
    #[inline]
    fn chain(&self, key: u32) -> usize {
        (u64::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
            & (self.chains.len() - 1)
    }

    #[inline]
    fn find(&self, chain: usize, key: u32) -> Option<u16> {
        let mut slot = self.chains[chain];
        while slot != NONE {
            let entry = &self.entries[usize::from(slot)];
            if entry.key == key {
                return Some(slot);
            }
            slot = entry.next;
        }
        None
    }

    /// Takes an entry out of its chain.
    #[inline]
    fn unchain(&mut self, slot: u16) {
        let Entry { key, next, .. } = self.entries[usize::from(slot)];
        let chain = self.chain(key);
        let mut before = self.chains[chain];
        if before == slot {
            self.chains[chain] = next;
            return;
        }
        while self.entries[usize::from(before)].next != slot {
            before = self.entries[usize::from(before)].next;
        }
        self.entries[usize::from(before)].next = next;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same table as a list, newest first.
    struct List {
        keys: Vec<u32>,
        entries: usize,
    }

    impl List {
        fn touch(&mut self, key: u32) -> bool {
            let found = self.keys.iter().position(|&held| held == key);
            found.map(|at| self.keys.remove(at));
            self.keys.insert(0, key);
            self.keys.truncate(self.entries);
            found.is_some()
        }
    }

    proptest! {
        #[test]
        fn it_behaves_as_a_list(
            entries in 1usize..40,
            keys in prop::collection::vec((0u32..60, 0u8..20), 1..600),
        ) {
            let (mut lru, mut list) = (Lru::new(entries), List { keys: Vec::new(), entries });
            for (key, act) in keys {
                if act == 0 {
                    lru.remove_if(|held| held % 3 == key % 3);
                    list.keys.retain(|held| held % 3 != key % 3);
                } else {
                    // Multiples of 2^26 collide in the low bits of a plain hash.
                    prop_assert_eq!(lru.touch(key << 26), list.touch(key << 26));
                }
                for key in 0..60 {
                    prop_assert_eq!(lru.contains(key << 26), list.keys.contains(&(key << 26)));
                }
            }
        }
    }

    #[test]
    fn a_cyclic_scan_of_one_key_more_than_entries_always_misses() {
        let mut lru = Lru::new(64);
        for round in 0..5 {
            for key in 0..65 {
                assert!(!lru.touch(key), "round {round}, key {key}");
            }
        }
    }
}
