//! Which `Local` the calling thread uses, where unused ones wait, and what happens when a thread ends. Of `fork`: `fork.rs`.
//!
//! # Safety
//! A slot is its thread's alone. What is in the pool changes under the pool's lock, which is taken before that of any heap.
//! A heap that goes takes that lock, too, so that what a thread that ends finds there is still there.
#![allow(unsafe_code)]

use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU32};

use super::lock::Lock;
use super::thread_cache::ThreadCache;
use super::{os, slot};
use crate::{Linux, Pages, Sys};

/// What the calling thread used last.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Slot {
    /// The number of the heap that `local` is of; 0 for none.
    pub(super) id: Cell<u64>,
    /// The first of the thread's, linked by `next_of_thread`.
    pub(super) cache: Cell<*mut ThreadCache>,
}

/// What all heaps are alike in, whatever they map their memory with.
#[derive(Debug)]
pub(super) struct HeapHeader {
    /// Never used twice.
    pub(super) id: u64,
    pub(super) lock: Lock,
    /// Takes what a thread that ends had. Called under the pool's lock.
    pub(super) abandon: unsafe fn(*const HeapHeader, &ThreadCache),
    /// Begins the rest of the heap anew, in a child. Called under the heap's lock.
    pub(super) reset_after_fork: unsafe fn(*const HeapHeader),
    /// All of the heap's, linked by `next_of_heap`. One store adds one: a child has it or not.
    caches: AtomicPtr<ThreadCache>,
    /// Those whose threads have ended, linked by `next`.
    pub(super) abandoned: Cell<*mut ThreadCache>,
    /// Of those, the one to look at next.
    pub(super) next_scanned: Cell<*mut ThreadCache>,
    next: AtomicPtr<HeapHeader>,
}

/// What heaps share.
pub(super) struct Registry {
    pub(super) lock: Lock,
    /// All of them. One store adds one or takes one out: a child has it or not.
    heaps: AtomicPtr<HeapHeader>,
    /// Of the call at the end of a thread.
    key: AtomicU32,
    inner: UnsafeCell<RegistryInner>,
}

struct RegistryInner {
    /// Linked by `next`.
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
        // SAFETY: the lock is held, and `work` does not come back here.
        work(unsafe { &mut *self.inner.get() })
    }

    /// Loses those that are unused.
    pub(super) fn forget_unused(&self) {
        self.with(|registry| registry.unused = ptr::null_mut());
    }

    /// Every heap.
    ///
    /// # Safety
    /// None goes meanwhile: the caller holds the lock, or is the only thread.
    pub(super) unsafe fn heaps(&self) -> impl Iterator<Item = &HeapHeader> {
        // SAFETY: heaps in the list are there.
        let at = |link: &AtomicPtr<HeapHeader>| unsafe { link.load(Acquire).as_ref() };
        std::iter::successors(at(&self.heaps), move |heap| at(&heap.next))
    }
}

impl RegistryInner {
    /// One that nobody uses; mapped in batches, on base pages.
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
        // SAFETY: those in the pool are there, and unused.
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
    /// Of a new heap; not enrolled yet.
    pub(super) fn new(
        abandon: unsafe fn(*const HeapHeader, &ThreadCache),
        reset_after_fork: unsafe fn(*const HeapHeader),
    ) -> Self {
        let id = REGISTRY.with(|registry| {
            registry.ids += 1;
            registry.ids
        });
        let (caches, next) = (AtomicPtr::new(ptr::null_mut()), AtomicPtr::new(ptr::null_mut()));
        let [abandoned, next_scanned] = [const { Cell::new(ptr::null_mut()) }; 2];
        Self {
            id,
            lock: Lock::new(),
            abandon,
            reset_after_fork,
            caches,
            abandoned,
            next_scanned,
            next,
        }
    }

    /// Enters the list of heaps, and its core `place`. False where another core is there already.
    ///
    /// # Safety
    /// It is the first part of the core, which stays where it is until [`Self::retire`].
    pub(super) unsafe fn enrol<T>(&self, place: &AtomicPtr<T>, core: NonNull<T>) -> bool {
        REGISTRY.with(|_| {
            if !place.load(Relaxed).is_null() {
                return false;
            }
            if REGISTRY.key.load(Relaxed) == NO_KEY {
                REGISTRY.key.store(os::thread_key(end).unwrap_or(NO_KEY), Relaxed);
            }
            self.next.store(REGISTRY.heaps.load(Relaxed), Relaxed);
            // The list before the place: a child may know of a heap that is not in use, but must know of all that are.
            REGISTRY
                .heaps
                .store(ptr::with_exposed_provenance_mut(ptr::from_ref(self).addr()), Release);
            place.store(core.as_ptr(), Release);
            true
        })
    }

