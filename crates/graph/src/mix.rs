//! `SplitMix64` (Steele, Lea and Flood, OOPSLA'14): random numbers by index.

/// Mixes all bits of a number, one-to-one.
#[inline]
pub(crate) const fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

/// Returns number `index`, from 1, of the sequence of `seed`.
pub(crate) const fn random(seed: u64, index: u64) -> u64 {
    mix(seed.wrapping_add(index.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reference values from Java's `SplittableRandom(1234567)`.
    #[test]
    fn the_sequence_is_that_of_java() {
        let three =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!([1, 2, 3].map(|index| random(1_234_567, index)), three);
    }
}
