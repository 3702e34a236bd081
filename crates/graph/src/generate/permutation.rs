//! Permutation of vertex IDs without a table, the same on every machine and thread.

/// Permutation of the numbers below a power of two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permutation {
    mask: u64,
    shift: u32,
    seed: u64,
}

/// Odd factors, so that multiplication is one-to-one: the first digits of π, e and √2, last bit
/// set.
const FACTORS: [u64; 3] = [0x3243_F6A8_885A_308D, 0x2B7E_1516_28AE_D2A7, 0x16A0_9E66_7F3B_CC91];

impl Permutation {
    /// Makes a permutation of the numbers of `bits` bits.
    pub(crate) const fn new(bits: u32) -> Self {
        Self::seeded(bits, 0)
    }

    /// Makes a permutation that depends on the seed.
    pub(crate) const fn seeded(bits: u32, seed: u64) -> Self {
        Self { mask: (1 << bits) - 1, shift: if bits < 2 { 1 } else { bits / 2 }, seed }
    }

    /// Maps a number. Each step is one-to-one: an odd factor, then high bits onto low bits.
    #[inline]
    pub(crate) const fn of(self, mut number: u64) -> u64 {
        let mut i = 0;
        while i < FACTORS.len() {
            number = number.wrapping_mul(FACTORS[i]).wrapping_add((FACTORS[i] >> 32) ^ self.seed)
                & self.mask;
            number ^= number >> self.shift;
            i += 1;
        }
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_is_one_to_one() {
        for bits in 0..=16 {
            let permutation = Permutation::new(bits);
            let mut seen = vec![false; 1 << bits];
            for number in 0..1 << bits {
                let to = usize::try_from(permutation.of(number)).unwrap();
                assert!(!std::mem::replace(&mut seen[to], true), "{bits} bits: {to} occurs twice");
            }
        }
    }

    /// The hubs of a Kronecker graph have few bits set, and should scatter.
    #[test]
    fn close_numbers_scatter() {
        let permutation = Permutation::new(20);
        let mut low: Vec<u64> = (0..64).map(|number| permutation.of(number)).collect();
        low.sort_unstable();
        let near = low.windows(2).filter(|two| two[1] - two[0] < 64).count();
        assert!(near < 4, "{near} of 64 are close to another");
    }
}
