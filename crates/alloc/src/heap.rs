//! Allocator for objects of any size.
//!
//! # Safety
//! Memory in use has one owner: the thread that owns a span hands out its objects, each once; units
//! and mappings are handed out under the heap's lock. The span of an object is found by masking its
//! address, which is sound because callers free only addresses of this heap.
#![allow(unsafe_code)]

mod allocation;
mod central;
mod chunk;
mod class;
mod core;
mod fork;
mod global;
mod huge;
mod huge_cache;
mod lender;
mod lock;
mod map;
mod mark;
mod misuse;
mod os;
mod resize;
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

/// Allocator for objects of any size, for all threads, on the backings of its [`Options`].
///
/// A heap maps 32 MiB of addresses at a time: a chunk. (From a hugetlb pool, it maps as much as it
/// already has, at least 2 MiB.) Small objects are packed densely, in spans of 64 KiB or more, each
/// for one size class. The first threads, four for each CPU and at least 16, own spans; others
/// share some, keep 1 KiB or an object per class, and take a lock for more. Sizes are rounded up by
/// at most 15 bytes or a ninth, above 512 KiB to multiples of 64 KiB. An eighth of a span may be
/// left over at its end. Objects above 8 MiB are huge: such a one has a mapping of its own, rounded
/// up to its pages, or a freed one at most a quarter longer. The THP setting is read each second.
///
/// Any thread may free the objects of another. A thread that ends leaves its spans to later
/// threads.
///
/// After a `fork` of a process with several threads, the child can use all of the heap, and `fork`
/// never blocks on it. The child loses the objects that other threads had cached. If another thread
/// held the heap's lock at that moment (it takes or frees spans, or borrows), the child loses all
/// free memory, and never reuses small and large objects of its parent that it frees later. It then
/// maps new chunks, and [`HeapStats`] count only these and huge objects. A huge object that another
/// thread was resizing is lost, too. A signal handler that forks may have interrupted its own
/// thread within the heap: POSIX permits such a child only async-signal-safe calls, such as `exec`,
/// which excludes allocation.
///
/// Free memory returns to the kernel in whole 2 MiB: at once above the reserve (32 MiB, or an
/// eighth of the memory in use; freed huge objects count), the rest by [`Self::trim`]. Huge pages
/// in use are never split. Hugetlb pages return with their chunk or mapping.
///
/// Misuse ends the process with SIGABRT, after a line on stderr that names the address: freeing,
/// resizing or measuring an address that this allocator did not return, that lies inside of an
/// object, or that is already free. A second free of a small object is detected at once if no other
/// object of its span was freed in between. Otherwise it is detected when the memory would be
/// handed out again, unless the span has hundreds of objects and becomes empty before. A write to
/// the second word of a free object is detected like that, too; after a write to the first word, a
/// later allocation may access an unmapped address. A small object passed to another heap is freed.
///
/// ```
/// use std::alloc::Layout;
///
/// use hugepilot_alloc::{Heap, Options};
///
/// let heap = Heap::new(Options::new("thp,base".parse()?).named("index")?);
/// let layout = Layout::new::<[u64; 4]>();
/// let start = heap.allocate(layout).ok_or("no memory")?;
/// // SAFETY: allocated with this layout, and freed once.
/// unsafe {
///     start.cast::<[u64; 4]>().write([7; 4]);
///     heap.deallocate(start);
/// }
/// assert_eq!(heap.stats().allocated.get(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Allocator of a whole program:
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
    /// Copy of the core's ID for the fast path; matches no thread before there is a core.
    id: AtomicU64,
    core: AtomicPtr<Core<S>>,
    config: HeapConfig,
    reserve: Bytes,
    sys: S,
}

/// Source of the options.
#[derive(Clone, Copy, Debug)]
enum HeapConfig {
    Fixed(Options),
    Lazy(fn() -> Options),
}

// SAFETY: threads share the core under its lock; a thread reaches its own cache only, through its
// slot.
unsafe impl<S: Sys> Send for Heap<S> {}
// SAFETY: as above.
unsafe impl<S: Sys> Sync for Heap<S> {}

/// Larger objects are huge: they have mappings of their own.
const MAX_IN_CHUNK: usize = 8 << 20;
/// Matches neither a heap nor an empty slot.
const NO_ID: u64 = u64::MAX;

