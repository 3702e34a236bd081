//! Where chunks lie, of all heaps of the process: so an address that is none of theirs is known without touching it.
//!
//! # Safety
//! The index of an unchecked access is masked to the table's length.
#![allow(unsafe_code)]

use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

use super::chunk::{CHUNK, PAGE};

/// Bits of an address that a process is given, unless it asks for more.
const BITS: u32 = 48;
const SLOTS: usize = 1 << (BITS - CHUNK.trailing_zeros());

/// For each 32 MiB of addresses, how many huge pages from its start belong to a chunk. The kernel gives memory only to the parts
/// that are written: one base page for 128 GiB of addresses.
static PAGES: [AtomicU8; SLOTS] = [const { AtomicU8::new(0) }; SLOTS];

fn slot(address: usize) -> &'static AtomicU8 {
    &PAGES[address / CHUNK % SLOTS]
}

/// A chunk of `len` bytes begins at `start`. Before anything in it is handed out.
pub(super) fn add(start: usize, len: usize) {
    #[allow(clippy::cast_possible_truncation)] // at most 16
    slot(start).store((len / PAGE) as u8, Relaxed);
}

/// The chunk at `start` is about to go.
pub(super) fn remove(start: usize) {
    slot(start).store(0, Relaxed);
}

/// Whether a chunk holds the address.
pub(super) fn has(address: usize) -> bool {
    address >> BITS == 0 && address % CHUNK / PAGE < usize::from(slot(address).load(Relaxed))
}

/// Whether a chunk begins at or before the address, in the same 32 MiB: so the chunk's head may be read. Addresses that no
/// process has may seem to have one.
#[inline]
pub(super) fn has_head(address: usize) -> bool {
    // SAFETY: the index is below the number of slots.
    unsafe { PAGES.get_unchecked(address / CHUNK % SLOTS) }.load(Relaxed) != 0
}
