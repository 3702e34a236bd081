//! Tests of the whole daemon on a simulated machine: memory, time, CPU time, khugepaged.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use hugepilot_kernel::fake::{FakeTarget, Script};
use hugepilot_kernel::{Target, TargetState};
use hugepilot_policy::daemon::key_of;
use hugepilot_record::{Errno, Mapping, Pid, RecollapseCause, Stop, ThpScope, VmFlags};
use hugepilot_reports::daemon::WorkCause;
use hugepilot_units::{AddrRange, Bytes, PageSizes, Region, Share};

use super::*;
use crate::debloat::Stalls;
use crate::engine::TuneWorld as _;
use crate::engine::tests::world::{Program, Simulated};

mod journal;
mod promises;
mod promotion;
mod random;
mod requests;
mod splits;
mod watermarks;

/// Time at which the simulation starts.
const BEGIN: Nanos = Nanos::seconds(1000);
/// Time at which the clock of a fake starts.
const FAKE_BEGIN: Nanos = Nanos::seconds(1);
/// Process that cannot be sampled.
const UNSAMPLED: Pid = Pid(13);

struct Sim {
    fakes: Vec<Rc<FakeTarget>>,
    limit: Bytes,
    /// Whether there is no limit now.
    lifted: Cell<bool>,
    /// Memory use of all other processes, by seconds since the start.
    others: Box<dyn Fn(f64) -> Bytes>,
    psi: Option<f64>,
    /// Seconds until the request to stop.
    seconds: u64,
    slept: Cell<Nanos>,
    /// Called at each wait; acts as khugepaged or the user.
    meanwhile: Box<dyn Fn(&Sim)>,
    reloads: RefCell<VecDeque<Result<Config, ReloadError>>>,
    forbidden: Option<ExhaustedCause>,
    /// Whether khugepaged re-collapses split regions.
    risk: bool,
    readings: RefCell<Vec<TimedReading>>,
    /// Programs that a rule may promote: each with its stall time on huge pages.
    programs: Vec<(Rc<FakeTarget>, f64)>,
    /// Clock of the programs that are sampled.
    clock: Rc<Cell<Nanos>>,
    /// Processes of each batch that was sampled.
    watched: RefCell<Vec<Vec<Pid>>>,
    /// Seconds that a calibration takes.
    calibrating: f64,
    /// Forks of a process at a second.
    forks: fn(Pid, f64) -> Forks,
    forked: Box<dyn Fn() -> BTreeSet<Pid>>,
    /// When the calibration began, in seconds since the start; `None` before and once it is ended.
    calibration: Cell<Option<f64>>,
    /// A cgroup: its limit and its processes. Its name is [`GROUP`].
    group: Option<(Bytes, Vec<i32>)>,
    /// Whether it is selected.
    in_group: Cell<bool>,
}

/// Name of the cgroup of a [`Sim`].
const GROUP: &str = "/sys/fs/cgroup/db.slice";

/// Memory use as the daemon read it.
#[derive(Clone, Copy)]
struct TimedReading {
    at: Nanos,
    cpu: Nanos,
    used: Bytes,
}

impl Sim {
    /// Simulates a machine of 1000 MiB on which others use `others` MiB, for ten minutes.
    fn new(fakes: Vec<FakeTarget>, others: impl Fn(f64) -> f64 + 'static) -> Self {
        Self {
            fakes: fakes.into_iter().map(Rc::new).collect(),
            limit: Bytes::mib(1000),
            lifted: Cell::new(false),
            others: Box::new(move |second| Bytes::kib((others(second) * 1024.0) as u64)),
            psi: None,
            seconds: 600,
            slept: Cell::new(Nanos::ZERO),
            meanwhile: Box::new(|_| {}),
            reloads: RefCell::default(),
            forbidden: None,
            risk: false,
            readings: RefCell::default(),
            programs: Vec::new(),
            clock: Rc::new(Cell::new(BEGIN)),
            watched: RefCell::default(),
            calibrating: 0.0,
            forks: |_, _| Forks::default(),
            forked: Box::new(BTreeSet::new),
            calibration: Cell::new(None),
            group: None,
            in_group: Cell::new(false),
        }
    }
    /// Processes of the selected cgroup, or all.
    fn selected(&self) -> impl Iterator<Item = &Rc<FakeTarget>> {
        let group = self.group.as_ref().filter(|_| self.in_group.get());
        self.fakes
            .iter()
            .filter(move |fake| group.is_none_or(|(_, pids)| pids.contains(&fake.id.pid.0)))
    }
    fn elapsed(&self) -> Nanos {
        self.slept.get() + self.cpu_time()
    }
    /// Runs the daemon to its end, and returns its log.
    fn run(&self, config: Config) -> Vec<DaemonLine> {
        let mut lines = Vec::new();
        daemon(self, config, &mut |line: &DaemonLine| lines.push(line.clone())).unwrap();
        lines
    }
    fn peak(&self) -> Bytes {
        self.readings.borrow().iter().map(|reading| reading.used).max().unwrap_or_default()
    }
    /// Counts attempted splits by process.
    fn tried(&self) -> Vec<usize> {
        self.fakes.iter().map(|fake| fake.asked.borrow().len()).collect()
    }
}

