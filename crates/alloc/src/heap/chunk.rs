//! Chunk: 32 MiB of addresses, aligned to that, whose head describes the rest. So the span of any
//! pointer is found by masking the address.
//!
//! # Safety
//! A chunk's head is written when its region is mapped, before any of its memory is handed out, and
//! lives until the region is unmapped. Its fields change under the heap's lock only.
#![allow(unsafe_code)]

use std::ptr;

use super::class::UNIT;
use super::map;
use super::span::{LARGE, Span};
use super::units::{UNITS, Units};
use crate::{HugeRegion, Sys};

/// Address length of a chunk in bytes; the memory behind it may be shorter.
pub(super) const CHUNK: usize = 32 << 20;
/// Assumed size of huge pages: memory is freed in whole multiples of it.
pub(super) const PAGE: usize = 2 << 20;
/// Units per huge page.
pub(super) const PAGE_UNITS: usize = PAGE / UNIT;

/// Offset of the table that maps each unit to the first unit of its span.
const FIRSTS: usize = SPANS - UNITS * size_of::<u16>();
/// Offset of the span descriptions.
const SPANS: usize = 4096;

/// Head of a chunk, without the tables of units and spans.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Chunk<S: Sys> {
    /// ID of its heap; first, at the same offset for every `Sys`.
    heap: u64,
    pub(super) next: *mut Self,
    pub(super) previous: *mut Self,
    /// Epoch of its lists: see `Central::reset_after_fork`.
    pub(super) epoch: u32,
    /// Number of units, including those of the head.
    pub(super) units: usize,
    /// Number of free units.
    pub(super) free_units: usize,
    pub(super) free: Units,
    /// Units used since they were mapped or their memory was freed.
    pub(super) dirty: Units,
    /// Region under the chunk; `None` if another chunk holds it.
    pub(super) region: Option<HugeRegion<S>>,
    /// Whether its region holds other chunks, too.
    pub(super) shared: bool,
    /// Whether its pages can be freed without the region.
    pub(super) discards: bool,
}

impl<S: Sys> Chunk<S> {
    /// Makes a chunk of `len` bytes at `start` for the heap with this ID.
    ///
    /// # Safety
    /// These bytes are mapped, zeroed, at a multiple of [`CHUNK`], at least [`PAGE`] and at most
    /// [`CHUNK`] of them, without other users.
    pub(super) unsafe fn begin(start: *mut u8, len: usize, heap: u64) -> *mut Self {
        const { assert!(size_of::<Self>() <= FIRSTS) };
        start.expose_provenance();
        let units = len / UNIT;
        let head = head_units(units);
        let (mut free, mut dirty) = (Units::NONE, Units::NONE);
        free.set(head, units - head);
        dirty.set(0, head);
        let chunk = start.cast::<Self>();
        let head = Self {
            heap,
            next: ptr::null_mut(),
            previous: ptr::null_mut(),
            epoch: 0,
            units,
            free_units: units - head,
            free,
            dirty,
            region: None,
            shared: false,
            discards: false,
        };
        // SAFETY: the head lies in the caller's memory; zeroed descriptions are those of no spans.
        unsafe { chunk.write(head) };
        map::add(chunk.addr(), len);
        chunk
    }

    /// Returns whether no unit is in use.
    pub(super) fn is_empty(&self) -> bool {
        self.free_units == self.units - head_units(self.units)
    }

    /// Returns each span in use.
    ///
    /// # Safety
    /// The caller holds the heap's lock.
    pub(super) unsafe fn spans(&self) -> impl Iterator<Item = &Span> {
        let start = ptr::from_ref(self).addr();
        let used = (head_units(self.units)..self.units).filter(|&unit| !self.free.any(unit, 1));
        // SAFETY: each unit has a description, and an entry for the start of its span.
        used.filter(move |&unit| unsafe { *first_of(start, unit) } == unit as u16)
            .map(move |unit| unsafe { &*span_of_unit(start, unit) })
    }

    /// Makes these free units the span of a large object.
    ///
    /// # Safety
    /// The caller holds the heap's lock.
    pub(super) unsafe fn take(&mut self, at: usize, units: usize) -> *mut Span {
        debug_assert!(self.free.all(at, units));
        let zeroed = !self.dirty.any(at, units);
        let span = span_of_unit(ptr::from_ref(self).addr(), at);
        self.extend(at, 0, units);
        #[allow(clippy::cast_possible_truncation)] // at most 512
        // SAFETY: each unit has a description, and those of free units have no readers.
        unsafe {
            (*span).units.set(units as u16);
            (*span).zeroed().set(zeroed);
            (*span).set_class(LARGE);
        }
        span
    }

    /// Adds free units to the span at `at`, which had `old` units.
    pub(super) fn extend(&mut self, at: usize, old: usize, units: usize) {
        let (more, start) = (units - old, ptr::from_ref(self).addr());
        self.free.clear(at + old, more);
        self.dirty.set(at + old, more);
        self.free_units -= more;
        for unit in old..units {
            #[allow(clippy::cast_possible_truncation)] // at most 512
            // SAFETY: each unit has an entry, and those of free units have no readers.
            unsafe {
                first_of(start, at + unit).write(at as u16)
            };
        }
    }

    /// Frees units of a span.
    pub(super) fn free_span(&mut self, at: usize, units: usize) {
        debug_assert!(!self.free.any(at, units));
        self.free.set(at, units);
        self.free_units += units;
    }
}

/// Returns the units of the head of a chunk of `units` units.
const fn head_units(units: usize) -> usize {
    (SPANS + units * size_of::<Span>()).div_ceil(UNIT)
}

/// Returns the chunk that contains an address, if there is one.
pub(super) fn start_of(address: usize) -> usize {
    address & !(CHUNK - 1)
}

/// Returns the ID of the heap whose chunk contains an address.
///
/// # Safety
/// A chunk contains it: see [`map::has`].
pub(super) unsafe fn heap_of(address: usize) -> u64 {
    // SAFETY: a chunk begins with the ID.
    unsafe { *ptr::with_exposed_provenance(start_of(address)) }
}

/// Returns the description of a unit.
#[inline]
fn span_of_unit(chunk: usize, unit: usize) -> *mut Span {
    ptr::with_exposed_provenance_mut(chunk + SPANS + unit * size_of::<Span>())
}

/// Returns the entry that holds the first unit of a unit's span.
#[inline]
fn first_of(chunk: usize, unit: usize) -> *mut u16 {
    ptr::with_exposed_provenance_mut(chunk + FIRSTS + unit * size_of::<u16>())
}

/// Returns the span that contains an address. For units that were never in use, it is that of the
/// chunk's head: unowned, without objects.
///
/// # Safety
/// A chunk begins before the address: see [`map::has_head`].
#[inline]
pub(super) unsafe fn span_of(address: usize) -> *mut Span {
    // SAFETY: each unit of a chunk has an entry in the chunk's head.
    let first = unsafe { *first_of(start_of(address), address % CHUNK / UNIT) };
    span_of_unit(start_of(address), usize::from(first))
}

/// Returns the unit of a description.
pub(super) fn unit_of(span: *const Span) -> usize {
    (span.addr() % CHUNK - SPANS) / size_of::<Span>()
}

/// Returns the memory of a description.
pub(super) fn memory_of(span: *const Span) -> *mut u8 {
    ptr::with_exposed_provenance_mut(start_of(span.addr()) + unit_of(span) * UNIT)
}

const _: () = assert!(size_of::<Span>() == 128 && UNITS * UNIT == CHUNK);
