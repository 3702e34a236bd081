//! One bit per vertex.

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use hugepilot_alloc::HugeVec;

use super::cost::ArrayUsage;
use crate::{Array, PagePlan, Result};

/// Bits that threads share.
pub(super) struct Bitmap(HugeVec<AtomicU64>);

/// Bits of a word: threads that write whole words' worth need no atomic read-modify-write.
pub(super) const WORD: usize = 64;

/// A bit of such words.
#[inline]
pub(super) fn is_set(words: &[AtomicU64], i: usize) -> bool {
    words[i / WORD].load(Relaxed) >> (i % WORD) & 1 != 0
}

impl Bitmap {
    /// All clear.
    pub(super) fn new(len: usize, pages: &PagePlan) -> Result<Self> {
        Ok(Self(pages.zeroed(Array::Worklist, len.div_ceil(WORD))?))
    }

    /// On which pages it is.
    pub(super) fn usage(&self) -> Result<ArrayUsage> {
        ArrayUsage::read(Array::Worklist, &self.0)
    }

    pub(super) fn words(&self) -> usize {
        self.0.len()
    }

    /// Its words, for a loop with [`is_set`].
    pub(super) fn cells(&self) -> &[AtomicU64] {
        &self.0
    }

    /// Sets a bit; other threads may set others of its word.
    #[inline]
    pub(super) fn set(&self, i: usize) {
        self.0[i / WORD].fetch_or(1 << (i % WORD), Relaxed);
    }

    /// Sets a bit. True if it was clear; if it was not, whoever clears it sees what this thread wrote before.
    #[inline]
    pub(super) fn claim(&self, i: usize) -> bool {
        let bit = 1 << (i % WORD);
        self.0[i / WORD].fetch_or(bit, AcqRel) & bit == 0
    }

    /// Clears a bit, and sees what those wrote who claimed it.
    #[inline]
    pub(super) fn clear_bit(&self, i: usize) {
        self.0[i / WORD].fetch_and(!(1 << (i % WORD)), AcqRel);
    }

    /// Sets a word, which no other thread writes.
    #[inline]
    pub(super) fn set_word(&self, word: usize, bits: u64) {
        self.0[word].store(bits, Relaxed);
    }

    #[inline]
    pub(super) fn word(&self, word: usize) -> u64 {
        self.0[word].load(Relaxed)
    }

    /// Clears words.
    pub(super) fn clear(&self, words: Range<usize>) {
        self.0[words].iter().for_each(|word| word.store(0, Relaxed));
    }
}
