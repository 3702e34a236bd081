//! Stall samples by region.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use hugepilot_kernel::Target;
use hugepilot_record::recording::{HeatSlice, HotRegion};
use hugepilot_record::{Pattern, Pid, Sample};
use hugepilot_units::{Nanos, PageSizes, Region};

/// Regions of a slice; the samples of colder ones are counted in the sums only.
const MAX_REGIONS: usize = 4096;
/// Regions that are looked up in the pagemap at a time.
const MAX_LOOKUPS: usize = 256;

/// Samples of a process since the last slice.
pub(super) struct HeatCounts {
    sizes: PageSizes,
    samples: u64,
    addressed: u64,
    scattered: u64,
    regions: BTreeMap<Region, (u32, u32)>,
    /// Whether a region was huge when the pagemap was last read.
    huge: HashMap<Region, bool>,
    /// Samples of regions since each was looked up; those before the last look count half.
    unknown: BTreeMap<Region, u32>,
    since: Nanos,
}

impl HeatCounts {
    pub(super) fn new(sizes: PageSizes, now: Nanos) -> Self {
        Self {
            sizes,
            samples: 0,
            addressed: 0,
            scattered: 0,
            regions: BTreeMap::new(),
            huge: HashMap::new(),
            unknown: BTreeMap::new(),
            since: now,
        }
    }

    /// Counts a sample.
    pub(super) fn add(&mut self, sample: &Sample) {
        self.samples += 1;
        let Some(address) = sample.address else { return };
        self.addressed += 1;
        let is_streamed = sample.pattern == Pattern::Streamed;
        self.scattered += u64::from(!is_streamed);
        let region = self.sizes.region_of(address);
        let counts = self.regions.entry(region).or_default();
        counts.0 += 1;
        counts.1 += u32::from(is_streamed);
        if self.unknown.len() < MAX_REGIONS || self.unknown.contains_key(&region) {
            *self.unknown.entry(region).or_default() += 1;
        }
    }

    /// Forgets which regions are huge: another program has other memory.
    pub(super) fn forget_pages(&mut self) {
        self.huge.clear();
        self.unknown.clear();
    }

    /// Looks up in the pagemap which of the regions with samples are huge, the hottest first.
    pub(super) fn look_up(&mut self, target: &dyn Target) {
        if self.huge.len() > 4 * MAX_REGIONS {
            self.huge.clear();
        }
        let mut order: Vec<(Region, u32)> = std::mem::take(&mut self.unknown).into_iter().collect();
        order.sort_by_key(|&(_, samples)| std::cmp::Reverse(samples));
        let colder = order.split_off(order.len().min(MAX_LOOKUPS));
        // A region that is no longer used is not worth a look.
        let halved = colder.into_iter().map(|(region, samples)| (region, samples / 2));
        self.unknown.extend(halved.filter(|&(_, samples)| samples > 0));
        for (region, _) in order {
            match target.region_pages(region) {
                Ok(pages) => _ = self.huge.insert(region, pages.huge),
                Err(_) => _ = self.huge.remove(&region),
            }
        }
    }

    /// Returns the slice that ends at `now`; `None` without samples.
    pub(super) fn slice(&mut self, pid: Pid, now: Nanos) -> Option<HeatSlice> {
        let length = now - self.since;
        self.since = now;
        if self.samples == 0 {
            return None;
        }
        let regions = std::mem::take(&mut self.regions).into_iter();
        let mut regions: Vec<HotRegion> = regions
            .map(|(region, (samples, streamed))| {
                HotRegion(region, samples, streamed, self.huge.get(&region).copied())
            })
            .collect();
        if regions.len() > MAX_REGIONS {
            regions.sort_by_key(|hot| std::cmp::Reverse(hot.1));
            regions.truncate(MAX_REGIONS);
            regions.sort_by_key(|hot| hot.0);
        }
        let take = |count: &mut u64| std::mem::take(count);
        Some(HeatSlice {
            time: now,
            length,
            pid,
            samples: take(&mut self.samples),
            addressed: take(&mut self.addressed),
            scattered: take(&mut self.scattered),
            regions,
        })
    }
}

#[cfg(test)]
mod tests {
    use hugepilot_kernel::fake::FakeTarget;
    use hugepilot_record::{Provenance, Tid};
    use hugepilot_units::VirtAddr;

    use super::*;

    fn sample(region: Option<u64>, pattern: Pattern) -> Sample {
        Sample {
            time: Nanos::ZERO,
            pid: Pid(1),
            tid: Tid(1),
            ip: VirtAddr::new(0x1000),
            address: region.map(|region| VirtAddr::new(region << 21)),
            provenance: Provenance::Exact,
            pattern,
            stack: None,
        }
    }

    #[test]
    fn a_slice_has_the_samples_since_the_last_one() {
        let mut heat = HeatCounts::new(PageSizes::X86_64, Nanos::seconds(1));
        heat.add(&sample(Some(3), Pattern::Scattered));
        heat.add(&sample(Some(3), Pattern::Streamed));
        heat.add(&sample(Some(2), Pattern::Scattered));
        heat.add(&sample(None, Pattern::Scattered));
        let slice = heat.slice(Pid(1), Nanos::seconds(2)).unwrap();
        assert_eq!((slice.samples, slice.addressed, slice.scattered), (4, 3, 2));
        let region =
            |number, samples, streamed| HotRegion(Region::new(number), samples, streamed, None);
        assert_eq!(slice.regions, [region(2, 1, 0), region(3, 2, 1)]);
        assert_eq!(heat.slice(Pid(1), Nanos::seconds(3)), None);
        heat.add(&sample(Some(5), Pattern::Scattered));
        let slice = heat.slice(Pid(1), Nanos::seconds(5)).unwrap();
        assert_eq!((slice.length, slice.samples), (Nanos::seconds(2), 1));
    }

    #[test]
    fn the_hottest_regions_are_looked_up_first_and_unused_ones_never() {
        let mut heat = HeatCounts::new(PageSizes::X86_64, Nanos::ZERO);
        let many = 2 * MAX_LOOKUPS as u64;
        let sampled = (0..many).chain([many; 3]).chain([many + 1; 2]);
        sampled.for_each(|region| heat.add(&sample(Some(region), Pattern::Scattered)));
        let fake = FakeTarget::with_regions([many]);
        fake.collapse(Region::new(many)).unwrap();
        heat.look_up(&fake);
        assert!(heat.unknown.is_empty(), "one sample is half of one after a look");
        let slice = heat.slice(Pid(1), Nanos::seconds(1)).unwrap();
        let huge: Vec<_> = slice.regions.iter().rev().take(2).map(|hot| hot.3).collect();
        assert_eq!(huge, [Some(false), Some(true)]);
        let known = slice.regions.iter().filter(|hot| hot.3.is_some()).count();
        assert_eq!(known, MAX_LOOKUPS);
    }

    #[test]
    fn a_slice_keeps_the_hottest_regions() {
        let mut heat = HeatCounts::new(PageSizes::X86_64, Nanos::ZERO);
        let many = MAX_REGIONS as u64 + 10;
        for region in 0..many {
            heat.add(&sample(Some(region), Pattern::Scattered));
        }
        heat.add(&sample(Some(many - 1), Pattern::Scattered));
        let slice = heat.slice(Pid(1), Nanos::seconds(1)).unwrap();
        assert_eq!(slice.regions.len(), MAX_REGIONS);
        assert_eq!(slice.samples, many + 1);
        assert_eq!(slice.regions.last().unwrap().0, Region::new(many - 1));
        assert!(slice.regions.is_sorted_by_key(|hot| hot.0));
    }
}
