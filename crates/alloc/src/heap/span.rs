//! A span: units in a row, cut into objects of one class, or one large thing.
//!
//! # Safety
//! A span's description lies in its chunk's head and is there while the chunk is. What is in a [`Cell`] belongs to the thread
//! that owns the span, or to whoever holds the heap's lock where nobody does; `class`, `units`, `divisor`, `bias` and
//! `zeroed` change under that lock alone, while nobody has anything in the span. The rest is atomic. Objects are linked through their own first
//! bytes while they are free.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

use super::class::{self, UNIT};
use super::misuse::{self, Call, Misuse};
use super::thread_cache::ThreadCache;
use super::{chunk, mark};

/// A free object: the next one, and the mark of what is free.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Block {
    pub(super) next: *mut Block,
    pub(super) mark: usize,
}

impl Block {
    /// What a free object at `address` holds, before `next`.
    #[inline]
    pub(super) fn free(address: usize, next: *mut Self) -> Self {
        Self { next, mark: mark::of(address) }
    }
}

/// The class of spans that hold one large thing.
pub(super) const LARGE: u8 = u8::MAX;

/// The owner of what no thread owns. Not null, as that is what a thread without any has in its slot.
pub(super) const fn nobody() -> *mut ThreadCache {
    ptr::without_provenance_mut(align_of::<ThreadCache>())
}

/// Where a span is in its thread's hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum State {
    /// The thread takes objects from it.
    Current = 0,
    /// It has free objects, and waits in the thread's queue.
    Queued,
    /// Nothing in it is free, as far as the thread knows.
    Full,
}

/// The description of a span, or of a unit inside of one. Two cache lines: the first is the owner's, the second is where
/// other threads write.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Span {
    /// Whose it is; [`nobody`] for large things, and for what is no longer in use.
    pub(super) owner: AtomicPtr<ThreadCache>,
    /// Objects that its own thread freed.
    pub(super) free: Cell<*mut Block>,
    /// Objects handed out, those that the thread holds ready and those that other threads freed among them.
    pub(super) used: AtomicU32,
    pub(super) class: Cell<u8>,
    pub(super) state: Cell<State>,
    pub(super) units: Cell<u16>,
    /// Objects that were ever handed out: the rest was never touched.
    pub(super) issued: Cell<u32>,
    /// Objects that fit.
    pub(super) capacity: Cell<u32>,
    /// The address after those that were ever handed out.
    end: AtomicUsize,
    /// 2⁶⁴ over the size of its objects, rounded up; 0 where there are none.
    divisor: Cell<u64>,
    /// The address of the first object times the divisor, but for what goes over 64 bits.
    bias: Cell<u64>,
    pub(super) next: Cell<*mut Span>,
    /// What other threads freed.
    remote: Remote,
}

#[derive(Debug)]
#[repr(C, align(64))]
struct Remote {
    /// Offset of the last object that was freed, and in the lower half how many there are.
    freed: AtomicU64,
    /// The next span of which the owner is to know that something was freed.
    next: Cell<*mut Span>,
    /// Of the owner's queue, and here for lack of room in the first line.
    previous: Cell<*mut Span>,
    /// The memory was all zero when the span began.
    zeroed: Cell<bool>,
}

/// What other threads freed: a list, linked, and its length.
pub(super) struct FreeList {
    pub(super) first: *mut Block,
    pub(super) count: u32,
}

impl Span {
    /// Where its memory begins.
    pub(super) fn base(&self) -> *mut u8 {
        chunk::memory_of(ptr::from_ref(self))
    }

    /// Its bytes.
    pub(super) fn len(&self) -> usize {
        usize::from(self.units.get()) * UNIT
    }

    /// The size of its objects, or of the large thing.
    pub(super) fn object_size(&self) -> usize {
        let class = self.class.get();
        if class == LARGE { self.len() } else { class::size_of_class(usize::from(class)) }
    }

    /// It holds one large thing.
    pub(super) fn is_large(&self) -> bool {
        self.class.get() == LARGE
    }

    /// Begins as a span of that class, with nothing issued yet. Under the heap's lock.
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

    /// It begins to hold one large thing, or nothing. Under the heap's lock.
    pub(super) fn set_class(&self, class: u8) {
        self.class.set(class);
        self.divisor.set(0);
        self.bias.set(0);
        self.owner.store(nobody(), Relaxed);
    }

