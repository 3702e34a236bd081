//! Runs: consecutive accesses of a thread to one base page.
//!
//! Only the first access of a run can miss in a TLB, so simulators work on runs. A batch of runs is
//! made once for all simulators of a sweep. Another CPU may execute it: a line of another CPU's
//! cache costs more than what a simulator does with a run, so that runs are short.

use crate::memory::MemoryUse;
use crate::pages::{BASE_PER_REGION, PageClass, PageMap, base_page};

/// Run of accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Number of the base page among those of all regions in use: 512 for each region.
    pub page: u32,
    /// Accesses, at least 1.
    pub accesses: u32,
}

impl Run {
    /// Returns the number of its region: 0, 1, 2 … in the order of first use.
    #[inline]
    pub const fn region(&self) -> u32 {
        self.page >> PageClass::Huge.shift()
    }
    /// Returns the base page, unique among processes, in the region with this
    /// [`RegionId::number`].
    #[inline]
    pub const fn base_page(&self, number: u64) -> u64 {
        (number << PageClass::Huge.shift()) | (self.page as u64 % BASE_PER_REGION as u64)
    }
}

/// Region, as simulators know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionId {
    /// Number among all addresses and processes: its first base page, over 512.
    pub number: u64,
    /// Number of its 1 GiB: 0, 1, 2 … in the order of first use.
    pub giant: u32,
}

/// Runs in order, and the regions of which they have the first use. A simulator executes all
/// batches of a footprint.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    runs: Vec<Run>,
    /// Threads in turn, each with the end of its runs.
    turns: Vec<(u16, usize)>,
    regions: Vec<RegionId>,
}

impl Batch {
    /// Returns the runs of all threads.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }
    /// Returns threads in turn, each with its runs.
    pub fn turns(&self) -> impl Iterator<Item = (u16, &[Run])> {
        let mut begin = 0;
        self.turns.iter().map(move |&(thread, end)| {
            let runs = &self.runs[begin..end];
            begin = end;
            (thread, runs)
        })
    }
    /// Returns the regions whose first use is in this batch, in order.
    pub fn regions(&self) -> &[RegionId] {
        &self.regions
    }
    /// Makes it empty, and keeps its memory.
    pub fn clear(&mut self) {
        self.runs.clear();
        self.turns.clear();
        self.regions.clear();
    }

    /// Returns its regions without its runs, as if memory was used before.
    #[cfg(test)]
    pub(crate) fn without_runs(&self) -> Self {
        Self { regions: self.regions.clone(), ..Self::default() }
    }

    /// Notes that the runs since the last turn are of `thread`.
    fn end_turn(&mut self, thread: u16) {
        let end = self.runs.len();
        match self.turns.last_mut() {
            Some(last) if last.0 == thread => last.1 = end,
            _ => self.turns.push((thread, end)),
        }
    }
}

/// Base pages of a region, as bits.
pub type PageBits = [u64; BASE_PER_REGION / 64];

/// Region of the footprint.
#[derive(Clone, Copy, Debug)]
pub struct RegionPages {
    /// Number of the region among all addresses and processes: its first base page, over 512.
    pub number: u64,
    /// Number of its 1 GiB: 0, 1, 2 … in the order of first use.
    pub giant: u32,
    /// Runs: visits of its base pages.
    pub visits: u64,
    /// Base pages used since [`Footprint::clear_covered`].
    pub covered: PageBits,
    /// Base pages used before.
    before: PageBits,
}