impl System for Sim {
    type Watched<'w> = Simulated;
    type Opened<'w> = Opened<'w>;

    fn now(&self) -> Nanos {
        // Time that passed while programs were sampled.
        let passed = self.clock.get() - (BEGIN + self.elapsed());
        self.slept.set(self.slept.get() + passed);
        self.clock.set(BEGIN + self.elapsed());
        self.clock.get()
    }
    fn facts(&self, min_resident: Bytes, _: bool) -> Result<Vec<ProcessFacts>, KernelError> {
        let facts = |(target, _): &(Rc<FakeTarget>, f64)| ProcessFacts {
            id: target.id.clone(),
            user: 999,
            user_name: None,
            cgroup: "/db.slice".into(),
            resident: resident(target),
            // It runs all the time.
            cpu: self.elapsed(),
        };
        let all = self.programs.iter().map(facts);
        Ok(all.filter(|process| process.resident >= min_resident).collect())
    }
    fn forks(&self, process: &ProcessId) -> Forks {
        (self.forks)(process.pid, self.elapsed().as_seconds())
    }
    fn forked(&self) -> BTreeSet<Pid> {
        (self.forked)()
    }
    fn watch(&self, processes: &[ProcessId]) -> Result<(Simulated, Vec<NotSampled>), ManagerError> {
        self.watched.borrow_mut().push(processes.iter().map(|id| id.pid).collect());
        let chosen = self.programs.iter().filter(|(target, _)| processes.contains(&target.id));
        let programs = chosen.map(|(target, ratio)| {
            let heat = vec![1.0; target.pages.borrow().len()];
            let mut program = Program::on(Rc::clone(target), heat);
            program.ratio = *ratio;
            program
        });
        let mut world = Simulated::of(programs);
        self.now();
        world.clock = Rc::clone(&self.clock);
        for id in processes {
            world.restart(id.pid, self.clock.get());
        }
        Ok((world, Vec::new()))
    }
    fn is_calibrated(&self) -> bool {
        let now = self.elapsed().as_seconds();
        let begun = self.calibration.get().unwrap_or(now);
        self.calibration.set(Some(begun));
        now - begun >= self.calibrating
    }
    fn stop_calibrating(&self) {
        self.calibration.set(None);
    }
    fn calibration(&self) -> Calibration {
        Calibration::default()
    }
    fn unix_seconds(&self) -> f64 {
        self.now().as_seconds()
    }
    fn cpu_time(&self) -> Nanos {
        // The clock of a sampled program is that of the machine.
        let is_sampled =
            |fake: &Rc<FakeTarget>| self.programs.iter().any(|(one, _)| Rc::ptr_eq(one, fake));
        let fakes = self.fakes.iter().filter(|fake| !is_sampled(fake));
        fakes.fold(Nanos::ZERO, |sum, fake| sum + (fake.clock.get() - FAKE_BEGIN))
    }
    fn wait(&self, time: Nanos) {
        self.slept.set(self.slept.get() + time.max(Nanos::new(1)));
        (self.meanwhile)(self);
    }
    fn asked(&self) -> ControlRequest {
        match () {
            () if self.elapsed() >= Nanos::seconds(self.seconds) => ControlRequest::Stop,
            () if !self.reloads.borrow().is_empty() => ControlRequest::Reload,
            () => ControlRequest::Nothing,
        }
    }
    fn reload(&self) -> Result<Config, ReloadError> {
        self.reloads.borrow_mut().pop_front().unwrap()
    }
    fn limited_cgroups(&self) -> Vec<String> {
        self.group.iter().map(|_| GROUP.to_owned()).collect()
    }
    fn select(&self, cgroup: Option<&str>) {
        self.in_group.set(cgroup == Some(GROUP));
    }
    fn memory(&self) -> Result<Reading, KernelError> {
        if let Some((limit, _)) = self.group.as_ref().filter(|_| self.in_group.get()) {
            let used = self.selected().map(|fake| resident(fake)).sum::<Bytes>();
            let hard_use = used.ratio_of(*limit);
            return Ok(Reading { used, limit: *limit, hard_use, psi: None });
        }
        let resident = self.fakes.iter().map(|fake| resident(fake)).sum::<Bytes>();
        let used = resident + (self.others)(self.elapsed().as_seconds());
        let (at, cpu) = (self.elapsed(), self.cpu_time());
        self.readings.borrow_mut().push(TimedReading { at, cpu, used });
        let limit = if self.lifted.get() { Bytes::MAX } else { self.limit };
        let hard_use = if self.lifted.get() { 0.0 } else { used.ratio_of(limit) };
        Ok(Reading { used, limit, hard_use, psi: self.psi })
    }
    fn forbidden(&self) -> Option<ExhaustedCause> {
        self.forbidden
    }
    fn processes(
        &self,
        _config: &Config,
        each: &mut dyn FnMut() -> bool,
    ) -> Result<ProcessList, KernelError> {
        each();
        let processes = self.selected().map(|fake| fake.id.clone()).collect();
        let sshd = ProcessId { pid: Pid(99), start_ticks: 1, command: "sshd".into() };
        Ok(ProcessList { processes, excluded: vec![(sshd, ExclusionCause::Protected)] })
    }
    fn lives(&self, _key: Key) -> bool {
        true
    }
    fn open(&self, _: &[ProcessId], sampled: bool) -> Result<Opened<'_>, ManagerError> {
        Ok(Opened { sim: self, sampled })
    }
    fn recollapse_risk(&self, advised: bool) -> Option<RecollapseRisk> {
        (self.risk && advised).then_some(RISK)
    }
}

