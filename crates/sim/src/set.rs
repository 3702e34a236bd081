//! Sets of few ways, with their replacement.

use serde::{Deserialize, Serialize};

/// Choice of the entry of a full set that is replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Replacement {
    /// The one used longest ago.
    #[default]
    Lru,
    /// A binary tree of bits that point away from what was used last.
    Plru,
    /// Any, by a generator with a fixed seed.
    Random,
}

/// Most ways of a set whose order of use is one word.
pub(crate) const LISTED_WAYS: usize = 16;
/// Bits of a way in that word, and the word with 1 for each way.
const WAY_BITS: u32 = 4;
const EACH_WAY: u64 = u64::MAX / 0xf;
/// Ways of a word of fingerprints, and the word with 1 for each.
const LANES: usize = 8;
const EACH_LANE: u64 = u64::MAX / 0xff;
/// Place without an entry. No tag has this value: its lowest bits are a class, 0, 1 or 2.
const EMPTY: u64 = u64::MAX;

/// Sets of at most `8 * WORDS` ways.
#[derive(Clone, Debug)]
pub(crate) struct Sets<const WORDS: usize, O> {
    sets: Vec<Set<WORDS>>,
    order: O,
}

#[derive(Clone, Debug)]
struct Set<const WORDS: usize> {
    /// A byte of the hash of each tag, so that a subtraction compares those of a word.
    prints: [u64; WORDS],
    /// Ways that hold a tag, as bits.
    held: u64,
    /// State of the replacement.
    order: u64,
    tags: [[u64; LANES]; WORDS],
}

/// Replacement in sets whose state is a word.
pub(crate) trait Order {
    /// State of a set that was not used.
    const FRESH: u64;

    /// Creates the replacement of sets of `ways`.
    fn new(ways: usize) -> Self;
    /// Returns the state after a use of `way`.
    fn touch(&self, state: u64, way: usize) -> u64;
    /// Returns the one of the `allowed` ways to replace; they are bits in a row.
    fn victim(&mut self, state: u64, allowed: u64) -> usize;
}

impl<const WORDS: usize, O: Order> Sets<WORDS, O> {
    pub(crate) fn new(sets: usize, ways: usize) -> Self {
        let tags = [[EMPTY; LANES]; WORDS];
        let set = Set { prints: [0; WORDS], held: 0, order: O::FRESH, tags };
        Self { sets: vec![set; sets], order: O::new(ways) }
    }

    /// Uses tags in order: an item has the set, the tag and what `each` gets, with whether the set
    /// held the tag. If not, it is filled into one of the `allowed` ways.
    #[inline(always)]
    pub(crate) fn touch_all<T>(
        &mut self,
        entries: impl Iterator<Item = (usize, u64, T)>,
        allowed: u64,
        mut each: impl FnMut(T, bool),
    ) {
        for (set, tag, item) in entries {
            each(item, self.touch(set, tag, allowed));
        }
    }

    #[inline(always)]
    fn touch(&mut self, set: usize, tag: u64, allowed: u64) -> bool {
        let set = &mut self.sets[set];
        let prints = (tag.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) * EACH_LANE;
        let found = set.find(tag, prints);
        let way = found.unwrap_or_else(|| {
            let way = match set.take_empty(allowed) {
                Some(way) => way,
                None => self.order.victim(set.order, allowed),
            };
            set.put(way, tag, prints);
            way
        });
        set.order = self.order.touch(set.order, way);
        found.is_some()
    }

    pub(crate) fn remove_if(&mut self, stale: impl Fn(u64) -> bool) {
        for set in &mut self.sets {
            for (way, held) in set.tags.as_flattened_mut().iter_mut().enumerate() {
                if stale(*held) {
                    *held = EMPTY;
                    set.held &= !(1 << way);
                }
            }
        }
    }
}

impl<const WORDS: usize> Set<WORDS> {
    /// Returns the way of a tag, whose fingerprint is each byte of `wanted`.
    #[inline]
    fn find(&self, tag: u64, wanted: u64) -> Option<usize> {
        for (word, (&prints, tags)) in self.prints.iter().zip(&self.tags).enumerate() {
            let differing = prints ^ wanted;
            // The highest bit of each byte that is 0, and perhaps of some above.
            let mut equal =
                differing.wrapping_sub(EACH_LANE) & !differing & EACH_LANE << (LANES - 1);
            while equal != 0 {
                let lane = equal.trailing_zeros() as usize / 8;
                if tags[lane] == tag {
                    return Some(word * LANES + lane);
                }
                equal &= equal - 1;
            }
        }
        None
    }

    #[inline]
    fn take_empty(&mut self, allowed: u64) -> Option<usize> {
        let empty = allowed & !self.held;
        if empty == 0 {
            return None;
        }
        self.held |= empty & empty.wrapping_neg();
        Some(empty.trailing_zeros() as usize)
    }