impl RegionPages {
    const fn new(number: u64, giant: u32) -> Self {
        let none = [0; BASE_PER_REGION / 64];
        Self { number, giant, visits: 0, covered: none, before: none }
    }
    /// Notes a run of a base page, by its index in the region.
    #[inline]
    const fn visit(&mut self, page: usize) {
        self.covered[page / 64] |= 1 << (page % 64);
        self.visits += 1;
    }
    const fn id(&self) -> RegionId {
        RegionId { number: self.number, giant: self.giant }
    }
    /// Returns the process of the region.
    #[allow(clippy::cast_possible_truncation)]
    pub const fn process(&self) -> u16 {
        (self.number >> 36) as u16
    }
    /// Returns the base pages used since the beginning.
    pub fn touched(&self) -> PageBits {
        let mut touched = self.before;
        touched.iter_mut().zip(&self.covered).for_each(|(word, covered)| *word |= covered);
        touched
    }
    /// Returns the first address of the region.
    pub const fn address(&self) -> u64 {
        (self.number & ((1 << 36) - 1)) << 21
    }
}

/// Returns the number of set bits.
pub fn count(bits: &PageBits) -> u32 {
    bits.iter().map(|word| word.count_ones()).sum()
}

/// Regions of a footprint, at most: 8 TiB.
pub const MAX_REGIONS: usize = 1 << 22;
/// Processes of a footprint, at most. The tags of their pages have 32 bits, not all of which are
/// set.
pub const MAX_PROCESSES: usize = (1 << 14) - 1;

/// Places of [`Recent`].
const RECENT: usize = 1 << 10;

/// Number of some regions, each at the place of the low bits of its address. It spares most
/// searches of the index: random accesses to 1 GiB took 8.6 ns, now 6.4.
#[derive(Clone, Debug)]
struct Recent(Box<[(u64, u32); RECENT]>);

impl Default for Recent {
    fn default() -> Self {
        Self(Box::new([(u64::MAX, 0); RECENT]))
    }
}

/// Regions used so far.
#[derive(Clone, Debug)]
pub struct Footprint {
    index: PageMap<u32>,
    giants: PageMap<u32>,
    regions: Vec<RegionPages>,
    recent: Recent,
    threads: u16,
    /// Whether another footprint follows it, and has the visits.
    is_followed: bool,
    /// Regions, at most.
    most: usize,
    is_full: bool,
}

impl Default for Footprint {
    fn default() -> Self {
        Self {
            index: PageMap::default(),
            giants: PageMap::default(),
            regions: Vec::new(),
            recent: Recent::default(),
            threads: 0,
            is_followed: false,
            most: MAX_REGIONS,
            is_full: false,
        }
    }
}

impl Footprint {
    /// Creates an empty footprint.
    pub fn new() -> Self {
        Self::default()
    }
    /// Returns the memory that a footprint takes: vectors and maps double, and each region may be
    /// the first one of its 1 GiB.
    pub const fn memory() -> MemoryUse {
        let slots = 2 * 2 * size_of::<(u64, u32)>();
        let region_bytes = 2 * (size_of::<RegionPages>() + slots) as u64;
        MemoryUse { core_bytes: 0, region_bytes, core_region_bytes: 0 }
    }
    /// Creates an empty footprint that only numbers regions: another one follows it, and has their
    /// visits and base pages.
    pub fn followed() -> Self {
        Self { is_followed: true, ..Self::default() }
    }

    /// Appends accesses of a thread to a batch. The last run grows if the first access continues
    /// it.
    pub fn add(
        &mut self,
        process: u16,
        thread: u16,
        addresses: impl IntoIterator<Item = u64>,
        batch: &mut Batch,
    ) {
        let known = self.regions.len();
        let (mut page, mut run) = (u64::MAX, Run::default());
        let is_same = batch.turns.last().is_some_and(|last| last.0 == thread);
        if let Some(last) = batch.runs.pop_if(|_| is_same) {
            (page, run) = (last.base_page(self.regions[last.region() as usize].number), last);
        }
        for address in addresses {
            let next = base_page(process, address);
            if page == next && run.accesses < u32::MAX {
                run.accesses += 1;
                continue;
            }
            if run.accesses > 0 {
                batch.runs.push(run);
            }
            (page, run) = (next, Run { page: self.use_page(next), accesses: 1 });
        }
        if run.accesses == 0 {
            return;
        }
        batch.runs.push(run);
        batch.end_turn(thread);
        self.threads = self.threads.max(thread.saturating_add(1));
        batch.regions.extend(self.regions[known..].iter().map(RegionPages::id));
    }

