//! Huge objects: each has a region of its own, which begins at a multiple of a chunk, unlike any
//! other object. Some freed regions are cached (`huge_cache.rs`).
//!
//! # Safety
//! Records are objects of the heap itself. They are linked, found and unlinked under the heap's
//! lock, by one store each, so that the lists are consistent in a child, even if the lock was held.
//! After unlinking a record, the caller owns it.
#![allow(unsafe_code)]

use std::alloc::Layout;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Relaxed, Release};

use hugepilot_units::Bytes;

use super::chunk::CHUNK;
use super::core::Core;
use super::misuse::{self, Call, Misuse};
use super::{Heap, os};
use crate::{HugeRegion, Options, Sys};

/// Number of hash lists.
const LISTS: usize = 256;

/// Huge objects by address.
pub(super) struct Table<S: Sys> {
    lists: [AtomicPtr<Huge<S>>; LISTS],
    pub(super) count: usize,
    /// Sum of lengths in bytes.
    pub(super) mapped: usize,
}

/// Record of a huge object.
pub(super) struct Huge<S: Sys> {
    pub(super) region: HugeRegion<S>,
    /// Whether it was zeroed when it was allocated.
    pub(super) zeroed: bool,
    next: AtomicPtr<Self>,
}

impl<S: Sys> Table<S> {
    pub(super) const fn new() -> Self {
        Self { lists: [const { AtomicPtr::new(ptr::null_mut()) }; LISTS], count: 0, mapped: 0 }
    }

    fn list(&self, address: usize) -> &AtomicPtr<Huge<S>> {
        &self.lists[address / CHUNK % LISTS]
    }

    fn insert(&mut self, huge: NonNull<Huge<S>>) {
        // SAFETY: the caller's own record.
        let record = unsafe { huge.as_ref() };
        let list = self.list(record.address());
        record.next.store(list.load(Relaxed), Relaxed);
        list.store(huge.as_ptr(), Release);
        self.count += 1;
        self.mapped += record.len();
    }

    fn remove(&mut self, address: usize) -> Option<NonNull<Huge<S>>> {
        let mut link = self.list(address);
        loop {
            let huge = NonNull::new(link.load(Relaxed))?;
            // SAFETY: records in the table exist.
            let record = unsafe { huge.as_ref() };
            if record.address() == address {
                link.store(record.next.load(Relaxed), Release);
                self.count -= 1;
                self.mapped -= record.len();
                return Some(huge);
            }
            link = &record.next;
        }
    }

    /// Unmaps all regions. The records stay.
    ///
    /// # Safety
    /// Their memory has no users.
    pub(super) unsafe fn unmap_all(&mut self) {
        for list in &mut self.lists {
            let mut next = std::mem::replace(list.get_mut(), ptr::null_mut());
            // SAFETY: records in the table exist, and are not read again.
            while let Some(huge) = unsafe { next.as_mut() } {
                next = *huge.next.get_mut();
                // SAFETY: as above.
                unsafe { ptr::drop_in_place(&raw mut huge.region) };
            }
        }
    }

    /// Counts objects and bytes again, in a child.
    pub(super) fn recount(&mut self) {
        (self.count, self.mapped) =
            self.all().fold((0, 0), |(count, mapped), huge| (count + 1, mapped + huge.len()));
    }

    /// Finds the object at this address.
    pub(super) fn get(&self, address: usize) -> Option<&Huge<S>> {
        self.of(self.list(address)).find(|huge| huge.address() == address)
    }

    /// Returns the cause why no huge object begins at this address.
    pub(super) fn misuse(&self, address: usize) -> Misuse {
        let holds =
            |huge: &&Huge<S>| (huge.address()..huge.address() + huge.len()).contains(&address);
        match self.all().find(holds) {
            Some(huge) => Misuse::Inside { start: huge.address(), size: huge.len() },
            None => Misuse::Foreign,
        }
    }

    /// Returns all objects.
    pub(super) fn all(&self) -> impl Iterator<Item = &Huge<S>> {
        self.lists.iter().flat_map(|list| self.of(list))
    }

    #[allow(clippy::unused_self)] // what it gives is there as long as the table is not changed
    fn of<'a>(&'a self, list: &'a AtomicPtr<Huge<S>>) -> impl Iterator<Item = &'a Huge<S>> {
        // SAFETY: records in the table exist.
        let at = |link: &AtomicPtr<Huge<S>>| unsafe { link.load(Relaxed).as_ref() };
        std::iter::successors(at(list), move |huge| at(&huge.next))
    }
}

