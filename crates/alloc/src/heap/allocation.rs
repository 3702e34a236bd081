//! Lookup of the object at an address that a program frees, resizes or measures.
//!
//! # Safety
//! An address is looked up among those of chunks before its chunk is read.
#![allow(unsafe_code)]

use std::ptr;
use std::sync::atomic::Ordering::Relaxed;

use super::core::Core;
use super::misuse::{self, Call, Misuse};
use super::span::{Block, Span, unowned};
use super::{Heap, chunk, map, mark};
use crate::Sys;

/// Object that begins at an address.
pub(super) enum Allocation {
    /// Object of a span.
    Small(*mut Span),
    /// Whole span.
    Large(*mut Span),
    /// Region of its own, of this length in bytes.
    Huge(usize),
}

impl Allocation {
    pub(super) fn size(&self) -> usize {
        match self {
            // SAFETY: an object begins there, so the span is in use.
            Self::Small(span) | Self::Large(span) => unsafe { (**span).object_size() },
            Self::Huge(size) => *size,
        }
    }
}

impl<S: Sys> Heap<S> {
    /// Returns the object at this address. Ends the process if there is none, which may go
    /// undetected if another thread frees meanwhile.
    ///
    /// # Safety
    /// An object in use of this heap that no thread frees meanwhile, or else the process ends.
    pub(super) unsafe fn allocation_at(&self, address: usize, call: Call) -> Allocation {
        let Some(core) = self.core_if_any() else { misuse::end(call, address, Misuse::Foreign) };
        // SAFETY: by contract.
        let allocation = unsafe { core.allocation_at(address) };
        let allocation = allocation.unwrap_or_else(|misuse| misuse::end(call, address, misuse));
        // SAFETY: an object of a span.
        let is_free = || unsafe { mark::is_on(ptr::with_exposed_provenance::<Block>(address)) };
        if matches!(allocation, Allocation::Small(_)) && is_free() {
            misuse::end(call, address, Misuse::Free { size: allocation.size() });
        }
        allocation
    }
}

impl<S: Sys> Core<S> {
    /// Returns the object at this address, which may be a free small object.
    ///
    /// # Safety
    /// As for [`Heap::allocation_at`].
    pub(super) unsafe fn allocation_at(&self, address: usize) -> Result<Allocation, Misuse> {
        if !map::has(address) {
            let central = self.central();
            let huge = central.huge.get(address).ok_or_else(|| central.huge.misuse(address))?;
            return Ok(Allocation::Huge(huge.len()));
        }
        // SAFETY: a chunk contains it.
        if unsafe { chunk::heap_of(address) } != self.header.id {
            return Err(Misuse::Foreign);
        }
        // SAFETY: as above.
        let (this, span) = unsafe {
            let this = chunk::span_of(address);
            (this, &*this)
        };
        let start = span.base().addr();
        if span.is_large() {
            return if address == start {
                Ok(Allocation::Large(this))
            } else {
                Err(inside(span, start))
            };
        }
        let owner = span.owner.load(Relaxed);
        if owner.is_null() || owner == unowned() {
            return Err(Misuse::Unused);
        }
        let size = span.object_size();
        if !span.has_at(address) {
            let first = address - (address - start) % size;
            return Err(if span.has_at(first) { inside(span, first) } else { Misuse::Unused });
        }
        Ok(Allocation::Small(this))
    }
}

fn inside(span: &Span, start: usize) -> Misuse {
    Misuse::Inside { start, size: span.object_size() }
}
