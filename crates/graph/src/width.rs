//! The width of vertex numbers and of what is kept per vertex, chosen when the program runs.

use std::fmt::{Debug, Display};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use hugepilot_alloc::Plain;

/// Vertex numbers, edge numbers and weights: `u32`, or `u64` as in the papers, whose arrays are twice as large.
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
    /// As wide, with a fraction.
    type Real: Real<Bits = Self>;
    /// The largest, used for "none".
    const NONE: Self;
    /// How many bits it has.
    const BITS: u32;
    /// The highest bit alone: what is below is a vertex number, what is not may be something else.
    const TOP: Self;

    /// Where the caller knows that it fits.
    fn new(value: usize) -> Self;
    /// As an index.
    fn at(self) -> usize;
    /// The sum, or [`Self::NONE`].
    #[must_use]
    fn plus(self, other: Self) -> Self;
    /// The bits of both.
    #[must_use]
    fn or(self, other: Self) -> Self;
    /// Without the bits of `other`.
    #[must_use]
    fn and_not(self, other: Self) -> Self;
}

/// A value that threads share. Nothing is ordered by it: kernels order their rounds by barriers.
pub trait Cell<V> {
    /// Reads it.
    fn get(&self) -> V;
    /// Writes it.
    fn set(&self, value: V);
    /// Writes `new` if it is `old`. True if it was.
    fn replace(&self, old: V, new: V) -> bool;
    /// Adds, and gives what was there before.
    fn add(&self, more: V) -> V;
    /// Lowers it to `value`, if that is less. True if it was.
    fn lower(&self, value: V) -> bool;
}

/// A number with a fraction, whose bits can be shared.
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
    /// As many bits.
    type Bits;
    /// The nearest.
    fn of(value: f64) -> Self;
    /// The nearest to a number of things, of which there are fewer than 2^63.
    fn count(count: usize) -> Self;
    /// Exactly.
    fn wide(self) -> f64;
    /// Its bits.
    fn bits(self) -> Self::Bits;
    /// That of these bits.
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
            #[allow(clippy::cast_possible_truncation)] // the caller knows
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
            #[allow(clippy::cast_possible_truncation)] // the nearest
            fn of(value: f64) -> Self {
                value as Self
            }
            #[inline]
            #[allow(clippy::cast_precision_loss)] // the nearest
            fn count(count: usize) -> Self {
                // Signed, as there is an instruction for that.
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
