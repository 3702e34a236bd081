//! Threads of heaps: the cache of the calling thread, unused caches, and the end of a thread. For
//! `fork`, see `fork.rs`.
//!
//! # Safety
//! A slot belongs to its thread alone. The registry changes under its lock, which is taken before
//! that of any heap. Dropping a heap takes that lock, too, so that an ending thread finds its heaps
//! intact.
#![allow(unsafe_code)]

use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize};

use super::lock::Lock;
use super::thread_cache::ThreadCache;
use super::{lender, os, slot};
use crate::{Linux, Pages, Sys};

/// Cache that the calling thread used last.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Slot {
    /// ID of the heap of `cache`; 0 without one.
    pub(super) id: Cell<u64>,
    /// First cache of the thread, linked by `next_of_thread`.
    pub(super) cache: Cell<*mut ThreadCache>,
    /// Lender of `cache`; null if the thread owns spans, or none.
    pub(super) lender: Cell<*mut ThreadCache>,
}

impl Slot {
    #[cfg(any(miri, not(all(target_arch = "x86_64", target_os = "linux"))))]
    pub(super) const fn new() -> Self {
        let [cache, lender] = [const { Cell::new(ptr::null_mut()) }; 2];
        Self { id: Cell::new(0), cache, lender }
    }
}

const _: () = assert!(size_of::<Slot>() == 3 * size_of::<u64>());

/// Part of a heap that does not depend on its `Sys`.
#[derive(Debug)]
pub(super) struct HeapHeader {
    /// Never reused.
    pub(super) id: u64,
    pub(super) lock: Lock,
    /// Takes over the cache of an ending thread. Called under the registry's lock.
    pub(super) abandon: unsafe fn(*const HeapHeader, &ThreadCache),
    /// Resets the rest of the heap in a child. Called under the heap's lock.
    pub(super) reset_after_fork: unsafe fn(*const HeapHeader),
    /// All caches of the heap, linked by `next_of_heap`. One store adds one: a child has it or not.
    caches: AtomicPtr<ThreadCache>,
    /// Caches of ended threads, linked by `next`.
    pub(super) abandoned: Cell<*mut ThreadCache>,
    /// Abandoned cache to scan next.
    pub(super) next_scanned: Cell<*mut ThreadCache>,
    /// Caches of ended threads that borrowed, linked by `next`.
    pub(super) spare: Cell<*mut ThreadCache>,
    /// Cache that lends to threads beyond the first; null before there is one.
    pub(super) lender: AtomicPtr<ThreadCache>,
    /// Number of threads that own spans, and the most. Changed under the registry's lock.
    owners: AtomicUsize,
    pub(super) most_owners: AtomicUsize,
    next: AtomicPtr<HeapHeader>,
}

/// State that all heaps of the process share.
pub(super) struct Registry {
    pub(super) lock: Lock,
    /// All heaps. One store adds or removes one: a child has it or not.
    heaps: AtomicPtr<HeapHeader>,
    /// Key of the function called at the end of a thread.
    key: AtomicU32,
    inner: UnsafeCell<RegistryInner>,
}

struct RegistryInner {
    /// Unused caches, linked by `next`.
    unused: *mut ThreadCache,
    ids: u64,
}

const NO_KEY: u32 = u32::MAX;

// SAFETY: the inner part is used under the lock only.
unsafe impl Sync for Registry {}

pub(super) static REGISTRY: Registry = Registry {
    lock: Lock::new(),
    heaps: AtomicPtr::new(ptr::null_mut()),
    key: AtomicU32::new(NO_KEY),
    inner: UnsafeCell::new(RegistryInner { unused: ptr::null_mut(), ids: 0 }),
};

impl Registry {
    fn with<T>(&self, work: impl FnOnce(&mut RegistryInner) -> T) -> T {
        let _held = self.lock.lock();
        // SAFETY: the lock is held, and `work` does not call this function.
        work(unsafe { &mut *self.inner.get() })
    }

    /// Drops the list of unused caches.
    pub(super) fn forget_unused(&self) {
        self.with(|registry| registry.unused = ptr::null_mut());
    }

