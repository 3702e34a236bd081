//! Thread cache: for each class, the objects that a thread hands out next and the spans that it
//! owns.
//!
//! # Safety
//! A `ThreadCache` is never unmapped. Its owner is the thread that it is attached to, or the holder
//! of its heap's lock if it is abandoned or the lender. Other threads add to `remote_frees`, and
//! read atomic fields.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

use super::class::CLASSES;
use super::span::{Block, FreeList, Queue, Span, State};
use super::thread::HeapHeader;
use super::{mark, misuse, span};
use crate::prefetch;

/// A thread's share of a heap.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct ThreadCache {
    /// ID of its heap; 0 after that heap is gone.
    pub(super) id: AtomicU64,
    pub(super) header: Cell<*const HeapHeader>,
    /// Next cache of the same thread, of another heap.
    pub(super) next_of_thread: Cell<*mut ThreadCache>,
    /// Next abandoned or unused cache.
    pub(super) next: Cell<*mut ThreadCache>,
    /// Next cache of the same heap.
    pub(super) next_of_heap: Cell<*mut ThreadCache>,
    bins: [Bin; CLASSES],
    spans: [ClassSpans; CLASSES],
    idle: IdleSpans,
    /// Lender of a thread that borrows; otherwise null.
    pub(super) lender: Cell<*mut ThreadCache>,
    remote_frees: RemoteFreeList,
}

/// Objects to hand out next: all of one span, unless the thread borrows.
#[derive(Debug)]
struct Bin {
    first: Cell<*mut Block>,
    /// Number of objects; other threads read it for statistics.
    left: AtomicU32,
}

impl Bin {
    const fn new() -> Self {
        Self { first: Cell::new(ptr::null_mut()), left: AtomicU32::new(0) }
    }
}

/// Spans of one class.
#[derive(Debug)]
struct ClassSpans {
    /// Span of the bin's objects.
    current: Cell<*mut Span>,
    queue: Queue,
}

impl ClassSpans {
    const fn new() -> Self {
        Self { current: Cell::new(ptr::null_mut()), queue: Queue::new() }
    }
}

/// Small spans without objects in use, at most one per class and still in their queues, the most
/// recent first. Keeping a few avoids that a thread at the edge of a span takes and frees it
/// repeatedly.
#[derive(Debug)]
struct IdleSpans([Cell<*mut Span>; 4]);

impl IdleSpans {
    /// Adds a span. Returns the span that is no longer kept, or null.
    fn push(&self, span: *mut Span) -> *mut Span {
        let mut next = span;
        for place in &self.0 {
            next = place.replace(next);
            if next.is_null() {
                break;
            }
        }
        next
    }
    /// Removes a span, if present.
    fn remove(&self, span: *mut Span) {
        if let Some(place) = self.0.iter().find(|place| place.get() == span) {
            place.set(ptr::null_mut());
        }
    }
}

/// Spans in which other threads freed objects, in a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct RemoteFreeList(AtomicPtr<Span>);

/// Linked spans without objects in use, to be freed.
#[derive(Debug)]
pub(super) struct EmptySpans(Cell<*mut Span>);

impl EmptySpans {
    pub(super) const fn new() -> Self {
        Self(Cell::new(ptr::null_mut()))
    }
    fn push(&self, span: &Span) {
        span.next.set(self.0.replace(ptr::from_ref(span).cast_mut()));
    }
    pub(super) fn is_empty(&self) -> bool {
        self.0.get().is_null()
    }
    /// Removes the next span.
    ///
    /// # Safety
    /// The caller owns the `ThreadCache` that pushed them.
    pub(super) unsafe fn pop(&self) -> Option<*mut Span> {
        let span = self.0.get();
        // SAFETY: pushed spans exist and are linked.
        self.0.set(unsafe { span.as_ref() }?.next.get());
        Some(span)
    }
}

impl ThreadCache {
    pub(super) const fn new() -> Self {
        Self {
            id: AtomicU64::new(0),
            header: Cell::new(ptr::null()),
            next_of_thread: Cell::new(ptr::null_mut()),
            next: Cell::new(ptr::null_mut()),
            next_of_heap: Cell::new(ptr::null_mut()),
            bins: [const { Bin::new() }; CLASSES],
            spans: [const { ClassSpans::new() }; CLASSES],
            idle: IdleSpans([const { Cell::new(ptr::null_mut()) }; 4]),
            lender: Cell::new(ptr::null_mut()),
            remote_frees: RemoteFreeList(AtomicPtr::new(ptr::null_mut())),
        }
    }

