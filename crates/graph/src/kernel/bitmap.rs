//! Bitmap with one bit per vertex.

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use hugepilot_alloc::HugeVec;

use super::cost::ArrayUsage;
use crate::access_sink::AccessSink;
use crate::{Array, PagePlan, Result};

/// Bitmap that threads share. An atomic change of a word is recorded as one write.
pub(super) struct Bitmap(HugeVec<AtomicU64>);

/// Bits of a word. Threads that own whole words need no atomic read-modify-write.
pub(super) const WORD: usize = 64;

/// Whether a bit is set.
#[inline]
pub(super) fn is_set(words: &[AtomicU64], i: usize) -> bool {
    words[i / WORD].load(Relaxed) >> (i % WORD) & 1 != 0
}

impl Bitmap {
    /// Allocates a clear bitmap.
    pub(super) fn new(len: usize, pages: &PagePlan) -> Result<Self> {
        Ok(Self(pages.zeroed(Array::Worklist, len.div_ceil(WORD))?))
    }

    /// Reads the pagemap.
    pub(super) fn usage(&self) -> Result<ArrayUsage> {
        ArrayUsage::read(Array::Worklist, &self.0)
    }

    pub(super) fn words(&self) -> usize {
        self.0.len()
    }

    /// Returns the words, for a loop with [`is_set`].
    pub(super) fn cells(&self) -> &[AtomicU64] {
        &self.0
    }

    /// Sets a bit, concurrently with others of its word.
    #[inline]
    pub(super) fn set(&self, i: usize, sink: &impl AccessSink) {
        sink.write(Array::Worklist, &self.0[i / WORD]);
        self.0[i / WORD].fetch_or(1 << (i % WORD), Relaxed);
    }

    /// Sets a bit. True if it was clear. If it was set, the thread that clears it sees the earlier
    /// writes of this thread.
    #[inline]
    pub(super) fn claim(&self, i: usize, sink: &impl AccessSink) -> bool {
        sink.write(Array::Worklist, &self.0[i / WORD]);
        let bit = 1 << (i % WORD);
        self.0[i / WORD].fetch_or(bit, AcqRel) & bit == 0
    }

    /// Clears a bit, and sees the earlier writes of the threads that claimed it.
    #[inline]
    pub(super) fn clear_bit(&self, i: usize, sink: &impl AccessSink) {
        sink.write(Array::Worklist, &self.0[i / WORD]);
        self.0[i / WORD].fetch_and(!(1 << (i % WORD)), AcqRel);
    }

    /// Sets a word that no other thread writes.
    #[inline]
    pub(super) fn set_word(&self, word: usize, bits: u64, sink: &impl AccessSink) {
        sink.write(Array::Worklist, &self.0[word]);
        self.0[word].store(bits, Relaxed);
    }

    #[inline]
    pub(super) fn word(&self, word: usize, sink: &impl AccessSink) -> u64 {
        sink.read(Array::Worklist, &self.0[word]);
        self.0[word].load(Relaxed)
    }

    /// Clears words.
    pub(super) fn clear(&self, words: Range<usize>, sink: &impl AccessSink) {
        for word in &self.0[words] {
            sink.write(Array::Worklist, word);
            word.store(0, Relaxed);
        }
    }
}
