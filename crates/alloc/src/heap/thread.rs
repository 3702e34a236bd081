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

use super::local::Local;
use super::lock::Lock;
use super::{os, slot};
use crate::{Linux, Pages, Sys};

/// What the calling thread used last.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Slot {
    /// The number of the heap that `local` is of; 0 for none.
    pub(super) id: Cell<u64>,
    /// The first of the thread's, linked by `next_of_thread`.
    pub(super) local: Cell<*mut Local>,
}

/// What all heaps are alike in, whatever they map their memory with.
#[derive(Debug)]
pub(super) struct Shared {
    /// Never used twice.
    pub(super) id: u64,
    pub(super) lock: Lock,
    /// Takes what a thread that ends had. Called under the pool's lock.
    pub(super) abandon: unsafe fn(*const Shared, &Local),
    /// Begins the rest of the heap anew, in a child. Called under the heap's lock.
    pub(super) renew: unsafe fn(*const Shared),
    /// All of the heap's, linked by `next_of_heap`. One store adds one: a child has it or not.
    locals: AtomicPtr<Local>,
    /// Those whose threads have ended, linked by `next`.
    pub(super) abandoned: Cell<*mut Local>,
    /// Of those, the one to look at next.
    pub(super) looked: Cell<*mut Local>,
    next: AtomicPtr<Shared>,
}

/// What heaps share.
pub(super) struct Pool {
    pub(super) lock: Lock,
    /// All of them. One store adds one or takes one out: a child has it or not.
    heaps: AtomicPtr<Shared>,
    /// Of the call at the end of a thread.
    key: AtomicU32,
    inner: UnsafeCell<Inner>,
}

struct Inner {
    /// Linked by `next`.
    unused: *mut Local,
    ids: u64,
}

const NO_KEY: u32 = u32::MAX;

// SAFETY: the inner part is used under the lock only.
unsafe impl Sync for Pool {}

pub(super) static POOL: Pool = Pool {
    lock: Lock::new(),
    heaps: AtomicPtr::new(ptr::null_mut()),
    key: AtomicU32::new(NO_KEY),
    inner: UnsafeCell::new(Inner { unused: ptr::null_mut(), ids: 0 }),
};

impl Pool {
    fn with<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> T {
        let _held = self.lock.hold();
        // SAFETY: the lock is held, and `work` does not come back here.
        work(unsafe { &mut *self.inner.get() })
    }

    /// Loses those that are unused.
    pub(super) fn lose_unused(&self) {
        self.with(|pool| pool.unused = ptr::null_mut());
    }

    /// Every heap.
    ///
    /// # Safety
    /// None goes meanwhile: the caller holds the lock, or is the only thread.
    pub(super) unsafe fn heaps(&self) -> impl Iterator<Item = &Shared> {
        // SAFETY: heaps in the list are there.
        let at = |link: &AtomicPtr<Shared>| unsafe { link.load(Acquire).as_ref() };
        std::iter::successors(at(&self.heaps), move |heap| at(&heap.next))
    }
}

impl Inner {
    /// One that nobody uses; mapped in batches, on base pages.
    fn unused(&mut self) -> Option<*mut Local> {
        const BATCH: usize = 64 << 10;
        if self.unused.is_null() {
            let align = Linux.sizes().base.as_usize();
            let start =
                Linux.map(BATCH.next_multiple_of(align), align, Pages::Plain).ok()?.cast::<Local>();
            for i in 0..BATCH / size_of::<Local>() {
                // SAFETY: inside of the new mapping.
                let local = unsafe { start.add(i) }.as_ptr();
                // SAFETY: as above.
                unsafe { local.write(Local::new()) };
                self.push_unused(local);
            }
        }
        let local = self.unused;
        // SAFETY: those in the pool are there, and unused.
        unsafe {
            self.unused = (*local).next.get();
            local.write(Local::new());
        }
        Some(local)
    }

    fn push_unused(&mut self, local: *mut Local) {
        // SAFETY: as in `unused`.
        unsafe { (*local).next.set(self.unused) };
        self.unused = local;
    }
}

impl Shared {
    /// Of a new heap; not enrolled yet.
    pub(super) fn new(
        abandon: unsafe fn(*const Shared, &Local),
        renew: unsafe fn(*const Shared),
    ) -> Self {
        let id = POOL.with(|pool| {
            pool.ids += 1;
            pool.ids
        });
        let (locals, next) = (AtomicPtr::new(ptr::null_mut()), AtomicPtr::new(ptr::null_mut()));
        let [abandoned, looked] = [const { Cell::new(ptr::null_mut()) }; 2];
        Self { id, lock: Lock::new(), abandon, renew, locals, abandoned, looked, next }
    }

    /// Enters the list of heaps, and its core `place`. False where another core is there already.
    ///
    /// # Safety
    /// It is the first part of the core, which stays where it is until [`Self::retire`].
    pub(super) unsafe fn enrol<T>(&self, place: &AtomicPtr<T>, core: NonNull<T>) -> bool {
        POOL.with(|_| {
            if !place.load(Relaxed).is_null() {
                return false;
            }
            if POOL.key.load(Relaxed) == NO_KEY {
                POOL.key.store(os::thread_key(end).unwrap_or(NO_KEY), Relaxed);
            }
            self.next.store(POOL.heaps.load(Relaxed), Relaxed);
            // The list before the place: a child may know of a heap that is not in use, but must know of all that are.
            POOL.heaps.store(ptr::with_exposed_provenance_mut(ptr::from_ref(self).addr()), Release);
            place.store(core.as_ptr(), Release);
            true
        })
    }

