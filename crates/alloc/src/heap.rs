//! Memory for small things, so that these are on huge pages, too.
//!
//! # Safety
//! What is handed out is used by nobody else until it is given back: objects of a span are handed out once, by the thread that
//! owns the span; units and mappings under the heap's lock. The span of an object is found by masking its address, which is
//! sound because callers give back only what they got from this heap.
#![allow(unsafe_code)]

mod allocation;
mod central;
mod chunk;
mod class;
mod core;
mod fork;
mod global;
mod guarded;
mod huge;
mod huge_cache;
mod lock;
mod map;
mod mark;
mod misuse;
mod os;
mod slot;
mod span;
mod stats;
#[cfg(test)]
mod tests;
mod thread;
mod thread_cache;
mod units;

use std::alloc::Layout;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicPtr, AtomicU64};

use hugepilot_units::Bytes;

use self::allocation::Allocation;
use self::class::{ALIGN, UNIT};
use self::core::Core;
use self::misuse::{Call, Misuse};
use self::span::Block;
pub use self::stats::{HeapStats, ObjectCount};
use crate::{AllocError, Linux, Options, Sys};

/// An allocator for things of any size, for all threads, on the backings that its [`Options`] name.
///
/// It maps 32 MiB of addresses at a time (from a hugetlb pool as much as it has already, at least 2 MiB) and packs small
/// things densely: each thread takes spans of 64 KiB and more, each for things of one size class, from the chunks that all
/// threads share. Sizes are rounded up by at most 15 bytes or a ninth, above 512 KiB to 64 KiB; spans have at most an eighth
/// left over at their end. What is larger than 8 MiB has a mapping of its own, rounded up to the pages of its backing, or that
/// of another which was freed, at most a quarter longer. Whether the system has THP is looked up anew after a second.
///
/// What one thread allocated, another may free. Threads that end leave what they had to those that come.
///
/// After a `fork` of a process with several threads, the child can use all of the heap, and no thread waits for that. What the
/// other threads held ready is lost there. Where one of them was just taking or giving back whole spans, the child loses all free
/// memory, and what it frees later of its parent's small and large things; it maps new chunks, and [`HeapStats`] count only
/// these and huge things. A huge thing that another thread was resizing at that moment is lost, too. A signal handler that forks
/// may have interrupted its own thread within the heap: such a child may do no more than POSIX lets it, and that is to make
/// async-signal-safe calls, such as `exec`; to allocate or free is none of them.
///
/// Memory goes back to the kernel in whole 2 MiB in which nothing is in use: above what is kept (32 MiB, or an eighth of what is
/// in use; mappings of more than 8 MiB among it) at once, the rest with [`Self::trim`]. Huge pages in use are never split. Memory
/// of a pool goes back with the chunk or mapping.
///
/// What a program does wrong ends the process with SIGABRT, and a line on stderr that names the address: freeing, resizing or
/// measuring what this allocator did not return, what lies inside of an object, or what is free already. A small object that is
/// freed twice is noticed at once where no other of its span was freed in between; else, but for spans of hundreds of objects
/// that become empty before, when its memory would be handed out the second time. So is one whose second word is written to while
/// it is free; where it is the first, a later allocation may touch what is not mapped. A small object given to another heap
/// than its own is freed.
///
/// # Checking
///
/// A heap with [`Options::checked`] finds more, at some microseconds and at least one page for each object: the object lies before a page
/// that cannot be touched, and nothing can touch it once it is freed, until some 49,000 others were freed. A program that reads or
/// writes behind its objects, or when they are free, ends with SIGSEGV where it does so, and a line on stderr that names the
/// object, unless it handles that signal itself; system calls fail there with EFAULT. Bytes between the object and its page,
/// which alignment may leave, are looked at when it is freed; writes before an object are seen where they leave its page. The number
/// of objects guarded at a time is a quarter of `vm.max_map_count`, at most 16,384, each of at most 16 MiB; what is beyond is as
/// without this ([`HeapStats::unguarded`]). 1 TiB of addresses is reserved, or a quarter of what `ulimit -v` allows, without
/// memory behind it.
///
/// ```
/// use std::alloc::Layout;
///
/// use hugepilot_alloc::{Heap, Options};
///
/// let heap = Heap::new(Options::new("thp,base".parse()?).named("index")?);
/// let layout = Layout::new::<[u64; 4]>();
/// let start = heap.allocate(layout).ok_or("no memory")?;
/// // SAFETY: allocated with this layout, and given back once.
/// unsafe {
///     start.cast::<[u64; 4]>().write([7; 4]);
///     heap.deallocate(start);
/// }
/// assert_eq!(heap.stats().allocated.get(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// As the allocator of a whole program:
///
/// ```
/// use hugepilot_alloc::{Chain, Heap, Options};
///
/// #[global_allocator]
/// static HEAP: Heap = Heap::new(Options::new(Chain::THP_OR_BASE));
///
/// let words: Vec<String> = (0..1000).map(|i| i.to_string()).collect();
/// assert!(HEAP.stats().allocated.get() > 24_000, "{words:?}");
/// ```
pub struct Heap<S: Sys = Linux> {
    /// That of the core, for one look; no thread's before there is one.
    id: AtomicU64,
    core: AtomicPtr<Core<S>>,
    config: HeapConfig,
    reserve: Bytes,
    sys: S,
}

