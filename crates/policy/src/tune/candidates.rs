//! Candidates of a process: every region that may be promoted, with its expected heat.

use std::collections::BTreeMap;
use std::iter::Sum;

use hugepilot_record::{Mapping, ProcessMemory, RegionHeat, SkipReason, Skips, Window};
use hugepilot_stats::NeighbourShrinkage;
use hugepilot_units::{Bytes, Nanos, Region};

use super::{ProcessState, TuneGoal};
use crate::{process_skip, region_skip};

/// Most regions of a mapping that are judged by all their neighbours: 8 TiB.
const MAX_NEIGHBOURS: usize = 1 << 22;

/// Region that may be promoted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Region.
    pub region: Region,
    /// Stalls in the window.
    pub stalls: u32,
    /// Expected stalls: those in the window, drawn towards the mean of the neighbours.
    pub heat: f64,
    /// Distinct base pages with samples.
    pub sampled_pages: u32,
    /// Memory that a huge page adds.
    pub added: AddedMemory,
}

/// Memory that a huge page adds to a region: everything that the kernel could have had otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddedMemory {
    /// Base pages that are not resident, and those that the program freed lazily.
    pub total: Bytes,
    /// The second of these. A split does not return them: the kernel no longer knows that the
    /// program freed them.
    pub lazily_freed: Bytes,
}

impl Sum for AddedMemory {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            total: sum.total + one.total,
            lazily_freed: sum.lazily_freed + one.lazily_freed,
        })
    }
}

/// Candidates, hottest first, and the rest by reason.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Candidates {
    /// Candidates.
    pub regions: Vec<Candidate>,
    /// Regions skipped.
    pub skipped: Skips,
    /// Stalls on skipped regions.
    pub skipped_stalls: BTreeMap<SkipReason, u64>,
    /// Expected stalls on base pages of the regions on huge pages that may be exchanged, where
    /// their mapping has stalls.
    pub promoted: BTreeMap<Region, f64>,
}

impl Candidates {
    /// Stalls on the candidates.
    pub fn stalls(&self) -> u64 {
        self.regions.iter().map(|candidate| u64::from(candidate.stalls)).sum()
    }

    /// Finds the candidates of a process: hot regions of mappings that may be promoted.
    ///
    /// A region is hot with a stall of its own, or with half the heat of the region of a random
    /// stall. So a uniformly hot heap is hot as a whole, also where no sample fell.
    pub fn of(
        memory: &ProcessMemory,
        window: &Window,
        state: &ProcessState,
        goal: &TuneGoal,
    ) -> Self {
        let mut stalls = window.all_stalls();
        let mut all = Self::default();
        let threshold = usual_heat(&stalls) / 2.0;
        let judge = Judge::new(memory, state, goal);
        for mapping in &memory.mappings {
            all.add_mapping(&judge, mapping, window, threshold, &mut stalls);
        }
        all.skip_streams(&judge, window);
        // What no mapping holds as a whole region.
        for (_, count) in stalls {
            all.skip(SkipReason::Unaligned, count);
        }
        all.regions.sort_by(|a, b| b.heat.total_cmp(&a.heat).then(a.region.cmp(&b.region)));
        all
    }

    /// Finds every region that may be promoted, whatever its samples, in address order.
    pub fn eligible(
        memory: &ProcessMemory,
        window: &Window,
        state: &ProcessState,
        goal: &TuneGoal,
    ) -> Self {
        let mut stalls = window.all_stalls();
        let mut all = Self::default();
        let judge = Judge::new(memory, state, goal);
        for mapping in &memory.mappings {
            all.add_eligible(&judge, mapping, &mut stalls);
        }
        for (_, count) in stalls {
            all.skip(SkipReason::Unaligned, count);
        }
        all
    }