    /// Repeats the additions of another footprint, of which `batch` is the next.
    #[allow(clippy::cast_possible_truncation)]
    pub fn follow(&mut self, batch: &Batch) {
        for &RegionId { number, giant } in &batch.regions {
            self.index.insert(number, self.regions.len() as u32);
            self.regions.push(RegionPages::new(number, giant));
        }
        for &(thread, _) in &batch.turns {
            self.threads = self.threads.max(thread.saturating_add(1));
        }
        for run in &batch.runs {
            self.regions[run.region() as usize].visit(run.page as usize % BASE_PER_REGION);
        }
    }

    /// Returns the number of the region of an address, if it was used.
    pub fn find(&self, process: u16, address: u64) -> Option<u32> {
        self.index.get(&(base_page(process, address) >> PageClass::Huge.shift())).copied()
    }
    /// Whether an access was beyond [`MAX_REGIONS`]. Its run has the number of the newest region.
    pub const fn is_full(&self) -> bool {
        self.is_full
    }
    /// Returns the visits of base pages: the number of runs.
    pub fn visits(&self) -> u64 {
        self.regions.iter().map(|region| region.visits).sum()
    }
    /// Returns the regions by number.
    pub fn regions(&self) -> &[RegionPages] {
        &self.regions
    }
    /// Returns the number of threads: the highest one seen, plus 1.
    pub const fn threads(&self) -> u16 {
        self.threads
    }
    /// Returns the number of base pages used.
    pub fn pages(&self) -> u64 {
        self.regions.iter().map(|region| u64::from(count(&region.touched()))).sum()
    }
    /// Begins a new interval of [`RegionPages::covered`].
    pub fn clear_covered(&mut self) {
        for region in &mut self.regions {
            region.before = region.touched();
            region.covered = PageBits::default();
        }
    }

    /// Returns the [`Run::page`] of a base page.
    #[allow(clippy::cast_possible_truncation)]
    #[inline]
    fn use_page(&mut self, page: u64) -> u32 {
        let number = page >> PageClass::Huge.shift();
        let region = match self.recent.0[number as usize % RECENT] {
            (recent, region) if recent == number => region,
            _ => self.region_of(number),
        };
        if !self.is_followed {
            self.regions[region as usize].visit(page as usize % BASE_PER_REGION);
        }
        (region << PageClass::Huge.shift()) | (page as u32 % BASE_PER_REGION as u32)
    }

