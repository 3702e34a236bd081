//! Span: consecutive units, cut into objects of one class, or holding one large object.
//!
//! # Safety
//! A span's description lies in its chunk's head and lives as long as the chunk. A [`Cell`] belongs
//! to the thread that owns the span or, without an owner, to the holder of the heap's lock.
//! `class`, `units`, `divisor`, `bias` and `zeroed` change under that lock only, while no object of
//! the span is in use. All other fields are atomic. Free objects are linked through their first
//! bytes.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

use super::class::{self, UNIT};
use super::misuse;
use super::thread_cache::ThreadCache;
use super::{chunk, mark};

/// Free object: a link to the next one, and the mark of free objects.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Block {
    pub(super) next: *mut Block,
    pub(super) mark: usize,
}

impl Block {
    /// Creates the contents of a free object at `address`, before `next`.
    #[inline]
    pub(super) fn free(address: usize, next: *mut Self) -> Self {
        Self { next, mark: mark::of(address) }
    }
}

/// Class of spans that hold one large object.
pub(super) const LARGE: u8 = u8::MAX;

/// Returns the owner of spans without a thread. Not null, because the slot of a thread without
/// caches holds null.
pub(super) const fn unowned() -> *mut ThreadCache {
    ptr::without_provenance_mut(align_of::<ThreadCache>())
}

/// State of a span within its thread cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum State {
    /// The thread takes objects from it.
    Current = 0,
    /// The span has free objects, and is in the thread's queue.
    Queued,
    /// The span has no free object that the thread knows of.
    Full,
}

/// Description of a span, or of a unit inside of one. Two cache lines: the first for the owner, the
/// second for writes by other threads.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Span {
    /// Owning cache; [`unowned`] for large objects and for spans not in use.
    pub(super) owner: AtomicPtr<ThreadCache>,
    /// Objects freed by the owner.
    pub(super) free: Cell<*mut Block>,
    /// Objects handed out, including those in the thread's bin and those freed by other threads.
    pub(super) used: AtomicU32,
    pub(super) class: Cell<u8>,
    pub(super) state: Cell<State>,
    pub(super) units: Cell<u16>,
    /// Objects ever handed out: the rest was never touched.
    pub(super) issued: Cell<u32>,
    /// Objects that fit.
    pub(super) capacity: Cell<u32>,
    /// Address after the objects ever handed out.
    end: AtomicUsize,
    /// 2⁶⁴ over the object size, rounded up; 0 without objects.
    divisor: Cell<u64>,
    /// Address of the first object times the divisor, modulo 2⁶⁴.
    bias: Cell<u64>,
    pub(super) next: Cell<*mut Span>,
    /// Objects freed by other threads.
    remote: Remote,
}

#[derive(Debug)]
#[repr(C, align(64))]
struct Remote {
    /// Offset of the last freed object in the upper half, number of freed objects in the lower.
    freed: AtomicU64,
    /// Next span in the owner's list of remote frees.
    next: Cell<*mut Span>,
    /// Link of the owner's queue; here for lack of room in the first line.
    previous: Cell<*mut Span>,
    /// Whether the memory was all zero when the span began.
    zeroed: Cell<bool>,
}

/// Linked list of free objects, and its length.
pub(super) struct FreeList {
    pub(super) first: *mut Block,
    pub(super) count: u32,
}

impl Span {
    /// Returns the address of its memory.
    pub(super) fn base(&self) -> *mut u8 {
        chunk::memory_of(ptr::from_ref(self))
    }

    /// Returns its length in bytes.
    pub(super) fn len(&self) -> usize {
        usize::from(self.units.get()) * UNIT
    }

    /// Returns the size of its objects, or of the large object.
    pub(super) fn object_size(&self) -> usize {
        let class = self.class.get();
        if class == LARGE { self.len() } else { class::size_of_class(usize::from(class)) }
    }

    /// Returns whether it holds one large object.
    pub(super) fn is_large(&self) -> bool {
        self.class.get() == LARGE
    }

    /// Starts as a span of this class, with no objects issued yet. Called under the heap's lock.
    pub(super) fn begin(&self, class: usize, owner: *mut ThreadCache) {
        let size = class::size_of_class(class);
        let capacity = self.len() / size;
        #[allow(clippy::cast_possible_truncation)] // about a hundred classes, at most 4096 objects
        let (class, capacity) = (class as u8, capacity as u32);
        self.class.set(class);
        self.capacity.set(capacity);
        self.free.set(ptr::null_mut());
        self.issued.set(0);
        self.end.store(self.base().addr(), Relaxed);
        self.divisor.set(u64::MAX / size as u64 + 1);
        self.bias.set((self.base().addr() as u64).wrapping_mul(self.divisor.get()));
        self.used.store(0, Relaxed);
        self.state.set(State::Current);
        self.owner.store(owner, Relaxed);
    }

    /// Starts to hold one large object, or none. Called under the heap's lock.
    pub(super) fn set_class(&self, class: u8) {
        self.class.set(class);
        self.divisor.set(0);
        self.bias.set(0);
        self.owner.store(unowned(), Relaxed);
    }

