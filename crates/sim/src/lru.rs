//! Fully associative table with exact least-recently-used replacement, in constant time.
//!
//! A log lists the uses. The last use of a key is live; those before are stale. The table is full
//! of the newest live uses, so that its oldest key is the first live use of the window. An index
//! finds keys: a chain of uses for each hash, newest first, which ends at the first use before the
//! window. It has many more chains than entries, so that most searches end at the first use or at
//! none. When the log is full, the live uses move to its begin.

use crate::memory::bytes_of;

/// Chains of the index for each entry.
const CHAINS: usize = 32;
/// Uses in the log for each entry, unless the log has [`MOST_USES`].
const USES: usize = 16;
/// Uses that 16 bits number.
const MOST_USES: usize = 1 << 16;
/// Key of a stale use, which no table gets.
const STALE: u32 = u32::MAX;

/// Table of keys below [`STALE`].
#[derive(Clone, Debug)]
pub(crate) struct Lru {
    entries: usize,
    used: usize,
    log: Vec<Use>,
    /// Uses before it are not in the table. Use 0 never is: it ends the chains.
    oldest: usize,
    /// Uses in the log.
    now: usize,
    /// Last use of each chain.
    chains: Vec<u16>,
}

/// Use of a key.
#[derive(Clone, Copy, Debug)]
struct Use {
    key: u32,
    /// Use before in the chain.
    before: u16,
}

impl Lru {
    /// Creates an empty table of 1 to 16,384 entries.
    pub(crate) fn new(entries: usize) -> Self {
        let entries = entries.clamp(1, 1 << 14);
        Self {
            entries,
            used: 0,
            log: vec![Use { key: STALE, before: 0 }; (1 + entries * USES).min(MOST_USES)],
            oldest: 1,
            now: 1,
            chains: vec![0; (entries * CHAINS).next_power_of_two()],
        }
    }

    /// Uses `key`. Returns whether the table had it; if not, it replaces the oldest entry.
    pub(crate) fn touch(&mut self, key: u32) -> bool {
        let mut is_held = false;
        self.touch_all(std::iter::once((key, ())), |(), held| is_held = held);
        is_held
    }

    /// Uses keys in order. `each` gets the rest of an item, and whether the table had the key; if
    /// not, it replaces the oldest entry.
    #[allow(clippy::cast_possible_truncation)]
    #[inline(always)]
    pub(crate) fn touch_all<T>(
        &mut self,
        keys: impl Iterator<Item = (u32, T)>,
        mut each: impl FnMut(T, bool),
    ) {
        // Copies stay in registers: with `zen5`, a random access to 1 GiB took 34 ns, now 31.
        let Self { entries, mut used, ref mut log, mut oldest, mut now, ref mut chains } = *self;
        let (mut log, mut chains) = (log.as_mut_slice(), chains.as_mut_slice());
        for (key, item) in keys {
            let chain = chain_of(key, chains.len());
            let newest = std::mem::replace(&mut chains[chain], now as u16);
            let mut found = usize::from(newest);
            while found >= oldest && log[found].key != key {
                found = usize::from(log[found].before);
            }
            let is_held = found >= oldest;
            if is_held {
                log[found].key = STALE;
            } else if used < entries {
                used += 1;
            } else {
                while log[oldest].key == STALE {
                    oldest += 1;
                }
                oldest += 1;
            }
            log[now] = Use { key, before: newest };
            now += 1;
            if now == log.len() {
                (self.used, self.oldest, self.now) = (used, oldest, now);
                self.renew();
                (oldest, now) = (self.oldest, self.now);
                (log, chains) = (self.log.as_mut_slice(), self.chains.as_mut_slice());
            }
            each(item, is_held);
        }
        (self.used, self.oldest, self.now) = (used, oldest, now);
    }

    /// Returns the keys in the table, the oldest first.
    #[cfg(test)]
    pub(crate) fn keys(&self) -> impl DoubleEndedIterator<Item = u32> {
        let window = self.log[self.oldest..self.now].iter();
        window.map(|used| used.key).filter(|&key| key != STALE)
    }

    /// Removes the entries that `stale` names. Cost: the size of the log.
    pub(crate) fn remove_if(&mut self, stale: impl Fn(u32) -> bool) {
        for used in &mut self.log[self.oldest..self.now] {
            if used.key != STALE && stale(used.key) {
                used.key = STALE;
                self.used -= 1;
            }
        }
    }

    /// Returns the bytes of the table.
    pub(crate) const fn bytes(&self) -> u64 {
        bytes_of(self.log.as_slice()) + bytes_of(self.chains.as_slice())
    }

    /// Moves the live uses to the begin of the log.
    #[allow(clippy::cast_possible_truncation)]
    #[inline(never)]
    fn renew(&mut self) {
        let Self { log, oldest, now, chains, .. } = self;
        chains.fill(0);
        let mut kept = 1;
        for at in *oldest..log.len() {
            let key = log[at].key;
            if key != STALE {
                let chain = chain_of(key, chains.len());
                log[kept] = Use { key, before: chains[chain] };
                chains[chain] = kept as u16;
                kept += 1;
            }
        }
        (*oldest, *now) = (1, kept);
    }
}

/// Returns the chain of a key, of a power of two.
#[allow(clippy::cast_possible_truncation)]
#[inline]
fn chain_of(key: u32, chains: usize) -> usize {
    (u64::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & (chains - 1)
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
                prop_assert!(lru.keys().rev().eq(list.keys.iter().copied()));
            }
        }
    }

    /// The second log has the most uses, and is full several times.
    #[test]
    fn a_cyclic_scan_of_one_key_more_than_entries_always_misses() {
        for entries in [64, 5000] {
            let mut lru = Lru::new(entries);
            for round in 0..30 {
                for key in 0..=entries as u32 {
                    assert!(!lru.touch(key), "round {round}, key {key}");
                }
            }
            assert!((1..=entries as u32).all(|key| lru.touch(key)));
        }
    }
}
