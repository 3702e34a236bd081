//! What begins at an address that a program gives back, resizes or measures; the end of the process where nothing does.
//!
//! # Safety
//! An address is looked up among those of chunks before what it says there is read.
#![allow(unsafe_code)]

use std::ptr;
use std::sync::atomic::Ordering::Relaxed;

use super::core::Core;
use super::misuse::{self, Call, Misuse};
use super::span::{Block, Span, nobody};
use super::{Heap, chunk, map, mark};
use crate::Sys;

/// What begins at an address.
pub(super) enum Allocation {
    /// An object of a span.
    Small(*mut Span),
    /// All of a span.
    Large(*mut Span),
    /// A region of its own, and its bytes.
    Huge(usize),
    /// An object before a guard page, and its bytes.
    Guarded(usize),
}

impl Allocation {
    pub(super) fn size(&self) -> usize {
        match self {
            // SAFETY: something begins there, so the span is in use.
            Self::Small(span) | Self::Large(span) => unsafe { (**span).object_size() },
            Self::Huge(size) | Self::Guarded(size) => *size,
        }
    }
}

impl<S: Sys> Heap<S> {
    /// What begins there. Ends the process where nothing does, which may go unnoticed where another thread frees meanwhile.
    ///
    /// # Safety
    /// The heap gave it out, and nobody frees it meanwhile, or this ends the process.
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
    /// What begins there, which may be a small object that is free.
    ///
    /// # Safety
    /// As for [`Heap::thing_at`].
    pub(super) unsafe fn allocation_at(&self, address: usize) -> Result<Allocation, Misuse> {
        if !map::has(address) {
            let central = self.central();
            if let Some(size) = central.guarded.size(address) {
                return size.map(Allocation::Guarded);
            }
            let huge = central.huge.get(address).ok_or_else(|| central.huge.misuse(address))?;
            return Ok(Allocation::Huge(huge.len()));
        }
        // SAFETY: a chunk holds it.
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
        if owner.is_null() || owner == nobody() {
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
