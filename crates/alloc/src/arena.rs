//! Memory for many small things that are given back together.
//!
//! # Safety
//! Bytes are handed out once between two resets, and a reset takes `&mut self`, so nothing handed out is left by then. The
//! list of regions may move; the regions' memory does not.
#![allow(unsafe_code)]

#[cfg(test)]
mod tests;

use std::alloc::Layout;
use std::cell::{Cell, RefCell};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use hugepilot_record::Errno;
use hugepilot_units::Bytes;

use crate::{AllocError, HugeRegion, Linux, Options, PageUsage, Result, Sys};

/// Hands out memory front to back, from regions that it maps as they are needed, up to a limit. Nothing is freed alone:
/// [`Self::reset`] takes all of it back for new use, and dropping the arena unmaps it. It runs no destructors. For one
/// thread at a time, but may be sent to another.
#[derive(Debug)]
pub struct Arena<S: Sys = Linux> {
    /// What is left of the region in use.
    next: Cell<NonNull<u8>>,
    left: Cell<usize>,
    regions: RefCell<Regions<S>>,
    /// A region's length, unless one thing needs more.
    chunk: Bytes,
    limit: Bytes,
    options: Options,
    sys: S,
}

#[derive(Debug)]
struct Regions<S: Sys> {
    all: Vec<HugeRegion<S>>,
    /// So many of the first have been used since the last reset.
    used: usize,
}

// SAFETY: what `next` points into is owned by `regions`; whoever was handed memory borrows the arena, which cannot be
// sent away then.
unsafe impl<S: Sys> Send for Arena<S> {}

impl Arena {
    /// Maps nothing yet; later, regions of at least `chunk` bytes, without a limit.
    pub const fn new(chunk: Bytes, options: Options) -> Self {
        Self::new_on(Linux, chunk, options)
    }
}

impl<S: Sys> Arena<S> {
    /// As [`Arena::new`], by the calls of `sys`.
    pub const fn new_on(sys: S, chunk: Bytes, options: Options) -> Self {
        let regions = RefCell::new(Regions { all: Vec::new(), used: 0 });
        let (next, left) = (Cell::new(NonNull::dangling()), Cell::new(0));
        Self { next, left, regions, chunk, limit: Bytes::MAX, options, sys }
    }

    /// The same with at most `limit` bytes mapped: beyond, it is [`AllocError::Limit`].
    #[must_use]
    pub const fn with_limit(mut self, limit: Bytes) -> Self {
        self.limit = limit;
        self
    }

    /// Memory of that layout, with whatever is in it. Without bytes it takes none.
    ///
    /// # Errors
    /// [`AllocError::Limit`], and those of [`HugeRegion::map`].
    #[allow(clippy::mut_from_ref)] // each part is handed out once
    pub fn alloc_layout(&self, layout: Layout) -> Result<&mut [MaybeUninit<u8>]> {
        let start = if layout.size() == 0 {
            NonNull::new(std::ptr::without_provenance_mut(layout.align()))
                .unwrap_or(NonNull::dangling())
        } else {
            self.bump(layout).map_or_else(|| self.bump_in_next_region(layout), Ok)?
        };
        // SAFETY: `size` bytes from `start` are mapped, and were handed out to nobody else since the last reset. Any
        // bytes are valid as `MaybeUninit`.
        Ok(unsafe { std::slice::from_raw_parts_mut(start.as_ptr().cast(), layout.size()) })
    }

    /// `value`, moved into the arena. Its destructor will not run.
    ///
    /// # Errors
    /// As for [`Self::alloc_layout`].
    #[allow(clippy::mut_from_ref)] // each part is handed out once
    pub fn alloc<T>(&self, value: T) -> Result<&mut T> {
        let place = self.alloc_layout(Layout::new::<T>())?.as_mut_ptr().cast::<MaybeUninit<T>>();
        // SAFETY: memory of the layout of `T`, borrowed from the arena, and ours alone.
        Ok(unsafe { (*place).write(value) })
    }

