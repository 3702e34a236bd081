//! Traces of a program that makes known accesses to a known array.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;

use hugepilot_record::Ending;
use hugepilot_record::trace::{TraceMapping, TracePiece};
use hugepilot_testkit::{compiled, need, requires};
use hugepilot_trace::TraceError;
use hugepilot_trace::simulate::{AccessSource, FullLayout, SimulationOptions, simulate};
use hugepilot_trace::source::{Engine, TraceEnd, TraceOptions, TraceSource, TraceStop, trace};
use hugepilot_units::VirtAddr;

const ARRAY: std::ops::Range<u64> = 0x10_0000_0000..0x10_0010_0000;
const WORDS: u64 = 1 << 17;

/// Pieces that the sink received, counted.
#[derive(Debug, Default)]
struct Received {
    loads: u64,
    stores: u64,
    /// Threads with accesses to the array, each with their number.
    threads: Vec<(u16, u64)>,
    /// Place of each thread that has not ended.
    running: BTreeMap<u16, usize>,
    all: u64,
    mappings: Vec<TraceMapping>,
}

fn victim() -> PathBuf {
    victim_of("traced.c")
}

fn victim_of(file: &str) -> PathBuf {
    compiled(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/victims").join(file))
}

fn source(engine: Engine, kind: &str) -> TraceSource {
    let command = vec![victim().into_os_string(), OsString::from(kind)];
    TraceSource::Program { command, engine }
}

fn receive(
    source: &TraceSource,
    options: TraceOptions,
) -> Result<(Received, TraceEnd), TraceError> {
    let mut received = Received::default();
    let mut sink = |piece, _| {
        match piece {
            TracePiece::Accesses { thread, accesses } => {
                received.all += accesses.len() as u64;
                let in_array = accesses.iter().filter(|access| ARRAY.contains(&access.address));
                let stores = in_array.clone().filter(|access| access.store).count() as u64;
                let count = in_array.count() as u64;
                received.stores += stores;
                received.loads += count - stores;
                if count > 0 {
                    let next = received.threads.len();
                    let place = *received.running.entry(thread).or_insert(next);
                    received.threads.resize(next.max(place + 1), (thread, 0));
                    received.threads[place].1 += count;
                }
            }
            TracePiece::Mappings(mappings) => received.mappings = mappings,
            TracePiece::ThreadEnd(thread) => _ = received.running.remove(&thread),
            TracePiece::Phase(_) => {}
        }
        ControlFlow::Continue(())
    };
    let end = trace(source, &options, &|| false, &mut sink)?;
    assert_eq!(end.delivered, received.all);
    Ok((received, end))
}

#[track_caller]
fn under_qemu(kind: &str) -> (Received, TraceEnd) {
    receive(&source(Engine::Qemu, kind), TraceOptions::default()).unwrap()
}

fn qemu() -> need::Need {
    need::all([need::c_compiler(), need::program("qemu-x86_64")])
}

#[test]
fn each_access_to_the_array_is_delivered_once() {
    requires!(qemu());
    let (received, end) = under_qemu("walk");
    assert_eq!((received.loads, received.stores), (WORDS, WORDS / 2));
    assert_eq!(received.threads, [(0, WORDS * 3 / 2)]);
    assert_eq!(end.ending, Some(Ending::Exited(5)));
    assert_eq!((end.stop, end.lost, end.forks), (TraceStop::End, 0, 0));
    assert!(end.is_complete && end.omitted == 0, "{end:?}");
    let array = received.mappings.iter().find(|mapping| mapping.range.start.get() == ARRAY.start);
    assert_eq!(array.unwrap().name, "[anon]");
    let names: BTreeSet<&str> = received.mappings.iter().map(|found| found.name.as_str()).collect();
    for name in ["[heap]", "[stack]", victim().to_str().unwrap()] {
        assert!(names.contains(name), "{name}: {names:?}");
    }
    assert!(!names.iter().any(|name| name.contains("qemu")), "{names:?}");
}

/// Pages of the arrays of `arrays.c`, each with the size of its mapping and its place there.
fn traced_arrays() -> Vec<[u64; 3]> {
    let command = vec![victim_of("arrays.c").into_os_string()];
    let source = TraceSource::Program { command, engine: Engine::Qemu };
    let (mut loads, mut mappings) = (BTreeMap::<u64, u64>::new(), Vec::new());
    let mut sink = |piece, _| {
        match piece {
            TracePiece::Accesses { accesses, .. } => {
                for access in accesses.iter().filter(|access| access.address & 0xfff == 0x123) {
                    *loads.entry(access.address >> 12).or_insert(0) += 1;
                }
            }
            TracePiece::Mappings(latest) => mappings = latest,
            TracePiece::Phase(_) | TracePiece::ThreadEnd(_) => {}
        }
        ControlFlow::Continue(())
    };
    let end = trace(&source, &TraceOptions::default(), &|| false, &mut sink).unwrap();
    assert_eq!(end.ending, Some(Ending::Exited(0)));
    let array = |number: u64| {
        let pages = loads.iter().filter(|(_, count)| **count == number * 10);
        let pages: Vec<u64> = pages.map(|(&page, _)| page).collect();
        let range = mappings
            .iter()
            .map(|mapping: &TraceMapping| mapping.range)
            .find(|range| range.contains(VirtAddr::new(pages[0] << 12)))
            .unwrap();
        let place = pages[0] - (range.start.get() >> 12);
        [pages.len() as u64, range.len().get() >> 12, place]
    };
    (1..=7).map(array).collect()
}

/// Linux is the oracle: the program without an engine reads its own mappings.
#[test]
fn arrays_are_in_the_mappings_of_a_native_run() {
    requires!(qemu());
    let native = Command::new(victim_of("arrays.c")).output().unwrap().stdout;
    let native: Vec<[u64; 3]> = String::from_utf8(native)
        .unwrap()
        .lines()
        .map(|line| {
            let numbers: Vec<u64> = line.split(' ').map(|one| one.parse().unwrap()).collect();
            numbers.try_into().unwrap()
        })
        .collect();
    assert_eq!(native.len(), 7);
    assert_eq!(traced_arrays(), native);
}

/// The thread's accesses are read after the memory was unmapped. Linux maps all at one place.
#[test]
fn late_accesses_of_other_threads_are_where_the_memory_was() {
    requires!(qemu());
    let command = vec![victim_of("late.c").into_os_string()];
    let source = TraceSource::Program { command, engine: Engine::Qemu };
    let mut stores = BTreeMap::new();
    let mut sink = |piece, _| {
        if let TracePiece::Accesses { accesses, .. } = piece {
            for access in accesses.iter().filter(|one| one.store && one.address & 0xfff == 0x123) {
                *stores.entry(access.address >> 12).or_insert(0) += 1;
            }
        }
        ControlFlow::Continue(())
    };
    let end = trace(&source, &TraceOptions::default(), &|| false, &mut sink).unwrap();
    assert_eq!(end.ending, Some(Ending::Exited(0)));
    // The libraries may have bytes at this offset of other pages, too: of strings on the stack.
    let full = stores.values().filter(|&&stores| stores == 10).count();
    assert_eq!(full, 4096, "{} pages", stores.len());
}

#[test]
fn two_threads_are_counted_exactly() {
    requires!(qemu());
    let (received, end) = under_qemu("threads");
    assert_eq!((received.loads, received.stores), (WORDS, WORDS / 2));
    assert_eq!(received.threads.len(), 2, "{received:?}");
    assert!(received.threads.iter().all(|thread| thread.1 == WORDS * 3 / 4), "{received:?}");
    assert_eq!((end.ending, end.lost), (Some(Ending::Exited(0)), 0));
}

#[test]
fn repeated_and_wide_instructions_are_normalised() {
    requires!(qemu());
    let lines = WORDS / 8;
    let (received, end) = under_qemu("stosb");
    assert_eq!((received.loads, received.stores), (0, lines));
    assert!(end.folded >= lines * 63, "{end:?}");
    let (received, _) = under_qemu("movsb");
    assert_eq!((received.loads, received.stores), (lines / 2, lines / 2));
    let (received, end) = under_qemu("avx");
    assert_eq!((received.loads, received.stores), (WORDS / 4 + 2, 0));
    assert!(end.folded > 0, "{end:?}");
    // One thread: an atomic instruction is a load and a store.
    let (received, _) = under_qemu("atomic");
    assert_eq!((received.loads, received.stores), (WORDS, WORDS));
}

#[test]
fn children_are_not_traced_and_do_not_disturb() {
    requires!(qemu());
    let (received, end) = under_qemu("fork");
    assert_eq!((received.loads, received.stores), (WORDS, WORDS / 2));
    assert_eq!((end.forks, end.ending), (1, Some(Ending::Exited(0))));
    assert!(end.is_complete);
}

#[test]
fn a_program_that_dies_or_is_replaced_leaves_all_its_accesses() {
    requires!(qemu());
    for (kind, ending) in [("segv", Ending::Killed(11)), ("exec", Ending::Exited(0))] {
        let (received, end) = under_qemu(kind);
        assert_eq!((received.loads, received.stores), (WORDS, WORDS / 2), "{kind}");
        assert_eq!(end.ending, Some(ending));
        assert!(!end.is_complete, "{kind} {end:?}");
    }
}

#[test]
fn threads_one_after_the_other_are_told_apart() {
    requires!(qemu());
    let (received, end) = under_qemu("many");
    assert_eq!((received.loads, received.stores), (64, 0));
    assert_eq!(received.threads.len(), 64, "{received:?}");
    assert!(received.threads.iter().all(|thread| thread.0 == 1), "{received:?}");
    assert_eq!(end.lost, 0);
}

#[test]
fn a_limit_and_an_interrupt_end_the_program() {
    requires!(qemu());
    let source = source(Engine::Qemu, "spin");
    let options =
        TraceOptions { skip: 1000, max_accesses: Some(1_000_000), ..TraceOptions::default() };
    let (received, end) = receive(&source, options).unwrap();
    assert_eq!((received.all, end.stop), (1_000_000, TraceStop::MaxAccesses));
    assert_eq!(end.ending, Some(Ending::Killed(15)));
    let pieces = Cell::new(0);
    let mut sink = |_, _| {
        pieces.set(pieces.get() + 1);
        ControlFlow::Continue(())
    };
    let interrupted = || pieces.get() >= 100;
    let end = trace(&source, &TraceOptions::default(), &interrupted, &mut sink).unwrap();
    assert_eq!((end.stop, end.is_complete), (TraceStop::Interrupted, false));
    assert_eq!((pieces.get(), end.ending), (100, Some(Ending::Killed(15))));
}

/// 20,000 mappings of a file with a path of about 4,000 bytes. The program waits then, so nothing
/// that it does ends the simulation.
#[test]
fn mappings_beyond_the_memory_end_the_simulation_and_the_program() {
    requires!(qemu());
    let folder = tempfile::tempdir().unwrap();
    let long = folder.path().join(vec!["a".repeat(249); 15].join("/"));
    std::fs::create_dir_all(&long).unwrap();
    let file = long.join("file");
    std::fs::write(&file, [7; 4096]).unwrap();
    let command = vec![victim_of("mappings.c").into_os_string(), file.into_os_string()];
    let source = TraceSource::Program { command, engine: Engine::Qemu };
    let (sources, names) = ([AccessSource::Trace(source)], ["x".to_owned()]);
    let options = SimulationOptions { interval: Some(120_000), ..SimulationOptions::default() };
    let simulated = simulate(&sources, &names, &options, &mut [], &|| false, &mut |_| {}).unwrap();
    let full = simulated.full.expect("too many mappings");
    assert_eq!(full, FullLayout { process: 0, accesses: simulated.accesses });
    assert!(simulated.accesses > 20_000, "{full:?}");
    assert_eq!(simulated.ends[0].ending, Some(Ending::Killed(15)));
}

#[test]
fn lackey_makes_the_same_counts() {
    requires!(need::all([need::c_compiler(), need::program("valgrind")]));
    let options = TraceOptions::default();
    let lackey = |kind| receive(&source(Engine::Lackey, kind), options.clone()).unwrap();
    let (received, end) = lackey("walk");
    assert_eq!((received.loads, received.stores), (WORDS, WORDS / 2));
    assert_eq!((end.ending, end.stop), (Some(Ending::Exited(5)), TraceStop::End));
    assert!(end.is_complete, "{end:?}");
    let names = received.mappings.iter().map(|mapping| mapping.name.as_str());
    let names: BTreeSet<&str> = names.collect();
    assert!(names.contains("[stack]") && names.contains("[anon]"), "{names:?}");
    assert!(!names.iter().any(|name| name.contains("lackey")), "{names:?}");
    let (received, _) = lackey("fork");
    assert_eq!((received.loads, received.stores), (WORDS, WORDS / 2));
    let (received, end) = lackey("segv");
    assert_eq!((received.loads, received.stores), (WORDS, WORDS / 2));
    assert_eq!(end.ending, Some(Ending::Killed(11)));
    let options = TraceOptions { max_accesses: Some(10_000), ..options };
    let (received, end) = receive(&source(Engine::Lackey, "spin"), options).unwrap();
    assert_eq!((received.all, end.stop), (10_000, TraceStop::MaxAccesses));
}

#[test]
fn a_script_and_a_missing_program_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    std::fs::write(&script, "#!/bin/sh\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, mode).unwrap();
    for (path, text) in [(script, "is a script"), (folder.path().join("none"), "cannot start")] {
        let command = vec![path.into_os_string()];
        let source = TraceSource::Program { command, engine: Engine::Qemu };
        let error = receive(&source, TraceOptions::default()).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
}