    /// Returns whether an object that was ever handed out begins at `address`, which lies in the
    /// span. False for large objects.
    ///
    /// The remainder is that of Lemire, Kaser and Kurz, *Faster remainder by direct computation*
    /// (2019): exact for offsets and sizes below 2³².
    #[inline]
    pub(super) fn has_at(&self, address: usize) -> bool {
        let divisor = self.divisor.get();
        (address as u64).wrapping_mul(divisor).wrapping_sub(self.bias.get()) < divisor
            && address < self.end.load(Relaxed)
    }

    /// Returns the number of free objects that the owner knows of.
    pub(super) fn free_count(&self) -> u32 {
        self.issued.get() - self.used.load(Relaxed)
    }

    /// Takes all free objects that the owner knows of, and counts them as used.
    pub(super) fn take_free(&self) -> FreeList {
        let freed =
            FreeList { first: self.free.replace(ptr::null_mut()), count: self.free_count() };
        self.used.store(self.issued.get(), Relaxed);
        freed
    }

    /// Issues objects that were never used, linked.
    ///
    /// # Safety
    /// The caller owns the span.
    pub(super) unsafe fn issue(&self) -> FreeList {
        /// Bytes to issue at a time: linking touches them, and pages that are never used should not
        /// become resident.
        const AT_ONCE: usize = 4096;
        let size = self.object_size();
        let (from, left) = (self.issued.get(), self.capacity.get() - self.issued.get());
        #[allow(clippy::cast_possible_truncation)] // at most 4096
        let count = left.min((AT_ONCE / size).max(1) as u32);
        let at = |i: u32| self.base().wrapping_add((from + i) as usize * size).cast::<Block>();
        for i in 0..count {
            let next = if i + 1 < count { at(i + 1) } else { ptr::null_mut() };
            // SAFETY: object `from + i` lies inside of the span, aligned, and has no user yet.
            unsafe { at(i).write(Block::free(at(i).addr(), next)) };
        }
        self.issued.set(from + count);
        self.end.store(at(count).addr(), Relaxed);
        self.used.store(self.used.load(Relaxed) + count, Relaxed);
        FreeList { first: if count > 0 { at(0) } else { ptr::null_mut() }, count }
    }

    /// Returns objects to the free list.
    ///
    /// # Safety
    /// The caller owns the span, and the objects are of this span and unused.
    pub(super) unsafe fn return_objects(&self, freed: &FreeList) {
        if freed.count == 0 {
            return;
        }
        let own = self.free.get();
        if !own.is_null() {
            let mut last = freed.first;
            for _ in 1..freed.count {
                // SAFETY: the list has `count` objects, all free. An object that was freed twice is
                // eventually followed by itself, and never by null.
                last = unsafe { (*last).next };
            }
            // SAFETY: as above.
            unsafe {
                if !(*last).next.is_null() {
                    misuse::confused(self.base().addr(), self.object_size());
                }
                (*last).next = own;
            }
        }
        self.free.set(freed.first);
        self.used.store(self.used.load(Relaxed) - freed.count, Relaxed);
    }

    /// Adds an object that another thread frees. Returns true for the first since the owner
    /// collected them: the caller must then notify the owner.
    ///
    /// # Safety
    /// `block` is an object of this span, and the caller was its last user.
    pub(super) unsafe fn free_remotely<const LOCKED: bool>(&self, block: *mut Block) -> bool {
        let base = self.base();
        let offset = (block.addr() - base.addr()) as u64;
        let mut freed = self.remote.freed.load(Relaxed);
        loop {
            if freed >> 32 == offset && freed != 0 {
                misuse::freed_twice::<LOCKED>(block.addr(), self.object_size());
            }
            // SAFETY: the caller owns the object until the exchange.
            unsafe { block.write(Block::free(block.addr(), linked(base, freed))) };
            let now = offset << 32 | ((freed & u64::from(u32::MAX)) + 1);
            // Acquires the owner's last use of the list: the thread that adds the first object
            // links the span again.
            match self.remote.freed.compare_exchange_weak(freed, now, AcqRel, Relaxed) {
                Ok(_) => return freed == 0,
                Err(other) => freed = other,
            }
        }
    }

    /// Takes all objects freed by other threads.
    pub(super) fn take_remote(&self) -> FreeList {
        // Releases the owner's reads of the span's link: other threads may write it from here on.
        let freed = self.remote.freed.swap(0, AcqRel);
        #[allow(clippy::cast_possible_truncation)] // the lower half
        let count = freed as u32;
        FreeList { first: linked(self.base(), freed), count }
    }

    /// Returns the number of objects freed by other threads that the owner has not collected.
    pub(super) fn remote_count(&self) -> u32 {
        #[allow(clippy::cast_possible_truncation)] // the lower half
        let count = self.remote.freed.load(Relaxed) as u32;
        count
    }

    /// Returns the link to the previous span in a queue.
    pub(super) fn previous(&self) -> &Cell<*mut Self> {
        &self.remote.previous
    }

    /// Returns whether the memory was all zero when the span began.
    pub(super) fn zeroed(&self) -> &Cell<bool> {
        &self.remote.zeroed
    }

