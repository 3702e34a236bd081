//! Regions of huge things that were freed, for those to come: mapping and touching such memory anew takes ten times as long as
//! using it again.

use std::alloc::Layout;

use super::central::Central;
use super::{MAX_IN_CHUNK, os};
use crate::{HugeRegion, Sys};

/// How many are kept at most.
const MAX_REGIONS: usize = 16;

/// They go to whom they fit best, and the oldest first.
pub(super) struct HugeCache<S: Sys> {
    /// With the turn in which each came.
    slots: [Option<(u64, HugeRegion<S>)>; MAX_REGIONS],
    clock: u64,
    /// Bytes.
    pub(super) len: usize,
}

impl<S: Sys> HugeCache<S> {
    pub(super) const fn new() -> Self {
        Self { slots: [const { None }; MAX_REGIONS], clock: 0, len: 0 }
    }

    /// Keeps one more; the one that must go for it.
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

    /// The smallest that `layout` fits into, if that is no more than a quarter too long.
    pub(super) fn take(&mut self, layout: Layout) -> Option<HugeRegion<S>> {
        let (least, most) = (layout.size(), layout.size() + layout.size() / 4);
        let fits = |region: &HugeRegion<S>| {
            (least..=most).contains(&region.len().as_usize())
                && region.as_ptr().as_ptr().addr().is_multiple_of(layout.align())
        };
        self.take_first(|(_, region)| fits(region).then(|| region.len()))
    }

    /// The one that came first.
    pub(super) fn take_oldest(&mut self) -> Option<HugeRegion<S>> {
        self.take_first(|&(time, _)| Some(time))
    }

    /// Those that are kept.
    pub(super) fn all(&self) -> impl Iterator<Item = &HugeRegion<S>> {
        self.slots.iter().flatten().map(|(_, region)| region)
    }

    /// That for which `order` is least.
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
    /// Keeps the region of a huge thing that was freed, as far as the reserve goes; else it is to be unmapped. Pages of a pool
    /// are wanted by others, and what would have its place in a chunk is not asked for again.
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

    /// Unmaps what is kept. Whether that was anything.
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
