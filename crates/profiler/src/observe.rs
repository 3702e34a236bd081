//! Samples of an interval, collected per process.

use std::collections::{BTreeMap, BTreeSet};

use hugepilot_record::{
    Heat, HeatConfig, Pattern, Pid, Provenance, ProvenanceCounts, Sample, Window,
};
use hugepilot_units::{Nanos, PageSizes, Region};

/// Processes with a heat table, unless more are watched. The one with the fewest samples is dropped
/// for a new one.
const MAX_TABLES: usize = 8;
/// Limit of stack regions per process.
const MAX_STACKS: usize = 4096;
/// Limit of regions in each count of a window: 256 GiB of hot memory.
const MAX_REGIONS: usize = 1 << 17;
/// Limit of processes whose time of sampling is known.
const MAX_SAMPLED: usize = 1 << 16;

/// Samples of one process.
#[derive(Debug)]
pub struct ProcessView {
    /// Heat of its regions.
    pub heat: Heat,
    /// Samples by provenance; losses are not known per process.
    pub counts: ProvenanceCounts,
    /// Samples since the window of the process began.
    pub window: Window,
    /// Regions that contain a sampled stack pointer.
    pub stacks: BTreeSet<Region>,
}

/// All samples of an interval, per process. Bounded in memory.
///
/// ```
/// use hugepilot_profiler::Observation;
/// use hugepilot_record::{Pattern, Pid, Provenance, Sample, Tid};
/// use hugepilot_units::{Nanos, PageSizes, VirtAddr};
///
/// let mut observation = Observation::new(PageSizes::X86_64);
/// for page in 0..3 {
///     observation.add(&Sample {
///         time: Nanos::millis(page),
///         pid: Pid(4711),
///         tid: Tid(4711),
///         ip: VirtAddr::new(0x40_1000),
///         address: Some(VirtAddr::new(0x7f00_0020_0000 + page * 4096)),
///         provenance: Provenance::Exact,
///         pattern: Pattern::Scattered,
///         stack: None,
///     });
/// }
/// let (pid, share) = (Pid(4711), observation.share_of(Pid(4711)).expect("its samples"));
/// let view = observation.of(pid).expect("its samples");
/// let hottest = view.heat.regions(1536)[0];
/// assert_eq!((share, hottest.samples, hottest.sampled_pages), (1.0, 3, 3));
/// ```
#[derive(Debug)]
pub struct Observation {
    sizes: PageSizes,
    processes: BTreeMap<Pid, ProcessView>,
    /// Limit of `processes`.
    tables: usize,
    uncounted: u64,
    /// Start of the windows of new processes.
    since: Nanos,
    /// CPU time that a sample represents; `None` if samples are events.
    period: Option<Nanos>,
    /// CPU time that a sample of some processes represents.
    boosted: BTreeMap<Pid, Nanos>,
    /// Samples of time so far, and the CPU time that they represent.
    timed: (u64, Nanos),
    /// Longest time from the start of a window to its last sample, by process.
    sampled: BTreeMap<Pid, Nanos>,
}

impl Observation {
    /// Creates an empty observation.
    pub const fn new(sizes: PageSizes) -> Self {
        Self {
            sizes,
            processes: BTreeMap::new(),
            tables: MAX_TABLES,
            uncounted: 0,
            since: Nanos::ZERO,
            period: None,
            boosted: BTreeMap::new(),
            timed: (0, Nanos::ZERO),
            sampled: BTreeMap::new(),
        }
    }

    /// Makes room for this many processes, if the usual limit is lower.
    #[must_use]
    pub fn with_tables(self, processes: usize) -> Self {
        Self { tables: processes.max(MAX_TABLES), ..self }
    }

    /// Sets the time until which samples were drained. The windows end there, and that of a process
    /// without samples so far begins there.
    pub fn drained_until(&mut self, now: Nanos) {
        self.since = now;
        for view in self.processes.values_mut() {
            view.window.until = view.window.since.max(now);
        }
    }

    /// Sets the CPU time that each further sample represents; `None` if samples are events.
    pub const fn set_period(&mut self, period: Option<Nanos>) {
        self.period = period;
    }

    /// Sets the CPU time that each further sample of these processes represents, until the next
    /// call; that of others is the usual one.
    pub fn set_boosted(&mut self, pids: &[Pid], period: Nanos) {
        self.boosted = pids.iter().map(|&pid| (pid, period)).collect();
    }

    /// Returns the samples per second of CPU time, over all rates so far; `None` without samples of
    /// time.
    #[allow(clippy::cast_precision_loss)]
    pub fn mean_rate_hz(&self) -> Option<f64> {
        let (samples, cpu) = self.timed;
        (cpu > Nanos::ZERO).then(|| samples as f64 / cpu.as_seconds())
    }

    /// Begins a new window of `pid` at `from`. Earlier samples do not count for it.
    pub fn restart(&mut self, pid: Pid, from: Nanos) {
        if let Some(view) = self.processes.get_mut(&pid) {
            view.window = Window::starting(from);
        }
    }

