//! Fully associative table with exact least-recently-used replacement, in constant time.
//!
//! Entries are a ring in the order of use. An index finds them. It has many more places, so
//! that most searches end at the first.

/// Place without an entry.
const FREE: u16 = u16::MAX;
/// Places of the index for each entry.
const PLACES: usize = 32;

/// Table of keys.
#[derive(Clone, Debug)]
pub(crate) struct Lru {
    keys: Vec<u64>,
    newer: Vec<u16>,
    older: Vec<u16>,
    used: u16,
    newest: u16,
    index: Index,
}

impl Lru {
    /// Creates an empty table of 1 to 16,384 entries.
    #[allow(clippy::cast_possible_truncation)]
    pub(crate) fn new(entries: usize) -> Self {
        let entries = entries.clamp(1, 1 << 14);
        let count = entries as u16;
        Self {
            keys: vec![0; entries],
            newer: (0..count).map(|slot| (slot + count - 1) % count).collect(),
            older: (0..count).map(|slot| (slot + 1) % count).collect(),
            used: 0,
            newest: 0,
            index: Index::new(entries),
        }
    }

    /// Uses `key`. Returns whether the table had it; if not, it replaces the oldest entry.
    pub(crate) fn touch(&mut self, key: u64) -> bool {
        if self.used > 0 && self.keys[usize::from(self.newest)] == key {
            return true;
        }
        if let Some(slot) = self.index.find(key, &self.keys) {
            self.move_to_front(slot);
            return true;
        }
        // The ring starts with all slots; unused ones are its oldest.
        let victim = self.newer[usize::from(self.newest)];
        if self.used < self.capacity() {
            self.used += 1;
        } else {
            self.index.remove(self.keys[usize::from(victim)], &self.keys);
        }
        self.keys[usize::from(victim)] = key;
        self.index.insert(key, victim, &self.keys);
        self.newest = victim;
        false
    }

    /// Whether the table has `key`; its place in the order stays.
    #[cfg(test)]
    pub(crate) fn contains(&self, key: u64) -> bool {
        self.index.find(key, &self.keys).is_some()
    }

    /// Removes the entries that `stale` names. Cost: the size of the table.
    pub(crate) fn remove_if(&mut self, stale: impl Fn(u64) -> bool) {
        let (mut slot, mut kept) = (self.newest, Vec::with_capacity(usize::from(self.used)));
        for _ in 0..self.used {
            let key = self.keys[usize::from(slot)];
            if !stale(key) {
                kept.push(key);
            }
            slot = self.older[usize::from(slot)];
        }
        if kept.len() < usize::from(self.used) {
            *self = Self::new(self.keys.len());
            for key in kept.into_iter().rev() {
                self.touch(key);
            }
        }
    }

    #[allow(clippy::cast_possible_truncation)]
    fn capacity(&self) -> u16 {
        self.keys.len() as u16
    }

    fn move_to_front(&mut self, slot: u16) {
        if slot == self.newest {
            return;
        }
        let oldest = self.newer[usize::from(self.newest)];
        if slot != oldest {
            let (newer, older) = (self.newer[usize::from(slot)], self.older[usize::from(slot)]);
            self.older[usize::from(newer)] = older;
            self.newer[usize::from(older)] = newer;
            self.newer[usize::from(slot)] = oldest;
            self.older[usize::from(slot)] = self.newest;
            self.older[usize::from(oldest)] = slot;
            self.newer[usize::from(self.newest)] = slot;
        }
        self.newest = slot;
    }
}

/// Open addressing with linear probing: from a key to the slot that holds it.
#[derive(Clone, Debug)]
struct Index {
    places: Vec<u16>,
}

impl Index {
    fn new(entries: usize) -> Self {
        Self { places: vec![FREE; (entries * PLACES).next_power_of_two()] }
    }

    fn find(&self, key: u64, keys: &[u64]) -> Option<u16> {
        let mut place = self.home(key);
        loop {
            let slot = self.places[place];
            if slot == FREE {
                return None;
            }
            if keys[usize::from(slot)] == key {
                return Some(slot);
            }
            place = self.after(place);
        }
    }

    /// Adds a key that is not in the index. `keys` has it already.
    fn insert(&mut self, key: u64, slot: u16, keys: &[u64]) {
        debug_assert_eq!(keys[usize::from(slot)], key);
        let mut place = self.home(key);
        while self.places[place] != FREE {
            place = self.after(place);
        }
        self.places[place] = slot;
    }

    /// Removes a key that is in the index, and closes the gap. `keys` still has it.
    fn remove(&mut self, key: u64, keys: &[u64]) {
        let mut gap = self.home(key);
        while keys[usize::from(self.places[gap])] != key {
            gap = self.after(gap);
        }
        let mut place = gap;
        loop {
            place = self.after(place);
            let slot = self.places[place];
            if slot == FREE {
                break;
            }
            // An entry may fill the gap unless its search would start behind the gap.
            let home = self.home(keys[usize::from(slot)]);
            if self.distance(home, place) >= self.distance(gap, place) {
                self.places[gap] = slot;
                gap = place;
            }
        }
        self.places[gap] = FREE;
    }

    #[allow(clippy::cast_possible_truncation)]
    fn home(&self, key: u64) -> usize {
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & (self.places.len() - 1)
    }
    fn after(&self, place: usize) -> usize {
        (place + 1) & (self.places.len() - 1)
    }
    fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.places.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same table as a list, newest first.
    struct List {
        keys: Vec<u64>,
        entries: usize,
    }

    impl List {
        fn touch(&mut self, key: u64) -> bool {
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
            keys in prop::collection::vec((0u64..60, 0u8..20), 1..600),
        ) {
            let (mut lru, mut list) = (Lru::new(entries), List { keys: Vec::new(), entries });
            for (key, act) in keys {
                if act == 0 {
                    lru.remove_if(|held| held % 3 == key % 3);
                    list.keys.retain(|held| held % 3 != key % 3);
                } else {
                    // Multiples of 2^32 collide in the low bits of a plain hash.
                    prop_assert_eq!(lru.touch(key << 32), list.touch(key << 32));
                }
                for key in 0..60 {
                    prop_assert_eq!(lru.contains(key << 32), list.keys.contains(&(key << 32)));
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
