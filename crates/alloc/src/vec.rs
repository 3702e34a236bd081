//! A growing array on huge pages.
//!
//! # Safety
//! The first `len` of the `capacity` items at `start` are initialised, and belong to the vector alone. `start` is the
//! start of `region`, or, where no memory is needed, a well-aligned address that is never followed.
#![allow(unsafe_code)]

#[cfg(test)]
mod tests;

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use hugepilot_units::Bytes;

use crate::{
    AllocError, Backing, CollapseOutcome, HugeRegion, Linux, Options, PageUsage, Plain, Result,
    Sys, Zero,
};

/// A `Vec` in a region of its own. It maps nothing while it is empty or its items have no size; it doubles when it is
/// full, by moving page tables where the backing allows ([`HugeRegion::grow`]).
pub struct HugeVec<T, S: Sys = Linux> {
    start: NonNull<T>,
    len: usize,
    capacity: usize,
    region: Option<HugeRegion<S>>,
    options: Options,
    sys: S,
    items: PhantomData<T>,
}

// SAFETY: the items are the vector's own, as in a `Vec`; so is the region.
unsafe impl<T: Send, S: Sys> Send for HugeVec<T, S> {}
// SAFETY: `&HugeVec` gives `&T` and nothing else that is not a copy.
unsafe impl<T: Sync, S: Sys> Sync for HugeVec<T, S> {}

impl<T> HugeVec<T> {
    /// Empty; maps nothing yet.
    pub fn new(options: Options) -> Self {
        Self::new_on(Linux, options)
    }

    /// Empty, with room for `capacity` items.
    ///
    /// # Errors
    /// As for [`Self::reserve`].
    pub fn with_capacity(capacity: usize, options: Options) -> Result<Self> {
        let mut vec = Self::new(options);
        vec.reserve(capacity)?;
        Ok(vec)
    }

    /// `len` items, each made of its index.
    ///
    /// # Errors
    /// As for [`Self::reserve`].
    pub fn from_fn(len: usize, options: Options, mut item: impl FnMut(usize) -> T) -> Result<Self> {
        let mut vec = Self::with_capacity(len, options)?;
        for i in 0..len {
            vec.push(item(i))?;
        }
        Ok(vec)
    }

    /// `len` items, all zero, of which nothing is resident yet: who touches an item first chooses where it lies.
    ///
    /// # Errors
    /// As for [`Self::reserve`].
    pub fn zeroed(len: usize, options: Options) -> Result<Self>
    where
        T: Zero,
    {
        let mut vec = Self::with_capacity(len, options)?;
        // Memory of the kernel's, which nobody wrote.
        vec.len = len;
        Ok(vec)
    }
}

impl<T, S: Sys> HugeVec<T, S> {
    /// As [`HugeVec::new`], by the calls of `sys`.
    pub fn new_on(sys: S, mut options: Options) -> Self {
        options.align = options.align.max(Bytes::new(align_of::<T>() as u64));
        let capacity = if size_of::<T>() == 0 { usize::MAX } else { 0 };
        Self {
            start: NonNull::dangling(),
            len: 0,
            capacity,
            region: None,
            options,
            sys,
            items: PhantomData,
        }
    }

    /// Items that fit without growing.
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Makes room for `more` items: for twice the present capacity if that is to be had, else for as many as needed.
    ///
    /// # Errors
    /// [`AllocError::Overflow`], and those of [`HugeRegion::map`]; then all is as before.
    pub fn reserve(&mut self, more: usize) -> Result<()> {
        let overflow = AllocError::Overflow { count: more, size: size_of::<T>() };
        let needed = self.len.checked_add(more).ok_or(overflow)?;
        if needed <= self.capacity {
            return Ok(());
        }
        let twice = self.capacity.saturating_mul(2);
        if twice > needed && self.grow(twice).is_ok() {
            return Ok(());
        }
        self.grow(needed)
    }

    /// Makes the memory that long; `capacity` is above 0 and the items have a size.
    fn grow(&mut self, capacity: usize) -> Result<()> {
        let size = size_of::<T>();
        let len = capacity.checked_mul(size).filter(|&len| isize::try_from(len).is_ok());
        let len = Bytes::new(len.ok_or(AllocError::Overflow { count: capacity, size })? as u64);
        match &mut self.region {
            Some(region) => region.grow(len, self.len * size)?,
            none => *none = Some(HugeRegion::map_on(self.sys.clone(), len, &self.options)?),
        }
        if let Some(region) = &self.region {
            self.start = region.as_ptr().cast();
            self.capacity = region.len().as_usize() / size;
        }
        Ok(())
    }

    /// Appends an item.
    ///
    /// # Errors
    /// As for [`Self::reserve`]; the item is dropped then. To keep it, reserve first.
    pub fn push(&mut self, item: T) -> Result<()> {
        if self.len == self.capacity {
            self.reserve(1)?;
        }
        // SAFETY: there is room for one more item, which nothing refers to.
        unsafe { self.start.add(self.len).write(item) };
        self.len += 1;
        Ok(())
    }

    /// Takes the last item.
    pub fn pop(&mut self) -> Option<T> {
        self.len = self.len.checked_sub(1)?;
        // SAFETY: this item was initialised, and the new length says that it is there no more.
        Some(unsafe { self.start.add(self.len).read() })
    }