    /// `len` items, each made of its index. Their destructors will not run.
    ///
    /// # Errors
    /// [`AllocError::Overflow`] where `len` times their size is too much, and as for [`Self::alloc_layout`].
    #[allow(clippy::mut_from_ref)] // each part is handed out once
    pub fn alloc_slice<T>(&self, len: usize, mut item: impl FnMut(usize) -> T) -> Result<&mut [T]> {
        let overflow = |_| AllocError::Overflow { count: len, size: size_of::<T>() };
        let layout = Layout::array::<T>(len).map_err(overflow)?;
        let start = self.alloc_layout(layout)?.as_mut_ptr().cast::<T>();
        for i in 0..len {
            // SAFETY: item `i` lies inside memory of the layout of `len` items.
            unsafe { start.add(i).write(item(i)) };
        }
        // SAFETY: all items were written just now; the memory is borrowed from the arena, and ours alone.
        Ok(unsafe { std::slice::from_raw_parts_mut(start, len) })
    }

    /// Takes all back, for new use. The regions stay, with what is in them.
    pub fn reset(&mut self) {
        self.regions.get_mut().used = 0;
        self.left.set(0);
    }

    /// How much is mapped.
    pub fn mapped(&self) -> Bytes {
        self.regions.borrow().all.iter().map(HugeRegion::len).sum()
    }

    /// On which pages its regions are, now; cost and errors as for [`HugeRegion::usage`], for each region.
    ///
    /// # Errors
    /// [`AllocError::Pagemap`].
    pub fn usage(&self) -> Result<PageUsage> {
        self.regions
            .borrow()
            .all
            .iter()
            .try_fold(PageUsage::default(), |sum, region| Ok(sum + region.usage()?))
    }

    /// From the region in use, if that has enough left.
    fn bump(&self, layout: Layout) -> Option<NonNull<u8>> {
        let next = self.next.get();
        let gap = next.as_ptr().align_offset(layout.align());
        let take = gap.checked_add(layout.size()).filter(|&take| take <= self.left.get())?;
        self.left.set(self.left.get() - take);
        // SAFETY: `take` bytes from `next` are left in the region.
        unsafe {
            self.next.set(next.add(take));
            Some(next.add(gap))
        }
    }

    /// From the first region not used yet that is large enough, or a new one. What is left of the one in use waits for a
    /// reset.
    #[cold]
    fn bump_in_next_region(&self, layout: Layout) -> Result<NonNull<u8>> {
        let mut regions = self.regions.borrow_mut();
        let Regions { all, used } = &mut *regions;
        let fits = |region: &HugeRegion<S>| {
            let aligned = region.as_ptr().as_ptr().addr().is_multiple_of(layout.align());
            aligned && layout.size() <= region.len().as_usize()
        };
        let found = match all[*used..].iter().position(fits) {
            Some(after) => *used + after,
            None => {
                let region = self.map_for(layout, all)?;
                let no_memory = |_| AllocError::Map { len: region.len(), errno: Errno::ENOMEM };
                all.try_reserve(1).map_err(no_memory)?;
                all.push(region);
                all.len() - 1
            }
        };
        all.swap(*used, found);
        let region = &all[*used];
        *used += 1;
        // SAFETY: it fits: the region begins aligned, and has that many bytes.
        self.next.set(unsafe { region.as_ptr().add(layout.size()) });
        self.left.set(region.len().as_usize() - layout.size());
        Ok(region.as_ptr())
    }

    /// A region that is sure to hold `layout`.
    fn map_for(&self, layout: Layout, all: &[HugeRegion<S>]) -> Result<HugeRegion<S>> {
        let mut options = self.options;
        options.align = options.align.max(Bytes::new(layout.align() as u64));
        let wanted = self.chunk.max(Bytes::new(layout.size() as u64));
        let used = all.iter().map(HugeRegion::len).sum::<Bytes>();
        let over = |wanted: Bytes| {
            let limit = self.limit;
            if wanted > limit - used {
                Err(AllocError::Limit { limit, used, wanted })
            } else {
                Ok(())
            }
        };
        over(wanted)?;
        let region = HugeRegion::map_on(self.sys.clone(), wanted, &options)?;
        // Pages round up.
        over(region.len())?;
        Ok(region)
    }
}
