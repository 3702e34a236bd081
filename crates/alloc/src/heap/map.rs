//! Addresses of all chunks of the process. Identifies foreign addresses without reading memory
//! there.
//!
//! # Safety
//! The index of an unchecked access is masked to the table's length.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

use super::chunk::{CHUNK, PAGE};
use super::os;
use crate::{Advice, Linux, Sys};

/// Bits of a user address, unless the program requests more.
const BITS: u32 = 48;
const SLOTS: usize = 1 << (BITS - CHUNK.trailing_zeros());

/// Number of huge pages, per 32 MiB of addresses, that belong to a chunk from its start on. Only
/// written parts use memory: one base page per 128 GiB of addresses.
static PAGES: Table = Table([const { AtomicU8::new(0) }; SLOTS]);

/// Aligned to base pages, so that advice affects only the table.
#[repr(align(4096))]
struct Table([AtomicU8; SLOTS]);

/// Keeps the table off huge pages, of which one byte would occupy a whole one. Called before the
/// first chunk of a heap.
pub(super) fn keep_small() {
    let start = NonNull::from(&PAGES).cast();
    // SAFETY: this advice does not change contents.
    let _ = os::preserving_errno(|| unsafe { Linux.advise(start, SLOTS, Advice::NoHuge) });
}

fn slot(address: usize) -> &'static AtomicU8 {
    &PAGES.0[address / CHUNK % SLOTS]
}

/// Registers a chunk of `len` bytes at `start`, before its memory is handed out.
pub(super) fn add(start: usize, len: usize) {
    #[allow(clippy::cast_possible_truncation)] // at most 16
    slot(start).store((len / PAGE) as u8, Relaxed);
}

/// Removes the chunk at `start`, before it is unmapped.
pub(super) fn remove(start: usize) {
    slot(start).store(0, Relaxed);
}

/// Returns whether a chunk contains the address.
pub(super) fn has(address: usize) -> bool {
    address >> BITS == 0 && address % CHUNK / PAGE < usize::from(slot(address).load(Relaxed))
}

/// Returns whether a chunk begins at or before the address in the same 32 MiB, so that its head may
/// be read. May be wrong for addresses above the user address range.
#[inline]
pub(super) fn has_head(address: usize) -> bool {
    // SAFETY: the index is below the number of slots.
    unsafe { PAGES.0.get_unchecked(address / CHUNK % SLOTS) }.load(Relaxed) != 0
}
