//! The whole daemon on a simulated machine: memory, time, CPU time and khugepaged are the test's.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use hugepilot_kernel::fake::{FakeTarget, Script};
use hugepilot_record::daemon::Why;
use hugepilot_record::{Errno, Mapping, MappingKind, Pid, Protection, VmFlags};
use hugepilot_units::{AddrRange, Bytes, PageSizes, Share};

use super::*;

mod promises;

/// The simulation begins at this time.
const BEGIN: Nanos = Nanos::seconds(1000);
/// A fake's clock starts here.
const FAKE_BEGIN: Nanos = Nanos::seconds(1);
/// This process cannot be sampled.
const UNSAMPLED: Pid = Pid(13);

struct Sim {
    fakes: Vec<Rc<FakeTarget>>,
    limit: Bytes,
    /// Whether there is none now.
    lifted: Cell<bool>,
    /// What everybody else uses, by seconds since the beginning.
    others: Box<dyn Fn(f64) -> Bytes>,
    psi: Option<f64>,
    /// Seconds until it is asked to stop.
    seconds: u64,
    slept: Cell<Nanos>,
    /// Called at each wait: khugepaged, or the user.
    meanwhile: Box<dyn Fn(&Sim)>,
    reloads: RefCell<VecDeque<Result<Config, String>>>,
    forbidden: Option<String>,
    /// Whether khugepaged undoes splits.
    trap: bool,
    looks: RefCell<Vec<Look>>,
}

/// The daemon read memory use.
#[derive(Clone, Copy)]
struct Look {
    at: Nanos,
    cpu: Nanos,
    used: Bytes,
}

impl Sim {
    /// A machine of 1000 MiB on which others use `others` MiB, for ten minutes.
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
            trap: false,
            looks: RefCell::default(),
        }
    }
    fn elapsed(&self) -> Nanos {
        self.slept.get() + self.cpu_time()
    }
    /// Runs the daemon to its end and gives its log.
    fn run(&self, config: Config) -> Vec<Line> {
        let mut lines = Vec::new();
        daemon(self, config, &mut |line| lines.push(line.clone())).unwrap();
        lines
    }
    fn peak(&self) -> Bytes {
        self.looks.borrow().iter().map(|look| look.used).max().unwrap_or_default()
    }
    /// Splits that were tried, of each process.
    fn tried(&self) -> Vec<usize> {
        self.fakes.iter().map(|fake| fake.asked.borrow().len()).collect()
    }
}