    /// Leaves the list of heaps. Its threads' locals become nobody's.
    pub(super) fn retire(&self) {
        POOL.with(|pool| {
            // SAFETY: heaps in the list are there, and so are locals.
            unsafe {
                let mut links =
                    std::iter::once(&POOL.heaps).chain(POOL.heaps().map(|heap| &heap.next));
                if let Some(link) = links.find(|link| ptr::eq(link.load(Relaxed), self)) {
                    link.store(self.next.load(Relaxed), Release);
                }
                while let Some(local) = self.abandoned.get().as_ref() {
                    self.abandoned.set(local.next.get());
                    local.id.store(0, Relaxed);
                    local.next_of_thread.set(ptr::null_mut());
                    // Its link among the heap's is used below; it is nobody's from here on, but the pool's.
                    local.shared.set(ptr::null());
                }
                let mut next = self.locals.load(Relaxed);
                while let Some(local) = next.as_ref() {
                    let this = std::mem::replace(&mut next, local.next_of_heap.get());
                    // Those that are attached to a thread are put back by it: it may be looking at them.
                    if local.id.swap(0, Relaxed) == 0 {
                        pool.push_unused(this);
                    }
                }
            }
        });
    }

    /// The calling thread's local, which becomes the one in its slot; `None` where there is no memory for one.
    pub(super) fn local(&self) -> Option<&'static Local> {
        let slot = slot::get();
        let found = self.find(slot);
        let local = match found {
            Some(local) => local,
            None => POOL.with(|pool| self.abandoned().or_else(|| self.unused(pool)))?,
        };
        // SAFETY: locals are never unmapped, and this one is the calling thread's.
        let this = unsafe { &*local };
        this.next_of_thread.set(slot.local.get());
        slot.local.set(local);
        slot.id.set(self.id);
        let key = POOL.key.load(Relaxed);
        if found.is_none() && key != NO_KEY {
            os::at_thread_exit(key, local.cast());
        }
        Some(this)
    }

    /// That of the thread's locals which is of this heap, taken out of its list. Those of heaps that are gone are put back.
    fn find(&self, slot: &Slot) -> Option<*mut Local> {
        let mut link = &slot.local;
        // SAFETY: locals are never unmapped, and those in the list are the calling thread's.
        while let Some(local) = unsafe { link.get().as_ref() } {
            let this = link.get();
            match local.id.load(Relaxed) {
                0 => {
                    link.set(local.next_of_thread.get());
                    POOL.with(|pool| pool.push_unused(this));
                }
                id if id == self.id => {
                    link.set(local.next_of_thread.get());
                    return Some(this);
                }
                _ => link = &local.next_of_thread,
            }
        }
        None
    }

    /// One that is abandoned, and the next time another; `None` after the last.
    ///
    /// # Safety
    /// The caller holds the lock, and uses it no longer than that.
    pub(super) unsafe fn next_abandoned(&self) -> Option<&Local> {
        let looked = self.looked.get();
        let local = if looked.is_null() { self.abandoned.get() } else { looked };
        // SAFETY: abandoned locals are there.
        let local = unsafe { local.as_ref() }?;
        self.looked.set(local.next.get());
        Some(local)
    }

    /// All locals of the heap.
    ///
    /// # Safety
    /// The caller holds the lock.
    pub(super) unsafe fn all(&self) -> impl Iterator<Item = &Local> {
        // SAFETY: locals are never unmapped.
        let at = |local: *mut Local| unsafe { local.as_ref() };
        std::iter::successors(at(self.locals.load(Relaxed)), move |local| {
            at(local.next_of_heap.get())
        })
    }

    fn abandoned(&self) -> Option<*mut Local> {
        let _held = self.lock.hold();
        let local = self.abandoned.get();
        // SAFETY: abandoned locals are there.
        let next = unsafe { local.as_ref() }?.next.get();
        self.abandoned.set(next);
        if self.looked.get() == local {
            self.looked.set(next);
        }
        Some(local)
    }

    fn unused(&self, pool: &mut Inner) -> Option<*mut Local> {
        let local = pool.unused()?;
        let _held = self.lock.hold();
        // SAFETY: nobody else's.
        unsafe {
            (*local).id.store(self.id, Relaxed);
            (*local).shared.set(ptr::with_exposed_provenance(ptr::from_ref(self).addr()));
            (*local).next_of_heap.set(self.locals.load(Relaxed));
        }
        self.locals.store(local, Release);
        Some(local)
    }
}

/// At the end of a thread: its heaps take what it had.
unsafe extern "C" fn end(_: *mut c_void) {
    let slot = slot::get();
    slot.id.set(0);
    let mut next = slot.local.replace(ptr::null_mut());
    POOL.with(|pool| {
        // SAFETY: locals are never unmapped, and these were the calling thread's.
        while let Some(local) = unsafe { next.as_ref() } {
            let this = std::mem::replace(&mut next, local.next_of_thread.get());
            if local.id.load(Relaxed) == 0 {
                pool.push_unused(this);
                continue;
            }
            let shared = local.shared.get();
            // SAFETY: a heap whose locals have its number is there while the pool's lock is held.
            unsafe {
                let _held = (*shared).lock.hold();
                ((*shared).abandon)(shared, local);
                local.next.set((*shared).abandoned.replace(this));
            }
        }
    });
}
