use hugepilot_record::trace::{TraceAccess, TracePiece, TraceWriter};
use hugepilot_sim::{Counts, Machine, MachineConfig, PatternKind, Preset};
use hugepilot_units::Bytes;

use super::*;
use crate::source::TraceStop;

/// Machine that notes its calls.
struct Noted {
    machine: Machine,
    /// Accesses between two ticks that are due.
    due: u64,
    ticks: Vec<u64>,
    coverage: Vec<u64>,
}

impl Noted {
    fn new() -> Self {
        let machine = Machine::new(MachineConfig::new(Preset::built_in("haswell").unwrap()));
        Self { machine, due: 1, ticks: Vec::new(), coverage: Vec::new() }
    }
}

impl Simulator for Noted {
    fn memory(&self) -> MemoryUse {
        self.machine.memory()
    }
    fn run(&mut self, batch: &Batch) {
        self.machine.run(batch);
    }
    fn is_due(&self, accesses: u64, _: usize) -> bool {
        accesses.is_multiple_of(self.due)
    }
    fn tick(&mut self, view: &View<'_>) {
        assert_eq!(self.machine.counts().accesses, view.accesses, "all is executed before a tick");
        let regions = self.machine.counts_of_regions().zip(view.footprint.regions());
        assert_eq!(
            regions.count(),
            view.footprint.regions().len(),
            "all regions are known, and none after the tick"
        );
        assert!(view.footprint.regions().iter().all(|region| region.visits > 0));
        self.ticks.push(view.accesses);
    }
    fn note_coverage(&mut self, view: &View<'_>) {
        assert_eq!(self.machine.counts().accesses, view.accesses);
        self.coverage.push(view.accesses);
    }
}

fn pattern(kind: PatternKind, mib: u64) -> Pattern {
    Pattern { kind, bytes: Bytes::mib(mib) }
}

fn options(max_accesses: u64, interval: Option<u64>) -> SimulationOptions {
    let trace = TraceOptions { max_accesses: Some(max_accesses), ..TraceOptions::default() };
    SimulationOptions { trace, interval, memory: None }
}

fn run(sources: &[Pattern], options: &SimulationOptions, count: usize) -> (Simulated, Vec<Noted>) {
    let sources: Vec<_> =
        sources.iter().map(|&pattern| AccessSource::Pattern(pattern, 3)).collect();
    let names: Vec<String> = (0..sources.len()).map(|number| format!("p{number}")).collect();
    let mut noted: Vec<Noted> = (0..count).map(|_| Noted::new()).collect();
    let mut simulators: Vec<&mut dyn Simulator> =
        noted.iter_mut().map(|one| one as &mut dyn Simulator).collect();
    let simulated =
        simulate(&sources, &names, options, &mut simulators, &|| false, &mut |_| {}).unwrap();
    (simulated, noted)
}

/// Counts of a pattern by a machine alone.
fn alone(pattern: Pattern, accesses: usize) -> Counts {
    let mut machine = Noted::new().machine;
    let (mut footprint, mut batch) = (Footprint::new(), Batch::default());
    let all = pattern.accesses(3).take(accesses);
    footprint.add(0, 0, all.map(|(address, _)| address), &mut batch);
    machine.run(&batch);
    machine.counts()
}

#[test]
fn every_simulator_executes_all_accesses() {
    let pattern = pattern(PatternKind::Random, 64);
    let (simulated, noted) = run(&[pattern], &options(700_000, None), 3);
    assert_eq!((simulated.accesses, simulated.stores), (700_000, 64 * 256));
    assert_eq!(simulated.ends[0].stop, TraceStop::MaxAccesses);
    for one in &noted {
        assert_eq!(one.machine.counts(), alone(pattern, 700_000));
        assert!(one.ticks.is_empty());
    }
    assert_eq!(simulated.layout.of(0, &simulated.footprint)[0].name, "[anon]");
}

