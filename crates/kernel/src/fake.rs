//! Scripted process for tests: it decides which call fails, with which error, and what time it is.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};

use hugepilot_record::{
    Errno, Headroom, LargePages, Mapping, PageRun, Pid, Pressure, ProcessId, RegionPages, Stranded,
};
use hugepilot_units::{AddrRange, Bytes, Nanos, PageSizes, Region, VirtAddr};

use crate::target::{Target, TargetState};
use crate::{Claim, KernelError, Result};

/// Effect of a collapse or split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// The region becomes huge, or is split and its zero-filled pages are freed.
    Succeed,
    /// The call succeeds without effect, as for some ranges in the kernel.
    FakeSuccess,
    /// The region is on base pages, and nothing is freed: another user held the huge page.
    SplitNotFreed,
    /// The call fails.
    Fail(Errno),
    /// The call fails after this time.
    SlowFail(Errno, Nanos),
    /// The region becomes huge after this time.
    Slow(Nanos),
    /// The region becomes huge after this time, which the caller spends queued for a processor.
    Queued(Nanos),
    /// The call succeeds, and the target ends, so its pages cannot be verified.
    SucceedAndDie,
    /// The target ends, and the call fails with ESRCH.
    Die,
    /// The target starts another program, and the call fails with ESRCH.
    Exec,
    /// The call fails, and another process promotes the region.
    FailAndHuge(Errno),
}

/// Process that exists only in its fields. Calls beyond the script succeed. A collapse takes a free
/// huge page of the headroom, and a split makes one free, if their number is limited.
///
/// ```
/// use hugepilot_kernel::Target;
/// use hugepilot_kernel::fake::{FakeTarget, Script};
/// use hugepilot_record::Errno;
/// use hugepilot_units::Region;
///
/// let fake = FakeTarget::with_regions([1]).scripted([Script::Fail(Errno::EAGAIN)]);
/// assert_eq!(fake.collapse(Region::new(1)), Err(Errno::EAGAIN));
/// assert!(fake.collapse(Region::new(1)).is_ok());
/// assert!(fake.region_pages(Region::new(1)).unwrap().huge);
/// ```
#[derive(Debug)]
pub struct FakeTarget {
    /// Identity.
    pub id: ProcessId,
    /// Mappings.
    pub mappings: Vec<Mapping>,
    /// Error of reading its mappings.
    pub unreadable: Cell<Option<Errno>>,
    /// Error of reading anything else: its state, its pages, its limits.
    pub unknown: Cell<Option<Errno>>,
    /// Region that another process promotes while the next collapse is prepared.
    pub taken: Cell<Option<Region>>,
    /// Region that may not be read (`PROT_NONE`).
    pub hidden: Cell<Option<Region>>,
    /// Whether another run of hugepilot changes it.
    pub claimed: Cell<bool>,
    /// Duration of reading its mappings.
    pub mappings_take: Cell<Nanos>,
    /// Pages by region; a missing region has none.
    pub pages: RefCell<BTreeMap<Region, RegionPages>>,
    /// Effects of collapses and splits, in order.
    pub script: RefCell<VecDeque<Script>>,
    /// State.
    pub state: Cell<TargetState>,
    /// Headroom.
    pub headroom: Cell<Headroom>,
    /// Memory pressure.
    pub pressure: Cell<Option<Pressure>>,
    /// Clock.
    pub clock: Cell<Nanos>,
    /// Time that the caller was queued for a processor.
    pub queued: Cell<Nanos>,
    /// Requested collapses and splits, in order.
    pub asked: RefCell<Vec<Region>>,
    /// Zero-filled pages by region.
    pub zeros: RefCell<BTreeMap<Region, u64>>,
    /// Memory that is held and not mapped.
    pub stranded: RefCell<Vec<Stranded>>,
    /// Address of a page that is no longer zero-filled.
    pub dirtied: Cell<Option<VirtAddr>>,
}

impl Default for FakeTarget {
    fn default() -> Self {
        let plenty = Headroom {
            cgroup: Bytes::MAX,
            cgroup_limit: Bytes::MAX,
            system: Bytes::gib(64),
            system_total: Bytes::gib(128),
            free_huge: Bytes::MAX,
        };
        Self {
            id: ProcessId { pid: Pid(4711), start_ticks: 1, command: "fake".into() },
            mappings: Vec::new(),
            unreadable: Cell::new(None),
            unknown: Cell::new(None),
            taken: Cell::new(None),
            hidden: Cell::new(None),
            claimed: Cell::new(false),
            mappings_take: Cell::new(Nanos::ZERO),
            pages: RefCell::default(),
            script: RefCell::default(),
            state: Cell::new(TargetState::Alive),
            headroom: Cell::new(plenty),
            pressure: Cell::new(None),
            clock: Cell::new(Nanos::seconds(1)),
            queued: Cell::new(Nanos::ZERO),
            asked: RefCell::default(),
            zeros: RefCell::default(),
            stranded: RefCell::default(),
            dirtied: Cell::new(None),
        }
    }
}

