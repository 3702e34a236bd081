//! Sets of few ways, with their replacement.

use serde::{Deserialize, Serialize};
use wide::u32x8;

use crate::memory::bytes_of;

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
/// Ways that one comparison covers.
const LANES: usize = 8;
/// Place without an entry.
const EMPTY: u32 = u32::MAX;

/// Sets of at most `8 * WORDS` ways.
#[derive(Clone, Debug)]
pub(crate) struct Sets<const WORDS: usize, O> {
    sets: Vec<Set<WORDS>>,
    /// Ways of all sets that hold no tag.
    empty: usize,
    order: O,
}

#[derive(Clone, Debug)]
struct Set<const WORDS: usize> {
    tags: [u32x8; WORDS],
    /// State of the replacement.
    order: u64,
}

/// Replacement in sets whose state is a word.
pub(crate) trait Order {
    /// State of a set that was not used.
    const FRESH: u64;

    /// Creates the replacement of sets of `ways`.
    fn new(ways: usize) -> Self;
    /// Returns the state after a use of `way`.
    fn touch(&self, state: u64, way: usize) -> u64;
    /// Returns the one of the `allowed` ways to fill, which are bits in a row, and the state after
    /// its use. One of the `empty` ways is first; they are bits, too.
    fn fill(&mut self, state: u64, empty: u64, allowed: u64) -> (usize, u64);
    /// Returns the state after `way` became empty.
    fn empty(&self, state: u64, way: usize) -> u64 {
        let _ = way;
        state
    }
}

impl<const WORDS: usize, O: Order> Sets<WORDS, O> {
    pub(crate) fn new(sets: usize, ways: usize) -> Self {
        let set = Set { tags: [u32x8::splat(EMPTY); WORDS], order: O::FRESH };
        Self { sets: vec![set; sets], empty: sets * ways, order: O::new(ways) }
    }

    /// Uses tags in order: an item has the set, the tag, the allowed ways and what `each` gets,
    /// with whether the set held the tag. If not, it is filled into one of the allowed ways.
    #[inline(always)]
    pub(crate) fn touch_all<T>(
        &mut self,
        entries: impl Iterator<Item = (usize, u32, u64, T)>,
        mut each: impl FnMut(T, bool),
    ) {
        for (set, tag, allowed, item) in entries {
            each(item, self.touch(set, tag, allowed));
        }
    }

    #[inline(always)]
    fn touch(&mut self, set: usize, tag: u32, allowed: u64) -> bool {
        let set = &mut self.sets[set];
        let found = set.find(tag);
        if found != 0 {
            set.order = self.order.touch(set.order, found.trailing_zeros() as usize);
            return true;
        }
        let empty = if self.empty > 0 { set.find(EMPTY) & allowed } else { 0 };
        let (way, order) = self.order.fill(set.order, empty, allowed);
        self.empty -= (empty >> way & 1) as usize;
        set.put(way, tag);
        set.order = order;
        false
    }

    /// Returns the bytes of the sets.
    pub(crate) const fn bytes(&self) -> u64 {
        bytes_of(self.sets.as_slice())
    }

    pub(crate) fn remove_if(&mut self, stale: impl Fn(u32) -> bool) {
        for set in &mut self.sets {
            let tags = set.tags.iter_mut().flat_map(|tags| tags.as_mut_array());
            for (way, held) in tags.enumerate() {
                if *held != EMPTY && stale(*held) {
                    *held = EMPTY;
                    self.empty += 1;
                    set.order = self.order.empty(set.order, way);
                }
            }
        }
    }
}

impl<const WORDS: usize> Set<WORDS> {
    /// Returns the way of a tag as a bit, or 0.
    #[inline]
    fn find(&self, tag: u32) -> u64 {
        let wanted = u32x8::splat(tag);
        let of_word = |(word, tags): (usize, &u32x8)| {
            u64::from(tags.simd_eq(wanted).to_bitmask()) << (word * LANES)
        };
        self.tags.iter().enumerate().map(of_word).fold(0, |all, ways| all | ways)
    }