#[test]
fn processes_have_their_own_cores_and_turns() {
    let pattern = pattern(PatternKind::Cyclic, 3);
    let (simulated, noted) = run(&[pattern, pattern], &options(100_000, None), 1);
    assert_eq!((simulated.accesses, simulated.footprint.threads()), (200_000, 2));
    let (both, one) = (noted[0].machine.counts(), alone(pattern, 100_000));
    assert_eq!((both.walks, both.l1_misses), (2 * one.walks, 2 * one.l1_misses));
}

#[test]
fn ticks_divide_the_accesses_and_the_coverage_is_observed_at_the_begin() {
    let pattern = pattern(PatternKind::Stream, 1);
    let (_, noted) = run(&[pattern], &options(500_000, Some(240_000)), 2);
    let expected: Vec<u64> = (1..=250).map(|tick| tick * 2000).collect();
    assert_eq!(noted[1].ticks, expected);
    assert_eq!(noted[1].coverage, [8000, 248_000, 488_000]);
}

/// Each simulator gets its own ticks, whatever number of batches waits until then.
#[test]
fn ticks_are_made_only_if_due() {
    let pattern: Pattern = "random:64MiB".parse().unwrap();
    let sources = [AccessSource::Pattern(pattern, 3)];
    let mut noted = [Noted::new(), Noted::new()];
    (noted[0].due, noted[1].due) = (300_000, 450_000);
    let simulators: &mut [&mut dyn Simulator] =
        &mut noted.each_mut().map(|one| one as &mut dyn Simulator);
    let (names, options) = (["x".to_owned()], options(1_000_000, Some(1_200_000)));
    simulate(&sources, &names, &options, simulators, &|| false, &mut |_| {}).unwrap();
    assert_eq!(noted[0].ticks, [300_000, 600_000, 900_000]);
    assert_eq!(noted[1].ticks, [450_000, 900_000]);
    for one in &noted {
        assert_eq!(one.coverage, [40_000]);
        assert_eq!(one.machine.counts(), alone(pattern, 1_000_000));
    }
}

/// A short interval has small batches, and long runs of a stream fill none.
#[test]
fn progress_is_shown_by_accesses() {
    for (interval, pattern) in [(Some(12_000), "random:64MiB"), (None, "cyclic:4KiB")] {
        let sources = [AccessSource::Pattern(pattern.parse().unwrap(), 3)];
        let (names, options) = (["x".to_owned()], options(1_000_000, interval));
        let mut shown = Vec::new();
        let show = &mut |accesses| shown.push(accesses);
        simulate(&sources, &names, &options, &mut [], &|| false, show).unwrap();
        let steps: Vec<u64> = shown.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(steps.len() > 10, "{shown:?}");
        assert!(steps.iter().all(|step| (PROGRESS..PROGRESS + 2 * TURN as u64).contains(step)));
    }
}

/// Simulator that fails at its third batch.
struct Failing(u32);

impl Simulator for Failing {
    fn is_due(&self, _: u64, _: usize) -> bool {
        true
    }
    fn tick(&mut self, _: &View<'_>) {
        assert!(self.0 < 3, "a tick after the panic");
    }
    fn run(&mut self, _: &Batch) {
        self.0 += 1;
        assert!(self.0 < 3, "no third batch");
    }
}

/// The source has no end.
#[test]
fn a_panic_of_a_simulator_ends_the_sources() {
    for interval in [None, Some(120_000)] {
        let simulated = std::panic::catch_unwind(|| {
            let sources = [AccessSource::Pattern(pattern(PatternKind::Random, 64), 1)];
            let names = ["x".to_owned()];
            let options = SimulationOptions { interval, ..SimulationOptions::default() };
            let simulators: &mut [&mut dyn Simulator] = &mut [&mut Failing(0)];
            simulate(&sources, &names, &options, simulators, &|| false, &mut |_| {}).is_ok()
        });
        let problem = *simulated.unwrap_err().downcast::<&str>().unwrap();
        assert_eq!(problem, "no third batch");
    }
}