    /// Halves the window and the heat of `pid`, so that old phases of the program fade.
    pub fn fade(&mut self, pid: Pid) {
        if let Some(view) = self.processes.get_mut(&pid) {
            view.window.fade();
            view.heat.age();
        }
    }

    /// Returns the processes with samples.
    pub fn pids(&self) -> Vec<Pid> {
        self.processes.keys().copied().collect()
    }

    /// Adds a sample of time, or of the only sampler.
    pub fn add(&mut self, sample: &Sample) {
        let sizes = self.sizes;
        let period = self.boosted.get(&sample.pid).copied().or(self.period);
        if let Some(period) = period {
            self.timed = (self.timed.0 + 1, self.timed.1 + period);
        }
        let view = self.view(sample);
        let since = view.window.since;
        if sample.time >= since {
            count(&mut view.window, sample, sizes, period);
        }
        if self.sampled.len() < MAX_SAMPLED || self.sampled.contains_key(&sample.pid) {
            let longest = self.sampled.entry(sample.pid).or_default();
            *longest = (*longest).max(sample.time - since);
        }
    }

    /// Adds a page walk beside samples of time: to the heat, not to the window, whose counts are
    /// shares of time.
    pub fn add_walk(&mut self, sample: &Sample) {
        self.view(sample);
    }

    /// Returns the samples of its process, with the heat and the stack of this one.
    fn view(&mut self, sample: &Sample) -> &mut ProcessView {
        if !self.processes.contains_key(&sample.pid) && self.processes.len() >= self.tables {
            // Usually a process that ended, as in a script that starts many.
            let least = self
                .processes
                .iter()
                .min_by_key(|(_, view)| view.counts.total())
                .map(|(&pid, _)| pid);
            let gone = least.and_then(|pid| self.processes.remove(&pid));
            self.uncounted += gone.map_or(0, |view| view.counts.total());
        }
        let sizes = self.sizes;
        let view = self.processes.entry(sample.pid).or_insert_with(|| ProcessView {
            heat: Heat::new(HeatConfig::bounded(sizes)),
            counts: ProvenanceCounts::default(),
            window: Window::starting(self.since),
            stacks: BTreeSet::new(),
        });
        view.counts.count(sample.provenance);
        if let Some(address) = sample.address {
            view.heat.add(address, sample.pattern);
        }
        if let Some(stack) = sample.stack.filter(|_| view.stacks.len() < MAX_STACKS) {
            view.stacks.insert(sizes.region_of(stack));
        }
        view
    }

    /// Returns the processes with samples so far, also those that ended or were removed. Each has
    /// the longest time from the start of a window to its last sample.
    pub const fn sampled(&self) -> &BTreeMap<Pid, Nanos> {
        &self.sampled
    }

    /// Removes a process that started another program: its addresses are invalid.
    pub fn forget(&mut self, pid: Pid) {
        self.processes.remove(&pid);
    }

    /// Returns the samples of `pid`.
    pub fn of(&self, pid: Pid) -> Option<&ProcessView> {
        self.processes.get(&pid)
    }

    /// Returns the share of a process in all samples, 0 to 1.
    #[allow(clippy::cast_precision_loss)]
    pub fn share_of(&self, pid: Pid) -> Option<f64> {
        Some(self.of(pid)?.counts.total() as f64 / self.total().max(1) as f64)
    }

    fn total(&self) -> u64 {
        self.uncounted + self.processes.values().map(|view| view.counts.total()).sum::<u64>()
    }
}

/// Counts `sample` in `window`.
fn count(window: &mut Window, sample: &Sample, sizes: PageSizes, period: Option<Nanos>) {
    window.samples += 1;
    window.until = window.until.max(sample.time);
    // Before the first sample, the window represents no time.
    let cpu = if window.samples == 1 { Some(Nanos::ZERO) } else { window.cpu };
    window.cpu = cpu.zip(period).map(|(cpu, period)| cpu + period);
    let Some(address) = sample.address else {
        window.unknown += 1;
        return;
    };
    if sample.pattern == Pattern::Streamed {
        return;
    }
    let is_chase = sample.provenance == Provenance::Next;
    let counts = if is_chase { &mut window.chases } else { &mut window.stalls };
    let region = sizes.region_of(address);
    if counts.len() < MAX_REGIONS || counts.contains_key(&region) {
        *counts.entry(region).or_insert(0) += 1;
    }
}

#[cfg(test)]
mod tests {
    use hugepilot_record::Tid;
    use hugepilot_units::VirtAddr;

    use super::*;

    fn sample(millis: u64, region: Option<u64>, provenance: Provenance) -> Sample {
        Sample {
            time: Nanos::millis(millis),
            pid: Pid(1),
            tid: Tid(1),
            ip: VirtAddr::new(0x40_1000),
            address: region.map(|region| VirtAddr::new(region << 21)),
            provenance,
            pattern: Pattern::Scattered,
            stack: None,
        }
    }

