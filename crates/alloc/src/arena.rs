//! Bump allocator whose objects are freed together.
//!
//! # Safety
//! Each byte is handed out once between two resets. A reset takes `&mut self`, so no borrow of the
//! memory is left by then. The list of regions may move; the memory of the regions does not.
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

/// Bump allocator over regions that it maps as needed, up to a limit.
///
/// Objects are not freed one by one: [`Self::reset`] makes all memory available again, and dropping
/// the arena unmaps it. Destructors do not run. One thread uses an arena at a time; it may be sent
/// to another thread.
///
/// ```
/// use hugepilot_alloc::{Arena, Options};
/// use hugepilot_units::Bytes;
///
/// let mut arena = Arena::new(Bytes::mib(2), Options::default()).with_limit(Bytes::mib(64));
/// let squares = arena.alloc_slice(1000, |i| i * i)?;
/// let total: &mut usize = arena.alloc(squares.iter().sum())?;
/// assert_eq!(*total, 332_833_500);
/// arena.reset();
/// assert_eq!(arena.mapped(), Bytes::mib(2)); // still mapped, for new objects
/// # Ok::<(), hugepilot_alloc::AllocError>(())
/// ```
#[derive(Debug)]
pub struct Arena<S: Sys = Linux> {
    /// First free byte of the current region, and the bytes left there.
    next: Cell<NonNull<u8>>,
    left: Cell<usize>,
    regions: RefCell<Regions<S>>,
    /// Length of a region, unless one object needs more.
    chunk: Bytes,
    limit: Bytes,
    options: Options,
    sys: S,
}

#[derive(Debug)]
struct Regions<S: Sys> {
    all: Vec<HugeRegion<S>>,
    /// Number of leading regions in use since the last reset.
    used: usize,
}

// SAFETY: `regions` owns the memory behind `next`. Callers that hold memory borrow the arena, which
// cannot be sent while it is borrowed.
unsafe impl<S: Sys> Send for Arena<S> {}

impl Arena {
    /// Creates an arena with regions of at least `chunk` bytes and without a limit. Maps nothing
    /// yet.
    pub const fn new(chunk: Bytes, options: Options) -> Self {
        Self::new_on(Linux, chunk, options)
    }
}

impl<S: Sys> Arena<S> {
    /// Creates an arena like [`Arena::new`], with system calls through `sys`.
    pub const fn new_on(sys: S, chunk: Bytes, options: Options) -> Self {
        let regions = RefCell::new(Regions { all: Vec::new(), used: 0 });
        let (next, left) = (Cell::new(NonNull::dangling()), Cell::new(0));
        Self { next, left, regions, chunk, limit: Bytes::MAX, options, sys }
    }

    /// Limits the mapped memory to `limit` bytes; beyond that, allocation fails with
    /// [`AllocError::Limit`].
    #[must_use]
    pub const fn with_limit(mut self, limit: Bytes) -> Self {
        self.limit = limit;
        self
    }

    /// Allocates uninitialised memory of this layout. A size of 0 uses no memory.
    ///
    /// # Errors
    /// [`AllocError::Limit`], and the errors of [`HugeRegion::map`].
    #[allow(clippy::mut_from_ref)] // each part is handed out once
    pub fn alloc_layout(&self, layout: Layout) -> Result<&mut [MaybeUninit<u8>]> {
        let start = if layout.size() == 0 {
            NonNull::new(std::ptr::without_provenance_mut(layout.align()))
                .unwrap_or(NonNull::dangling())
        } else {
            self.bump(layout).map_or_else(|| self.bump_in_next_region(layout), Ok)?
        };
        // SAFETY: `size` bytes from `start` are mapped and were not handed out before since the
        // last reset. All bytes are valid as `MaybeUninit`.
        Ok(unsafe { std::slice::from_raw_parts_mut(start.as_ptr().cast(), layout.size()) })
    }

    /// Moves `value` into the arena. Its destructor does not run.
    ///
    /// # Errors
    /// Those of [`Self::alloc_layout`].
    #[allow(clippy::mut_from_ref)] // each part is handed out once
    pub fn alloc<T>(&self, value: T) -> Result<&mut T> {
        let place = self.alloc_layout(Layout::new::<T>())?.as_mut_ptr().cast::<MaybeUninit<T>>();
        // SAFETY: memory of the layout of `T`, borrowed from the arena, with no other user.
        Ok(unsafe { (*place).write(value) })
    }

    /// Creates `len` items, each from its index. Their destructors do not run.
    ///
    /// # Errors
    /// [`AllocError::Overflow`] if `len` items exceed the address space, and those of
    /// [`Self::alloc_layout`].
    #[allow(clippy::mut_from_ref)] // each part is handed out once
    pub fn alloc_slice<T>(&self, len: usize, mut item: impl FnMut(usize) -> T) -> Result<&mut [T]> {
        let overflow = |_| AllocError::Overflow { count: len, size: size_of::<T>() };
        let layout = Layout::array::<T>(len).map_err(overflow)?;
        let start = self.alloc_layout(layout)?.as_mut_ptr().cast::<T>();
        for i in 0..len {
            // SAFETY: item `i` lies inside memory of the layout of `len` items.
            unsafe { start.add(i).write(item(i)) };
        }
        // SAFETY: all items were written above; the memory is borrowed from the arena, with no
        // other user.
        Ok(unsafe { std::slice::from_raw_parts_mut(start, len) })
    }

    /// Makes all memory available again. The regions stay mapped, with their contents.
    pub fn reset(&mut self) {
        self.regions.get_mut().used = 0;
        self.left.set(0);
    }

    /// Returns the mapped bytes.
    pub fn mapped(&self) -> Bytes {
        self.regions.borrow().all.iter().map(HugeRegion::len).sum()
    }

    /// Reads from the pagemap which pages the regions are on. Costs one [`HugeRegion::usage`] a
    /// region.
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

    /// Allocates from the current region, if it has room.
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

    /// Allocates from the first unused region with room, or from a new one. The rest of the current
    /// region stays unused until a reset.
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
        // SAFETY: the region begins aligned and has at least this many bytes.
        self.next.set(unsafe { region.as_ptr().add(layout.size()) });
        self.left.set(region.len().as_usize() - layout.size());
        Ok(region.as_ptr())
    }

    /// Maps a region with room for `layout`.
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
        // The backing rounds the length up to its pages.
        over(region.len())?;
        Ok(region)
    }
}