impl Heap {
    /// Creates a heap. Maps nothing yet.
    ///
    /// Its chunks follow `options`, except for the alignment, which is larger, and for the
    /// visibility in children, which inherit them always.
    pub const fn new(options: Options) -> Self {
        Self::new_on(Linux, options)
    }

    /// Creates a heap that calls `options` when it first needs memory: for a static heap whose
    /// options are unknown at compile time. If `options` itself allocates from the heap, its nested
    /// call decides.
    pub const fn lazy(options: fn() -> Options) -> Self {
        Self::with(Linux, HeapConfig::Lazy(options))
    }
}

impl<S: Sys> Heap<S> {
    /// Free memory kept for reuse by default.
    pub const RESERVE: Bytes = Bytes::mib(32);

    /// Creates a heap like [`Heap::new`], with system calls through `sys`.
    pub const fn new_on(sys: S, options: Options) -> Self {
        Self::with(sys, HeapConfig::Fixed(options))
    }

    const fn with(sys: S, config: HeapConfig) -> Self {
        let (id, core) = (AtomicU64::new(NO_ID), AtomicPtr::new(ptr::null_mut()));
        Self { id, core, config, reserve: Self::RESERVE, sys }
    }

    /// Sets the free memory kept for reuse: `reserve`, or an eighth of the memory in use if that is
    /// more.
    #[must_use]
    pub const fn with_reserve(mut self, reserve: Bytes) -> Self {
        self.reserve = reserve;
        self
    }

    /// Returns the requested options.
    pub fn requested(&self) -> Options {
        match (self.core_if_any(), self.config) {
            (Some(core), _) => core.options,
            (None, HeapConfig::Fixed(options)) => options,
            (None, HeapConfig::Lazy(ask)) => ask(),
        }
    }