    /// Costs a step for each region whose pages are known; the other regions of a mapping are
    /// counted as skipped without a step.
    fn add_eligible(
        &mut self,
        judge: &Judge<'_>,
        mapping: &Mapping,
        stalls: &mut BTreeMap<Region, u32>,
    ) {
        let sizes = judge.seen.sizes;
        let Some(inside) = sizes.span_inside(mapping.range) else { return };
        let mut unknown = sizes.regions_inside(mapping.range).len() as u64;
        for &region in judge.seen.pages.range(inside.clone()).map(|(region, _)| region) {
            unknown -= 1;
            let stalls = stalls.remove(&region).unwrap_or(0);
            match judge.added_by_pages(mapping, region) {
                Ok(added) => {
                    let (heat, sampled_pages) = (f64::from(stalls), judge.sampled_pages(region));
                    self.regions.push(Candidate { region, stalls, heat, sampled_pages, added });
                }
                Err(reason) => self.skip(reason, stalls),
            }
        }
        let is_empty = mapping.resident == Bytes::ZERO;
        let reason = if is_empty { SkipReason::TooFewResident } else { SkipReason::Special };
        let reason = judge.mapping_rules(mapping, *inside.start()).err().unwrap_or(reason);
        let left: Vec<Region> = stalls.range(inside).map(|(&region, _)| region).collect();
        for region in left {
            unknown -= 1;
            let stalls = stalls.remove(&region).unwrap_or(0);
            self.skip(reason, stalls);
        }
        if unknown > 0 {
            *self.skipped.entry(reason).or_insert(0) += unknown;
        }
    }

    fn add_mapping(
        &mut self,
        judge: &Judge<'_>,
        mapping: &Mapping,
        window: &Window,
        threshold: f64,
        stalls: &mut BTreeMap<Region, u32>,
    ) {
        let sizes = judge.seen.sizes;
        let Some(inside) = sizes.span_inside(mapping.range) else { return };
        let mut regions: Vec<Region> = stalls.range(inside).map(|(&region, _)| region).collect();
        let all = sizes.regions_inside(mapping.range);
        // A larger mapping is reserved and hardly used: the neighbours are the other regions with
        // stalls.
        if !regions.is_empty() && all.len() <= MAX_NEIGHBOURS {
            regions = all.collect();
        }
        let counts: Vec<u32> =
            regions.iter().map(|region| stalls.remove(region).unwrap_or(0)).collect();
        let exposures: Vec<f64> = regions.iter().map(|&one| judge.exposure(one, window)).collect();
        let Some(shrinkage) = shrinkage(&counts, &exposures) else { return };
        for ((region, stalls), heat) in
            regions.into_iter().zip(counts.iter().copied()).zip(shrinkage)
        {
            if judge.is_exchangeable(region) {
                self.promoted.insert(region, heat);
            }
            if stalls == 0 && heat < threshold {
                continue;
            }
            match judge.added(mapping, region) {
                Ok(added) => {
                    let sampled_pages = judge.sampled_pages(region);
                    self.regions.push(Candidate { region, stalls, heat, sampled_pages, added });
                }
                Err(reason) => self.skip(reason, stalls),
            }
        }
    }

    /// Counts regions whose samples are of streams only: the window does not count them.
    fn skip_streams(&mut self, judge: &Judge<'_>, window: &Window) {
        let streams = judge.heat.values().filter(|heat| heat.streamed > heat.samples / 2);
        for _ in streams.filter(|heat| window.of(heat.region) == 0) {
            self.skip(SkipReason::Streamed, 0);
        }
    }

    fn skip(&mut self, reason: SkipReason, stalls: u32) {
        *self.skipped.entry(reason).or_insert(0) += 1;
        *self.skipped_stalls.entry(reason).or_insert(0) += u64::from(stalls);
    }
}

/// Expected heat of each region on base pages; `None` without a stall.
fn shrinkage(counts: &[u32], exposures: &[f64]) -> Option<Vec<f64>> {
    let of_one = |(&count, exposure): (&u32, &f64)| f64::from(count) / exposure;
    match NeighbourShrinkage::fit(counts, exposures) {
        Some(fitted) => Some(fitted.expected(counts, exposures)),
        None => counts
            .iter()
            .any(|&count| count > 0)
            .then(|| counts.iter().zip(exposures).map(of_one).collect()),
    }
}

/// Heat of the region of a random stall: a region is counted once for each of its other stalls.
fn usual_heat(stalls: &BTreeMap<Region, u32>) -> f64 {
    let (mut all, mut pairs) = (0.0, 0.0);
    for &count in stalls.values() {
        let count = f64::from(count);
        all += count;
        pairs += count * (count - 1.0);
    }
    // Without a region that was hit twice nothing is known of the usual heat.
    if pairs > 0.0 { pairs / all } else { f64::INFINITY }
}

/// Rules for the regions of a process.
pub(super) struct Judge<'a> {
    seen: &'a ProcessMemory,
    heat: BTreeMap<Region, &'a RegionHeat>,
    state: &'a ProcessState,
    goal: &'a TuneGoal,
}