    #[allow(clippy::cast_possible_truncation)]
    fn region_of(&mut self, number: u64) -> u32 {
        if self.regions.len() >= self.most && !self.index.contains_key(&number) {
            self.is_full = true;
            return (self.most - 1) as u32;
        }
        let region = *self.index.entry(number).or_insert_with(|| {
            let next = self.giants.len() as u32;
            let giant = *self.giants.entry(number >> 9).or_insert(next);
            self.regions.push(RegionPages::new(number, giant));
            (self.regions.len() - 1) as u32
        });
        self.recent.0[number as usize % RECENT] = (number, region);
        region
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(accesses: &[(u16, u64)]) -> (Batch, Footprint) {
        let (mut batch, mut footprint) = (Batch::default(), Footprint::new());
        for &(thread, address) in accesses {
            footprint.add(1, thread, [address], &mut batch);
        }
        (batch, footprint)
    }

    /// Accesses beyond the end are to the last region, and the footprint is full.
    #[test]
    fn a_footprint_has_an_end() {
        let mut footprint = Footprint { most: 3, ..Footprint::new() };
        let mut batch = Batch::default();
        footprint.add(0, 0, (0..3).map(|region| region << 21), &mut batch);
        assert!(!footprint.is_full());
        footprint.add(0, 0, (0..5).map(|region| region << 21), &mut batch);
        assert!(footprint.is_full());
        let regions: Vec<u32> = batch.runs().iter().map(Run::region).collect();
        assert_eq!(regions, [0, 1, 2, 0, 1, 2, 2, 2]);
    }

    #[test]
    fn accesses_of_a_thread_to_one_page_are_one_run() {
        let (batch, footprint) =
            batch(&[(0, 0x5000), (0, 0x5ff8), (1, 0x5000), (0, 0x5008), (0, 0x20_0000)]);
        let run = |page, accesses| Run { page, accesses };
        let turns: Vec<(u16, &[Run])> = batch.turns().collect();
        let expected: [(u16, &[Run]); 3] =
            [(0, &[run(5, 2)]), (1, &[run(5, 1)]), (0, &[run(5, 1), run(512, 1)])];
        assert_eq!(turns, expected);
        assert_eq!(batch.runs().len(), 4);
        assert_eq!((footprint.pages(), footprint.threads()), (2, 2));
        assert_eq!(size_of::<Run>(), 8);
    }

    #[test]
    fn a_batch_has_the_regions_that_it_uses_first() {
        let address = |giant: u64, region: u64| giant << 30 | region << 21;
        let (mut batch, mut footprint) = batch(&[(0, address(5, 0)), (0, address(2, 7))]);
        let id = |giant: u64, region: u64, number| RegionId {
            number: base_page(1, address(giant, region)) >> 9,
            giant: number,
        };
        assert_eq!(batch.regions(), [id(5, 0, 0), id(2, 7, 1)]);
        assert_eq!(batch.runs()[1].base_page(batch.regions()[1].number), base_page(1, 0x80e0_0000));
        batch.clear();
        footprint.add(1, 0, [address(2, 7), address(5, 3), address(5, 3)], &mut batch);
        assert_eq!(batch.regions(), [id(5, 3, 0)]);
        let runs: Vec<_> = batch.runs().iter().map(|run| (run.region(), run.accesses)).collect();
        assert_eq!(runs, [(1, 1), (2, 2)]);
        batch.clear();
        assert!(batch.turns().next().is_none() && batch.regions().is_empty());
    }

    #[test]
    fn no_access_is_no_turn() {
        let (mut batch, mut footprint) = (Batch::default(), Footprint::new());
        footprint.add(0, 7, [], &mut batch);
        assert_eq!((batch.turns().count(), footprint.threads()), (0, 0));
        footprint.add(0, 7, [0x5000], &mut batch);
        footprint.add(0, 7, [], &mut batch);
        footprint.add(0, 8, [], &mut batch);
        assert_eq!((batch.turns().count(), batch.runs().len()), (1, 1));
    }

    /// The follower has the visits and the bits of each batch, when it has followed it.
    #[test]
    fn a_footprint_follows_another_one() {
        let (mut leader, mut follower) = (Footprint::new(), Footprint::new());
        let mut address = 1_u64;
        for _ in 0..20 {
            let mut batch = Batch::default();
            for thread in 0..3 {
                let next = |_| {
                    address = address.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                    address >> 34
                };
                leader.add(thread, thread, (0..50).map(next).collect::<Vec<_>>(), &mut batch);
            }
            follower.follow(&batch);
            let all = |footprint: &Footprint| format!("{:?}", footprint.regions());
            assert_eq!(all(&leader), all(&follower));
            assert_eq!(leader.threads(), follower.threads());
            let regions = leader.regions().iter();
            for (number, region) in (0..).zip(regions) {
                assert_eq!(follower.find(region.process(), region.address()), Some(number));
            }
        }
        assert_eq!(follower.visits(), 3000);
    }

    #[test]
    fn a_region_knows_its_process_and_address() {
        let (_, footprint) = batch(&[(0, 0x7fff_ffff_f000)]);
        let region = footprint.regions()[0];
        assert_eq!((region.process(), region.address()), (1, 0x7fff_ffe0_0000));
        assert_eq!(region.touched()[7], 1 << 63);
    }
}