    /// Returns every heap.
    ///
    /// # Safety
    /// No heap is dropped meanwhile: the caller holds the lock, or is the only thread.
    pub(super) unsafe fn heaps(&self) -> impl Iterator<Item = &HeapHeader> {
        // SAFETY: heaps in the list exist.
        let at = |link: &AtomicPtr<HeapHeader>| unsafe { link.load(Acquire).as_ref() };
        std::iter::successors(at(&self.heaps), move |heap| at(&heap.next))
    }
}

impl RegistryInner {
    /// Takes an unused cache. Maps them in batches, on base pages.
    fn unused(&mut self) -> Option<*mut ThreadCache> {
        const BATCH: usize = 64 << 10;
        if self.unused.is_null() {
            let align = Linux.sizes().base.as_usize();
            let start = Linux
                .map(BATCH.next_multiple_of(align), align, Pages::Plain)
                .ok()?
                .cast::<ThreadCache>();
            for i in 0..BATCH / size_of::<ThreadCache>() {
                // SAFETY: inside of the new mapping.
                let cache = unsafe { start.add(i) }.as_ptr();
                // SAFETY: as above.
                unsafe { cache.write(ThreadCache::new()) };
                self.push_unused(cache);
            }
        }
        let cache = self.unused;
        // SAFETY: unused caches exist and have no other users.
        unsafe {
            self.unused = (*cache).next.get();
            cache.write(ThreadCache::new());
        }
        Some(cache)
    }

    fn push_unused(&mut self, cache: *mut ThreadCache) {
        // SAFETY: as in `unused`.
        unsafe { (*cache).next.set(self.unused) };
        self.unused = cache;
    }
}

impl HeapHeader {
    /// Creates the header of a new heap, not enrolled yet.
    pub(super) fn new(
        abandon: unsafe fn(*const HeapHeader, &ThreadCache),
        reset_after_fork: unsafe fn(*const HeapHeader),
    ) -> Self {
        let id = REGISTRY.with(|registry| {
            registry.ids += 1;
            registry.ids
        });
        let (caches, next) = (AtomicPtr::new(ptr::null_mut()), AtomicPtr::new(ptr::null_mut()));
        let [abandoned, next_scanned, spare] = [const { Cell::new(ptr::null_mut()) }; 3];
        Self {
            id,
            lock: Lock::new(),
            abandon,
            reset_after_fork,
            caches,
            abandoned,
            next_scanned,
            spare,
            lender: AtomicPtr::new(ptr::null_mut()),
            owners: AtomicUsize::new(0),
            most_owners: AtomicUsize::new(lender::most_owners()),
            next,
        }
    }

    /// Enters the list of heaps, and stores its core in `place`. Returns `false` if another core is
    /// there.
    ///
    /// # Safety
    /// It is the first field of the core, which does not move until [`Self::retire`].
    pub(super) unsafe fn enrol<T>(&self, place: &AtomicPtr<T>, core: NonNull<T>) -> bool {
        REGISTRY.with(|_| {
            if !place.load(Relaxed).is_null() {
                return false;
            }
            if REGISTRY.key.load(Relaxed) == NO_KEY {
                REGISTRY.key.store(os::thread_key(end).unwrap_or(NO_KEY), Relaxed);
            }
            self.next.store(REGISTRY.heaps.load(Relaxed), Relaxed);
            // The list before the place: a child may find a heap that is not in use, but must find
            // all in use.
            REGISTRY
                .heaps
                .store(ptr::with_exposed_provenance_mut(ptr::from_ref(self).addr()), Release);
            place.store(core.as_ptr(), Release);
            true
        })
    }