    /// Takes an object of this class; null if the bin is empty. `LOCKED`: whether the caller holds
    /// a lock, which a signal handler of the program would wait for.
    ///
    /// # Safety
    /// The caller owns the cache.
    #[inline]
    pub(super) unsafe fn take<const LOCKED: bool>(&self, class: usize) -> *mut u8 {
        // SAFETY: classes are below CLASSES.
        let bin = unsafe { self.bins.get_unchecked(class) };
        let first = bin.first.get();
        if !first.is_null() {
            // SAFETY: a free object of an owned span, or a borrowed one.
            unsafe {
                let Block { next, mark } = *first;
                if mark != mark::of(first.addr()) {
                    misuse::changed::<LOCKED>(first.addr());
                }
                bin.first.set(next);
                prefetch(next);
                (*first).mark = 0;
            }
            bin.left.store(bin.left.load(Relaxed).wrapping_sub(1), Relaxed);
        }
        first.cast()
    }

    /// Adds a free object to the bin of its class.
    ///
    /// # Safety
    /// The caller owns the cache, which borrows, and the object.
    pub(super) unsafe fn add(&self, class: usize, block: *mut Block) {
        let bin = &self.bins[class];
        // SAFETY: by contract.
        unsafe { block.write(Block::free(block.addr(), bin.first.replace(block))) };
        bin.left.store(bin.left.load(Relaxed) + 1, Relaxed);
    }

    /// Returns the number of objects in the bin of this class.
    pub(super) fn ready_of(&self, class: usize) -> u32 {
        self.bins[class].left.load(Relaxed)
    }

    /// Fills the bin of this class, which is empty, from the owned spans, and adds empty spans to
    /// `empty`. Returns `false` if a new span is needed.
    ///
    /// # Safety
    /// The caller owns the cache.
    pub(super) unsafe fn refill(&self, class: usize, empty: &EmptySpans) -> bool {
        let spans = &self.spans[class];
        // SAFETY: by contract, all spans below are owned.
        unsafe {
            loop {
                if let Some(span) = spans.current.get().as_ref() {
                    if span.free.get().is_null() {
                        self.collect_remote(empty);
                    }
                    let freed =
                        if span.free.get().is_null() { span.issue() } else { span.take_free() };
                    if freed.count > 0 {
                        self.bins[class].first.set(freed.first);
                        self.bins[class].left.store(freed.count, Relaxed);
                        return true;
                    }
                    span.state.set(State::Full);
                }
                let next = spans.queue.pop();
                spans.current.set(next.unwrap_or(ptr::null_mut()));
                let Some(next) = next else { return false };
                self.idle.remove(next);
                (*next).state.set(State::Current);
            }
        }
    }

    /// Makes a new span the current one of its class, which has none.
    pub(super) fn begin(&self, class: usize, span: &Span) {
        span.begin(class, ptr::from_ref(self).cast_mut());
        self.spans[class].current.set(ptr::from_ref(span).cast_mut());
    }

    /// Queues a span that was full before a free. Returns a span without objects in use that is no
    /// longer kept, this one or another; it is then in no queue.
    ///
    /// # Safety
    /// The caller owns the cache and the span.
    pub(super) unsafe fn after_free(&self, span: &Span) -> Option<*mut Span> {
        let queue_of = |span: &Span| &self.spans[usize::from(span.class.get())].queue;
        let (queue, this) = (queue_of(span), ptr::from_ref(span).cast_mut());
        // SAFETY: owned spans.
        unsafe {
            match span.state.get() {
                State::Current => return None,
                State::Queued => {}
                State::Full => {
                    span.state.set(State::Queued);
                    queue.push(this);
                }
            }
            if span.used.load(Relaxed) > 0 {
                return None;
            }
            // An object that was freed twice counts twice, so another may still be in use.
            if !span::has(span.free.get(), span.issued.get()) {
                misuse::confused(span.base().addr(), span.object_size());
            }
            let is_kept = span.units.get() == 1 && !queue.has_several();
            let goes = if is_kept { self.idle.push(this) } else { this };
            queue_of(goes.as_ref()?).remove(goes);
            Some(goes)
        }
    }

