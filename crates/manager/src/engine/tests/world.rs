//! Simulated world: programs whose gain is known, on scripted processes.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use hugepilot_kernel::fake::FakeTarget;
use hugepilot_kernel::{KernelError, Target, TargetState};
use hugepilot_policy::daemon::Key;
use hugepilot_record::{Headroom, Mapping, Pid, ProcessId, ProcessMemory, RegionHeat, Window};
use hugepilot_testkit::Rng;
use hugepilot_units::{AddrRange, Bytes, Nanos, PageSizes, Region, VirtAddr};

use super::super::{NeededRegions, Scope, TuneWorld, World};
use crate::debloat::Stalls;

pub(crate) const SIZES: PageSizes = PageSizes::X86_64;
/// Number of the first region of each simulated mapping.
pub(crate) const FIRST: u64 = 1 << 20;

/// A program: each region has a share of the stalls on base pages, and stalls `ratio` of that time
/// on a huge page.
pub(crate) struct Program {
    pub(crate) target: Rc<FakeTarget>,
    pub(crate) heat: Vec<f64>,
    pub(crate) stalls: f64,
    pub(crate) ratio: f64,
    /// Whether it is sampled.
    pub(crate) is_sampled: bool,
    window: Window,
    rng: Rng,
}

impl Program {
    pub(crate) fn new(pid: i32, heat: Vec<f64>) -> Self {
        let mut target = FakeTarget::with_regions(FIRST..FIRST + heat.len() as u64);
        target.id = ProcessId { pid: Pid(pid), start_ticks: 7, command: "simulated".into() };
        Self::on(Rc::new(target), heat)
    }

    /// A program with regions of its own, which another world shares.
    pub(crate) fn on(target: Rc<FakeTarget>, heat: Vec<f64>) -> Self {
        let sum: f64 = heat.iter().sum();
        let pid = target.id.pid;
        Self {
            target,
            heat: heat.iter().map(|heat| heat / sum.max(1e-9)).collect(),
            stalls: 0.9,
            ratio: 0.6,
            is_sampled: true,
            window: Window::starting(Nanos::seconds(1)),
            rng: Rng::new(u64::from(pid.0.unsigned_abs())),
        }
    }

    fn is_gone(&self) -> bool {
        self.target.state.get() == TargetState::Gone
    }

    pub(crate) fn huge(&self) -> BTreeSet<Region> {
        let pages = self.target.pages.borrow();
        pages.values().filter(|pages| pages.huge).map(|pages| pages.region).collect()
    }

    /// Time that a region stalls, as a share of the time of all work on base pages.
    fn stall(&self, index: usize, huge: &BTreeSet<Region>) -> f64 {
        let is_huge = huge.contains(&Region::new(FIRST + index as u64));
        self.stalls * self.heat[index] * if is_huge { self.ratio } else { 1.0 }
    }

    /// Time of the same work, 1 on base pages.
    pub(crate) fn work_time(&self) -> f64 {
        let huge = self.huge();
        let stalls = (0..self.heat.len()).map(|index| self.stall(index, &huge));
        1.0 - self.stalls + stalls.sum::<f64>()
    }

    /// Heat of the sampled regions: samples fall on base pages at random.
    fn region_heat(&self) -> Vec<RegionHeat> {
        let of_region = |(&region, &samples): (&Region, &u32)| RegionHeat {
            region,
            samples,
            streamed: 0,
            tlb_held: 0,
            sampled_pages: (512.0 * (1.0 - (-f64::from(samples) / 512.0).exp())).ceil() as u32,
        };
        self.window.stalls.iter().map(of_region).collect()
    }

    /// Adds the samples of `time` at `rate` per second.
    fn sample(&mut self, time: Nanos, rate: f64) {
        let (huge, all) = (self.huge(), self.work_time());
        let samples = rate * time.as_seconds() / all;
        for index in 0..self.heat.len() {
            let count = self.rng.poisson(samples * self.stall(index, &huge));
            if count > 0 {
                let region = Region::new(FIRST + index as u64);
                *self.window.stalls.entry(region).or_insert(0) += count;
                self.window.samples += u64::from(count);
            }
        }
        self.window.samples += u64::from(self.rng.poisson(samples * (1.0 - self.stalls)));
        let cpu = self.window.cpu.unwrap_or(Nanos::ZERO);
        self.window.cpu = Some(cpu + time);
    }
}

/// Programs, and what happens to them.
#[derive(Default)]
pub(crate) struct Simulated {
    pub(crate) programs: BTreeMap<Pid, Program>,
    pub(crate) clock: Rc<Cell<Nanos>>,
    pub(crate) interrupted: bool,
    /// Whether the user named the programs.
    pub(crate) are_named: bool,
    /// Processes that started another program.
    pub(crate) restarted: Vec<Pid>,
    pub(crate) boosted: Vec<Pid>,
    /// Huge pages that it frees at the first lack.
    pub(crate) reserve: Bytes,
    pub(crate) compactions: u64,
    pub(crate) may_compact: bool,
    /// Readings of memory so far. No two are of the same moment, as on a real clock.
    pub(crate) readings: u64,
}

impl Simulated {
    pub(crate) fn of(programs: impl IntoIterator<Item = Program>) -> Self {
        let clock = Rc::new(Cell::new(Nanos::seconds(1)));
        let programs = programs.into_iter().map(|program| (program.target.id.pid, program));
        Self { programs: programs.collect(), clock, may_compact: true, ..Self::default() }
    }

