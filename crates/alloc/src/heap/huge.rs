//! Things too large for a chunk: each on a region of its own, which begins at a multiple of a chunk, as no other object does.
//! Some regions are kept for others when they are freed (`kept.rs`).
//!
//! # Safety
//! Records are objects of the heap itself. They are linked, found and unlinked under the heap's lock, by one store each, so that
//! the lists are whole in a child, whoever held the lock; whoever unlinked one has it to itself.
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

/// Lists to look in.
const LISTS: usize = 256;

/// Where they are found by their address.
pub(super) struct Table<S: Sys> {
    lists: [AtomicPtr<Huge<S>>; LISTS],
    pub(super) count: usize,
    /// Bytes.
    pub(super) mapped: usize,
}

/// One of them.
pub(super) struct Huge<S: Sys> {
    pub(super) region: HugeRegion<S>,
    /// It was when it was allocated.
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
        // SAFETY: the caller's record.
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
            // SAFETY: records in the table are there.
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

    /// Unmaps all. The records stay where they are.
    ///
    /// # Safety
    /// Nobody uses what is on them.
    pub(super) unsafe fn unmap_all(&mut self) {
        for list in &mut self.lists {
            let mut next = std::mem::replace(list.get_mut(), ptr::null_mut());
            // SAFETY: records in the table are there, and nobody looks at them again.
            while let Some(huge) = unsafe { next.as_mut() } {
                next = *huge.next.get_mut();
                // SAFETY: as above.
                unsafe { ptr::drop_in_place(&raw mut huge.region) };
            }
        }
    }

    /// Counts anew, in a child.
    pub(super) fn recount(&mut self) {
        (self.count, self.mapped) =
            self.all().fold((0, 0), |(count, mapped), huge| (count + 1, mapped + huge.len()));
    }

    /// That at this address.
    pub(super) fn get(&self, address: usize) -> Option<&Huge<S>> {
        self.of(self.list(address)).find(|huge| huge.address() == address)
    }

    /// Why nothing begins at this address.
    pub(super) fn misuse(&self, address: usize) -> Misuse {
        let holds =
            |huge: &&Huge<S>| (huge.address()..huge.address() + huge.len()).contains(&address);
        match self.all().find(holds) {
            Some(huge) => Misuse::Inside { start: huge.address(), size: huge.len() },
            None => Misuse::Foreign,
        }
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = &Huge<S>> {
        self.lists.iter().flat_map(|list| self.of(list))
    }

    #[allow(clippy::unused_self)] // what it gives is there as long as the table is not changed
    fn of<'a>(&'a self, list: &'a AtomicPtr<Huge<S>>) -> impl Iterator<Item = &'a Huge<S>> {
        // SAFETY: records in the table are there.
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
    /// A region for `layout` alone.
    #[cold]
    pub(super) fn allocate_huge(&self, layout: Layout) -> Option<NonNull<u8>> {
        let record = self.allocate(Layout::new::<Huge<S>>())?.cast::<Huge<S>>();
        let core = self.core()?;
        let kept = core.central().huge_cache.take(layout);
        let zeroed = kept.is_none();
        match kept.map_or_else(|| self.map_huge(core, layout), Ok) {
            Ok(region) => {
                let start = region.as_ptr();
                // SAFETY: memory of the layout of a record, ours alone.
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

    /// A new one, zeroed. Where there is no memory, what is kept makes room.
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

    /// Unmaps or keeps it.
    ///
    /// # Safety
    /// As for [`Self::deallocate`].
    pub(super) unsafe fn free_huge(&self, core: &Core<S>, address: usize) {
        let removed = || {
            let mut central = core.central();
            let record = central.huge.remove(address)?;
            // SAFETY: taken out of the table, so ours alone, and the record is not looked at again.
            Some((
                record,
                central.cache_region(unsafe { ptr::read(&raw const (*record.as_ptr()).region) }),
            ))
        };
        // Another thread may have freed it since it was looked up.
        let Some((record, region)) = removed() else {
            misuse::end(Call::Free, address, Misuse::Unused)
        };
        os::preserving_errno(|| drop(region));
        // SAFETY: allocated with it, and ours alone.
        unsafe { self.deallocate(record.cast()) };
    }

    /// Makes it at least `len` bytes long, in place or elsewhere; `None` where there is no memory, and all is as before.
    ///
    /// # Safety
    /// `address` is that of a huge object, which the caller has to itself.
    pub(super) unsafe fn grow_huge(&self, address: usize, len: usize) -> Option<NonNull<u8>> {
        let grow = |region: &mut HugeRegion<S>| {
            let keep = region.len().as_usize();
            region.grow(Bytes::new(len as u64), keep).map(|()| region.as_ptr())
        };
        let core = self.core()?;
        // SAFETY: the caller's promise.
        let grown = unsafe { self.change_huge(address, grow) }?.or_else(|error| {
            // What is kept makes room, as in `map_huge`.
            let room = core.central().empty_huge_cache();
            // SAFETY: as above.
            room.then(|| unsafe { self.change_huge(address, grow) }).flatten().unwrap_or(Err(error))
        });
        grown.map_err(|error| core.central().refused = Some(error)).ok()
    }

    /// Gives back what comes after its first `len` bytes, in whole pages. Whether that was anything.
    ///
    /// # Safety
    /// As for [`Self::grow_huge`].
    pub(super) unsafe fn shrink_huge(&self, address: usize, len: usize) -> bool {
        // SAFETY: the caller's promise.
        let shrunk =
            unsafe { self.change_huge(address, |region| region.shrink(Bytes::new(len as u64))) };
        shrunk == Some(true)
    }

    /// # Safety
    /// As for [`Self::grow_huge`].
    unsafe fn change_huge<T>(
        &self,
        address: usize,
        change: impl FnOnce(&mut HugeRegion<S>) -> T,
    ) -> Option<T> {
        let core = self.core()?;
        let record = core.central().huge.remove(address)?;
        // SAFETY: taken out of the table, so ours alone.
        let done = os::preserving_errno(|| change(unsafe { &mut (*record.as_ptr()).region }));
        core.central().huge.insert(record);
        Some(done)
    }
}
