//! Runs: consecutive accesses of a thread to one base page.
//!
//! Only the first access of a run can miss in a TLB, so simulators work on runs. A batch of runs is
//! made once for all simulators of a sweep. Another CPU may execute it: a line of another CPU's
//! cache costs more than what a simulator does with a run, so that runs are short.

use hugepilot_units::Region;

use crate::memory::MemoryUse;
use crate::pages::{BASE_PER_REGION, PageClass, PageMap, base_page};

/// Run of accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessRun {
    /// Number of the base page among those of all regions in use: 512 for each region.
    pub page: u32,
    /// Accesses, at least 1.
    pub accesses: u32,
}

impl AccessRun {
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
    runs: Vec<AccessRun>,
    turns: Vec<End>,
    regions: Vec<RegionId>,
}

/// End of the runs of a thread in its turn.
#[derive(Clone, Copy, Debug)]
struct End {
    thread: u16,
    /// Number of runs up to it.
    runs: usize,
    is_new: bool,
}

/// Runs of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn<'a> {
    /// The thread: its core.
    pub thread: u16,
    /// Whether a new thread has the core of one that has ended.
    pub is_new: bool,
    /// Runs.
    pub runs: &'a [AccessRun],
}

impl Batch {
    /// Returns the runs of all threads.
    pub fn runs(&self) -> &[AccessRun] {
        &self.runs
    }
    /// Returns threads in turn, each with its runs.
    pub fn turns(&self) -> impl Iterator<Item = Turn<'_>> {
        let mut begin = 0;
        self.turns.iter().map(move |&End { thread, runs: end, is_new }| {
            let runs = &self.runs[begin..end];
            begin = end;
            Turn { thread, is_new, runs }
        })
    }
    /// Notes that a new thread has the core `thread` of one that has ended.
    pub fn begin_thread(&mut self, thread: u16) {
        self.turns.push(End { thread, runs: self.runs.len(), is_new: true });
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
        let runs = self.runs.len();
        match self.turns.last_mut() {
            Some(last) if last.thread == thread => last.runs = runs,
            _ => self.turns.push(End { thread, runs, is_new: false }),
        }
    }

    /// Removes the last run if it is of this turn of `thread`.
    fn pop(&mut self, thread: u16) -> Option<AccessRun> {
        let begin = self.turns.len().checked_sub(2).map_or(0, |before| self.turns[before].runs);
        let last = self.turns.last().filter(|last| last.thread == thread && last.runs > begin);
        last.and_then(|_| self.runs.pop())
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
    /// Returns the region in the memory of its process.
    pub const fn region(&self) -> Region {
        Region::new(self.number & ((1 << 36) - 1))
    }
    /// Returns the first address of the region.
    pub const fn address(&self) -> u64 {
        self.region().get() << 21
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
        let (mut page, mut run) = (u64::MAX, AccessRun::default());
        if let Some(last) = batch.pop(thread) {
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
            (page, run) = (next, AccessRun { page: self.use_page(next), accesses: 1 });
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
        for &End { thread, .. } in &batch.turns {
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

    /// Returns the [`AccessRun::page`] of a base page.
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
mod tests;
