//! Stream of the memory accesses of a kernel.

use crate::Array;

/// Receiver of the accesses that a kernel makes for each vertex and edge, in the order of each
/// thread: to offsets, edges, weights and property arrays, and reads of worklists. Writes to
/// worklists and the preparation of a round are not part of the stream. The unit type ignores
/// accesses, and its calls compile to no instruction.
pub trait AccessSink: Copy + Sync {
    /// Records a read of `item` in `array`.
    fn read<T>(&self, array: Array, item: &T);
    /// Records a write of `item` in `array`.
    fn write<T>(&self, array: Array, item: &T);
}

impl AccessSink for () {
    #[inline(always)]
    fn read<T>(&self, _: Array, _: &T) {}
    #[inline(always)]
    fn write<T>(&self, _: Array, _: &T) {}
}

/// Shares a stateful receiver between all threads.
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

/// Stateful receiver of accesses.
pub trait SharedSink: Sync {
    /// Records an access to `address` in `array`. A kernel may have several arrays of that name.
    fn on_access(&self, array: Array, address: usize, write: bool);
}