    /// Whether an object that was ever handed out begins at `address`, which lies in the span. False for large things.
    ///
    /// The remainder is that of Lemire, Kaser and Kurz, *Faster remainder by direct computation* (2019): exact for offsets and
    /// sizes below 2³².
    #[inline]
    pub(super) fn has_at(&self, address: usize) -> bool {
        let divisor = self.divisor.get();
        (address as u64).wrapping_mul(divisor).wrapping_sub(self.bias.get()) < divisor
            && address < self.end.load(Relaxed)
    }

    /// Free objects that the owner knows of.
    pub(super) fn free_count(&self) -> u32 {
        self.issued.get() - self.used.load(Relaxed)
    }

    /// All free objects that the owner knows of, now used.
    pub(super) fn take_free(&self) -> FreeList {
        let freed =
            FreeList { first: self.free.replace(ptr::null_mut()), count: self.free_count() };
        self.used.store(self.issued.get(), Relaxed);
        freed
    }

    /// Some objects that were never used, linked.
    ///
    /// # Safety
    /// The caller owns the span.
    pub(super) unsafe fn issue(&self) -> FreeList {
        /// As many as this many bytes hold: touching all at once would make pages resident that may never be used.
        const AT_ONCE: usize = 4096;
        let size = self.object_size();
        let (from, left) = (self.issued.get(), self.capacity.get() - self.issued.get());
        #[allow(clippy::cast_possible_truncation)] // at most 4096
        let count = left.min((AT_ONCE / size).max(1) as u32);
        let at = |i: u32| self.base().wrapping_add((from + i) as usize * size).cast::<Block>();
        for i in 0..count {
            let next = if i + 1 < count { at(i + 1) } else { ptr::null_mut() };
            // SAFETY: object `from + i` lies inside of the span, aligned, and nobody has it yet.
            unsafe { at(i).write(Block::free(at(i).addr(), next)) };
        }
        self.issued.set(from + count);
        self.end.store(at(count).addr(), Relaxed);
        self.used.store(self.used.load(Relaxed) + count, Relaxed);
        FreeList { first: if count > 0 { at(0) } else { ptr::null_mut() }, count }
    }

