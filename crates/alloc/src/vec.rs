//! Growable array on huge pages.
//!
//! # Safety
//! The first `len` of the `capacity` items at `start` are initialised and belong to the vector
//! alone. `start` is the start of `region`, or, without a region, an aligned address that is never
//! dereferenced.
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

/// `Vec` in a region of its own.
///
/// Maps nothing while it is empty or its items have no size. Doubles when it is full, by moving
/// page tables if the backing allows ([`HugeRegion::grow`]).
///
/// ```
/// use hugepilot_alloc::{HugeVec, Options};
///
/// let mut squares = HugeVec::with_capacity(1000, Options::default())?;
/// for i in 0..1000_u64 {
///     squares.push(i * i)?;
/// }
/// assert_eq!(squares.iter().sum::<u64>(), 332_833_500);
/// println!("{} on huge pages", squares.usage()?.huge());
/// # Ok::<(), hugepilot_alloc::AllocError>(())
/// ```
pub struct HugeVec<T, S: Sys = Linux> {
    start: NonNull<T>,
    len: usize,
    capacity: usize,
    region: Option<HugeRegion<S>>,
    options: Options,
    sys: S,
    items: PhantomData<T>,
}

// SAFETY: the vector owns its items, as a `Vec` does, and its region.
unsafe impl<T: Send, S: Sys> Send for HugeVec<T, S> {}
// SAFETY: `&HugeVec` gives `&T`, and copies of everything else.
unsafe impl<T: Sync, S: Sys> Sync for HugeVec<T, S> {}

impl<T> HugeVec<T> {
    /// Creates an empty vector. Maps nothing yet.
    pub fn new(options: Options) -> Self {
        Self::new_on(Linux, options)
    }

    /// Creates an empty vector with room for `capacity` items.
    ///
    /// # Errors
    /// Those of [`Self::reserve`].
    pub fn with_capacity(capacity: usize, options: Options) -> Result<Self> {
        let mut vec = Self::new(options);
        vec.reserve(capacity)?;
        Ok(vec)
    }

    /// Creates `len` items, each from its index.
    ///
    /// # Errors
    /// Those of [`Self::reserve`].
    pub fn from_fn(len: usize, options: Options, mut item: impl FnMut(usize) -> T) -> Result<Self> {
        let mut vec = Self::with_capacity(len, options)?;
        for i in 0..len {
            vec.push(item(i))?;
        }
        Ok(vec)
    }

    /// Creates `len` items, all zero. No page is resident yet: the thread that first touches a page
    /// decides its node.
    ///
    /// # Errors
    /// Those of [`Self::reserve`].
    pub fn zeroed(len: usize, options: Options) -> Result<Self>
    where
        T: Zero,
    {
        let mut vec = Self::with_capacity(len, options)?;
        // Memory fresh from the kernel is zeroed.
        vec.len = len;
        Ok(vec)
    }
}

impl<T, S: Sys> HugeVec<T, S> {
    /// Creates an empty vector like [`HugeVec::new`], with system calls through `sys`.
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

    /// Returns the number of items that fit without growing.
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Makes room for `more` items: twice the present capacity if possible, else the capacity
    /// needed.
    ///
    /// # Errors
    /// [`AllocError::Overflow`], and those of [`HugeRegion::map`]; the vector is then unchanged.
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

    /// Grows the region to `capacity` items. `capacity` is above 0 and the items have a size.
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
    /// Those of [`Self::reserve`]; the item is then dropped. To keep it, reserve first.
    pub fn push(&mut self, item: T) -> Result<()> {
        if self.len == self.capacity {
            self.reserve(1)?;
        }
        // SAFETY: there is room for one more item, and no reference to it.
        unsafe { self.start.add(self.len).write(item) };
        self.len += 1;
        Ok(())
    }