/// Trace of threads that make an access each, `stride` bytes apart.
fn stored(threads: u16, stride: u64) -> tempfile::NamedTempFile {
    let mut writer = TraceWriter::new(Vec::new()).unwrap();
    for thread in 0..threads {
        let accesses = vec![TraceAccess { address: u64::from(thread) * stride, store: false }];
        writer.piece(&TracePiece::Accesses { thread, accesses }).unwrap();
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), writer.finish(0, &[]).unwrap()).unwrap();
    file
}

/// Simulates a stored trace.
fn simulate_stored(
    file: &tempfile::NamedTempFile,
    memory: Option<Bytes>,
    simulators: &mut [&mut dyn Simulator],
) -> Result<Simulated, TraceError> {
    let sources = [AccessSource::Trace(TraceSource::File(file.path().to_owned()))];
    let options = SimulationOptions { memory, ..SimulationOptions::default() };
    simulate(&sources, &["x".to_owned()], &options, simulators, &|| false, &mut |_| {})
}

/// Simulates threads on some machines.
fn simulate_threads(
    threads: u16,
    machines: usize,
    memory: Option<Bytes>,
) -> Result<Simulated, TraceError> {
    let mut noted: Vec<Noted> = (0..machines).map(|_| Noted::new()).collect();
    let mut simulators: Vec<&mut dyn Simulator> =
        noted.iter_mut().map(|one| one as &mut dyn Simulator).collect();
    simulate_stored(&stored(threads, 1 << 12), memory, &mut simulators)
}

#[test]
fn pages_beyond_the_memory_are_an_error() {
    use hugepilot_sim::{Reuse, ReuseConfig};
    let (file, mut reuse) = (stored(4000, 1 << 21), Reuse::new(ReuseConfig::default()));
    let parts: &mut [&mut dyn Simulator] = &mut [&mut reuse.pages, &mut reuse.regions];
    let error = simulate_stored(&file, Some(Bytes::mib(64)), parts).unwrap_err();
    let TraceError::TooManyPages { regions, available, .. } = error else { panic!("{error}") };
    // Base pages alone take 16 + 8 bytes each.
    assert!((1000..64 * 1024 / 12).contains(&regions), "{regions}");
    assert_eq!(available, Bytes::mib(64));
    let mut reuse = Reuse::new(ReuseConfig::default());
    let parts: &mut [&mut dyn Simulator] = &mut [&mut reuse.pages, &mut reuse.regions];
    assert_eq!(simulate_stored(&file, Some(Bytes::mib(256)), parts).unwrap().accesses, 4000);
}

#[test]
fn machines_beyond_the_memory_are_an_error() {
    let all = simulate_threads(4000, 1, None).unwrap();
    assert_eq!((all.accesses, all.footprint.threads()), (4000, 4000));
    let error = simulate_threads(4000, 40, Some(Bytes::mib(64))).unwrap_err();
    let TraceError::TooLargeMachines { machines: 40, threads, available, .. } = error else {
        panic!("{error}")
    };
    assert!((20..200).contains(&threads), "early: {threads}");
    assert_eq!(available, Bytes::mib(64));
}

/// Else the last ones would share a core.
#[test]
fn too_many_threads_are_an_error() {
    let error = simulate_threads(u16::MAX, 0, None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the sources have more than 65534 threads at a time, the most that are simulated"
    );
    assert_eq!(error.help(), ["simulate a part: --max-accesses 65534"]);
    assert_eq!(simulate_threads(u16::MAX - 1, 0, None).unwrap().threads, 65534);
}