    /// Leaves the list of heaps. Its threads' locals become nobody's.
    pub(super) fn retire(&self) {
        REGISTRY.with(|registry| {
            // SAFETY: heaps in the list are there, and so are locals.
            unsafe {
                let mut links =
                    std::iter::once(&REGISTRY.heaps).chain(REGISTRY.heaps().map(|heap| &heap.next));
                if let Some(link) = links.find(|link| ptr::eq(link.load(Relaxed), self)) {
                    link.store(self.next.load(Relaxed), Release);
                }
                while let Some(cache) = self.abandoned.get().as_ref() {
                    self.abandoned.set(cache.next.get());
                    cache.id.store(0, Relaxed);
                    cache.next_of_thread.set(ptr::null_mut());
                    // Its link among the heap's is used below; it is nobody's from here on, but the pool's.
                    cache.header.set(ptr::null());
                }
                let mut next = self.caches.load(Relaxed);
                while let Some(cache) = next.as_ref() {
                    let this = std::mem::replace(&mut next, cache.next_of_heap.get());
                    // Those that are attached to a thread are put back by it: it may be looking at them.
                    if cache.id.swap(0, Relaxed) == 0 {
                        registry.push_unused(this);
                    }
                }
            }
        });
    }

    /// The calling thread's local, which becomes the one in its slot; `None` where there is no memory for one.
    pub(super) fn cache(&self) -> Option<&'static ThreadCache> {
        let slot = slot::get();
        let found = self.find(slot);
        let cache = match found {
            Some(cache) => cache,
            None => REGISTRY.with(|registry| self.abandoned().or_else(|| self.unused(registry)))?,
        };
        // SAFETY: locals are never unmapped, and this one is the calling thread's.
        let this = unsafe { &*cache };
        this.next_of_thread.set(slot.cache.get());
        slot.cache.set(cache);
        slot.id.set(self.id);
        let key = REGISTRY.key.load(Relaxed);
        if found.is_none() && key != NO_KEY {
            os::at_thread_exit(key, cache.cast());
        }
        Some(this)
    }

    /// That of the thread's locals which is of this heap, taken out of its list. Those of heaps that are gone are put back.
    fn find(&self, slot: &Slot) -> Option<*mut ThreadCache> {
        let mut link = &slot.cache;
        // SAFETY: locals are never unmapped, and those in the list are the calling thread's.
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

    /// One that is abandoned, and the next time another; `None` after the last.
    ///
    /// # Safety
    /// The caller holds the lock, and uses it no longer than that.
    pub(super) unsafe fn next_abandoned(&self) -> Option<&ThreadCache> {
        let next_scanned = self.next_scanned.get();
        let cache = if next_scanned.is_null() { self.abandoned.get() } else { next_scanned };
        // SAFETY: abandoned locals are there.
        let cache = unsafe { cache.as_ref() }?;
        self.next_scanned.set(cache.next.get());
        Some(cache)
    }

    /// All locals of the heap.
    ///
    /// # Safety
    /// The caller holds the lock.
    pub(super) unsafe fn all(&self) -> impl Iterator<Item = &ThreadCache> {
        // SAFETY: locals are never unmapped.
        let at = |cache: *mut ThreadCache| unsafe { cache.as_ref() };
        std::iter::successors(at(self.caches.load(Relaxed)), move |cache| {
            at(cache.next_of_heap.get())
        })
    }

    fn abandoned(&self) -> Option<*mut ThreadCache> {
        let _held = self.lock.lock();
        let cache = self.abandoned.get();
        // SAFETY: abandoned locals are there.
        let next = unsafe { cache.as_ref() }?.next.get();
        self.abandoned.set(next);
        if self.next_scanned.get() == cache {
            self.next_scanned.set(next);
        }
        Some(cache)
    }

    fn unused(&self, registry: &mut RegistryInner) -> Option<*mut ThreadCache> {
        let cache = registry.unused()?;
        let _held = self.lock.lock();
        // SAFETY: nobody else's.
        unsafe {
            (*cache).id.store(self.id, Relaxed);
            (*cache).header.set(ptr::with_exposed_provenance(ptr::from_ref(self).addr()));
            (*cache).next_of_heap.set(self.caches.load(Relaxed));
        }
        self.caches.store(cache, Release);
        Some(cache)
    }
}

/// At the end of a thread: its heaps take what it had.
unsafe extern "C" fn end(_: *mut c_void) {
    let slot = slot::get();
    slot.id.set(0);
    let mut next = slot.cache.replace(ptr::null_mut());
    REGISTRY.with(|registry| {
        // SAFETY: locals are never unmapped, and these were the calling thread's.
        while let Some(cache) = unsafe { next.as_ref() } {
            let this = std::mem::replace(&mut next, cache.next_of_thread.get());
            if cache.id.load(Relaxed) == 0 {
                registry.push_unused(this);
                continue;
            }
            let header = cache.header.get();
            // SAFETY: a heap whose locals have its number is there while the pool's lock is held.
            unsafe {
                let _held = (*header).lock.lock();
                ((*header).abandon)(header, cache);
                cache.next.set((*header).abandoned.replace(this));
            }
        }
    });
}
