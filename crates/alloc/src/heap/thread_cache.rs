//! What one thread has of a heap: for each class the objects that it hands out next, and the spans that it owns.
//!
//! # Safety
//! A `Local` is never unmapped. It belongs to the thread that it is attached to, or to whoever holds its heap's lock while it
//! is abandoned. Other threads add to `told`, and read what is atomic.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

use super::class::CLASSES;
use super::span::{Block, FreeList, Queue, Span, State};
use super::thread::HeapHeader;
use super::{mark, misuse, span};

/// A thread's part of a heap.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct ThreadCache {
    /// The number of its heap; 0 once that is gone.
    pub(super) id: AtomicU64,
    pub(super) header: Cell<*const HeapHeader>,
    /// The thread's next, of another heap.
    pub(super) next_of_thread: Cell<*mut ThreadCache>,
    /// The next abandoned or unused one.
    pub(super) next: Cell<*mut ThreadCache>,
    /// The heap's next.
    pub(super) next_of_heap: Cell<*mut ThreadCache>,
    bins: [Bin; CLASSES],
    spans: [ClassSpans; CLASSES],
    idle: IdleSpans,
    remote_frees: RemoteFreeList,
}

/// Objects that are handed out next, all of one span.
#[derive(Debug)]
struct Bin {
    first: Cell<*mut Block>,
    /// How many; read by other threads for statistics.
    left: AtomicU32,
}

/// Spans of one class.
#[derive(Debug)]
struct ClassSpans {
    /// That of the bin.
    current: Cell<*mut Span>,
    queue: Queue,
}

/// Small spans in which nothing is in use, at most one of a class, in their queues still; that which became so last is first.
/// A few are kept, so that a thread at the edge of a span does not ask for one again and again.
#[derive(Debug)]
struct IdleSpans([Cell<*mut Span>; 4]);

impl IdleSpans {
    /// Adds one; the one that is kept no longer, or null.
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
    /// Takes a span out, if it is in.
    fn remove(&self, span: *mut Span) {
        if let Some(place) = self.0.iter().find(|place| place.get() == span) {
            place.set(ptr::null_mut());
        }
    }
}

/// The spans in which other threads freed something, in a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct RemoteFreeList(AtomicPtr<Span>);

