//! A chunk: 32 MiB of addresses, at a multiple of that, whose first units describe the rest. So the span of any pointer is
//! found by masking it.
//!
//! # Safety
//! A chunk's head is written when its region is mapped, before anything in it is handed out, and is there until the region is
//! unmapped. Its fields change under the heap's lock only.
#![allow(unsafe_code)]

use std::ptr;

use super::class::UNIT;
use super::map;
use super::span::{LARGE, Span};
use super::units::{UNITS, Units};
use crate::{HugeRegion, Sys};

/// The length of a chunk's addresses; the memory behind them may be less.
pub(super) const CHUNK: usize = 32 << 20;
/// Huge pages are taken for this long: what is given back is given back in whole ones.
pub(super) const PAGE: usize = 2 << 20;
/// Units of one.
pub(super) const PAGE_UNITS: usize = PAGE / UNIT;

/// Where the table begins that says, for each unit, with which unit its span begins.
const FIRSTS: usize = SPANS - UNITS * size_of::<u16>();
/// Where the descriptions of the spans begin.
const SPANS: usize = 4096;

/// The head of a chunk, but for what is said of its units and spans.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Chunk<S: Sys> {
    /// The number of its heap; first, where it is found whatever the heap maps its memory with.
    heap: u64,
    pub(super) next: *mut Self,
    pub(super) previous: *mut Self,
    /// That of the lists that it is in: see `Central::renew`.
    pub(super) epoch: u32,
    /// How many units it has, the head's among them.
    pub(super) units: usize,
    /// How many of them are free.
    pub(super) free_units: usize,
    pub(super) free: Units,
    /// Those that were in use since they were mapped or given back.
    pub(super) dirty: Units,
    /// What it lies on; `None` where it lies on the region of another chunk.
    pub(super) region: Option<HugeRegion<S>>,
    /// Its region holds other chunks, too.
    pub(super) shared: bool,
    /// Its pages can be given back without the region.
    pub(super) discards: bool,
}

impl<S: Sys> Chunk<S> {
    /// Makes a chunk of `len` bytes at `start`, of the heap with that number.
    ///
    /// # Safety
    /// These bytes are mapped, all zero, at a multiple of [`CHUNK`], at least [`PAGE`] and at most [`CHUNK`] of them,
    /// and the caller's alone.
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

    /// Nothing in it is in use.
    pub(super) fn is_empty(&self) -> bool {
        self.free_units == self.units - head_units(self.units)
    }

    /// Each span that is in use.
    ///
    /// # Safety
    /// The caller holds the heap's lock.
    pub(super) unsafe fn spans(&self) -> impl Iterator<Item = &Span> {
        let start = ptr::from_ref(self).addr();
        let used = (head_units(self.units)..self.units).filter(|&unit| !self.free.any(unit, 1));
        // SAFETY: each unit has a description, and the place where its span begins.
        used.filter(move |&unit| unsafe { *first_of(start, unit) } == unit as u16)
            .map(move |unit| unsafe { &*span_of_unit(start, unit) })
    }

    /// Makes these units, which are free, the span of a large thing.
    ///
    /// # Safety
    /// The caller holds the heap's lock.
    pub(super) unsafe fn take(&mut self, at: usize, units: usize) -> *mut Span {
        debug_assert!(self.free.all(at, units));
        let zeroed = !self.dirty.any(at, units);
        let span = span_of_unit(ptr::from_ref(self).addr(), at);
        self.extend(at, 0, units);
        #[allow(clippy::cast_possible_truncation)] // at most 512
        // SAFETY: each unit has a description, and nobody looks at those of free units.
        unsafe {
            (*span).units.set(units as u16);
            (*span).zeroed().set(zeroed);
            (*span).set_class(LARGE);
        }
        span
    }

    /// Adds free units to the span at `at`, which had `old` of them.
    pub(super) fn extend(&mut self, at: usize, old: usize, units: usize) {
        let (more, start) = (units - old, ptr::from_ref(self).addr());
        self.free.clear(at + old, more);
        self.dirty.set(at + old, more);
        self.free_units -= more;
        for unit in old..units {
            #[allow(clippy::cast_possible_truncation)] // at most 512
            // SAFETY: each unit has a place there, and nobody looks at those of free units.
            unsafe {
                first_of(start, at + unit).write(at as u16)
            };
        }
    }

    /// Frees units of a span.
    pub(super) fn give_back(&mut self, at: usize, units: usize) {
        debug_assert!(!self.free.any(at, units));
        self.free.set(at, units);
        self.free_units += units;
    }
}

/// Units of the head of a chunk of so many units.
const fn head_units(units: usize) -> usize {
    (SPANS + units * size_of::<Span>()).div_ceil(UNIT)
}

/// The chunk that an address lies in, which is none at its start.
pub(super) fn start_of(address: usize) -> usize {
    address & !(CHUNK - 1)
}

/// The number of the heap whose chunk holds an address.
///
/// # Safety
/// A chunk holds it: see [`map::has`].
pub(super) unsafe fn heap_of(address: usize) -> u64 {
    // SAFETY: a chunk begins with that number.
    unsafe { *ptr::with_exposed_provenance(start_of(address)) }
}

/// The description of a unit.
#[inline]
fn span_of_unit(chunk: usize, unit: usize) -> *mut Span {
    ptr::with_exposed_provenance_mut(chunk + SPANS + unit * size_of::<Span>())
}

/// The unit with which the span of a unit begins.
#[inline]
fn first_of(chunk: usize, unit: usize) -> *mut u16 {
    ptr::with_exposed_provenance_mut(chunk + FIRSTS + unit * size_of::<u16>())
}

/// The span that holds an address. In units that were never in use it is the chunk's head's: nobody's, without objects.
///
/// # Safety
/// A chunk begins before the address: see [`map::has_head`].
#[inline]
pub(super) unsafe fn span_of(address: usize) -> *mut Span {
    // SAFETY: each unit of a chunk has a place in the chunk's head.
    let first = unsafe { *first_of(start_of(address), address % CHUNK / UNIT) };
    span_of_unit(start_of(address), usize::from(first))
}

/// Which unit of its chunk a description is of.
pub(super) fn unit_of(span: *const Span) -> usize {
    (span.addr() % CHUNK - SPANS) / size_of::<Span>()
}

/// The memory that a description is of.
pub(super) fn memory_of(span: *const Span) -> *mut u8 {
    ptr::with_exposed_provenance_mut(start_of(span.addr()) + unit_of(span) * UNIT)
}

const _: () = assert!(size_of::<Span>() == 128 && UNITS * UNIT == CHUNK);
