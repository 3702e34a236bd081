//! Set of units of a chunk.

use super::chunk::CHUNK;
use super::class::UNIT;

/// Units of a full chunk.
pub(super) const UNITS: usize = CHUNK / UNIT;

/// Bit set of units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Units([u64; UNITS / 64]);

impl Units {
    pub(super) const NONE: Self = Self([0; UNITS / 64]);

    /// Adds `count` units from `at`.
    pub(super) fn set(&mut self, at: usize, count: usize) {
        self.words(at, count, |word, mask| *word |= mask);
    }

    /// Removes `count` units from `at`.
    pub(super) fn clear(&mut self, at: usize, count: usize) {
        self.words(at, count, |word, mask| *word &= !mask);
    }

    /// Returns whether all of `count` units from `at` are in the set.
    pub(super) fn all(&self, at: usize, count: usize) -> bool {
        self.next(at, false) >= at + count
    }

    /// Returns whether any of `count` units from `at` is in the set.
    pub(super) fn any(&self, at: usize, count: usize) -> bool {
        self.next(at, true) < at + count
    }

    /// Returns the first multiple of `align` from which `count` units are in the set.
    pub(super) fn find(&self, count: usize, align: usize) -> Option<usize> {
        let mut at = 0;
        loop {
            at = self.next(at, true).next_multiple_of(align);
            if at + count > UNITS {
                return None;
            }
            let end = self.next(at, false);
            if end - at >= count {
                return Some(at);
            }
            at = end.max(at + 1);
        }
    }

    /// Returns the first unit from `at` on that is in the set, or is not; [`UNITS`] if there is
    /// none.
    fn next(&self, at: usize, is_in: bool) -> usize {
        let mut at = at;
        while at < UNITS {
            let word = if is_in { self.0[at / 64] } else { !self.0[at / 64] } >> (at % 64);
            if word != 0 {
                return at + word.trailing_zeros() as usize;
            }
            at = (at / 64 + 1) * 64;
        }
        UNITS
    }

    fn words(&mut self, at: usize, count: usize, mut each: impl FnMut(&mut u64, u64)) {
        let (mut at, end) = (at, at + count);
        while at < end {
            let bits = (64 - at % 64).min(end - at);
            each(&mut self.0[at / 64], (u64::MAX >> (64 - bits)) << (at % 64));
            at += bits;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        #[cfg_attr(miri, ignore = "no memory is at stake")]
        fn runs_are_found_where_a_plain_search_finds_them(
            ranges in proptest::collection::vec((0..UNITS, 1..80_usize, any::<bool>()), 0..24),
            count in 1..200_usize, shift in 0..6_u32,
        ) {
            let (mut units, mut model) = (Units::NONE, [false; UNITS]);
            for (at, len, add) in ranges {
                let len = len.min(UNITS - at);
                if add { units.set(at, len) } else { units.clear(at, len) }
                model[at..at + len].fill(add);
                prop_assert_eq!(units.all(at, len), add);
                prop_assert_eq!(units.any(at, len), add);
            }
            let align = 1 << shift;
            let fits = |&at: &usize| {
                at + count <= UNITS && model[at..at + count].iter().all(|&is_in| is_in)
            };
            let plain = (0..UNITS).step_by(align).find(fits);
            prop_assert_eq!(units.find(count, align), plain);
        }
    }
}