/// The processes with bloat, for a round of splits.
struct Opened<'w> {
    sim: &'w Sim,
    sampled: bool,
}

impl engine::World for Opened<'_> {
    fn now(&self) -> Nanos {
        self.sim.now()
    }
    fn observe(&mut self, end: Nanos) {
        self.sim.wait(end - self.now());
    }
    fn is_over(&self) -> bool {
        false
    }
    fn is_interrupted(&self) -> bool {
        self.sim.asked() == ControlRequest::Stop
    }
    fn has_ended(&self, key: Key) -> bool {
        let is_alive = |fake: &Rc<FakeTarget>| fake.state.get() != TargetState::Gone;
        !self.sim.fakes.iter().any(|fake| key_of(&fake.id) == key && is_alive(fake))
    }
    fn restarted(&mut self) -> Vec<Pid> {
        Vec::new()
    }
    fn target(&mut self, pid: Pid) -> Result<Rc<dyn Target>, KernelError> {
        let fake = self.sim.fakes.iter().find(|fake| fake.id.pid == pid);
        Ok(fake.ok_or(KernelError::NoProcess { pid })?.clone())
    }
    fn end_sampling(&mut self, pids: &[Pid]) -> Vec<Option<Stalls>> {
        let is_sampled = |pid: &Pid| self.sampled && *pid != UNSAMPLED;
        pids.iter().map(|pid| is_sampled(pid).then(Stalls::default)).collect()
    }
}

fn resident(fake: &FakeTarget) -> Bytes {
    Bytes::kib(4).times(fake.pages.borrow().values().map(|pages| pages.resident).sum())
}

/// Risk for advised memory of a [`Sim`] with `risk`.
const RISK: RecollapseRisk = RecollapseRisk { thp_enabled: ThpScope::Madvise, max_ptes_none: 511 };

/// Process with `huge` huge pages, each with `zeros` zero-filled base pages.
pub(crate) fn bloated(pid: i32, huge: u64, zeros: u64) -> FakeTarget {
    let mut fake = FakeTarget::with_bloat((1..=huge).map(|region| (region, zeros)));
    fake.id.pid = Pid(pid);
    let sizes = PageSizes::X86_64;
    let range =
        AddrRange::new(Region::new(1).range(sizes).start, Region::new(huge).range(sizes).end);
    fake.mappings = vec![Mapping {
        huge: range.len(),
        flags: VmFlags::parse("rd wr hg"),
        ..Mapping::anonymous(range)
    }];
    fake
}

/// Configuration without sampling, which takes three seconds.
fn config() -> Config {
    Config { order: hugepilot_policy::Order::Exact, ..Config::default() }
}

fn names(lines: &[DaemonLine]) -> Vec<String> {
    let name = |line: &DaemonLine| {
        serde_json::to_value(line).unwrap()["event"].as_str().unwrap().to_owned()
    };
    lines.iter().map(name).collect()
}

fn freed(lines: &[DaemonLine]) -> Bytes {
    let Some(Event::Stopped(totals)) = lines.last().map(|line| line.event.clone()) else {
        panic!("{lines:?}")
    };
    totals.freed_bytes
}