/// What the heap is to be like.
#[derive(Clone, Copy, Debug)]
enum HeapConfig {
    Fixed(Options),
    Lazy(fn() -> Options),
}

// SAFETY: the core is shared by all threads under its lock, and what a thread has is reached through its own slot only.
unsafe impl<S: Sys> Send for Heap<S> {}
// SAFETY: as above.
unsafe impl<S: Sys> Sync for Heap<S> {}

/// Larger things have a mapping of their own.
const MAX_IN_CHUNK: usize = 8 << 20;
/// The number of no heap and of no empty slot.
const NO_ID: u64 = u64::MAX;

impl Heap {
    /// A heap that maps nothing yet. Its chunks are as `options` say, but for the alignment, which is larger, and that children
    /// made by `fork` have them in any case.
    pub const fn new(options: Options) -> Self {
        Self::new_on(Linux, options)
    }

    /// The same, asking `options` once it needs memory: for a static heap whose options are not known when it is compiled.
    /// What it allocates from the heap itself is served with whatever it returns when it is asked meanwhile.
    pub const fn lazy(options: fn() -> Options) -> Self {
        Self::with(Linux, HeapConfig::Lazy(options))
    }
}

impl<S: Sys> Heap<S> {
    /// Free memory that is kept for new use, unless told otherwise.
    pub const RESERVE: Bytes = Bytes::mib(32);

    /// As [`Heap::new`], by the calls of `sys`.
    pub const fn new_on(sys: S, options: Options) -> Self {
        Self::with(sys, HeapConfig::Fixed(options))
    }

    const fn with(sys: S, config: HeapConfig) -> Self {
        let (id, core) = (AtomicU64::new(NO_ID), AtomicPtr::new(ptr::null_mut()));
        Self { id, core, config, reserve: Self::RESERVE, sys }
    }

    /// The same, keeping up to `reserve` of free memory, or an eighth of what is in use where that is more.
    #[must_use]
    pub const fn with_reserve(mut self, reserve: Bytes) -> Self {
        self.reserve = reserve;
        self
    }

    /// What was asked for.
    pub fn requested(&self) -> Options {
        match (self.core_if_any(), self.config) {
            (Some(core), _) => core.options,
            (None, HeapConfig::Fixed(options)) => options,
            (None, HeapConfig::Lazy(ask)) => ask(),
        }
    }