    #[test]
    fn a_window_counts_what_came_since_it_began() {
        let mut observation = Observation::new(PageSizes::X86_64);
        observation.set_period(Some(Nanos::millis(2)));
        observation.drained_until(Nanos::millis(5));
        for (time, region, provenance) in [
            (10, Some(3), Provenance::Exact),
            (12, Some(3), Provenance::Next),
            (14, None, Provenance::None),
            (16, Some(4), Provenance::Recomputed),
        ] {
            observation.add(&sample(time, region, provenance));
        }
        observation
            .add(&Sample { pattern: Pattern::Streamed, ..sample(18, Some(5), Provenance::Exact) });
        observation.drained_until(Nanos::millis(20));
        let window = observation.of(Pid(1)).unwrap().window.clone();
        assert_eq!((window.since, window.until), (Nanos::millis(5), Nanos::millis(20)));
        assert_eq!((window.samples, window.unknown), (5, 1));
        assert_eq!(window.stalls, [(Region::new(3), 1), (Region::new(4), 1)].into());
        assert_eq!(window.chases, [(Region::new(3), 1)].into());
        assert_eq!(window.cpu, Some(Nanos::millis(10)));
        observation.restart(Pid(1), Nanos::millis(30));
        observation.add(&sample(29, Some(3), Provenance::Exact));
        observation.add(&sample(30, Some(4), Provenance::Exact));
        let view = observation.of(Pid(1)).unwrap();
        assert_eq!((view.window.samples, view.counts.total()), (1, 7));
        assert_eq!(view.window.of(Region::new(4)), 1);
    }

    #[test]
    fn heat_of_an_old_phase_fades_with_its_window() {
        let mut observation = Observation::new(PageSizes::X86_64);
        let streamed =
            Sample { pattern: Pattern::Streamed, ..sample(1, Some(3), Provenance::Exact) };
        (0..8).for_each(|_| observation.add(&streamed));
        observation.fade(Pid(1));
        (0..5).for_each(|_| observation.add(&sample(2, Some(3), Provenance::Exact)));
        let view = observation.of(Pid(1)).unwrap();
        let heat = view.heat.regions(1536)[0];
        assert_eq!((heat.samples, heat.streamed), (9, 4));
    }

    #[test]
    fn a_boosted_process_has_a_period_of_its_own() {
        let mut observation = Observation::new(PageSizes::X86_64);
        observation.set_period(Some(Nanos::millis(2)));
        observation.set_boosted(&[Pid(2)], Nanos::millis(1));
        for pid in [1, 2] {
            for time in 0..5 {
                let pid = Pid(pid);
                observation.add(&Sample { pid, ..sample(time, Some(3), Provenance::Exact) });
            }
        }
        let cpu = |pid| observation.of(Pid(pid)).unwrap().window.cpu;
        assert_eq!((cpu(1), cpu(2)), (Some(Nanos::millis(10)), Some(Nanos::millis(5))));
        // Ten samples in 15 ms.
        let rate = observation.mean_rate_hz().unwrap();
        assert!((rate - 10.0 / 0.015).abs() < 1e-6, "{rate}");
    }

    #[test]
    fn the_longest_time_of_sampling_outlasts_a_process_and_is_that_of_one_program() {
        let mut observation = Observation::new(PageSizes::X86_64);
        observation.drained_until(Nanos::millis(5));
        let mut add = |pid, time| {
            observation.add(&Sample { pid: Pid(pid), ..sample(time, Some(3), Provenance::Exact) });
            observation.drained_until(Nanos::millis(time));
            if time == 45 {
                observation.forget(Pid(pid));
            }
        };
        for (pid, time) in [(1, 10), (1, 45), (1, 60), (2, 65), (1, 70)] {
            add(pid, time);
        }
        let times = [(Pid(1), Nanos::millis(40)), (Pid(2), Nanos::millis(5))];
        assert_eq!(observation.sampled(), &BTreeMap::from(times));
    }

    #[test]
    fn each_watched_process_keeps_its_table() {
        let mut observation = Observation::new(PageSizes::X86_64).with_tables(20);
        for pid in 1..=21 {
            observation.add(&Sample { pid: Pid(pid), ..sample(1, Some(3), Provenance::Exact) });
        }
        assert_eq!(observation.pids().len(), 20, "the limit holds");
        let usual = Observation::new(PageSizes::X86_64).with_tables(2);
        assert_eq!(usual.tables, MAX_TABLES, "children need tables, too");
    }

    #[test]
    fn page_walks_heat_regions_and_do_not_count_as_time() {
        let mut observation = Observation::new(PageSizes::X86_64);
        observation.set_period(Some(Nanos::millis(2)));
        observation.add(&sample(1, Some(3), Provenance::Exact));
        observation.add_walk(&sample(2, Some(4), Provenance::Exact));
        let view = observation.of(Pid(1)).unwrap();
        assert_eq!((view.window.samples, view.window.stalls.len()), (1, 1));
        let hot: Vec<u64> = view.heat.regions(1536).iter().map(|heat| heat.region.get()).collect();
        assert!(hot.len() == 2 && hot.contains(&4), "{hot:?}");
    }

    #[test]
    fn samples_of_events_represent_no_time() {
        let mut observation = Observation::new(PageSizes::X86_64);
        observation.add(&sample(1, Some(3), Provenance::Exact));
        assert_eq!(observation.of(Pid(1)).unwrap().window.cpu, None);
    }
}
