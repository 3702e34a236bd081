//! Width of vertex IDs and property values, chosen at run time.

use std::fmt::{Debug, Display};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use hugepilot_alloc::Plain;

/// Integer for vertex IDs, offsets and weights: `u32`, or `u64` as in the papers, with arrays twice
/// as large.
pub trait Width:
    Plain<Cell: Cell<Self>>
    + Ord
    + Default
    + Debug
    + Display
    + Send
    + Sync
    + std::ops::Add<Output = Self>
    + 'static
{
    /// Floating-point type of the same width.
    type Real: Real<Bits = Self>;
    /// Largest number, which means "none".
    const NONE: Self;
    /// Number of bits.
    const BITS: u32;
    /// Highest bit. Numbers below it are vertex IDs, others may have another meaning.
    const TOP: Self;

    /// Converts a number. The caller guarantees that it fits.
    fn new(value: usize) -> Self;
    /// Converts to an index.
    fn at(self) -> usize;
    /// Adds, or returns [`Self::NONE`] on overflow.
    #[must_use]
    fn plus(self, other: Self) -> Self;
    /// Returns the bits of both.
    #[must_use]
    fn or(self, other: Self) -> Self;
    /// Clears the bits of `other`.
    #[must_use]
    fn and_not(self, other: Self) -> Self;
}

/// Value that threads share, with relaxed ordering: barriers order the rounds of a kernel.
pub trait Cell<V> {
    /// Reads the value.
    fn get(&self) -> V;
    /// Writes the value.
    fn set(&self, value: V);
    /// Replaces `old` by `new`. True if the value was `old`.
    fn replace(&self, old: V, new: V) -> bool;
    /// Adds, and returns the previous value.
    fn add(&self, more: V) -> V;
    /// Lowers the value to `value`. True if it was larger.
    fn lower(&self, value: V) -> bool;
}

/// Floating-point number whose bits threads can share.
pub trait Real:
    Copy
    + Default
    + PartialOrd
    + Debug
    + Send
    + Sync
    + std::iter::Sum
    + std::ops::Add<Output = Self>
    + std::ops::Sub<Output = Self>
    + std::ops::Mul<Output = Self>
    + std::ops::Div<Output = Self>
    + 'static
{
    /// Integer of the same width.
    type Bits;
    /// Rounds a number.
    fn of(value: f64) -> Self;
    /// Rounds a count below 2^63.
    fn count(count: usize) -> Self;
    /// Converts without loss.
    fn wide(self) -> f64;
    /// Returns the bits.
    fn bits(self) -> Self::Bits;
    /// Makes a number of bits.
    fn of_bits(bits: Self::Bits) -> Self;
}

macro_rules! width {
    ($word:ty, $cell:ty, $real:ty) => {
        impl Width for $word {
            type Real = $real;
            const NONE: Self = Self::MAX;
            const BITS: u32 = <$word>::BITS;
            const TOP: Self = 1 << (Self::BITS - 1);

            #[inline]
            #[allow(clippy::cast_possible_truncation)] // guaranteed by the caller
            fn new(value: usize) -> Self {
                debug_assert!(value as u64 <= Self::MAX as u64);
                value as Self
            }
            #[inline]
            #[allow(clippy::cast_possible_truncation)] // 64-bit systems only
            fn at(self) -> usize {
                self as usize
            }
            #[inline]
            fn plus(self, other: Self) -> Self {
                self.saturating_add(other)
            }
            #[inline]
            fn or(self, other: Self) -> Self {
                self | other
            }
            #[inline]
            fn and_not(self, other: Self) -> Self {
                self & !other
            }
        }

        impl Cell<$word> for $cell {
            #[inline]
            fn get(&self) -> $word {
                self.load(Relaxed)
            }
            #[inline]
            fn set(&self, value: $word) {
                self.store(value, Relaxed);
            }
            #[inline]
            fn replace(&self, old: $word, new: $word) -> bool {
                self.compare_exchange(old, new, Relaxed, Relaxed).is_ok()
            }
            #[inline]
            fn add(&self, more: $word) -> $word {
                self.fetch_add(more, Relaxed)
            }
            #[inline]
            fn lower(&self, value: $word) -> bool {
                let mut seen = self.load(Relaxed);
                while value < seen {
                    match self.compare_exchange_weak(seen, value, Relaxed, Relaxed) {
                        Ok(_) => return true,
                        Err(now) => seen = now,
                    }
                }
                false
            }
        }

        impl Real for $real {
            type Bits = $word;
            #[inline]
            #[allow(clippy::cast_possible_truncation)] // rounds
            fn of(value: f64) -> Self {
                value as Self
            }
            #[inline]
            #[allow(clippy::cast_precision_loss)] // rounds
            fn count(count: usize) -> Self {
                // Signed, because there is an instruction for it.
                count.cast_signed() as Self
            }
            #[inline]
            fn wide(self) -> f64 {
                self.into()
            }
            #[inline]
            fn bits(self) -> $word {
                self.to_bits()
            }
            #[inline]
            fn of_bits(bits: $word) -> Self {
                Self::from_bits(bits)
            }
        }
    };
}
width!(u32, AtomicU32, f32);
width!(u64, AtomicU64, f64);

const _: () = assert!(usize::BITS == 64, "arrays of graphs need 64-bit addresses");