    /// Memory of that layout, with whatever is in it, aligned to at least 16 bytes; also where it has no bytes. `None` where
    /// there is none: see [`Self::refused`].
    #[inline]
    pub fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        if layout.align() <= ALIGN
            && let Some(start) = self.allocate_ready(layout.size())
        {
            return Some(start);
        }
        self.allocate_slowly(layout)
    }

    /// What the calling thread has ready for that many bytes, aligned to 16; `None` where that is nothing, and
    /// [`Self::allocate_slowly`] may still have memory.
    #[inline]
    pub fn allocate_ready(&self, size: usize) -> Option<NonNull<u8>> {
        self.take_ready(class::class_for(size)?)
    }

    #[inline]
    fn take_ready(&self, class: usize) -> Option<NonNull<u8>> {
        let slot = slot::get();
        if slot.id.get() != self.id.load(Relaxed) {
            return None;
        }
        // SAFETY: a slot with a number has a local of that heap, which is the calling thread's.
        NonNull::new(unsafe { (*slot.cache.get()).take(class) })
    }

    /// As [`Self::allocate`], zeroed.
    #[inline]
    pub fn allocate_zeroed(&self, layout: Layout) -> Option<NonNull<u8>> {
        let start = self.allocate(layout)?;
        if layout.size() <= class::MAX_SMALL || !self.is_zeroed(start) {
            // SAFETY: memory of this layout, ours alone.
            unsafe { start.write_bytes(0, layout.size()) };
        }
        Some(start)
    }

    /// Gives memory back.
    ///
    /// # Safety
    /// It was allocated by this heap, and is not used from here on.
    #[inline]
    pub unsafe fn deallocate(&self, start: NonNull<u8>) {
        // SAFETY: the caller's promise.
        unsafe { self.deallocate_or_null(start.as_ptr()) };
    }

    /// The same, and nothing for null, at no cost.
    ///
    /// # Safety
    /// As for [`Self::deallocate`], or null.
    #[inline]
    pub unsafe fn deallocate_or_null(&self, start: *mut u8) {
        let address = start.addr();
        if !map::has_head(address) {
            // SAFETY: the caller's promise.
            return unsafe { self.deallocate_slowly(address) };
        }
        // SAFETY: a chunk begins before it. What follows may unmap the span, so that no reference is passed on.
        let (this, span) = unsafe {
            let this = chunk::span_of(address);
            (this, &*this)
        };
        if !span.has_at(address) {
            // SAFETY: the caller's promise.
            return unsafe { self.deallocate_slowly(address) };
        }
        if !ptr::eq(span.owner.load(Relaxed), slot::get().cache.get()) {
            // SAFETY: an object of the span, and the caller's promise.
            return unsafe { span::free_elsewhere(this, address) };
        }
        let block = ptr::with_exposed_provenance_mut::<Block>(address);
        let next = span.free.get();
        if ptr::eq(next, block) {
            // SAFETY: the caller's promise.
            return unsafe { self.deallocate_slowly(address) };
        }
        // SAFETY: by contract the object is free from here on, and the span is the calling thread's.
        unsafe { block.write(Block::free(address, next)) };
        span.free.set(block);
        let used = span.used.load(Relaxed).wrapping_sub(1);
        span.used.store(used, Relaxed);
        if used == 0 || next.is_null() {
            // SAFETY: as above.
            unsafe { self.freed(this, address) };
        }
    }

    /// After the calling thread freed an object of its own, the first of its span or the last that was in use.
    ///
    /// # Safety
    /// The span is the calling thread's.
    #[cold]
    unsafe extern "C" fn freed(&self, span: *mut span::Span, address: usize) {
        // SAFETY: by contract; a thread with a local has a core.
        unsafe { (*self.core.load(Acquire)).freed(&*slot::get().cache.get(), span, address) };
    }

    /// What is no object of a span, or was the last one that the calling thread freed there. As a function of C, it does not unwind: so the caller needs no room on the
    /// stack for it.
    ///
    /// # Safety
    /// As for [`Self::deallocate_or_null`].
    unsafe extern "C" fn deallocate_slowly(&self, address: usize) {
        if address == 0 {
            return;
        }
        let Some(core) = self.core_if_any() else {
            misuse::end(Call::Free, address, Misuse::Foreign)
        };
        // SAFETY: the caller's promise.
        unsafe {
            match core.allocation_at(address) {
                // All others are freed without coming here.
                Ok(Allocation::Small(span)) => {
                    misuse::end(Call::Free, address, Misuse::Free { size: (*span).object_size() })
                }
                Ok(Allocation::Large(span)) => core.free_large(span, address),
                Ok(Allocation::Huge(_)) => self.free_huge(core, address),
                Ok(Allocation::Guarded(_)) => {
                    let freed = core.central().guarded.free(address);
                    freed.unwrap_or_else(|misuse| misuse::end(Call::Free, address, misuse));
                }
                Err(misuse) => misuse::end(Call::Free, address, misuse),
            }
        }
    }

    /// Makes memory as large as `layout` says, in place or elsewhere, and keeps what is in it, as far as it fits. What is made
    /// smaller gives back what it no longer needs of whole 2 MiB. `None` where there is no memory; then all is as before.
    ///
    /// # Safety
    /// As for [`Self::deallocate`], unless it returns `None`.
    pub unsafe fn reallocate(&self, start: NonNull<u8>, layout: Layout) -> Option<NonNull<u8>> {
        let address = start.as_ptr().addr();
        // SAFETY: by contract.
        let allocation = unsafe { self.allocation_at(address, Call::Resize) };
        let usable = allocation.size();
        let (size, is_aligned) = (layout.size(), address.is_multiple_of(layout.align()));
        // What is much too large is not kept for what is small, and no huge page for nothing.
        // What is guarded moves, so that the program does not use it where it was.
        let is_guarded = matches!(allocation, Allocation::Guarded(_));
        let fits = is_aligned && size <= usable && size >= usable / 2 && !is_guarded;
        if fits && usable - size < chunk::PAGE {
            return Some(start);
        }
        if is_aligned && size > class::MAX_SMALL {
            // SAFETY: by contract; the span of a thing in use is there.
            let is_done = unsafe {
                match allocation {
                    Allocation::Huge(_) if size > usable && layout.align() <= chunk::CHUNK => {
                        return self.grow_huge(address, size);
                    }
                    Allocation::Huge(_) => {
                        size <= usable && size > chunk::PAGE && self.shrink_huge(address, size)
                    }
                    Allocation::Large(span) if size <= MAX_IN_CHUNK => {
                        self.core()?.central().resize(&*span, size.div_ceil(UNIT))
                    }
                    Allocation::Large(_) | Allocation::Small(_) | Allocation::Guarded(_) => false,
                }
            };
            if is_done {
                return Some(start);
            }
        }
        if fits {
            return Some(start);
        }
        let moved = self.allocate(layout)?;
        // SAFETY: both are that long, and apart; by contract the old one may be freed.
        unsafe {
            moved.copy_from_nonoverlapping(start, usable.min(size));
            self.deallocate(start);
        }
        Some(moved)
    }

    /// How many bytes may be used there, at least as many as were asked for.
    ///
    /// # Safety
    /// It was allocated by this heap.
    pub unsafe fn usable_size(&self, start: NonNull<u8>) -> usize {
        // SAFETY: by contract.
        unsafe { self.allocation_at(start.as_ptr().addr(), Call::Size) }.size()
    }

    /// Gives all memory back to the kernel that is free in whole 2 MiB, and what is kept of larger things; what the calling
    /// thread and threads that have ended held ready among it. How much that was.
    pub fn trim(&self) -> Bytes {
        let Some(core) = self.core_if_any() else { return Bytes::ZERO };
        if let Some(cache) = core.header.cache() {
            // SAFETY: the calling thread's.
            unsafe { core.flush(cache) };
        }
        core.collect_abandoned();
        Bytes::new(core.central().trim() as u64)
    }

    /// Why memory was last not to be had as it was asked for, whether or not a later backing had some.
    pub fn refused(&self) -> Option<AllocError> {
        self.core_if_any()?.central().refused
    }

    /// As [`Self::allocate`], for a caller for whom [`Self::allocate_ready`] had nothing.
    #[cold]
    pub fn allocate_slowly(&self, layout: Layout) -> Option<NonNull<u8>> {
        let (size, align) = (layout.size(), layout.align());
        let core = self.core()?;
        if core.options.check
            && let Some(start) =
                core.central().guarded.take(layout, self.sys.sizes().base.as_usize())
        {
            return Some(start);
        }
        if align <= ALIGN && size <= class::MAX_SMALL {
            return self.take_slowly(core, class::class_of(size));
        }
        if let Some(class) = class::aligned_class(size, align) {
            return self.take_ready(class).or_else(|| self.take_slowly(core, class));
        }
        if size > MAX_IN_CHUNK || align > MAX_IN_CHUNK {
            return self.allocate_huge(layout);
        }
        let units = size.div_ceil(UNIT).max(1);
        let span = core.central().take(units, align.div_ceil(UNIT))?;
        // SAFETY: a span that is ours now.
        NonNull::new(unsafe { (*span).base() })
    }

    /// An object of that class, of which the calling thread has none ready.
    fn take_slowly(&self, core: &Core<S>, class: usize) -> Option<NonNull<u8>> {
        let cache = core.header.cache()?;
        // Here, not where the core is made: in a child, who made it may not have come that far. A heap that checks has nothing
        // ready.
        if self.id.load(Relaxed) != core.header.id && !core.options.check {
            self.id.store(core.header.id, Relaxed);
        }
        // SAFETY: the calling thread's.
        unsafe { core.take_slowly(cache, class) }
    }

    /// Whether large memory that was just allocated is known to be zero.
    #[cold]
    fn is_zeroed(&self, start: NonNull<u8>) -> bool {
        let address = start.as_ptr().addr();
        if !map::has(address) {
            let zeroed = |core: &Core<S>| Some(core.central().huge.get(address)?.zeroed);
            return self.core_if_any().and_then(zeroed).unwrap_or(false);
        }
        // SAFETY: of this heap, by whoever calls.
        unsafe { (*chunk::span_of(address)).zeroed().get() }
    }

    fn core_if_any(&self) -> Option<&Core<S>> {
        // SAFETY: once there is a core, it is there as long as the heap.
        unsafe { self.core.load(Acquire).as_ref() }
    }

    fn core(&self) -> Option<&Core<S>> {
        self.core_if_any().or_else(|| self.begin())
    }

    #[cold]
    fn begin(&self) -> Option<&Core<S>> {
        fork::watch();
        let core = Core::map(&self.sys, self.requested(), self.reserve)?;
        // SAFETY: the core is there until it is retired, or nobody has seen it.
        unsafe {
            if !core.as_ref().header.enrol(&self.core, core) {
                Core::unmap(core, &self.sys);
            }
        }
        self.core_if_any()
    }
}

/// Unmaps all memory of the heap.
impl<S: Sys> Drop for Heap<S> {
    fn drop(&mut self) {
        let Some(core) = NonNull::new(*self.core.get_mut()) else { return };
        // SAFETY: made by `begin`, and `&mut self` says that nobody uses it; whoever has memory of it borrows the heap.
        unsafe {
            core.as_ref().header.retire();
            Core::unmap(core, &self.sys);
        }
    }
}

impl<S: Sys> fmt::Debug for Heap<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heap")
            .field("config", &self.config)
            .field("reserve", &self.reserve)
            .finish_non_exhaustive()
    }
}
