//! A random cycle through chosen words of memory.

use crate::rng::Rng;

/// Links the words at `places` into one cycle of random order.
///
/// The order is shuffled, and each place is linked to the one after it, so there is one cycle.
pub(super) fn link(memory: &mut [u64], places: &mut [usize], rng: &mut Rng) {
    for last in (1..places.len()).rev() {
        places.swap(last, rng.below(last + 1));
    }
    let next = places.iter().cycle().skip(1);
    for (&place, &next) in places.iter().zip(next) {
        memory[place] = next as u64;
    }
}

/// Returns the number of steps from `start` until the walk is back; at most `limit`.
pub(super) fn cycle_length(memory: &[u64], start: usize, limit: u64) -> u64 {
    let (mut at, mut steps) = (start, 0);
    loop {
        at = memory[at] as usize;
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
            let mut places: Vec<usize> = (0..97).map(|place| place * 8 + 3).collect();
            let mut memory = vec![0; 97 * 8];
            link(&mut memory, &mut places, &mut Rng::new(seed, 0));
            assert_eq!(cycle_length(&memory, 3, 1000), 97);
            assert_eq!(memory.iter().filter(|&&word| word != 0).count(), 97);
        }
    }

    #[test]
    fn a_damaged_cycle_is_shorter() {
        let mut memory = vec![1_u64, 2, 3, 0];
        assert_eq!(cycle_length(&memory, 0, 100), 4);
        memory[1] = 0;
        assert_eq!(cycle_length(&memory, 0, 100), 2);
        memory[1] = 1;
        assert_eq!(cycle_length(&memory, 0, 100), 100);
    }
}