    pub(crate) fn program(&self, pid: i32) -> &Program {
        &self.programs[&Pid(pid)]
    }

    /// Gives all clocks the time of the latest one: an act takes time.
    fn synchronise(&self) {
        let clocks = self.programs.values().map(|program| program.target.clock.get());
        let now = clocks.fold(self.clock.get(), Nanos::max);
        self.clock.set(now);
        self.programs.values().for_each(|program| program.target.clock.set(now));
    }
}

impl World for Simulated {
    fn now(&self) -> Nanos {
        self.synchronise();
        self.clock.get()
    }

    fn observe(&mut self, end: Nanos) {
        let now = self.now();
        for (pid, program) in &mut self.programs {
            if program.is_gone() {
                continue;
            }
            let rate = if self.boosted.contains(pid) { 2000.0 } else { 500.0 };
            let begun = program.window.since.max(now).min(end);
            program.sample(end - begun, rate);
            program.window.until = program.window.since.max(end);
        }
        self.clock.set(end.max(now));
        self.synchronise();
    }

    fn is_over(&self) -> bool {
        self.interrupted || self.programs.values().all(Program::is_gone)
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted
    }

    fn has_ended(&self, (pid, start_ticks): Key) -> bool {
        // A process of another batch is alive.
        let has_ended = |one: &Program| one.is_gone() || one.target.id.start_ticks != start_ticks;
        self.programs.get(&pid).is_some_and(has_ended)
    }

    fn restarted(&mut self) -> Vec<Pid> {
        std::mem::take(&mut self.restarted)
    }

    fn target(&mut self, pid: Pid) -> Result<Rc<dyn Target>, KernelError> {
        let program = self.programs.get(&pid).ok_or(KernelError::NoProcess { pid })?;
        Ok(program.target.clone())
    }

    fn end_sampling(&mut self, pids: &[Pid]) -> Vec<Option<Stalls>> {
        let stalls = |pid: &Pid| {
            let window = self.window(*pid)?;
            let (regions, samples) = (window.all_stalls(), window.samples);
            Some(Stalls { regions, samples, ..Stalls::default() })
        };
        pids.iter().map(stalls).collect()
    }
}

impl TuneWorld for Simulated {
    fn in_view(&self, scope: Scope) -> Vec<Pid> {
        let programs = self.programs.iter();
        let seen = programs.filter(|(_, one)| scope == Scope::All || one.is_sampled);
        seen.map(|(&pid, _)| pid).collect()
    }

    fn is_named(&self, _: Pid) -> bool {
        self.are_named
    }

    fn window(&self, pid: Pid) -> Option<&Window> {
        let program = self.programs.get(&pid).filter(|program| program.is_sampled);
        program.map(|program| &program.window)
    }

    fn restart(&mut self, pid: Pid, from: Nanos) {
        if let Some(program) = self.programs.get_mut(&pid) {
            program.window = Window::starting(from);
        }
    }

    fn fade(&mut self, pid: Pid) {
        if let Some(program) = self.programs.get_mut(&pid) {
            program.window.fade();
        }
    }

    fn forget(&mut self, pid: Pid) {
        self.programs.remove(&pid);
    }

    fn memory(
        &mut self,
        pid: Pid,
        scope: Scope,
        needed: Option<NeededRegions<'_>>,
    ) -> Result<ProcessMemory, KernelError> {
        self.readings += 1;
        let program = self.programs.get(&pid).ok_or(KernelError::NoProcess { pid })?;
        let target = &program.target;
        if program.is_gone() {
            return Err(KernelError::NoProcess { pid });
        }
        assert!(scope == Scope::All || program.is_sampled);
        let mut pages = target.pages.borrow().clone();
        let start = VirtAddr::new(FIRST << 21);
        let range = AddrRange::at(start, SIZES.huge.times(pages.len() as u64));
        let flags = target.mappings.first().map(|mapping| mapping.flags.clone());
        let mut mapping = Mapping { flags: flags.unwrap_or_default(), ..Mapping::anonymous(range) };
        mapping.resident = SIZES.base.times(pages.values().map(|pages| pages.resident).sum());
        mapping.lazily_freed = SIZES.base.times(pages.values().map(|one| one.lazily_freed).sum());
        mapping.huge = SIZES.huge.times(pages.values().filter(|pages| pages.huge).count() as u64);
        let mappings = vec![mapping];
        if let Some(needed) = needed.map(|needed| needed(&mappings)) {
            pages.retain(|region, _| needed.contains(region));
        }
        Ok(ProcessMemory {
            time: target.now() + Nanos::new(self.readings),
            sizes: SIZES,
            mappings,
            heat: program.region_heat(),
            stacks: BTreeSet::new(),
            pages,
            thp_disabled: false,
            untouched: Bytes::ZERO,
            headroom: target.headroom()?,
            pressure: target.pressure().unwrap_or_default(),
        })
    }

    fn lacks_huge_pages(&mut self) -> bool {
        let freed = std::mem::take(&mut self.reserve);
        for headroom in self.programs.values().map(|program| &program.target.headroom) {
            let free_huge = headroom.get().free_huge + freed;
            headroom.set(Headroom { free_huge, ..headroom.get() });
        }
        !freed.is_zero()
    }

    fn may_compact(&self) -> bool {
        self.may_compact
    }

    fn compact(&mut self) {
        self.compactions += 1;
    }

    fn boost(&mut self, pids: &[Pid]) {
        pids.clone_into(&mut self.boosted);
    }

    fn acted(&mut self, _: Pid, _done: usize, _all: usize) {}
}
