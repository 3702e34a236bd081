//! The address stream of a kernel, for whoever studies it.

use crate::Array;

/// Hears of the accesses that a kernel makes for each vertex and edge, in the order of the thread that makes them: to offsets,
/// edges, weights and properties, and reads of worklists. What fills a worklist and what only prepares a round is not told. The
/// unit type hears nothing, and costs nothing: its calls compile to no instruction.
pub trait AccessSink: Copy + Sync {
    /// `item` of `array` is read.
    fn read<T>(&self, array: Array, item: &T);
    /// It is written.
    fn write<T>(&self, array: Array, item: &T);
}

impl AccessSink for () {
    #[inline(always)]
    fn read<T>(&self, _: Array, _: &T) {}
    #[inline(always)]
    fn write<T>(&self, _: Array, _: &T) {}
}

/// So that a consumer with state can be shared by all threads.
impl<H: SharedSink> AccessSink for &H {
    #[inline]
    fn read<T>(&self, array: Array, item: &T) {
        self.on_access(array, std::ptr::from_ref(item).addr(), false);
    }
    #[inline]
    fn write<T>(&self, array: Array, item: &T) {
        self.on_access(array, std::ptr::from_ref(item).addr(), true);
    }
}

/// A consumer of accesses.
pub trait SharedSink: Sync {
    /// What is at `address`, in `array`, is read, or written. A kernel may have several arrays of that name.
    fn on_access(&self, array: Array, address: usize, write: bool);
}