impl<S: Sys> Huge<S> {
    fn address(&self) -> usize {
        self.region.as_ptr().as_ptr().addr()
    }
    pub(super) fn len(&self) -> usize {
        self.region.len().as_usize()
    }
}

impl<S: Sys> Heap<S> {
    /// Allocates a region for `layout` alone.
    #[cold]
    pub(super) fn allocate_huge(&self, layout: Layout) -> Option<NonNull<u8>> {
        let record = self.allocate(Layout::new::<Huge<S>>())?.cast::<Huge<S>>();
        let core = self.core()?;
        let kept = core.central().huge_cache.take(layout);
        let zeroed = kept.is_none();
        match kept.map_or_else(|| self.map_huge(core, layout), Ok) {
            Ok(region) => {
                let start = region.as_ptr();
                // SAFETY: memory of the layout of a record, without other users.
                unsafe {
                    record.write(Huge { region, zeroed, next: AtomicPtr::new(ptr::null_mut()) })
                };
                core.central().huge.insert(record);
                Some(start)
            }
            Err(error) => {
                core.central().refused = Some(error);
                // SAFETY: allocated above.
                unsafe { self.deallocate(record.cast()) };
                None
            }
        }
    }

    /// Maps a zeroed region. If there is no memory, unmaps cached regions and tries again.
    fn map_huge(&self, core: &Core<S>, layout: Layout) -> crate::Result<HugeRegion<S>> {
        let len = Bytes::new(layout.size().max(1) as u64);
        let align = core.options.align.max(Bytes::new(layout.align().max(CHUNK) as u64));
        let options = Options { align, ..core.options };
        let never = |_: &S| core.central().thp_never();
        let map = || {
            os::preserving_errno(|| HugeRegion::map_with(self.sys.clone(), len, &options, never))
        };
        map().or_else(|error| if core.central().empty_huge_cache() { map() } else { Err(error) })
    }

    /// Frees a huge object: unmaps or caches its region.
    ///
    /// # Safety
    /// As for [`Self::deallocate`].
    pub(super) unsafe fn free_huge(&self, core: &Core<S>, address: usize) {
        let removed = || {
            let mut central = core.central();
            let record = central.huge.remove(address)?;
            // SAFETY: unlinked, so owned here, and the record is not read again.
            Some((
                record,
                central.cache_region(unsafe { ptr::read(&raw const (*record.as_ptr()).region) }),
            ))
        };
        // Another thread may have freed it since the lookup.
        let Some((record, region)) = removed() else {
            misuse::end(Call::Free, address, Misuse::Unused)
        };
        os::preserving_errno(|| drop(region));
        // SAFETY: allocated with the region, and owned here.
        unsafe { self.deallocate(record.cast()) };
    }

    /// Grows a huge object to at least `len` bytes, in place or by moving it. `None` if there is no
    /// memory; the object is then unchanged.
    ///
    /// # Safety
    /// `address` is that of a huge object without other users.
    pub(super) unsafe fn grow_huge(&self, address: usize, len: usize) -> Option<NonNull<u8>> {
        let grow = |region: &mut HugeRegion<S>| {
            let keep = region.len().as_usize();
            region.grow(Bytes::new(len as u64), keep).map(|()| region.as_ptr())
        };
        let core = self.core()?;
        // SAFETY: the caller's promise.
        let grown = unsafe { self.change_huge(address, grow) }?.or_else(|error| {
            // Unmaps cached regions to make room, as in `map_huge`.
            let room = core.central().empty_huge_cache();
            // SAFETY: as above.
            room.then(|| unsafe { self.change_huge(address, grow) }).flatten().unwrap_or(Err(error))
        });
        grown.map_err(|error| core.central().refused = Some(error)).ok()
    }

    /// Unmaps whole pages after the first `len` bytes. Returns whether there were any.
    ///
    /// # Safety
    /// As for [`Self::grow_huge`].
    pub(super) unsafe fn shrink_huge(&self, address: usize, len: usize) -> bool {
        // SAFETY: the caller's promise.
        let shrunk =
            unsafe { self.change_huge(address, |region| region.shrink(Bytes::new(len as u64))) };
        shrunk == Some(true)
    }

    /// Changes the region of a huge object.
    ///
    /// # Safety
    /// As for [`Self::grow_huge`].
    unsafe fn change_huge<T>(
        &self,
        address: usize,
        change: impl FnOnce(&mut HugeRegion<S>) -> T,
    ) -> Option<T> {
        let core = self.core()?;
        let record = core.central().huge.remove(address)?;
        // SAFETY: unlinked, so owned here.
        let done = os::preserving_errno(|| change(unsafe { &mut (*record.as_ptr()).region }));
        core.central().huge.insert(record);
        Some(done)
    }
}