impl<'a> Judge<'a> {
    pub(super) fn new(
        seen: &'a ProcessMemory,
        state: &'a ProcessState,
        goal: &'a TuneGoal,
    ) -> Self {
        let heat = seen.heat.iter().map(|heat| (heat.region, heat)).collect();
        Self { seen, heat, state, goal }
    }

    /// Whether a region is promoted, or huge while the process lacks huge pages.
    fn is_exchangeable(&self, region: Region) -> bool {
        let is_huge = || self.seen.pages.get(&region).is_some_and(|pages| pages.huge);
        self.state.is_promoted(region) || self.state.lacks_huge_pages() && is_huge()
    }

    /// Stalls of a region in `window` over those on base pages: a huge page shortens them.
    fn exposure(&self, region: Region, window: &Window) -> f64 {
        let promoted = self.state.regions.get(&region).and_then(|past| past.promoted);
        let is_huge = promoted.is_some_and(|at| at <= window.since)
            && self.state.is_still_huge(region, self.seen);
        if is_huge || promoted.is_none() && self.is_exchangeable(region) {
            self.state.stall_ratio()
        } else {
            1.0
        }
    }

    pub(super) fn sampled_pages(&self, region: Region) -> u32 {
        self.heat.get(&region).map_or(0, |heat| heat.sampled_pages)
    }

    /// Returns the memory that a huge page adds to `region`.
    ///
    /// # Errors
    /// The rule that forbids its promotion.
    pub(super) fn added(
        &self,
        mapping: &Mapping,
        region: Region,
    ) -> Result<AddedMemory, SkipReason> {
        self.mapping_rules(mapping, region)?;
        if let Some(heat) = self.heat.get(&region) {
            if heat.streamed > heat.samples / 2 {
                return Err(SkipReason::Streamed);
            }
            if heat.tlb_held > heat.samples / 2 {
                return Err(SkipReason::TlbFriendly);
            }
        }
        self.page_rules(region)
    }

    /// Returns the same as [`Self::added`], whatever the samples.
    ///
    /// # Errors
    /// The rule that forbids its promotion.
    pub(super) fn added_by_pages(
        &self,
        mapping: &Mapping,
        region: Region,
    ) -> Result<AddedMemory, SkipReason> {
        self.mapping_rules(mapping, region)?;
        self.page_rules(region)
    }

    /// Returns the same as [`Self::added_by_pages`], whatever the past: a schedule may promote a
    /// region again soon after its demotion.
    ///
    /// # Errors
    /// The rule that forbids its promotion.
    pub(super) fn added_by_schedule(
        &self,
        mapping: &Mapping,
        region: Region,
    ) -> Result<AddedMemory, SkipReason> {
        self.mapping_rules(mapping, region)?;
        self.present_pages(region)
    }

    fn mapping_rules(&self, mapping: &Mapping, region: Region) -> Result<(), SkipReason> {
        let seen = self.seen;
        if let Some(reason) = process_skip(mapping, seen.thp_disabled) {
            return Err(reason);
        }
        if seen.stacks.contains(&region) {
            return Err(SkipReason::Stack);
        }
        Ok(())
    }

    /// Memory that a huge page adds, by the pages of the region.
    fn present_pages(&self, region: Region) -> Result<AddedMemory, SkipReason> {
        let seen = self.seen;
        let pages = seen.pages.get(&region).ok_or(SkipReason::Special)?;
        if let Some(reason) = region_skip(pages, seen.sizes, &self.goal.limits) {
            return Err(reason);
        }
        let missing = seen.sizes.base_per_huge().saturating_sub(pages.kept());
        Ok(AddedMemory {
            total: seen.sizes.base.times(missing),
            lazily_freed: seen.sizes.base.times(pages.lazily_freed),
        })
    }

    fn page_rules(&self, region: Region) -> Result<AddedMemory, SkipReason> {
        let seen = self.seen;
        let past = self.state.regions.get(&region).copied().unwrap_or_default();
        // A huge page that was lost so soon did not pay, nor would one that was just demoted.
        let is_recent = |at: Nanos| seen.time - at < self.goal.horizon;
        let is_lost = past.promoted.is_some_and(is_recent);
        let added = match self.present_pages(region) {
            Ok(_) | Err(SkipReason::TooFewResident | SkipReason::LazilyFreed) if is_lost => {
                Err(SkipReason::LostHugePage)
            }
            pages => pages,
        }?;
        if past.failures >= self.goal.max_tries || past.demoted.is_some_and(is_recent) {
            return Err(SkipReason::CoolingDown);
        }
        Ok(added)
    }
}
