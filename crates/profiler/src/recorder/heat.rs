//! Stall samples by region and by thread.

use std::collections::BTreeMap;

use hugepilot_record::{Pattern, Pid, Sample};
use hugepilot_recording::{HeatSlice, HotRegion};
use hugepilot_units::{AddrRange, Nanos, PageSizes, Region};

use super::layouts::Layouts;
use super::names::RegionNames;
use super::thread_stalls::ThreadStallCounts;

/// Regions of a slice; the samples of colder ones are counted in the sums only.
const MAX_REGIONS: usize = 4096;

/// Samples of a process since the last slice.
pub(super) struct HeatCounts {
    sizes: PageSizes,
    samples: u64,
    addressed: u64,
    scattered: u64,
    regions: BTreeMap<Region, (u32, u32)>,
    /// Runs of huge pages when they were last read, in order of address; `None` before.
    huge: Option<Vec<AddrRange>>,
    names: RegionNames,
    threads: ThreadStallCounts,
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
            huge: None,
            names: RegionNames::default(),
            threads: ThreadStallCounts::default(),
            since: now,
        }
    }

    /// Counts a sample.
    pub(super) fn add(&mut self, sample: &Sample) {
        self.samples += 1;
        let is_streamed = sample.pattern == Pattern::Streamed;
        self.threads.add(sample.tid, sample.address.is_some() && !is_streamed);
        let Some(address) = sample.address else { return };
        self.addressed += 1;
        self.scattered += u64::from(!is_streamed);
        let region = self.sizes.region_of(address);
        let counts = self.regions.entry(region).or_default();
        counts.0 += 1;
        counts.1 += u32::from(is_streamed);
        self.names.add(region, address);
    }

    /// Forgets huge pages and names: another program has other memory.
    pub(super) fn forget_memory(&mut self) {
        self.huge = None;
        self.names.forget();
    }

    /// Replaces the runs of huge pages by a later reading.
    pub(super) fn set_huge(&mut self, runs: Vec<AddrRange>) {
        self.huge = Some(runs);
    }

    fn is_huge(&self, region: Region) -> Option<bool> {
        let (runs, range) = (self.huge.as_ref()?, region.range(self.sizes));
        let at = runs.partition_point(|run| run.end <= range.start);
        Some(runs.get(at).is_some_and(|run| run.covers(range)))
    }

    /// Returns the slice that ends at `now`; `None` without samples.
    pub(super) fn slice(&mut self, pid: Pid, now: Nanos, layouts: &Layouts) -> Option<HeatSlice> {
        let length = now - self.since;
        self.since = now;
        if self.samples == 0 {
            return None;
        }
        let mappings = self.names.take(layouts);
        let regions = std::mem::take(&mut self.regions).into_iter();
        let mut regions: Vec<HotRegion> = regions
            .map(|(region, (samples, streamed))| {
                HotRegion(region, samples, streamed, self.is_huge(region))
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
            mappings,
            threads: self.threads.take(pid),
        })
    }
}

#[cfg(test)]
mod tests {
    use hugepilot_record::{Provenance, Tid};
    use hugepilot_recording::ThreadStalls;
    use hugepilot_units::VirtAddr;

    use super::*;

    fn slice(heat: &mut HeatCounts, second: u64) -> Option<HeatSlice> {
        heat.slice(Pid(1), Nanos::seconds(second), &Layouts::new())
    }

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
        let found = slice(&mut heat, 2).unwrap();
        assert_eq!((found.samples, found.addressed, found.scattered), (4, 3, 2));
        let region =
            |number, samples, streamed| HotRegion(Region::new(number), samples, streamed, None);
        assert_eq!(found.regions, [region(2, 1, 0), region(3, 2, 1)]);
        assert_eq!(slice(&mut heat, 3), None);
        heat.add(&sample(Some(5), Pattern::Scattered));
        let slice = slice(&mut heat, 5).unwrap();
        assert_eq!((slice.length, slice.samples), (Nanos::seconds(2), 1));
    }

    #[test]
    fn threads_have_the_samples_and_the_scattered_ones_of_the_slice() {
        let mut heat = HeatCounts::new(PageSizes::X86_64, Nanos::ZERO);
        let of = |tid, region, pattern| Sample { tid: Tid(tid), ..sample(region, pattern) };
        heat.add(&of(1, Some(3), Pattern::Scattered));
        heat.add(&of(2, Some(3), Pattern::Scattered));
        heat.add(&of(2, Some(4), Pattern::Streamed));
        heat.add(&of(2, None, Pattern::Scattered));
        let found = slice(&mut heat, 1).unwrap();
        assert_eq!(found.threads, [ThreadStalls(Tid(1), 1, 1), ThreadStalls(Tid(2), 3, 1)]);
        let sums = found.threads.iter().fold((0, 0), |sum, one| (sum.0 + one.1, sum.1 + one.2));
        assert_eq!((u64::from(sums.0), u64::from(sums.1)), (found.samples, found.scattered));
    }

    #[test]
    fn regions_are_huge_as_the_last_reading_shows() {
        let mut heat = HeatCounts::new(PageSizes::X86_64, Nanos::ZERO);
        let mut regions = |runs: Option<&[(u64, u64)]>, second| {
            let run = |&(first, end): &(u64, u64)| {
                AddrRange::new(VirtAddr::new(first << 21), VirtAddr::new(end << 21))
            };
            if let Some(runs) = runs {
                heat.set_huge(runs.iter().map(run).collect());
            }
            (2..8).for_each(|region| heat.add(&sample(Some(region), Pattern::Scattered)));
            let found = slice(&mut heat, second).unwrap();
            found.regions.iter().map(|hot| hot.3).collect::<Vec<_>>()
        };
        assert_eq!(regions(None, 1), [None; 6]);
        let [yes, no] = [Some(true), Some(false)];
        assert_eq!(regions(Some(&[(1, 3), (4, 6), (7, 9)]), 2), [yes, no, yes, yes, no, yes]);
        assert_eq!(regions(None, 3), [yes, no, yes, yes, no, yes]);
        assert_eq!(regions(Some(&[]), 4), [no; 6]);
    }

    #[test]
    fn a_slice_keeps_the_hottest_regions() {
        let mut heat = HeatCounts::new(PageSizes::X86_64, Nanos::ZERO);
        let many = MAX_REGIONS as u64 + 10;
        for region in 0..many {
            heat.add(&sample(Some(region), Pattern::Scattered));
        }
        heat.add(&sample(Some(many - 1), Pattern::Scattered));
        let slice = slice(&mut heat, 1).unwrap();
        assert_eq!(slice.regions.len(), MAX_REGIONS);
        assert_eq!(slice.samples, many + 1);
        assert_eq!(slice.regions.last().unwrap().0, Region::new(many - 1));
        assert!(slice.regions.is_sorted_by_key(|hot| hot.0));
    }
}