    /// Allocates uninitialised memory of this layout, aligned to at least 16 bytes; a size of 0 is
    /// allowed. `None` if there is no memory: see [`Self::refused`].
    #[inline]
    pub fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        if layout.align() <= ALIGN
            && let Some(start) = self.allocate_ready(layout.size())
        {
            return Some(start);
        }
        self.allocate_slowly(layout)
    }

    /// Allocates `size` bytes, aligned to 16, from the calling thread's cache. `None` if it has no
    /// such object; [`Self::allocate_slowly`] may still have memory.
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
        // SAFETY: a slot with an ID has a cache of that heap, owned by the calling thread.
        NonNull::new(unsafe { (*slot.cache.get()).take::<false>(class) })
    }

    /// Allocates zeroed memory of this layout.
    #[inline]
    pub fn allocate_zeroed(&self, layout: Layout) -> Option<NonNull<u8>> {
        let start = self.allocate(layout)?;
        if layout.size() <= class::MAX_SMALL || !self.is_zeroed(start) {
            // SAFETY: memory of this layout, without other users.
            unsafe { start.write_bytes(0, layout.size()) };
        }
        Some(start)
    }

    /// Frees memory.
    ///
    /// # Safety
    /// This heap allocated it, and it is not used again.
    #[inline]
    pub unsafe fn deallocate(&self, start: NonNull<u8>) {
        // SAFETY: the caller's promise.
        unsafe { self.deallocate_or_null(start.as_ptr()) };
    }

    /// Frees memory; ignores null at no cost.
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
        // SAFETY: a chunk begins before it. The span may be unmapped below: no reference stays.
        let (this, span) = unsafe {
            let this = chunk::span_of(address);
            (this, &*this)
        };
        if !span.has_at(address) {
            // SAFETY: the caller's promise.
            return unsafe { self.deallocate_slowly(address) };
        }
        let (owner, slot) = (span.owner.load(Relaxed), slot::get());
        if !ptr::eq(owner, slot.cache.get()) {
            if ptr::eq(owner, slot.lender.get()) {
                // SAFETY: an object of the lender's span, and the caller's promise.
                return unsafe { lender::free_borrowed(this, address) };
            }
            // SAFETY: as above.
            return unsafe { span::free_elsewhere(this, address) };
        }
        let block = ptr::with_exposed_provenance_mut::<Block>(address);
        let next = span.free.get();
        if ptr::eq(next, block) {
            // SAFETY: the caller's promise.
            return unsafe { self.deallocate_slowly(address) };
        }
        // SAFETY: by contract the object is free from here on, and the calling thread owns the
        // span.
        unsafe { block.write(Block::free(address, next)) };
        span.free.set(block);
        let used = span.used.load(Relaxed).wrapping_sub(1);
        span.used.store(used, Relaxed);
        if used == 0 || next.is_null() {
            // SAFETY: as above.
            unsafe { self.freed(this, address) };
        }
    }

    /// Continues a free of the calling thread's own object: the first free one of its span, or the
    /// last one in use.
    ///
    /// # Safety
    /// The calling thread owns the span.
    #[cold]
    unsafe extern "C" fn freed(&self, span: *mut span::Span, address: usize) {
        // SAFETY: by contract; a thread with a cache has a core.
        unsafe { (*self.core.load(Acquire)).freed(&*slot::get().cache.get(), span, address) };
    }

    /// Frees all except objects of spans, and an object that was freed just before. A C function
    /// does not unwind, so the caller needs no stack frame for it.
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
                // The caller frees all other small objects.
                Ok(Allocation::Small(span)) => {
                    misuse::end(Call::Free, address, Misuse::Free { size: (*span).object_size() })
                }
                Ok(Allocation::Large(span)) => core.free_large(span, address),
                Ok(Allocation::Huge(_)) => self.free_huge(core, address),
                Err(misuse) => misuse::end(Call::Free, address, misuse),
            }
        }
    }

    /// Frees all unused memory in whole 2 MiB, including cached regions of huge objects and the
    /// objects cached by the calling thread, by ended threads and by the lender. Returns the freed
    /// bytes.
    pub fn trim(&self) -> Bytes {
        let Some(core) = self.core_if_any() else { return Bytes::ZERO };
        if let Some(cache) = core.header.cache() {
            // SAFETY: the calling thread's own cache.
            unsafe { core.flush(cache) };
        }
        core.collect_abandoned();
        Bytes::new(core.central().trim() as u64)
    }

    /// Returns the last error of a backing, even if a later backing of the chain had memory.
    pub fn refused(&self) -> Option<AllocError> {
        self.core_if_any()?.central().refused
    }

    /// Allocates if [`Self::allocate_ready`] had no object.
    #[cold]
    pub fn allocate_slowly(&self, layout: Layout) -> Option<NonNull<u8>> {
        let (size, align) = (layout.size(), layout.align());
        let core = self.core()?;
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
        let span = core.take_large(units, align.div_ceil(UNIT))?;
        // SAFETY: a span owned by this call.
        NonNull::new(unsafe { (*span).base() })
    }

    /// Allocates an object of this class when the thread's cache has none.
    fn take_slowly(&self, core: &Core<S>, class: usize) -> Option<NonNull<u8>> {
        let cache = core.header.cache()?;
        // Stored here, not where the core is made: in a child, the thread that made it may not have
        // come that far.
        if self.id.load(Relaxed) != core.header.id {
            self.id.store(core.header.id, Relaxed);
        }
        // SAFETY: the calling thread's own cache.
        unsafe { core.take_slowly(cache, class) }
    }

    /// Returns whether a large object that was just allocated is known to be zero.
    #[cold]
    fn is_zeroed(&self, start: NonNull<u8>) -> bool {
        let address = start.as_ptr().addr();
        if !map::has(address) {
            let zeroed = |core: &Core<S>| Some(core.central().huge.get(address)?.zeroed);
            return self.core_if_any().and_then(zeroed).unwrap_or(false);
        }
        // SAFETY: by contract of the callers, an address of this heap.
        unsafe { (*chunk::span_of(address)).zeroed().get() }
    }

    fn core_if_any(&self) -> Option<&Core<S>> {
        // SAFETY: a core lives as long as the heap.
        unsafe { self.core.load(Acquire).as_ref() }
    }

    fn core(&self) -> Option<&Core<S>> {
        self.core_if_any().or_else(|| self.begin())
    }

    #[cold]
    fn begin(&self) -> Option<&Core<S>> {
        fork::watch();
        let core = Core::map(&self.sys, self.requested(), self.reserve)?;
        // SAFETY: the core lives until it is retired, and is invisible to other threads before
        // that.
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
        // SAFETY: made by `begin`; `&mut self` excludes other users, and owners of its memory
        // borrow the heap.
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
