//! Random numbers, fast enough that workloads stall on memory only.

const STEP: u64 = 0x9e37_79b9_7f4a_7c15; // 2^64 / golden ratio, so the states spread evenly
const TWIST: u64 = 0xd1b5_4a32_d192_ed03;

/// A counter mixed by one wide multiplication. Only the counter links one number to the next (one
/// cycle), so the loads of a gather loop overlap as far as the memory allows. Only for placing
/// accesses: it is neither a statistical nor a cryptographic generator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// Returns stream number `stream` (a thread, or the set-up) of `seed`.
    pub(crate) fn new(seed: u64, stream: usize) -> Self {
        Self(mix(seed) ^ mix(!(stream as u64)))
    }

    /// Returns the next 64 random bits.
    #[inline]
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let wide = u128::from(self.0) * u128::from(self.0 ^ TWIST);
        (wide >> 64) as u64 ^ wide as u64
    }

    /// Returns a number below `limit`, which must not be 0.
    #[inline]
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.bits()) * limit as u128) >> 64) as usize
    }
}

/// Returns a random-looking number, different for each `n`.
#[inline]
pub(crate) fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 32)).wrapping_mul(STEP);
    let n = (n ^ (n >> 29)).wrapping_mul(TWIST);
    n ^ (n >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_spread_evenly_in_both_halves() {
        let mut rng = Rng::new(1, 0);
        let (mut high, mut low) = ([0_u32; 64], [0_u32; 64]);
        for _ in 0..64_000 {
            let bits = rng.bits();
            high[(bits >> 58) as usize] += 1;
            low[(bits & 63) as usize] += 1;
        }
        for count in high.into_iter().chain(low) {
            assert!((850..1150).contains(&count), "{count}");
        }
    }

    #[test]
    fn streams_of_one_seed_differ_and_repeat() {
        let first = |seed, stream| Rng::new(seed, stream).bits();
        assert_ne!(first(1, 0), first(1, 1));
        assert_ne!(first(1, 0), first(2, 0));
        assert_eq!(first(7, 3), first(7, 3));
    }

    #[test]
    fn mix_gives_each_number_its_own() {
        let mut seen: Vec<u64> = (0..10_000).map(mix).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 10_000);
    }
}