/// Spans in which nothing is in use any more, to be given back, linked.
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
    /// The next of them.
    ///
    /// # Safety
    /// They were pushed by a `Local` whose owner the caller is.
    pub(super) unsafe fn pop(&self) -> Option<*mut Span> {
        let span = self.0.get();
        // SAFETY: what was pushed is there, and linked.
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
            bins: [const { Bin { first: Cell::new(ptr::null_mut()), left: AtomicU32::new(0) } };
                CLASSES],
            spans: [const { ClassSpans { current: Cell::new(ptr::null_mut()), queue: Queue::new() } };
                CLASSES],
            idle: IdleSpans([const { Cell::new(ptr::null_mut()) }; 4]),
            remote_frees: RemoteFreeList(AtomicPtr::new(ptr::null_mut())),
        }
    }

    /// The next object of that class; null where the bin is empty.
    ///
    /// # Safety
    /// The caller owns this.
    #[inline]
    pub(super) unsafe fn take(&self, class: usize) -> *mut u8 {
        // SAFETY: classes are below CLASSES.
        let bin = unsafe { self.bins.get_unchecked(class) };
        let first = bin.first.get();
        if !first.is_null() {
            // SAFETY: a free object of a span of ours.
            unsafe {
                let Block { next, mark } = *first;
                if mark != mark::of(first.addr()) {
                    misuse::changed(first.addr());
                }
                bin.first.set(next);
                prefetch(next);
                (*first).mark = 0;
            }
            bin.left.store(bin.left.load(Relaxed).wrapping_sub(1), Relaxed);
        }
        first.cast()
    }

    /// Fills the bin of that class from the spans here. Spans that turn out to be empty are added to `empty`. False where
    /// a new span is needed.
    ///
    /// # Safety
    /// The caller owns this.
    pub(super) unsafe fn refill(&self, class: usize, empty: &EmptySpans) -> bool {
        let spans = &self.spans[class];
        // SAFETY: our own spans, by contract, in what follows.
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

    /// Makes a new span the one to take from. There was none.
    pub(super) fn begin(&self, class: usize, span: &Span) {
        span.begin(class, ptr::from_ref(self).cast_mut());
        self.spans[class].current.set(ptr::from_ref(span).cast_mut());
    }

    /// After a free: queues the span if it was full. Where nothing in it is in use any more, the span that is kept no longer: it
    /// or another, which is in no queue then.
    ///
    /// # Safety
    /// The caller owns this, and the span is one of its.
    pub(super) unsafe fn after_free(&self, span: &Span) -> Option<*mut Span> {
        let queue_of = |span: &Span| &self.spans[usize::from(span.class.get())].queue;
        let (queue, this) = (queue_of(span), ptr::from_ref(span).cast_mut());
        // SAFETY: our own spans.
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
            // What was freed twice counts twice, and something may be in use here still.
            if !span::has(span.free.get(), span.issued.get()) {
                misuse::confused(span.base().addr(), span.object_size());
            }
            let is_kept = span.units.get() == 1 && !queue.has_several();
            let goes = if is_kept { self.idle.push(this) } else { this };
            queue_of(goes.as_ref()?).remove(goes);
            Some(goes)
        }
    }

    /// Tells the owner that something was freed in `span`.
    ///
    /// # Safety
    /// [`Span::free_remotely`] was true for the caller, who has not told anybody since.
    pub(super) unsafe fn notify(&self, span: *mut Span) {
        let mut first = self.remote_frees.0.load(Relaxed);
        loop {
            // SAFETY: the span stays until its owner heard of it, and only we link it now.
            unsafe { (*span).next_notified().set(first) };
            match self.remote_frees.0.compare_exchange_weak(first, span, Release, Relaxed) {
                Ok(_) => return,
                Err(other) => first = other,
            }
        }
    }

    /// Takes back what other threads freed.
    ///
    /// # Safety
    /// The caller owns this.
    pub(super) unsafe fn collect_remote(&self, empty: &EmptySpans) {
        if self.remote_frees.0.load(Relaxed).is_null() {
            return;
        }
        let mut next = self.remote_frees.0.swap(ptr::null_mut(), Acquire);
        // SAFETY: spans that we were told of are there until we take what was freed in them.
        while let Some(span) = unsafe { next.as_ref() } {
            // Once its objects are taken, others may link it anew.
            let this = std::mem::replace(&mut next, span.next_notified().get());
            let owner = span.owner.load(Relaxed);
            if !ptr::eq(owner, self) {
                // It was adopted by another thread meanwhile.
                // SAFETY: nobody was told since the other thread told us; owners are never unmapped.
                unsafe { (*owner).notify(this) };
                continue;
            }
            // SAFETY: the span is ours, and its freed objects are nobody's.
            unsafe {
                span.give_back(&span.take_remote());
                if let Some(span) = self.after_free(span) {
                    empty.push(&*span);
                }
            }
        }
    }

    /// Puts all that the bins hold back into their spans; those that are empty go to `empty`.
    ///
    /// # Safety
    /// The caller owns this.
    pub(super) unsafe fn flush(&self, empty: &EmptySpans) {
        // SAFETY: our own spans.
        unsafe {
            self.collect_remote(empty);
            for (bin, spans) in self.bins.iter().zip(&self.spans) {
                if let Some(span) = spans.current.replace(ptr::null_mut()).as_ref() {
                    let first = bin.first.replace(ptr::null_mut());
                    span.give_back(&FreeList { first, count: bin.left.swap(0, Relaxed) });
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

    /// Takes all spans of that class with free objects from `other`. True if there was one.
    ///
    /// # Safety
    /// The caller owns both.
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

    /// How many objects of each class are ready to be handed out; other threads may change it meanwhile.
    pub(super) fn ready(&self) -> impl Iterator<Item = u32> {
        self.bins.iter().map(|bin| bin.left.load(Relaxed))
    }
}

fn span_mut(span: &Span) -> *mut Span {
    ptr::from_ref(span).cast_mut()
}

/// Asks for the memory of an object that is likely to be handed out next; nothing for null.
#[inline]
fn prefetch(block: *const Block) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, for any address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(block.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = block;
}