    #[inline]
    fn put(&mut self, way: usize, tag: u64, wanted: u64) {
        let (word, lane) = (way / LANES % WORDS, way % LANES);
        self.tags[word][lane] = tag;
        self.prints[word] ^= (self.prints[word] ^ wanted) & 0xff << (lane * 8);
    }
}

/// LRU of at most [`LISTED_WAYS`]. The state lists all ways, the one used last in the lowest bits.
#[derive(Clone, Debug)]
pub(crate) struct List {
    /// Bits below the oldest way.
    newer: u32,
}

/// List of 16 ways that were not used.
pub(crate) const FRESH_LIST: u64 = 0xfedc_ba98_7654_3210;

/// Returns the highest bit of the place of a way in a list, and perhaps of some above.
const fn find_in_list(list: u64, way: u64) -> u64 {
    let differing = list ^ (way * EACH_WAY);
    differing.wrapping_sub(EACH_WAY) & !differing & EACH_WAY << (WAY_BITS - 1)
}

/// Returns the number of ways that were used after `way`.
pub(crate) const fn place_in_list(list: u64, way: u64) -> u32 {
    find_in_list(list, way).trailing_zeros() / WAY_BITS
}

/// Returns the list after a use of `way`.
pub(crate) const fn to_front(list: u64, way: u64) -> u64 {
    let found = find_in_list(list, way);
    let up_to = found ^ found.wrapping_sub(1);
    list & !up_to | (list << WAY_BITS | way) & up_to
}

impl Order for List {
    const FRESH: u64 = FRESH_LIST;

    #[allow(clippy::cast_possible_truncation)]
    fn new(ways: usize) -> Self {
        Self { newer: (ways as u32 - 1) * WAY_BITS }
    }

    #[inline]
    fn touch(&self, state: u64, way: usize) -> u64 {
        to_front(state, way as u64)
    }

    #[allow(clippy::cast_possible_truncation)]
    #[inline]
    fn victim(&mut self, state: u64, allowed: u64) -> usize {
        let mut newer = self.newer;
        loop {
            let way = state >> newer & 0xf;
            if allowed >> way & 1 == 1 || newer == 0 {
                return way as usize;
            }
            newer -= WAY_BITS;
        }
    }
}

/// PLRU. Bit `n` of the state belongs to node `n` of the tree, whose children are `2n` and
/// `2n + 1`.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    /// Nodes off the path to each way, and those on it that point away from the way.
    paths: [(u64, u64); 64],
    ways: usize,
    /// Way at which each state points, of at most eight ways: a search needs three steps.
    victims: Vec<u8>,
}

impl Order for Tree {
    const FRESH: u64 = 0;

    #[allow(clippy::cast_possible_truncation)]
    fn new(ways: usize) -> Self {
        let of_way = |way| if way < ways { path(way, ways) } else { (0, 0) };
        let paths = std::array::from_fn(of_way);
        let states = if ways <= LANES { 1 << LANES } else { 0 };
        let victims = (0..states).map(|state| pointed_at(state, ways) as u8).collect();
        Self { paths, ways, victims }
    }

    #[inline]
    fn touch(&self, state: u64, way: usize) -> u64 {
        let (others, away) = self.paths[way % 64];
        state & others | away
    }

    #[allow(clippy::cast_possible_truncation)]
    #[inline]
    fn victim(&mut self, state: u64, _allowed: u64) -> usize {
        match self.victims.get(state as usize) {
            Some(&way) => usize::from(way),
            None => pointed_at(state, self.ways),
        }
    }
}

/// Returns the way at which a tree points.
fn pointed_at(state: u64, ways: usize) -> usize {
    let mut node = 1;
    while node < ways {
        node = node * 2 + (state >> node & 1) as usize;
    }
    node - ways
}

/// Returns the nodes off the path to `way`, and those on it that must be set to point away.
fn path(way: usize, ways: usize) -> (u64, u64) {
    let (mut node, mut nodes, mut away) = (way + ways, 0, 0);
    while node > 1 {
        let is_left = node.is_multiple_of(2);
        node /= 2;
        nodes |= 1 << node;
        away |= u64::from(is_left) << node;
    }
    (!nodes, away)
}

/// Random replacement, by one generator for all sets.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Order for Random {
    const FRESH: u64 = 0;

    fn new(_ways: usize) -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }

    fn touch(&self, state: u64, _way: usize) -> u64 {
        state
    }

    fn victim(&mut self, _state: u64, allowed: u64) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let place = (self.0 % u64::from(allowed.count_ones())) as usize;
        allowed.trailing_zeros() as usize + place
    }
}