    /// Drops all items from index `len` on, first to last. The memory stays.
    pub fn truncate(&mut self, len: usize) {
        let Some(surplus) = self.len.checked_sub(len) else { return };
        let surplus =
            std::ptr::slice_from_raw_parts_mut(self.start.as_ptr().wrapping_add(len), surplus);
        self.len = len;
        // SAFETY: these were initialised, and are dropped once: they count no more, even should a destructor panic.
        unsafe { surplus.drop_in_place() };
    }

    /// Drops all items. The memory stays.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// Appends the items of `more`, as far as there is room for them.
    ///
    /// # Errors
    /// As for [`Self::reserve`]; the items before stay.
    pub fn extend(&mut self, more: impl IntoIterator<Item = T>) -> Result<()> {
        let mut more = more.into_iter();
        self.reserve(more.size_hint().0)?;
        more.try_for_each(|item| self.push(item))
    }

    /// Gives back the memory after the items, in whole pages of its backing. The items stay where they are; so does the memory where
    /// the kernel wants to keep it.
    pub fn shrink_to_fit(&mut self) {
        let size = size_of::<T>();
        if size == 0 {
            return;
        }
        if self.len == 0 {
            (self.region, self.start, self.capacity) = (None, NonNull::dangling(), 0);
        } else if let Some(region) = &mut self.region
            && region.shrink(Bytes::new((self.len * size) as u64))
        {
            self.capacity = region.len().as_usize() / size;
        }
    }

    /// The same memory as numbers of another width: as many as the bytes of the items make, in the order of this machine.
    ///
    /// # Panics
    /// If their alignment is above that of pages.
    pub fn recast<U: Plain>(mut self) -> HugeVec<U, S>
    where
        T: Plain,
    {
        let mut numbers = HugeVec::<U, S>::new_on(self.sys.clone(), self.options);
        let len = self.len * size_of::<T>();
        // From here on the memory is the other's.
        self.len = 0;
        if let Some(region) = self.region.take() {
            numbers.start = region.as_ptr().cast();
            assert!(numbers.start.is_aligned(), "pages are aligned to more than numbers");
            numbers.capacity = region.len().as_usize() / size_of::<U>();
            // Initialised, as the items had no gaps, and any bytes are numbers: by the trait.
            numbers.len = len / size_of::<U>();
            numbers.region = Some(region);
        }
        numbers
    }

    /// A vector of its own with clones of the items, and as much memory as they need.
    ///
    /// # Errors
    /// As for [`Self::reserve`].
    pub fn try_clone(&self) -> Result<Self>
    where
        T: Clone,
    {
        let mut copy = Self::new_on(self.sys.clone(), self.options);
        copy.extend(self.iter().cloned())?;
        Ok(copy)
    }

    /// What was asked for.
    pub const fn requested(&self) -> &Options {
        &self.options
    }
    /// The backing that was to be had; `None` while nothing is mapped.
    pub fn backing(&self) -> Option<Backing> {
        self.region.as_ref().map(HugeRegion::backing)
    }
    /// Why the backings before it in the chain were not.
    pub fn refused(&self) -> impl Iterator<Item = &AllocError> {
        self.region.iter().flat_map(HugeRegion::refused)
    }
    /// On which pages the memory is, now; cost and errors as for [`HugeRegion::usage`].
    ///
    /// # Errors
    /// [`AllocError::Pagemap`].
    pub fn usage(&self) -> Result<PageUsage> {
        self.region.as_ref().map_or(Ok(PageUsage::default()), HugeRegion::usage)
    }
    /// Makes all pages of the capacity resident, as [`HugeRegion::prefault`].
    ///
    /// # Errors
    /// [`AllocError::Prefault`], [`AllocError::Pagemap`].
    pub fn prefault(&self, threads: usize) -> Result<()> {
        self.region.as_ref().map_or(Ok(()), |region| region.prefault(threads))
    }
    /// Puts what was filled on huge pages, as [`HugeRegion::collapse`].
    ///
    /// # Errors
    /// [`AllocError::Pagemap`].
    pub fn collapse(&self) -> Result<CollapseOutcome> {
        self.region.as_ref().map_or(Ok(CollapseOutcome::default()), HugeRegion::collapse)
    }
}

impl<T, S: Sys> Deref for HugeVec<T, S> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: the first `len` items are initialised, and `&self` excludes writers.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T, S: Sys> DerefMut for HugeVec<T, S> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; `&mut self` excludes everybody else.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

/// Drops the items, first to last; the region goes after them, even should a destructor panic.
impl<T, S: Sys> Drop for HugeVec<T, S> {
    fn drop(&mut self) {
        self.clear();
    }
}

impl<'a, T, S: Sys> IntoIterator for &'a HugeVec<T, S> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a, T, S: Sys> IntoIterator for &'a mut HugeVec<T, S> {
    type Item = &'a mut T;
    type IntoIter = std::slice::IterMut<'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

impl<T: fmt::Debug, S: Sys> fmt::Debug for HugeVec<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<T: PartialEq, S: Sys> PartialEq for HugeVec<T, S> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}