    /// Notifies the owner of frees in `span`.
    ///
    /// # Safety
    /// [`Span::free_remotely`] returned true to the caller, which has not notified since.
    pub(super) unsafe fn notify(&self, span: *mut Span) {
        let mut first = self.remote_frees.0.load(Relaxed);
        loop {
            // SAFETY: the span stays until its owner handles it, and only this thread links it now.
            unsafe { (*span).next_notified().set(first) };
            match self.remote_frees.0.compare_exchange_weak(first, span, Release, Relaxed) {
                Ok(_) => return,
                Err(other) => first = other,
            }
        }
    }

    /// Collects the objects that other threads freed.
    ///
    /// # Safety
    /// The caller owns the cache.
    pub(super) unsafe fn collect_remote(&self, empty: &EmptySpans) {
        if self.remote_frees.0.load(Relaxed).is_null() {
            return;
        }
        let mut next = self.remote_frees.0.swap(ptr::null_mut(), Acquire);
        // SAFETY: spans of the list exist until their freed objects are taken.
        while let Some(span) = unsafe { next.as_ref() } {
            // Once its objects are taken, other threads may link it again.
            let this = std::mem::replace(&mut next, span.next_notified().get());
            let owner = span.owner.load(Relaxed);
            if !ptr::eq(owner, self) {
                // Another thread adopted it meanwhile.
                //
                // SAFETY: the other thread's notification is passed on once; owners are never
                // unmapped.
                unsafe { (*owner).notify(this) };
                continue;
            }
            // SAFETY: the span is owned, and its freed objects have no users.
            unsafe {
                span.return_objects(&span.take_remote());
                if let Some(span) = self.after_free(span) {
                    empty.push(&*span);
                }
            }
        }
    }

    /// Returns all objects of the bins to their spans, and adds empty spans to `empty`.
    ///
    /// # Safety
    /// The caller owns the cache.
    pub(super) unsafe fn flush(&self, empty: &EmptySpans) {
        if self.borrows() {
            // SAFETY: by contract.
            unsafe { self.give_back::<false>() };
        }
        // SAFETY: owned spans.
        unsafe {
            self.collect_remote(empty);
            for (bin, spans) in self.bins.iter().zip(&self.spans) {
                if let Some(span) = spans.current.replace(ptr::null_mut()).as_ref() {
                    let first = bin.first.replace(ptr::null_mut());
                    span.return_objects(&FreeList { first, count: bin.left.swap(0, Relaxed) });
                    span.state.set(State::Full);
                    if span.free_count() > 0 || span.issued.get() < span.capacity.get() {
                        span.state.set(State::Queued);
                        spans.queue.push(span_mut(span));
                    }
                }
                let queue = &spans.queue;
                let kept = Queue::new();
                while let Some(span) = queue.pop() {
                    if (*span).used.load(Relaxed) == 0 {
                        empty.push(&*span)
                    } else {
                        kept.push(span)
                    }
                }
                while let Some(span) = kept.pop() {
                    queue.push(span);
                }
            }
        }
        self.idle.0.iter().for_each(|place| place.set(ptr::null_mut()));
    }

    /// Takes over all spans of this class with free objects from `other`. Returns whether there was
    /// one.
    ///
    /// # Safety
    /// The caller owns both caches.
    pub(super) unsafe fn adopt(&self, other: &Self, class: usize) -> bool {
        let mut some = false;
        // SAFETY: the caller's spans.
        while let Some(span) = unsafe { other.spans[class].queue.pop() } {
            // SAFETY: as above.
            unsafe {
                other.idle.remove(span);
                (*span).owner.store(ptr::from_ref(self).cast_mut(), Relaxed);
                self.spans[class].queue.push(span);
            }
            some = true;
        }
        some
    }

    /// Returns the number of cached objects per class; other threads may change it meanwhile.
    pub(super) fn ready(&self) -> impl Iterator<Item = u32> {
        self.bins.iter().map(|bin| bin.left.load(Relaxed))
    }
}

fn span_mut(span: &Span) -> *mut Span {
    ptr::from_ref(span).cast_mut()
}
