//! Number of shortest paths: `f64`, or [`WideCount`] where it ends. In a grid of 4096 × 4096, about
//! 2⁸¹⁹⁰ paths lead from corner to corner, and `f64` ends at 2¹⁰²⁴.

/// Number of shortest paths as 64 bits that threads share. The bits of 0 are 0.
pub(super) trait PathCount: Copy {
    const ONE: Self;

    fn bits(self) -> u64;
    fn of_bits(bits: u64) -> Self;
    fn plus(self, other: Self) -> Self;
    /// Computes `above / self`; `above` is 1 or more, and `self` is not 0.
    fn under(self, above: f64) -> Self;
    /// Computes the product in the range of `f64`.
    fn times(self, other: Self) -> f64;
    /// Whether the number, or a sum with it, may be beyond the range of this type.
    fn is_beyond(self) -> bool;
}

impl PathCount for f64 {
    const ONE: Self = 1.0;

    #[inline]
    fn bits(self) -> u64 {
        self.to_bits()
    }
    #[inline]
    fn of_bits(bits: u64) -> Self {
        Self::from_bits(bits)
    }
    #[inline]
    fn plus(self, other: Self) -> Self {
        self + other
    }
    #[inline]
    fn under(self, above: f64) -> Self {
        above / self
    }
    #[inline]
    fn times(self, other: Self) -> f64 {
        self * other
    }
    #[inline]
    fn is_beyond(self) -> bool {
        // Leaves room for the sum over the predecessors, and for the reciprocal.
        self >= power(980)
    }
}

/// Number that is 0 or positive: like `f64`, but with 28 bits of exponent (2²⁷ powers of two either
/// way) and 36 fraction bits. At most 3^(n/3) shortest paths join two vertices of a graph with n
/// vertices, so the range suffices below 2²⁷ vertices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WideCount(u64);

/// Fraction bits.
const FRACTION: u32 = 36;
/// Exponent of 1.
const BIAS: i64 = 1 << 27;
/// Fraction bits that `f64` has in addition.
const MORE: u32 = f64::MANTISSA_DIGITS - 1 - FRACTION;

impl WideCount {
    /// Makes a number of a value of 1 or more and an exponent.
    #[inline]
    fn of(value: f64, exponent: i64) -> Self {
        // Rounds to nearest. A carry goes into the exponent.
        let bits = (value.to_bits() + (1 << (MORE - 1))) >> MORE;
        let one = 1f64.to_bits() >> MORE;
        Self((bits - one).wrapping_add(((exponent + BIAS) as u64) << FRACTION))
    }

    /// Returns the value from 1 to below 2, and the exponent.
    #[inline]
    fn parts(self) -> (f64, i64) {
        let fraction = (self.0 & ((1 << FRACTION) - 1)) << MORE;
        (f64::from_bits(1f64.to_bits() | fraction), (self.0 >> FRACTION) as i64 - BIAS)
    }
}

impl PathCount for WideCount {
    const ONE: Self = Self((BIAS as u64) << FRACTION);

    #[inline]
    fn bits(self) -> u64 {
        self.0
    }
    #[inline]
    fn of_bits(bits: u64) -> Self {
        Self(bits)
    }
    #[inline]
    fn plus(self, other: Self) -> Self {
        let (high, low) = (self.0.max(other.0), self.0.min(other.0));
        if low == 0 {
            return Self(high);
        }
        let ((high, exponent), (low, lower)) = (Self(high).parts(), Self(low).parts());
        Self::of(high + low * power(lower - exponent), exponent)
    }
    #[inline]
    fn under(self, above: f64) -> Self {
        let (value, exponent) = self.parts();
        // Doubled, because the quotient may be below 1.
        Self::of(2.0 * above / value, -exponent - 1)
    }
    #[inline]
    fn times(self, other: Self) -> f64 {
        let ((one, exponent), (two, more)) = (self.parts(), other.parts());
        one * two * power(exponent + more)
    }
    #[inline]
    fn is_beyond(self) -> bool {
        false
    }
}

/// Computes a power of 2; 0 below the range of `f64`.
#[inline]
const fn power(exponent: i64) -> f64 {
    match exponent {
        ..=-1023 => 0.0,
        1024.. => f64::INFINITY,
        _ => f64::from_bits(((exponent + 1023) as u64) << (f64::MANTISSA_DIGITS - 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Path counts in a grid are those of Pascal's triangle, in which neighbours have a known
    /// ratio.
    #[test]
    fn paths_through_a_grid_are_counted_beyond_f64() {
        const ROWS: usize = 3000;
        let mut row = vec![WideCount::ONE];
        for _ in 0..ROWS {
            let pairs = row.windows(2).map(|pair| pair[0].plus(pair[1]));
            row = [WideCount::ONE].into_iter().chain(pairs).chain([WideCount::ONE]).collect();
        }
        for (k, pair) in row.windows(2).enumerate() {
            let expected = (ROWS - k) as f64 / (k + 1) as f64;
            let found = pair[1].times(pair[0].under(1.0));
            assert!((found / expected - 1.0).abs() < 1e-8, "{k}: {found}, not {expected}");
        }
        // Their sum is 2³⁰⁰⁰.
        let all = row.into_iter().fold(WideCount::default(), WideCount::plus);
        let doubled = (0..ROWS).fold(WideCount::ONE, |paths, _| paths.plus(paths));
        assert!((all.times(doubled.under(1.0)) - 1.0).abs() < 1e-8);
    }

    #[test]
    fn small_numbers_are_exact() {
        let of = |count: u32| {
            (0..count).fold(WideCount::default(), |paths, _| paths.plus(WideCount::ONE))
        };
        for count in [1, 2, 3, 7, 1000, 4097] {
            assert_eq!(of(count).times(WideCount::ONE), f64::from(count));
            let back = of(count).under(5.0).times(of(count));
            assert!((back - 5.0).abs() < 1e-9, "{back}");
        }
        assert_eq!(WideCount::default().times(of(3)), 0.0);
        assert_eq!(WideCount::default().plus(of(3)), of(3));
    }
}