impl FakeTarget {
    /// Returns a process whose `regions` are resident on base pages.
    pub fn with_regions(regions: impl IntoIterator<Item = u64>) -> Self {
        let fake = Self::default();
        let full = PageSizes::X86_64.base_per_huge();
        for region in regions.into_iter().map(Region::new) {
            let pages = RegionPages::on_base_pages(region, full);
            fake.pages.borrow_mut().insert(region, pages);
        }
        fake
    }
    /// Appends to the script.
    #[must_use]
    pub fn scripted(self, script: impl IntoIterator<Item = Script>) -> Self {
        self.script.borrow_mut().extend(script);
        self
    }
    /// Returns a process with huge regions, each with its number of zero-filled base pages.
    pub fn with_bloat(regions: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let regions: Vec<_> = regions.into_iter().collect();
        let fake = Self::with_regions(regions.iter().map(|&(region, _)| region));
        for (region, zeros) in regions {
            fake.make_huge(Region::new(region));
            fake.zeros.borrow_mut().insert(Region::new(region), zeros);
        }
        fake
    }
    /// Whether the page at `address` is zero-filled: the first pages of a bloated region are.
    fn is_zero(&self, address: VirtAddr) -> bool {
        let (sizes, zeros) = (PageSizes::X86_64, self.zeros.borrow());
        let page = |address: VirtAddr| address.align_down(sizes.base);
        self.dirtied.get().map(page) != Some(page(address))
            && zeros
                .get(&sizes.region_of(address))
                .is_some_and(|&zeros| sizes.page_in_region(address) < zeros)
    }
    /// Re-collapses a region, as khugepaged would, with `zeros` zero-filled base pages.
    pub fn make_huge_again(&self, region: Region, zeros: u64) {
        self.make_huge(region);
        self.zeros.borrow_mut().insert(region, zeros);
    }
    fn free_huge(&self, give: impl Fn(Bytes) -> Bytes) {
        let headroom = self.headroom.get();
        if headroom.free_huge < Bytes::MAX {
            self.headroom.set(Headroom { free_huge: give(headroom.free_huge), ..headroom });
        }
    }
    fn make_huge(&self, region: Region) {
        self.free_huge(|free| free - PageSizes::X86_64.huge);
        if let Some(pages) = self.pages.borrow_mut().get_mut(&region) {
            let full = PageSizes::X86_64.base_per_huge();
            *pages = RegionPages { huge: true, resident: full, lazily_freed: 0, ..*pages };
        }
    }
    fn split_huge(&self, region: Region) {
        // The base pages move into gaps.
        self.free_huge(|free| free + PageSizes::X86_64.huge);
        let is_elsewhere = |one: &Stranded| PageSizes::X86_64.region_of(one.page) != region;
        self.stranded.borrow_mut().retain(is_elsewhere);
        if let Some(pages) = self.pages.borrow_mut().get_mut(&region) {
            pages.huge = false;
            pages.resident -= self.zeros.borrow_mut().remove(&region).unwrap_or(0);
        }
    }
    fn known(&self) -> Result<()> {
        self.unknown
            .get()
            .map_or(Ok(()), |errno| Err(KernelError::syscall("read", self.id.pid, errno)))
    }
    /// Plays the next step of the script; `change` is the effect of a success.
    fn play(&self, region: Region, change: &dyn Fn(Region)) -> std::result::Result<(), Errno> {
        self.asked.borrow_mut().push(region);
        self.sleep(Nanos::millis(2));
        let step = self.script.borrow_mut().pop_front().unwrap_or(Script::Succeed);
        match step {
            Script::Succeed => change(region),
            Script::FakeSuccess => {}
            Script::SplitNotFreed => {
                if let Some(pages) = self.pages.borrow_mut().get_mut(&region) {
                    pages.huge = false;
                }
            }
            Script::SlowFail(errno, time) => {
                self.sleep(time);
                return Err(errno);
            }
            Script::Slow(time) => {
                self.sleep(time);
                change(region);
            }
            Script::Queued(time) => {
                self.sleep(time);
                self.queued.set(self.queued.get() + time);
                change(region);
            }
            Script::Fail(errno) => return Err(errno),
            Script::SucceedAndDie => self.state.set(TargetState::Gone),
            Script::Die | Script::Exec => {
                let is_end = step == Script::Die;
                self.state.set(if is_end { TargetState::Gone } else { TargetState::Execed });
                return Err(Errno::ESRCH);
            }
            Script::FailAndHuge(errno) => {
                change(region);
                return Err(errno);
            }
        }
        Ok(())
    }
}

