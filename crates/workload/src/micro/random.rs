//! A random cycle through chosen places of memory.
//!
//! Places are offsets in bytes. The CPU scales an index of words when it computes the address, and
//! then a load from the first-level cache takes five cycles instead of four (measured on a Zen 4).

use crate::rng::Rng;

/// Links the words at `places` into one cycle of random order.
///
/// The order is shuffled, and each place is linked to the one after it, so there is one cycle.
pub(super) fn link(memory: &mut [u8], places: &mut [usize], rng: &mut Rng) {
    for last in (1..places.len()).rev() {
        places.swap(last, rng.below(last + 1));
    }
    let next = places.iter().cycle().skip(1);
    for (&place, &next) in places.iter().zip(next) {
        memory[place..][..size_of::<usize>()].copy_from_slice(&next.to_ne_bytes());
    }
}

/// Walks `steps` places from `at` and returns the last one.
#[inline(never)]
pub(super) fn chase(memory: &[u8], mut at: usize, steps: u64) -> usize {
    for _ in 0..steps {
        at = after(memory, at);
    }
    at
}

/// Returns the place after the one at `at`.
#[inline]
pub(super) fn after(memory: &[u8], at: usize) -> usize {
    usize::from_ne_bytes(*memory[at..].first_chunk().expect("a place has a word"))
}

/// Returns the number of steps by `after` from `start` until the walk is back; at most `limit`.
pub(super) fn cycle_length(start: usize, limit: u64, after: impl Fn(usize) -> usize) -> u64 {
    let (mut at, mut steps) = (start, 0);
    loop {
        at = after(at);
        steps += 1;
        if at == start || steps >= limit {
            return steps;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cycle_has_every_place_once() {
        for seed in 0..20 {
            let mut places: Vec<usize> = (0..97).map(|place| place * 64 + 24).collect();
            let mut memory = vec![0; 97 * 64];
            link(&mut memory, &mut places, &mut Rng::new(seed, 0));
            assert_eq!(cycle_length(24, 1000, |at| after(&memory, at)), 97);
            assert_eq!(chase(&memory, 24, 97), 24);
            let words = memory.chunks(8).filter(|word| word.iter().any(|&byte| byte != 0));
            assert_eq!(words.count(), 97);
        }
    }

    #[test]
    fn a_damaged_cycle_is_shorter() {
        let mut next = vec![1, 2, 3, 0];
        let length = |next: &[usize]| cycle_length(0, 100, |at| next[at]);
        assert_eq!(length(&next), 4);
        next[1] = 0;
        assert_eq!(length(&next), 2);
        next[1] = 1;
        assert_eq!(length(&next), 100);
    }
}