    /// Returns the link to the next span in a list of remote frees.
    pub(super) fn next_notified(&self) -> &Cell<*mut Self> {
        &self.remote.next
    }
}

/// Frees an object from a thread that does not own its span. A C function does not unwind.
///
/// # Safety
/// The span has an owner and the object, which is not used again.
pub(super) unsafe extern "C" fn free_elsewhere(span: *mut Span, address: usize) {
    // SAFETY: by contract.
    unsafe { return_object::<false>(span, address) };
}

/// Returns an object to its span from a thread that does not own the span. `LOCKED`: whether the
/// caller holds a lock.
///
/// # Safety
/// As for [`free_elsewhere`].
#[inline]
pub(super) unsafe fn return_object<const LOCKED: bool>(span: *mut Span, address: usize) {
    // SAFETY: by contract. The first thread to free an object notifies the owner; owners are never
    // unmapped.
    unsafe {
        let owner = (*span).owner.load(Relaxed);
        if (*span).free_remotely::<LOCKED>(ptr::with_exposed_provenance_mut(address)) {
            (*owner).notify(span);
        }
    }
}

fn linked(base: *mut u8, freed: u64) -> *mut Block {
    if freed == 0 { ptr::null_mut() } else { base.wrapping_add((freed >> 32) as usize).cast() }
}

/// Returns whether a list ends after `count` objects. Of a list above 384 objects, only whether its
/// start is free of loops.
///
/// # Safety
/// The list consists of free objects.
pub(super) unsafe fn has(first: *mut Block, count: u32) -> bool {
    const MAX_STEPS: u32 = 384;
    let (mut at, mut earlier) = (first, ptr::null_mut());
    for steps in 0..count.min(MAX_STEPS) {
        if at.is_null() || at == earlier {
            return false;
        }
        // Brent's algorithm: a loop meets the object at a power of two again.
        if steps.is_power_of_two() {
            earlier = at;
        }
        // SAFETY: by contract.
        at = unsafe { (*at).next };
    }
    count > MAX_STEPS || at.is_null()
}

/// Doubly linked queue of spans, first in, first out.
#[derive(Debug)]
pub(super) struct Queue {
    first: Cell<*mut Span>,
    last: Cell<*mut Span>,
}

impl Queue {
    pub(super) const fn new() -> Self {
        Self { first: Cell::new(ptr::null_mut()), last: Cell::new(ptr::null_mut()) }
    }

    /// Returns whether it holds more than one span.
    pub(super) fn has_several(&self) -> bool {
        self.first != self.last
    }

    /// Appends a span.
    ///
    /// # Safety
    /// The caller owns the span, which is in no queue, and all spans of this queue.
    pub(super) unsafe fn push(&self, span: *mut Span) {
        // SAFETY: owned spans exist.
        unsafe {
            (*span).next.set(ptr::null_mut());
            (*span).previous().set(self.last.get());
            match self.last.get().as_ref() {
                Some(last) => last.next.set(span),
                None => self.first.set(span),
            }
        }
        self.last.set(span);
    }

    /// Removes the first span.
    ///
    /// # Safety
    /// The caller owns all spans of this queue.
    pub(super) unsafe fn pop(&self) -> Option<*mut Span> {
        let span = self.first.get();
        if span.is_null() {
            return None;
        }
        // SAFETY: the first span of this queue.
        unsafe { self.remove(span) };
        Some(span)
    }

    /// Removes a span.
    ///
    /// # Safety
    /// It is in this queue, and the caller owns all spans of the queue.
    pub(super) unsafe fn remove(&self, span: *mut Span) {
        // SAFETY: the caller owns the span and its neighbours.
        unsafe {
            let (before, after) = ((*span).previous().get(), (*span).next.get());
            match before.as_ref() {
                Some(before) => before.next.set(after),
                None => self.first.set(after),
            }
            match after.as_ref() {
                Some(after) => after.previous().set(before),
                None => self.last.set(before),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_misses_an_object_or_has_one_twice_is_found_out() {
        for len in [1_u32, 2, 3, 7, 64, 300, 1000] {
            let mut blocks = vec![Block { next: ptr::null_mut(), mark: 0 }; len as usize];
            let base = blocks.as_mut_ptr();
            let at = |i: u32| base.wrapping_add(i as usize);
            for i in 0..len {
                // SAFETY: blocks of this test, also below.
                unsafe { (*at(i)).next = if i + 1 < len { at(i + 1) } else { ptr::null_mut() } };
            }
            // SAFETY: as above.
            unsafe {
                assert!(has(base, len) && has(ptr::null_mut(), 0));
                assert!(!has(base, len + 1) || len >= 384);
                assert!(!has(base, len - 1) || len > 384);
                assert!(!has(at(len - 1), 1000), "a long list that ends soon");
                for twice in (0..len.min(100)).step_by(9) {
                    // A second free: the object is first in the list, and further down.
                    let (further, next) = (at(twice), (*at(twice)).next);
                    (*further).next = base;
                    assert!(!has(further, len), "{len} objects, that at {twice} twice");
                    (*further).next = next;
                }
            }
        }
    }
}