    /// Takes objects back as free ones.
    ///
    /// # Safety
    /// The caller owns the span, and they are objects of it that nobody uses.
    pub(super) unsafe fn give_back(&self, freed: &FreeList) {
        if freed.count == 0 {
            return;
        }
        let own = self.free.get();
        if !own.is_null() {
            let mut last = freed.first;
            for _ in 1..freed.count {
                // SAFETY: the list has `count` objects, all of them free. One that was freed twice is followed by itself sooner
                // or later, and never by nothing.
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

    /// Notes that another thread frees `block`. True for the first since the owner looked: then the owner must be told.
    ///
    /// # Safety
    /// `block` is an object of this span, and the caller was its last user.
    pub(super) unsafe fn free_remotely(&self, block: *mut Block) -> bool {
        let base = self.base();
        let offset = (block.addr() - base.addr()) as u64;
        let mut freed = self.remote.freed.load(Relaxed);
        loop {
            if freed >> 32 == offset && freed != 0 {
                let size = self.object_size();
                misuse::end(Call::Free, block.addr(), Misuse::Free { size });
            }
            // SAFETY: the object is the caller's until the exchange.
            unsafe { block.write(Block::free(block.addr(), linked(base, freed))) };
            let now = offset << 32 | ((freed & u64::from(u32::MAX)) + 1);
            // Acquires what the owner did with the list before: the first one now links the span anew.
            match self.remote.freed.compare_exchange_weak(freed, now, AcqRel, Relaxed) {
                Ok(_) => return freed == 0,
                Err(other) => freed = other,
            }
        }
    }

    /// Whatever other threads freed.
    pub(super) fn take_remote(&self) -> FreeList {
        // Releases what the owner read of the span's link: from here on others may write it.
        let freed = self.remote.freed.swap(0, AcqRel);
        #[allow(clippy::cast_possible_truncation)] // the lower half
        let count = freed as u32;
        FreeList { first: linked(self.base(), freed), count }
    }

    /// How many objects other threads freed that the owner does not know of.
    pub(super) fn remote_count(&self) -> u32 {
        #[allow(clippy::cast_possible_truncation)] // the lower half
        let count = self.remote.freed.load(Relaxed) as u32;
        count
    }

    /// The span before this one in a queue.
    pub(super) fn previous(&self) -> &Cell<*mut Self> {
        &self.remote.previous
    }

    /// Whether the memory was all zero when the span began.
    pub(super) fn zeroed(&self) -> &Cell<bool> {
        &self.remote.zeroed
    }

    /// The link of the list of spans that an owner is to look at.
    pub(super) fn next_notified(&self) -> &Cell<*mut Self> {
        &self.remote.next
    }
}

/// Frees an object from a thread that does not own its span. As a function of C, it does not unwind.
///
/// # Safety
/// The span has an owner and the object, which nobody uses any more.
pub(super) unsafe extern "C" fn free_elsewhere(span: *mut Span, address: usize) {
    // SAFETY: by contract. The first to free an object since the owner looked tells the owner, and owners are never unmapped.
    unsafe {
        let owner = (*span).owner.load(Relaxed);
        if (*span).free_remotely(ptr::with_exposed_provenance_mut(address)) {
            (*owner).notify(span);
        }
    }
}

fn linked(base: *mut u8, freed: u64) -> *mut Block {
    if freed == 0 { ptr::null_mut() } else { base.wrapping_add((freed >> 32) as usize).cast() }
}

/// Whether a list ends after `count` objects. Of a longer list than some hundred, whether its beginning leads back to itself.
///
/// # Safety
/// The list is one of free objects.
pub(super) unsafe fn has(first: *mut Block, count: u32) -> bool {
    const MAX_STEPS: u32 = 384;
    let (mut at, mut earlier) = (first, ptr::null_mut());
    for steps in 0..count.min(MAX_STEPS) {
        if at.is_null() || at == earlier {
            return false;
        }
        // Brent: the object at each power of two is met again if there is a way back to it.
        if steps.is_power_of_two() {
            earlier = at;
        }
        // SAFETY: by contract.
        at = unsafe { (*at).next };
    }
    count > MAX_STEPS || at.is_null()
}

/// Spans in a row, first in first out, linked both ways.
#[derive(Debug)]
pub(super) struct Queue {
    first: Cell<*mut Span>,
    last: Cell<*mut Span>,
}

impl Queue {
    pub(super) const fn new() -> Self {
        Self { first: Cell::new(ptr::null_mut()), last: Cell::new(ptr::null_mut()) }
    }

    /// Whether it holds more than one.
    pub(super) fn has_several(&self) -> bool {
        self.first != self.last
    }

    /// Adds a span at the end.
    ///
    /// # Safety
    /// The caller owns the span, which is in no queue, and all spans of this queue.
    pub(super) unsafe fn push(&self, span: *mut Span) {
        // SAFETY: spans that are owned are there.
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

    /// Takes the first span.
    ///
    /// # Safety
    /// The caller owns all spans of this queue.
    pub(super) unsafe fn pop(&self) -> Option<*mut Span> {
        let span = self.first.get();
        if span.is_null() {
            return None;
        }
        // SAFETY: the first of our spans.
        unsafe { self.remove(span) };
        Some(span)
    }

    /// Takes that span out.
    ///
    /// # Safety
    /// It is in this queue, and the caller owns all spans of it.
    pub(super) unsafe fn remove(&self, span: *mut Span) {
        // SAFETY: the span and its neighbours are owned by the caller.
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
                // SAFETY: blocks of ours, in what follows, too.
                unsafe { (*at(i)).next = if i + 1 < len { at(i + 1) } else { ptr::null_mut() } };
            }
            // SAFETY: as above.
            unsafe {
                assert!(has(base, len) && has(ptr::null_mut(), 0));
                assert!(!has(base, len + 1) || len >= 384);
                assert!(!has(base, len - 1) || len > 384);
                assert!(!has(at(len - 1), 1000), "a long list that ends soon");
                for twice in (0..len.min(100)).step_by(9) {
                    // Freed again: first in the list, and further down.
                    let (further, next) = (at(twice), (*at(twice)).next);
                    (*further).next = base;
                    assert!(!has(further, len), "{len} objects, that at {twice} twice");
                    (*further).next = next;
                }
            }
        }
    }
}