    #[inline]
    fn put(&mut self, way: usize, tag: u32) {
        self.tags[way / LANES % WORDS].as_mut_array()[way % LANES] = tag;
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

    /// An empty way is older than all others.
    #[allow(clippy::cast_possible_truncation)]
    #[inline]
    fn fill(&mut self, state: u64, _empty: u64, allowed: u64) -> (usize, u64) {
        let way = state >> self.newer & 0xf;
        if allowed >> way & 1 == 1 {
            let kept = !(0xf << self.newer | ((1 << self.newer) - 1));
            return (way as usize, state & kept | (state << WAY_BITS | way) & !kept);
        }
        let older = |place| state >> (place * WAY_BITS) & 0xf;
        let is_allowed = |way: &u64| allowed >> way & 1 == 1;
        let places = (0..self.newer / WAY_BITS).rev();
        let way = places.map(older).find(is_allowed).unwrap_or(state & 0xf);
        (way as usize, to_front(state, way))
    }

    fn empty(&self, state: u64, way: usize) -> u64 {
        let newer = to_front(state, way as u64) >> WAY_BITS;
        let below = (1 << self.newer) - 1;
        let kept = !(0xf << self.newer | below);
        state & kept | (way as u64) << self.newer | newer & below
    }
}

/// PLRU. Bit `n` of the state belongs to node `n` of the tree, whose children are `2n` and
/// `2n + 1`.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    /// Nodes off the path to each way, and those on it that point away from the way.
    paths: [(u64, u64); 64],
    ways: usize,
    /// Way at which each state points, and the state after its use, of at most eight ways: a search
    /// needs three steps, and then waits for the path.
    victims: Vec<(u8, u8)>,
}

impl Order for Tree {
    const FRESH: u64 = 0;

    #[allow(clippy::cast_possible_truncation)]
    fn new(ways: usize) -> Self {
        let of_way = |way| if way < ways { path(way, ways) } else { (0, 0) };
        let paths = std::array::from_fn(of_way);
        let mut tree = Self { paths, ways, victims: Vec::new() };
        let states = if ways <= LANES { 1 << LANES } else { 0 };
        let victim = |state| {
            let way = pointed_at(state, ways);
            (way as u8, tree.touch(state, way) as u8)
        };
        tree.victims = (0..states).map(victim).collect();
        tree
    }

    #[inline]
    fn touch(&self, state: u64, way: usize) -> u64 {
        let (others, away) = self.paths[way % 64];
        state & others | away
    }

    #[inline]
    fn fill(&mut self, state: u64, empty: u64, _allowed: u64) -> (usize, u64) {
        let way = match empty {
            0 => match self.victims.get(state as usize) {
                Some(&(way, state)) => return (way.into(), state.into()),
                None => pointed_at(state, self.ways),
            },
            empty => empty.trailing_zeros() as usize,
        };
        (way, self.touch(state, way))
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

/// State of the generator of random replacement at first.
pub(crate) const RANDOM_SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the next state of the generator, which is also the drawn number.
pub(crate) const fn next_random(mut state: u64) -> u64 {
    state ^= state << 13;
    state ^= state >> 7;
    state ^ state << 17
}

/// Random replacement, by one generator for all sets.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Order for Random {
    const FRESH: u64 = 0;

    fn new(_ways: usize) -> Self {
        Self(RANDOM_SEED)
    }

    fn touch(&self, state: u64, _way: usize) -> u64 {
        state
    }

    fn fill(&mut self, state: u64, empty: u64, allowed: u64) -> (usize, u64) {
        if empty != 0 {
            return (empty.trailing_zeros() as usize, state);
        }
        self.0 = next_random(self.0);
        let place = (self.0 % u64::from(allowed.count_ones())) as usize;
        (allowed.trailing_zeros() as usize + place, state)
    }
}