/// Threads one after the other, more than cores: each walks, as its TLB is empty.
#[test]
fn cores_of_ended_threads_are_used_again() {
    const THREADS: u64 = 70_000;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let mut writer = TraceWriter::new(&mut file).unwrap();
    let mut add = |piece: &TracePiece| writer.piece(piece).unwrap();
    let accesses = |thread| {
        let accesses = vec![TraceAccess { address: 1 << 12, store: false }; 2];
        TracePiece::Accesses { thread, accesses }
    };
    add(&accesses(0));
    for _ in 1..THREADS {
        add(&accesses(7));
        add(&TracePiece::ThreadEnd(7));
    }
    // Numbers without accesses.
    add(&TracePiece::ThreadEnd(7));
    add(&TracePiece::ThreadEnd(9));
    add(&accesses(0));
    writer.finish(0, &[]).unwrap();
    let mut noted = Noted::new();
    let simulated = simulate_stored(&file, None, &mut [&mut noted]).unwrap();
    assert_eq!((simulated.threads, simulated.footprint.threads()), (THREADS, 2));
    let counts = noted.machine.counts();
    assert_eq!((counts.accesses, counts.walks), (2 * THREADS + 2, THREADS));
}

/// Blocks of 3,000 mappings with the longest names, of other pages each time: 12 MiB. Three
/// accesses follow each.
#[test]
fn mappings_beyond_the_memory_are_an_error_with_the_position_of_their_block() {
    use hugepilot_record::trace::{MAX_NAME, TraceMapping};
    use hugepilot_units::{AddrRange, VirtAddr};
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let mut writer = TraceWriter::new(&mut file).unwrap();
    let mapping = |at: u64| {
        let range = AddrRange::at(VirtAddr::new(at << 13), Bytes::kib(4));
        TraceMapping { range, name: "a".repeat(MAX_NAME) }
    };
    let mut positions = Vec::new();
    for block in 0..20 {
        positions.push(writer.bytes());
        let mappings = (block * 3000..(block + 1) * 3000).map(mapping).collect();
        writer.piece(&TracePiece::Mappings(mappings)).unwrap();
        let accesses = vec![TraceAccess { address: block << 13, store: false }; 3];
        writer.piece(&TracePiece::Accesses { thread: 0, accesses }).unwrap();
    }
    writer.finish(0, &[]).unwrap();
    for interval in [None, Some(120_000)] {
        let sources = [AccessSource::Trace(TraceSource::File(file.path().to_owned()))];
        let mut options = SimulationOptions { interval, ..SimulationOptions::default() };
        let simulated = |options: &SimulationOptions| {
            let (names, simulators): (_, &mut [&mut dyn Simulator]) = (["x".to_owned()], &mut []);
            simulate(&sources, &names, options, simulators, &|| false, &mut |_| {})
        };
        let error = simulated(&options).unwrap_err();
        let text = error.to_string();
        let place =
            format!("x: block at byte {}, after access 15: its mappings and ", positions[5]);
        assert!(text.starts_with(&place) && text.ends_with("; at most 64MiB"), "{text}");
        assert_eq!(error.help(), ["simulate a part: --max-accesses 15"]);
        options.trace.max_accesses = Some(15);
        assert_eq!(simulated(&options).unwrap().accesses, 15);
    }
}

#[test]
fn an_interruption_ends_all_sources() {
    let sources = [AccessSource::Pattern(pattern(PatternKind::Random, 1), 1)];
    let names = ["x".to_owned()];
    let mut simulators: [&mut dyn Simulator; 0] = [];
    let options = SimulationOptions::default();
    let simulated =
        simulate(&sources, &names, &options, &mut simulators, &|| true, &mut |_| {}).unwrap();
    assert_eq!(simulated.ends[0].stop, TraceStop::Interrupted);
}

#[test]
fn too_many_sources_are_refused_before_they_start() {
    let sources = vec![AccessSource::Pattern(pattern(PatternKind::Random, 1), 1); 1 << 14];
    let mut simulators: [&mut dyn Simulator; 0] = [];
    let options = SimulationOptions::default();
    let error = simulate(&sources, &[], &options, &mut simulators, &|| false, &mut |_| {});
    let error = error.unwrap_err().to_string();
    assert_eq!(error, "16384 sources; at most 16383 are simulated together");
}