    /// Leaves the list of heaps. Its caches become unused.
    pub(super) fn retire(&self) {
        REGISTRY.with(|registry| {
            // SAFETY: heaps and caches in the lists exist.
            unsafe {
                let mut links =
                    std::iter::once(&REGISTRY.heaps).chain(REGISTRY.heaps().map(|heap| &heap.next));
                if let Some(link) = links.find(|link| ptr::eq(link.load(Relaxed), self)) {
                    link.store(self.next.load(Relaxed), Release);
                }
                if let Some(lender) = self.lender_if_any().as_ref() {
                    lender.next.set(self.spare.replace(self.lender_if_any()));
                }
                let lists = [&self.abandoned, &self.spare];
                let waiting = || lists.into_iter().find(|list| !list.get().is_null());
                while let Some(list) = waiting() {
                    let cache = &*list.get();
                    list.set(cache.next.get());
                    cache.id.store(0, Relaxed);
                    cache.next_of_thread.set(ptr::null_mut());
                    // Its link among the heap's caches is needed below; from here on, the registry
                    // owns it.
                    cache.header.set(ptr::null());
                }
                let mut next = self.caches.load(Relaxed);
                while let Some(cache) = next.as_ref() {
                    let this = std::mem::replace(&mut next, cache.next_of_heap.get());
                    // A thread returns an attached cache itself: it may be reading it.
                    if cache.id.swap(0, Relaxed) == 0 {
                        registry.push_unused(this);
                    }
                }
            }
        });
    }

