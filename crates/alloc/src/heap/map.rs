//! Where chunks lie, of all heaps of the process: so an address that is none of theirs is known without touching it.
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

/// Bits of an address that a process is given, unless it asks for more.
const BITS: u32 = 48;
const SLOTS: usize = 1 << (BITS - CHUNK.trailing_zeros());

/// For each 32 MiB of addresses, how many huge pages from its start belong to a chunk. The kernel gives memory only to the parts
/// that are written: one base page for 128 GiB of addresses.
static PAGES: Table = Table([const { AtomicU8::new(0) }; SLOTS]);

/// Base pages of its own.
#[repr(align(4096))]
struct Table([AtomicU8; SLOTS]);

/// Keeps the table off huge pages, of which it would take one for a byte. Before the first chunk of a heap.
pub(super) fn keep_small() {
    let start = NonNull::from(&PAGES).cast();
    // SAFETY: advice that changes nothing of what is read there.
    let _ = os::preserving_errno(|| unsafe { Linux.advise(start, SLOTS, Advice::NoHuge) });
}

fn slot(address: usize) -> &'static AtomicU8 {
    &PAGES.0[address / CHUNK % SLOTS]
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
    unsafe { PAGES.0.get_unchecked(address / CHUNK % SLOTS) }.load(Relaxed) != 0
}
