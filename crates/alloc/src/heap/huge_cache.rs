//! Cache of freed regions of huge objects. Mapping and touching such memory again takes ten times
//! as long as reuse.

use std::alloc::Layout;

use super::central::Central;
use super::{MAX_IN_CHUNK, os};
use crate::{HugeRegion, Sys};

/// Largest number of cached regions.
const MAX_REGIONS: usize = 16;

/// Cached regions: reused by best fit, evicted by age.
pub(super) struct HugeCache<S: Sys> {
    /// Each with the time at which it was added.
    slots: [Option<(u64, HugeRegion<S>)>; MAX_REGIONS],
    clock: u64,
    /// Sum of lengths in bytes.
    pub(super) len: usize,
}

impl<S: Sys> HugeCache<S> {
    pub(super) const fn new() -> Self {
        Self { slots: [const { None }; MAX_REGIONS], clock: 0, len: 0 }
    }

    /// Adds a region. Returns the evicted one, if any.
    pub(super) fn push(&mut self, region: HugeRegion<S>) -> Option<HugeRegion<S>> {
        let full = self.slots.iter().all(Option::is_some);
        let gone = if full { self.take_oldest() } else { None };
        self.clock += 1;
        self.len += region.len().as_usize();
        if let Some(free) = self.slots.iter_mut().find(|slot| slot.is_none()) {
            *free = Some((self.clock, region));
        }
        gone
    }

    /// Takes the smallest region that `layout` fits into, at most a quarter longer.
    pub(super) fn take(&mut self, layout: Layout) -> Option<HugeRegion<S>> {
        let (least, most) = (layout.size(), layout.size() + layout.size() / 4);
        let fits = |region: &HugeRegion<S>| {
            (least..=most).contains(&region.len().as_usize())
                && region.as_ptr().as_ptr().addr().is_multiple_of(layout.align())
        };
        self.take_first(|(_, region)| fits(region).then(|| region.len()))
    }

    /// Takes the oldest region.
    pub(super) fn take_oldest(&mut self) -> Option<HugeRegion<S>> {
        self.take_first(|&(time, _)| Some(time))
    }

    /// Returns the cached regions.
    pub(super) fn all(&self) -> impl Iterator<Item = &HugeRegion<S>> {
        self.slots.iter().flatten().map(|(_, region)| region)
    }

    /// Takes the region for which `order` is least.
    fn take_first<T: Ord>(
        &mut self,
        order: impl Fn(&(u64, HugeRegion<S>)) -> Option<T>,
    ) -> Option<HugeRegion<S>> {
        let of = |slot: &Option<_>| slot.as_ref().and_then(&order);
        let first =
            self.slots.iter_mut().filter(|slot| of(slot).is_some()).min_by_key(|slot| of(slot))?;
        let (_, region) = first.take()?;
        self.len -= region.len().as_usize();
        Some(region)
    }
}

impl<S: Sys> Central<S> {
    /// Caches the region of a freed huge object if the reserve allows it, else returns it to be
    /// unmapped. Hugetlb pages are never cached, because other programs need them. Neither are
    /// regions so small that new objects of their size go to a chunk.
    pub(super) fn cache_region(&mut self, region: HugeRegion<S>) -> Option<HugeRegion<S>> {
        let (len, limit) = (region.len().as_usize(), self.limit());
        let pooled = region.backing().pool_page().is_some();
        if pooled || len <= MAX_IN_CHUNK || self.idle() - self.huge_cache.len + len > limit {
            return Some(region);
        }
        while self.idle() + len > limit {
            self.unmap_oldest();
        }
        let gone = self.huge_cache.push(region);
        self.unmap_region(gone);
        None
    }

    /// Unmaps all cached regions. Returns whether there was one.
    pub(super) fn empty_huge_cache(&mut self) -> bool {
        std::iter::from_fn(|| self.unmap_oldest().then_some(())).count() > 0
    }

    pub(super) fn unmap_oldest(&mut self) -> bool {
        let oldest = self.huge_cache.take_oldest();
        self.unmap_region(oldest)
    }

    fn unmap_region(&mut self, region: Option<HugeRegion<S>>) -> bool {
        self.counts.returned += region.as_ref().map_or(0, |region| region.len().as_usize());
        let some = region.is_some();
        os::preserving_errno(|| drop(region));
        some
    }
}