impl Target for FakeTarget {
    fn id(&self) -> &ProcessId {
        &self.id
    }
    fn sizes(&self) -> PageSizes {
        PageSizes::X86_64
    }
    fn state(&self) -> Result<TargetState> {
        self.known().map(|()| self.state.get())
    }
    fn claim(&self) -> Result<Claim> {
        let pid = self.id.pid;
        if self.claimed.get() {
            Err(KernelError::Claimed { pid, holder: None })
        } else {
            Ok(Claim::uncontested())
        }
    }
    fn collapse(&self, region: Region) -> std::result::Result<Bytes, Errno> {
        if self.headroom.get().free_huge < PageSizes::X86_64.huge {
            self.script.borrow_mut().push_front(Script::Fail(Errno::ENOMEM));
        }
        self.play(region, &|region| self.make_huge(region)).map(|()| PageSizes::X86_64.huge)
    }
    fn split(&self, page: VirtAddr) -> std::result::Result<Bytes, Errno> {
        let sizes = PageSizes::X86_64;
        self.play(sizes.region_of(page), &|region| self.split_huge(region)).map(|()| sizes.base)
    }
    fn read_memory(&self, ranges: &[AddrRange], into: &mut [u8]) -> Result<usize> {
        // Reading a huge page takes about ten calls.
        self.sleep(Nanos::new(20_000));
        let is_hidden =
            |range: &AddrRange| self.hidden.get() == Some(PageSizes::X86_64.region_of(range.start));
        if ranges.iter().any(is_hidden) {
            return Err(KernelError::syscall("process_vm_readv", self.id.pid, Errno::EFAULT));
        }
        let base = PageSizes::X86_64.base;
        let mut at = 0;
        for &range in ranges {
            let mut rest = range;
            while !rest.is_empty() {
                let page = AddrRange::at(rest.start.align_down(base), base).intersect(rest);
                let end = at + page.len().as_usize();
                into[at..end].fill(u8::from(!self.is_zero(page.start)));
                (at, rest) = (end, AddrRange::new(page.end, rest.end));
            }
        }
        Ok(at)
    }
    fn prepare(&self) {
        self.taken.take().into_iter().for_each(|region| self.make_huge(region));
    }
    fn mappings(&self) -> Result<Vec<Mapping>> {
        self.sleep(self.mappings_take.get());
        match self.unreadable.get() {
            Some(errno) => Err(KernelError::syscall("read", self.id.pid, errno)),
            None => Ok(self.mappings.clone()),
        }
    }
    /// Returns a run for each region on a huge page, and none for base pages.
    fn page_runs(&self, range: AddrRange) -> Result<Vec<PageRun>> {
        let run = |region: Region| PageRun {
            range: region.range(PageSizes::X86_64),
            present: true,
            swapped: false,
            zero: false,
            huge: true,
            file: false,
        };
        let pages = self.pages.borrow();
        let huge = pages.values().filter(|pages| pages.huge).map(|pages| run(pages.region));
        Ok(huge.filter(|run| range.covers(run.range)).collect())
    }
    fn region_pages(&self, region: Region) -> Result<RegionPages> {
        self.known()?;
        if self.state.get() == TargetState::Gone {
            return Err(KernelError::NoProcess { pid: self.id.pid });
        }
        let empty = RegionPages::on_base_pages(region, 0);
        Ok(self.pages.borrow().get(&region).copied().unwrap_or(empty))
    }
    fn lazily_freed(&self, region: Region) -> Result<Option<u64>> {
        Ok(Some(self.region_pages(region)?.lazily_freed))
    }
    fn large_pages(&self, ranges: &[AddrRange], _: bool) -> Result<Option<LargePages>> {
        self.known()?;
        let all = self.stranded.borrow();
        let is_within = |one: &Stranded| ranges.iter().any(|range| range.contains(one.page));
        let stranded = all.iter().copied().filter(is_within).collect();
        Ok(Some(LargePages { stranded, smaller: Bytes::ZERO }))
    }
    fn thp_disabled(&self) -> bool {
        false
    }
    fn headroom(&self) -> Result<Headroom> {
        self.known().map(|()| self.headroom.get())
    }
    fn free_huge(&self) -> Bytes {
        self.headroom.get().free_huge
    }
    fn pressure(&self) -> Option<Pressure> {
        self.pressure.get()
    }
    fn now(&self) -> Nanos {
        self.clock.get()
    }
    fn queued(&self) -> Nanos {
        self.queued.get()
    }
    fn sleep(&self, time: Nanos) {
        self.clock.set(self.clock.get() + time);
    }
}