    /// Removes and returns the last item.
    pub fn pop(&mut self) -> Option<T> {
        self.len = self.len.checked_sub(1)?;
        // SAFETY: this item was initialised, and the new length excludes it.
        Some(unsafe { self.start.add(self.len).read() })
    }

    /// Drops all items from index `len` on, first to last. The memory stays.
    pub fn truncate(&mut self, len: usize) {
        let Some(surplus) = self.len.checked_sub(len) else { return };
        let surplus =
            std::ptr::slice_from_raw_parts_mut(self.start.as_ptr().wrapping_add(len), surplus);
        self.len = len;
        // SAFETY: these were initialised and are dropped once: the length excludes them, even if a
        // destructor panics.
        unsafe { surplus.drop_in_place() };
    }

    /// Drops all items. The memory stays.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// Appends the items of `more` while there is room for them.
    ///
    /// # Errors
    /// Those of [`Self::reserve`]; the items before stay.
    pub fn extend(&mut self, more: impl IntoIterator<Item = T>) -> Result<()> {
        let mut more = more.into_iter();
        self.reserve(more.size_hint().0)?;
        more.try_for_each(|item| self.push(item))
    }

    /// Unmaps the memory after the items, in whole pages of the backing. The items do not move. If
    /// the kernel refuses, the memory stays.
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

    /// Reinterprets the memory as integers of another width, in native byte order. Bytes that do
    /// not fill an integer are dropped.
    ///
    /// # Panics
    /// If their alignment is above that of pages.
    pub fn recast<U: Plain>(mut self) -> HugeVec<U, S>
    where
        T: Plain,
    {
        let mut numbers = HugeVec::<U, S>::new_on(self.sys.clone(), self.options);
        let len = self.len * size_of::<T>();
        // From here on `numbers` owns the memory.
        self.len = 0;
        if let Some(region) = self.region.take() {
            numbers.start = region.as_ptr().cast();
            assert!(numbers.start.is_aligned(), "pages are aligned to more than numbers");
            numbers.capacity = region.len().as_usize() / size_of::<U>();
            // Initialised: the items have no padding, and all bytes are a value, by the trait.
            numbers.len = len / size_of::<U>();
            numbers.region = Some(region);
        }
        numbers
    }

    /// Clones the items into a new vector with as much memory as they need.
    ///
    /// # Errors
    /// Those of [`Self::reserve`].
    pub fn try_clone(&self) -> Result<Self>
    where
        T: Clone,
    {
        let mut copy = Self::new_on(self.sys.clone(), self.options);
        copy.extend(self.iter().cloned())?;
        Ok(copy)
    }

    /// Returns the requested options.
    pub const fn requested(&self) -> &Options {
        &self.options
    }
    /// Returns the backing in use; `None` while nothing is mapped.
    pub fn backing(&self) -> Option<Backing> {
        self.region.as_ref().map(HugeRegion::backing)
    }
    /// Returns the errors of the backings before it in the chain.
    pub fn refused(&self) -> impl Iterator<Item = &AllocError> {
        self.region.iter().flat_map(HugeRegion::refused)
    }
    /// Reads from the pagemap which pages the memory is on, like [`HugeRegion::usage`].
    ///
    /// # Errors
    /// [`AllocError::Pagemap`].
    pub fn usage(&self) -> Result<PageUsage> {
        self.region.as_ref().map_or(Ok(PageUsage::default()), HugeRegion::usage)
    }
    /// Makes all pages of the capacity resident, like [`HugeRegion::prefault`].
    ///
    /// # Errors
    /// [`AllocError::Prefault`], [`AllocError::Pagemap`].
    pub fn prefault(&self, threads: usize) -> Result<()> {
        self.region.as_ref().map_or(Ok(()), |region| region.prefault(threads))
    }
    /// Collapses the touched pages, like [`HugeRegion::collapse`].
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
        // SAFETY: as in `deref`; `&mut self` excludes all other users.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

/// Drops the items, first to last, then the region, even if a destructor panics.
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
