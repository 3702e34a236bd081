//! The address stream of a kernel, for whoever studies it.

use crate::Array;

/// Hears of each access of a kernel to an array, in the order of the thread that makes it. The unit type hears nothing, and
/// costs nothing: its calls compile to no instruction.
pub trait Hook: Copy + Sync {
    /// Item `index` of `array` is read.
    fn read(&self, array: Array, index: usize);
    /// It is written.
    fn write(&self, array: Array, index: usize);
}

impl Hook for () {
    #[inline(always)]
    fn read(&self, _: Array, _: usize) {}
    #[inline(always)]
    fn write(&self, _: Array, _: usize) {}
}

/// So that a consumer with state can be shared by all threads.
impl<H: Listen> Hook for &H {
    #[inline]
    fn read(&self, array: Array, index: usize) {
        self.hear(array, index, false);
    }
    #[inline]
    fn write(&self, array: Array, index: usize) {
        self.hear(array, index, true);
    }
}

/// A consumer of accesses.
pub trait Listen: Sync {
    /// Item `index` of `array` is read, or written.
    fn hear(&self, array: Array, index: usize, write: bool);
}