impl World for Sim {
    fn now(&self) -> Nanos {
        BEGIN + self.elapsed()
    }
    fn unix_seconds(&self) -> f64 {
        self.now().as_seconds()
    }
    fn cpu_time(&self) -> Nanos {
        self.fakes.iter().fold(Nanos::ZERO, |sum, fake| sum + (fake.clock.get() - FAKE_BEGIN))
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
    fn reload(&self) -> Result<Config, String> {
        self.reloads.borrow_mut().pop_front().unwrap()
    }
    fn memory(&self) -> Result<Reading, KernelError> {
        let pages = |fake: &FakeTarget| {
            fake.pages.borrow().values().map(|pages| pages.resident).sum::<u64>()
        };
        let resident =
            self.fakes.iter().map(|fake| Bytes::kib(4).times(pages(fake))).sum::<Bytes>();
        let used = resident + (self.others)(self.elapsed().as_seconds());
        self.looks.borrow_mut().push(Look { at: self.elapsed(), cpu: self.cpu_time(), used });
        let limit = if self.lifted.get() { Bytes::MAX } else { self.limit };
        let hard_use = if self.lifted.get() { 0.0 } else { used.ratio_of(limit) };
        Ok(Reading { used, limit, hard_use, psi: self.psi })
    }
    fn forbidden(&self) -> Option<String> {
        self.forbidden.clone()
    }
    fn processes(
        &self,
        _config: &Config,
        each: &mut dyn FnMut() -> bool,
    ) -> Result<ProcessList, KernelError> {
        each();
        let targets = self.fakes.iter().map(|fake| Rc::clone(fake) as Rc<dyn Target>).collect();
        let left = ProcessId { pid: Pid(99), start_ticks: 1, command: "sshd".into() };
        Ok(ProcessList { targets, left: vec![(left, "protected".into())] })
    }
    fn lives(&self, _key: Key) -> bool {
        true
    }
    fn observe(
        &self,
        processes: &[Rc<dyn Target>],
        time: Nanos,
        each: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<Option<BTreeMap<Region, u32>>>, ManagerError> {
        let end = self.now() + time;
        while self.now() < end && each() {
            self.wait(Nanos::millis(50));
        }
        Ok(processes
            .iter()
            .map(|process| (process.id().pid != UNSAMPLED).then(BTreeMap::new))
            .collect())
    }
    fn khugepaged(&self, advised: bool) -> Option<String> {
        self.trap.then(|| format!("because, advised: {advised}"))
    }
    fn who_collapses(&self, advised: bool) -> String {
        format!("somebody, advised: {advised}")
    }
}

/// A process with so many huge pages, each with so many zero-filled base pages.
fn bloated(pid: i32, huge: u64, zeros: u64) -> FakeTarget {
    let mut fake = FakeTarget::with_bloat((1..=huge).map(|region| (region, zeros)));
    fake.id.pid = Pid(pid);
    let sizes = PageSizes::X86_64;
    let range =
        AddrRange::new(Region::new(1).range(sizes).start, Region::new(huge).range(sizes).end);
    fake.mappings = vec![Mapping {
        range,
        protection: Protection::default(),
        kind: MappingKind::Anonymous,
        offset: Bytes::ZERO,
        inode: 0,
        name: String::new(),
        resident: range.len(),
        proportional: range.len(),
        shared: Bytes::ZERO,
        huge: range.len(),
        swapped: Bytes::ZERO,
        locked: Bytes::ZERO,
        thp_eligible: true,
        flags: VmFlags::parse("rd wr hg"),
    }];
    fake
}

/// Without sampling, which takes three seconds.
fn config() -> Config {
    Config { order: hugepilot_policy::Order::Exact, ..Config::default() }
}

fn names(lines: &[Line]) -> Vec<String> {
    let name =
        |line: &Line| serde_json::to_value(line).unwrap()["event"].as_str().unwrap().to_owned();
    lines.iter().map(name).collect()
}

fn freed(lines: &[Line]) -> Bytes {
    let Some(Event::Stopped(totals)) = lines.last().map(|line| line.event.clone()) else {
        panic!("{lines:?}")
    };
    totals.freed_bytes
}

#[test]
fn use_is_held_between_the_marks() {
    // 300 huge pages, 80 % empty: 120 MiB used, 480 MiB to give. Others grow from 100 to 600 MiB in four minutes.
    let sim = Sim::new(vec![bloated(7, 300, 410)], |second| 100.0 + (second * 2.0).min(500.0));
    let lines = sim.run(config());
    assert_eq!(names(&lines)[..4], ["started", "working", "skipped", "planned"]);
    assert!(sim.peak() <= Bytes::mib(806), "{}", sim.peak());
    let stretches: Vec<&Line> =
        lines.iter().filter(|line| matches!(line.event, Event::Idle(_))).collect();
    assert!(stretches.len() >= 2, "{:?}", names(&lines));
    for line in stretches {
        // Stops as soon as it is below, and never goes on.
        assert!((Bytes::mib(648)..Bytes::mib(650)).contains(&line.seen.used_bytes), "{line:?}");
    }
    assert!(freed(&lines) > Bytes::mib(300));
}

#[test]
fn what_undoes_the_work_is_said_with_the_first_of_it_and_once() {
    let causes = |trap| {
        let mut sim =
            Sim::new(vec![bloated(7, 300, 410)], |second| 100.0 + (second * 2.0).min(500.0));
        sim.trap = trap;
        let freed = sim.run(config()).into_iter().filter_map(|line| match line.event {
            Event::Freed { recollapse_risk, .. } => Some(recollapse_risk),
            _ => None,
        });
        freed.collect::<Vec<_>>()
    };
    let told = causes(true);
    assert_eq!(told[0].as_deref(), Some("because, advised: true"));
    assert!(told.len() > 1 && told[1..].iter().all(Option::is_none), "{told:?}");
    assert!(causes(false).iter().all(Option::is_none));
}

#[test]
fn without_shortage_nothing_is_even_looked_at() {
    let sim = Sim::new(vec![bloated(7, 300, 410)], |_| 150.0);
    let lines = sim.run(config());
    assert_eq!(names(&lines), ["started", "stopped"]);
    assert_eq!((sim.tried(), sim.cpu_time()), (vec![0], Nanos::ZERO));
}

#[test]
fn pressure_starts_work_between_the_marks() {
    let mut sim = Sim::new(vec![bloated(7, 300, 410)], |_| 100.0);
    sim.psi = Some(0.5);
    let lines = sim.run(config());
    assert_eq!(lines[1].event, Event::Working { why: Why::Pressure });
    assert!(sim.memory().unwrap().use_ratio() < 0.65);
}

#[test]
fn a_limit_that_is_lifted_is_said_once_and_that_it_is_back() {
    let mut sim = Sim::new(vec![bloated(7, 300, 410)], |_| 250.0);
    sim.lifted.set(true);
    sim.meanwhile = Box::new(|sim| sim.lifted.set(sim.elapsed() < Nanos::seconds(60)));
    let lines = sim.run(config());
    assert_eq!(names(&lines)[..4], ["started", "limit", "limit", "working"], "{:?}", names(&lines));
    let limits = lines.iter().filter_map(|line| match line.event {
        Event::Limit { lifted } => Some((lifted, line.seen.limit_bytes)),
        _ => None,
    });
    assert_eq!(limits.collect::<Vec<_>>(), [(true, Bytes::MAX), (false, Bytes::mib(1000))]);
}

#[test]
fn nothing_left_is_said_once_and_looked_for_less_and_less() {
    let sim = Sim::new(vec![bloated(7, 100, 100)], |_| 700.0);
    let lines = sim.run(config());
    let exhausted: Vec<&Line> =
        lines.iter().filter(|line| matches!(line.event, Event::Exhausted { .. })).collect();
    assert_eq!(exhausted.len(), 1, "{:?}", names(&lines));
    let looks = names(&lines).iter().filter(|&name| name == "planned").count();
    // At once, and after 5, 10, 20, 40, 80, 160 and 300 seconds; the first freed something, so the pause stays short once.
    assert!((7..=9).contains(&looks), "{looks}");
    assert_eq!(sim.tried(), [100], "and no region twice");
}

#[test]
fn a_process_that_yields_a_little_each_time_does_not_keep_it_looking() {
    let mut sim = Sim::new(vec![bloated(7, 200, 0)], |_| 450.0);
    sim.meanwhile = Box::new(|sim| {
        // 120 KiB of 200 MiB wanted.
        let next = Region::new(1 + sim.tried()[0] as u64);
        sim.fakes[0].zeros.borrow_mut().insert(next, 30);
    });
    let names = names(&sim.run(config()));
    let count = |wanted| names.iter().filter(|&name| name == wanted).count();
    assert!(sim.tried()[0] >= 5, "each look frees something: {:?}", sim.tried());
    assert!((6..=9).contains(&count("planned")), "{names:?}");
    assert_eq!(count("exhausted"), 1, "{names:?}");
}

#[test]
fn a_region_that_flips_is_split_again_a_few_times_and_then_left_alone() {
    let mut sim = Sim::new(vec![bloated(7, 100, 400)], |_| 650.0);
    sim.seconds = 70 * 60;
    sim.meanwhile = Box::new(|sim| {
        let fake = &sim.fakes[0];
        let split: Vec<Region> =
            fake.pages.borrow().values().filter(|pages| !pages.huge).map(|p| p.region).collect();
        split.into_iter().for_each(|region| fake.make_huge_again(region, 400));
    });
    let lines = sim.run(config());
    let mut times = BTreeMap::<Region, usize>::new();
    for &region in sim.fakes[0].asked.borrow().iter() {
        *times.entry(region).or_default() += 1;
    }
    assert_eq!(times.values().max(), Some(&3), "{times:?}");
    let recollapses = lines.iter().filter_map(|line| match &line.event {
        Event::Recollapsed { regions, excluded, cause, .. } => {
            Some((*regions, *excluded, cause.clone()))
        }
        _ => None,
    });
    let recollapses: Vec<_> = recollapses.collect();
    assert_eq!(recollapses[0].2, "somebody, advised: true");
    let left: u64 = recollapses.iter().map(|flip| flip.1).sum();
    assert_eq!(left, times.values().filter(|&&times| times == 3).count() as u64);
    let sum: u64 = recollapses.iter().map(|flip| flip.0).sum();
    assert!(
        matches!(lines.last().unwrap().event, Event::Stopped(totals) if totals.recollapses == sum),
        "{sum}"
    );
}

#[test]
fn a_dry_run_decides_and_changes_nothing() {
    let sim = Sim::new(vec![bloated(7, 300, 410)], |_| 250.0);
    let lines = sim.run(Config { dry_run: true, ..config() });
    assert_eq!(sim.tried(), [0]);
    let names = names(&lines);
    assert_eq!(names[..5], ["started", "working", "skipped", "planned", "freed"]);
    assert!(!names.iter().any(|name| name == "exhausted" || name == "idle"), "{names:?}");
    let Event::Freed { freed_bytes, huge_pages_split, .. } = lines[4].event else { panic!() };
    // From 850 below 650 MiB, in steps of 410 base pages.
    assert_eq!((freed_bytes, huge_pages_split), (Bytes::kib(1640).times(125), 125));
    assert!(lines.iter().all(|line| line.seen.dry_run));
    let looks = names.iter().filter(|&name| name == "planned").count();
    assert!((6..=9).contains(&looks), "less and less often: {looks}");
}

#[test]
fn the_budget_holds_until_use_is_critical() {
    // Splitting 1000 huge pages costs 2 s of CPU; with 1 % of a core and 0.1 s saved that takes minutes.
    let fakes = || vec![bloated(7, 1000, 100)];
    let slow = Config { cpu: Share::percent(1.0), ..config() };
    let run = |others: f64| {
        let mut sim = Sim::new(fakes(), move |_| others);
        (sim.limit, sim.seconds) = (Bytes::mib(4000), 100);
        let lines = sim.run(slow.clone());
        let over =
            lines.iter().any(|line| matches!(line.event, Event::Freed { over_budget: true, .. }));
        (sim.cpu_time().as_seconds(), over)
    };
    let (cpu, over) = run(1400.0);
    assert!((0.9..1.2).contains(&cpu) && !over, "{cpu}");
    let (cpu, over) = run(2100.0);
    assert!(cpu > 2.0 && over, "{cpu}");
    // Critical for the first 0.8 s of CPU time only, which is not paid back by the rest.
    let (cpu, over) = run(1800.0);
    assert!((1.6..1.9).contains(&cpu) && over, "{cpu}");
}

#[test]
fn samples_are_taken_unless_use_is_critical() {
    let order = |others| {
        let sim = Sim::new(vec![bloated(7, 300, 410)], others);
        let lines = sim.run(Config::default());
        let planned = lines.iter().find_map(|line| match &line.event {
            Event::Planned { order, seconds, .. } => Some((order.clone(), *seconds)),
            _ => None,
        });
        planned.unwrap()
    };
    let (name, seconds) = order((|_| 250.0) as fn(f64) -> f64);
    assert!(name == "heat" && seconds > 3.0, "{name} {seconds}");
    let (name, seconds) = order(|_| 350.0);
    assert!(name == "exact" && seconds < 1.0, "{name} {seconds}");
    // It would be critical before the samples are there.
    let (name, seconds) = order(|second| 250.0 + 20.0 * second);
    assert!(name == "exact" && seconds < 1.0, "{name} {seconds}");
    // A small jump is no trend.
    let (name, seconds) = order(|second| if second < 0.02 { 250.0 } else { 255.0 });
    assert!(name == "heat" && seconds > 3.0, "{name} {seconds}");
    // It becomes critical while we sample.
    let (name, seconds) = order(|second| 250.0 + 100.0 * second.min(1.0));
    assert!(name == "exact" && seconds < 2.0, "{name} {seconds}");
}

#[test]
fn processes_that_could_not_be_sampled_are_counted() {
    let sim = Sim::new(vec![bloated(7, 150, 410), bloated(UNSAMPLED.0, 150, 410)], |_| 250.0);
    let lines = sim.run(Config::default());
    let planned = |line: &Line| match &line.event {
        Event::Planned { order, not_sampled, .. } => Some((order.clone(), *not_sampled)),
        _ => None,
    };
    assert_eq!(lines.iter().find_map(planned), Some(("heat".to_owned(), 1)));
}

#[test]
fn the_configuration_is_read_again_or_kept() {
    let mut sim = Sim::new(vec![bloated(7, 300, 410)], |_| 100.0);
    let lower = Config { high: Share::percent(60.0), low: Share::percent(50.0), ..config() };
    let elsewhere = Config { cgroup: Some("/sys/fs/cgroup/x".into()), ..lower.clone() };
    let reloads =
        RefCell::new(VecDeque::from([Err("broken".to_owned()), Ok(elsewhere), Ok(lower)]));
    sim.meanwhile = Box::new(move |sim| {
        if sim.elapsed() > Nanos::seconds(10) {
            sim.reloads.borrow_mut().extend(reloads.borrow_mut().pop_front());
        }
    });
    let lines = sim.run(config());
    let refused: Vec<Option<String>> = lines
        .iter()
        .filter_map(|line| match &line.event {
            Event::Reloaded { refused } => Some(refused.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(refused[0].as_deref(), Some("broken"));
    assert!(refused[1].as_deref().unwrap().contains("cgroup"));
    assert_eq!(refused[2..], [None]);
    assert_eq!(lines[2].seen.high_ratio, Share::percent(80.0), "the old one is kept");
    let used = sim.memory().unwrap().use_ratio();
    assert!((0.49..0.5).contains(&used), "the new marks count: {used}");
}

#[test]
fn a_stop_comes_through_at_once_and_leaves_the_totals() {
    let mut sim = Sim::new(vec![bloated(7, 300, 410)], |_| 350.0);
    sim.seconds = 0;
    sim.meanwhile = Box::new(|_| {});
    assert_eq!(names(&sim.run(config())), ["started", "stopped"]);
    // In the middle of splitting: each takes 2 ms, and the second is over after some of them.
    let mut sim = Sim::new(vec![bloated(7, 1000, 100)], |_| 1800.0);
    (sim.limit, sim.seconds) = (Bytes::mib(4000), 1);
    let lines = sim.run(config());
    let done = sim.tried()[0];
    assert!((100..900).contains(&done), "{done}");
    assert_eq!(freed(&lines), Bytes::kib(400).times(done as u64), "the totals are what was done");
    assert!(sim.elapsed() < Nanos::millis(1010), "{}", sim.elapsed());
}

#[test]
fn preferred_give_first_and_weights_share() {
    let config = |config: Config| Config { prefer: vec!["8".into()], ..config };
    let sim = Sim::new(vec![bloated(7, 100, 400), bloated(8, 100, 400)], |_| 450.0);
    sim.run(config(super::tests::config()));
    assert_eq!(sim.tried(), [29, 100]);
    let sim = Sim::new(vec![bloated(7, 100, 400), bloated(8, 100, 400)], |_| 450.0);
    let weight = BTreeMap::from([("7".to_owned(), 3.0)]);
    sim.run(Config { weight, ..super::tests::config() });
    let [a, b] = sim.tried()[..] else { panic!() };
    assert!(a.abs_diff(3 * b) <= 3, "{a} {b}");
}

#[test]
fn what_fails_is_told_and_not_tried_again_soon() {
    let denied = bloated(7, 200, 400).scripted([Script::Fail(Errno::EPERM)]);
    let sim = Sim::new(vec![denied, bloated(8, 100, 400)], |_| 250.0);
    let lines = sim.run(config());
    let skipped = lines
        .iter()
        .any(|line| matches!(&line.event, Event::Skipped { pid: Pid(7), why, .. } if why == "not permitted"));
    assert!(skipped, "{lines:?}");
    let mut regions = sim.fakes[0].asked.borrow().clone();
    let tried = regions.len();
    regions.sort();
    regions.dedup();
    assert_eq!(regions.len(), tried, "none twice within ten minutes");
}

#[test]
fn what_is_forbidden_is_said_and_nothing_is_tried() {
    let mut sim = Sim::new(vec![bloated(7, 300, 410)], |_| 250.0);
    sim.forbidden = Some("memory is broken".to_owned());
    let lines = sim.run(config());
    assert_eq!(names(&lines), ["started", "working", "exhausted", "stopped"]);
    assert_eq!(sim.tried(), [0]);
}