    /// Returns the calling thread's cache, and stores it in the slot; `None` if there is no memory
    /// for one.
    pub(super) fn cache(&self) -> Option<&'static ThreadCache> {
        let slot = slot::get();
        slot.lender.set(ptr::null_mut());
        let found = self.find(slot);
        let cache = match found {
            Some(cache) => cache,
            None => REGISTRY.with(|registry| self.attach(registry))?,
        };
        // SAFETY: caches are never unmapped, and this one is the calling thread's own.
        let this = unsafe { &*cache };
        this.next_of_thread.set(slot.cache.get());
        slot.cache.set(cache);
        slot.lender.set(this.lender.get());
        slot.id.set(self.id);
        let key = REGISTRY.key.load(Relaxed);
        if found.is_none() && key != NO_KEY {
            os::at_thread_exit(key, cache.cast());
        }
        Some(this)
    }

    /// Removes and returns the thread's cache for this heap. Returns caches of dropped heaps to the
    /// registry.
    fn find(&self, slot: &Slot) -> Option<*mut ThreadCache> {
        let mut link = &slot.cache;
        // SAFETY: caches are never unmapped, and those in the list are the calling thread's own.
        while let Some(cache) = unsafe { link.get().as_ref() } {
            let this = link.get();
            match cache.id.load(Relaxed) {
                0 => {
                    link.set(cache.next_of_thread.get());
                    REGISTRY.with(|registry| registry.push_unused(this));
                }
                id if id == self.id => {
                    link.set(cache.next_of_thread.get());
                    return Some(this);
                }
                _ => link = &cache.next_of_thread,
            }
        }
        None
    }

    /// Returns an abandoned cache, a different one each time; `None` after the last.
    ///
    /// # Safety
    /// The caller holds the lock, and uses the result only while it does.
    pub(super) unsafe fn next_abandoned(&self) -> Option<&ThreadCache> {
        let next_scanned = self.next_scanned.get();
        let cache = if next_scanned.is_null() { self.abandoned.get() } else { next_scanned };
        // SAFETY: abandoned caches exist.
        let cache = unsafe { cache.as_ref() }?;
        self.next_scanned.set(cache.next.get());
        Some(cache)
    }

    /// Returns all caches of the heap.
    ///
    /// # Safety
    /// The caller holds the lock.
    pub(super) unsafe fn all(&self) -> impl Iterator<Item = &ThreadCache> {
        // SAFETY: caches are never unmapped.
        let at = |cache: *mut ThreadCache| unsafe { cache.as_ref() };
        std::iter::successors(at(self.caches.load(Relaxed)), move |cache| {
            at(cache.next_of_heap.get())
        })
    }

    /// Returns a cache for a thread, which owns spans if few others do, and else borrows.
    fn attach(&self, registry: &mut RegistryInner) -> Option<*mut ThreadCache> {
        let lender = if self.has_place() { None } else { self.lender_of(registry) };
        let waiting = if lender.is_some() { &self.spare } else { &self.abandoned };
        let cache = self.take_waiting(waiting).or_else(|| self.unused(registry))?;
        // SAFETY: caches are never unmapped, and this one has no other users.
        unsafe { (*cache).lender.set(lender.unwrap_or(ptr::null_mut())) };
        self.owners.fetch_add(usize::from(lender.is_none()), Relaxed);
        Some(cache)
    }

    fn has_place(&self) -> bool {
        self.owners.load(Relaxed) < self.most_owners.load(Relaxed)
    }

    /// Makes a thread that borrows own spans from now on, if there is a place. Returns whether it
    /// does.
    ///
    /// # Safety
    /// `cache` is the calling thread's, of this heap.
    pub(super) unsafe fn own(&self, cache: &ThreadCache) -> bool {
        if !self.has_place() {
            return false;
        }
        let has_place = REGISTRY.with(|_| {
            let has_place = self.has_place();
            self.owners.fetch_add(usize::from(has_place), Relaxed);
            has_place
        });
        if has_place {
            // SAFETY: by contract.
            unsafe { cache.give_back::<false>() };
            cache.borrow_from(ptr::null_mut());
        }
        has_place
    }

    /// Counts the threads that own spans in a child, in which only the calling one exists.
    pub(super) fn recount_owners(&self) {
        // SAFETY: caches in the slot's list are the calling thread's own.
        let at = |cache: *mut ThreadCache| unsafe { cache.as_ref() };
        let first = at(slot::get().cache.get());
        let mut own = std::iter::successors(first, |cache| at(cache.next_of_thread.get()));
        let owns = own.any(|cache| cache.id.load(Relaxed) == self.id && !cache.borrows());
        self.owners.store(usize::from(owns), Relaxed);
    }

    /// Returns the lender, null before there is one.
    pub(super) fn lender_if_any(&self) -> *mut ThreadCache {
        self.lender.load(Acquire)
    }

    /// Returns the lender; `None` if there is no memory for one.
    pub(super) fn lender(&self) -> Option<*mut ThreadCache> {
        let lender = self.lender_if_any();
        if !lender.is_null() {
            return Some(lender);
        }
        REGISTRY.with(|registry| self.lender_of(registry))
    }

    fn lender_of(&self, registry: &mut RegistryInner) -> Option<*mut ThreadCache> {
        if self.lender_if_any().is_null() {
            self.lender.store(self.unused(registry)?, Release);
        }
        Some(self.lender_if_any())
    }

    fn take_waiting(&self, list: &Cell<*mut ThreadCache>) -> Option<*mut ThreadCache> {
        let _held = self.lock.lock();
        let cache = list.get();
        // SAFETY: caches in the list exist.
        let next = unsafe { cache.as_ref() }?.next.get();
        list.set(next);
        if self.next_scanned.get() == cache {
            self.next_scanned.set(next);
        }
        Some(cache)
    }

    fn unused(&self, registry: &mut RegistryInner) -> Option<*mut ThreadCache> {
        let cache = registry.unused()?;
        let _held = self.lock.lock();
        // SAFETY: no other users.
        unsafe {
            (*cache).id.store(self.id, Relaxed);
            (*cache).header.set(ptr::with_exposed_provenance(ptr::from_ref(self).addr()));
            (*cache).next_of_heap.set(self.caches.load(Relaxed));
        }
        self.caches.store(cache, Release);
        Some(cache)
    }
}

/// Ends a thread: its heaps take over its caches.
unsafe extern "C" fn end(_: *mut c_void) {
    let slot = slot::get();
    slot.id.set(0);
    slot.lender.set(ptr::null_mut());
    let mut next = slot.cache.replace(ptr::null_mut());
    REGISTRY.with(|registry| {
        // SAFETY: caches are never unmapped, and these were the calling thread's own.
        while let Some(cache) = unsafe { next.as_ref() } {
            let this = std::mem::replace(&mut next, cache.next_of_thread.get());
            if cache.id.load(Relaxed) == 0 {
                registry.push_unused(this);
                continue;
            }
            let header = cache.header.get();
            // SAFETY: a heap with this ID in a cache exists while the registry's lock is held.
            unsafe {
                let header = &*header;
                // Before the heap's lock, which other threads wait for.
                if cache.borrows() {
                    cache.give_back::<true>();
                }
                let _held = header.lock.lock();
                (header.abandon)(header, cache);
                if cache.borrows() {
                    cache.next.set(header.spare.replace(this));
                } else {
                    header.owners.fetch_sub(1, Relaxed);
                    cache.next.set(header.abandoned.replace(this));
                }
            }
        }
    });
}
