use std::path::Path;

use hugepilot_events::{Certainty, DeviceEvent, EventCode, parse as parse_name, resolve};
use hugepilot_record::{Cpu, GroupTime, Pid};
use hugepilot_testkit::requires;
use hugepilot_units::Bytes;

use super::*;
use crate::cpu::{AMD, ARM, INTEL};
use crate::perf::pmu::tests::unit;
use crate::sys::anon::{AnonMap, Pages};

fn cpu(vendor: &str, family: u32, model: u32) -> Cpu {
    Cpu { vendor: vendor.into(), model_name: String::new(), family, model, hypervisor: false }
}

fn events(cpu: &Cpu, names: &[&str]) -> Vec<ResolvedEvent> {
    let names: Vec<_> = names.iter().map(|name| parse_name(cpu, name).unwrap()).collect();
    resolve(cpu, &names).events
}

/// Type, config words and processors of each opening of an event.
type Opened = Vec<(u32, [u64; 3], Option<Vec<i32>>)>;

fn openings(dir: &Path, cpu: &Cpu, name: &str) -> Result<Opened, Unsupported> {
    let event = events(cpu, &[name]).remove(0);
    let openings = Opening::of(&Root::at(dir), &event, CounterTarget::Process(&this_process()))?;
    Ok(openings.into_iter().map(Opening::parts).collect())
}

#[test]
fn units_of_intel_are_opened_on_each_channel_and_socket() {
    let dir = tempfile::tempdir().unwrap();
    let format = [("format/event", "config:0-7"), ("format/umask", "config:8-15")];
    for (name, kind) in [("uncore_imc_0", "14"), ("uncore_imc_1", "15")] {
        unit(dir.path(), name, &[("type", kind), ("cpumask", "0,18")]);
        unit(dir.path(), name, &format);
    }
    // Another unit with the same first letters, with other terms.
    unit(dir.path(), "uncore_imc_free_running", &[("type", "20"), ("format/event", "config:0-7")]);
    let here = cpu(INTEL, 6, 85);
    let cpus = Some(vec![0, 18]);
    let wanted = vec![(14, [0x304, 0, 0], cpus.clone()), (15, [0x304, 0, 0], cpus)];
    assert_eq!(openings(dir.path(), &here, "dram_reads").unwrap(), wanted);
    let error = openings(dir.path(), &here, "cbox/event=1/").unwrap_err();
    assert_eq!(error, Unsupported::NoUnit { unit: "cbox".into() });
    let error = openings(dir.path(), &here, "uncore_imc/tid=1/").unwrap_err();
    let (unit, terms) = ("uncore_imc".into(), "tid=1".into());
    assert_eq!(error, Unsupported::UnitTerms { unit, terms });
}

#[test]
fn units_of_granite_rapids_have_two_events_each() {
    let dir = tempfile::tempdir().unwrap();
    let files = [
        ("type", "30"),
        ("cpumask", "0"),
        ("format/event", "config:0-7"),
        ("format/umask", "config:8-15"),
    ];
    unit(dir.path(), "uncore_imc_3", &files);
    let found = openings(dir.path(), &cpu(INTEL, 6, 173), "dram_writes").unwrap();
    let words: Vec<u64> = found.iter().map(|(_, words, _)| words[0]).collect();
    assert_eq!(words, [0xf005, 0xf006]);
}

#[test]
fn units_of_amd_split_the_event_over_two_ranges_of_bits() {
    let dir = tempfile::tempdir().unwrap();
    let files = [
        ("type", "10"),
        ("cpumask", "0"),
        ("format/event", "config:0-7,32-35,59-60"),
        ("format/umask", "config:8-15"),
    ];
    unit(dir.path(), "amd_df", &files);
    let found = openings(dir.path(), &cpu(AMD, 25, 1), "dram_accesses").unwrap();
    let words: Vec<u64> = found.iter().map(|(_, words, _)| words[0]).collect();
    assert_eq!(words[..3], [0x3807, 0x3847, 0x3887]);
    assert_eq!(words[7], 0x1_0000_38c7, "0x1c7 has its upper bits at 32");
    let files = [
        ("type", "11"),
        ("cpumask", "0"),
        ("format/event", "config:0-7"),
        ("format/rdwrmask", "config:8-9"),
    ];
    unit(dir.path(), "amd_umc_0", &files);
    let found = openings(dir.path(), &cpu(AMD, 26, 2), "dram_writes").unwrap();
    assert_eq!(found, [(11, [0x20a, 0, 0], Some(vec![0]))]);
}

#[test]
fn units_of_arm_and_events_by_the_name_of_sysfs() {
    let dir = tempfile::tempdir().unwrap();
    let files = [
        ("type", "8"),
        ("cpus", "0-63"),
        ("format/event", "config:0-15"),
        ("events/dtlb_walk", "event=0x0034"),
    ];
    unit(dir.path(), "armv8_pmuv3_0", &files);
    let here = cpu(ARM, 8, 0xd0c);
    let wanted = vec![(8, [0x34, 0, 0], None)];
    assert_eq!(openings(dir.path(), &here, "armv8_pmuv3_0/dtlb_walk/").unwrap(), wanted);
    assert_eq!(openings(dir.path(), &here, "armv8_pmuv3_0/event=0x34/").unwrap(), wanted);
    assert_eq!(openings(dir.path(), &here, "armv8_pmuv3_0/config=0x34/").unwrap(), wanted);
    let raw = openings(dir.path(), &here, "dtlb_walks").unwrap();
    assert_eq!(raw, [(4, [0x34, 0, 0], None)]);
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn reading(value: u64, enabled_ns: u64, running_ns: u64) -> EventReading {
    EventReading { value, time: GroupTime { enabled_ns, running_ns } }
}

#[test]
fn a_read_of_a_group_has_one_time_for_all_values() {
    let read = parse(Layout::Group, 3, &bytes(&[3, 50, 25, 7, 8, u64::MAX])).unwrap();
    assert_eq!(read, [reading(7, 50, 25), reading(8, 50, 25), reading(u64::MAX, 50, 25)]);
    let read = parse(Layout::Single, 1, &bytes(&[7, 50, 0])).unwrap();
    assert_eq!(read, [reading(7, 50, 0)]);
    assert_eq!((read[0].scaled(), read[0].certainty()), (None, Certainty::Missing));
}

#[test]
fn malformed_reads_have_no_values() {
    let whole = bytes(&[3, 50, 25, 7, 8, 9]);
    for length in 0..whole.len() {
        assert_eq!(parse(Layout::Group, 3, &whole[..length]), None, "{length}");
    }
    for (events, words) in [
        (3, &[2_u64, 50, 25, 7, 8][..]),
        (3, &[4, 50, 25, 7, 8, 9, 10]),
        (3, &[u64::MAX, 50, 25, 7, 8, 9]),
        (3, &[3, 50, 25, 7, 8, 9, 10]),
        (0, &[]),
    ] {
        assert_eq!(parse(Layout::Group, events, &bytes(words)), None, "{words:?}");
    }
    assert_eq!(parse(Layout::Single, 1, &bytes(&[1, 2])), None);
    assert_eq!(parse(Layout::Single, 1, &bytes(&[1, 2, 3, 4])), None);
    assert_eq!(parse(Layout::Single, 2, &bytes(&[1, 2, 3])), None);
}

fn this_process() -> Process {
    let pid = Pid(i32::try_from(std::process::id()).unwrap());
    Process::open(&Root::live(), pid).unwrap()
}

/// Counters of the set `software` on this process; `None`, with a note, if that is denied here.
fn software() -> Option<(Vec<ResolvedEvent>, GroupCounters)> {
    let here = crate::cpu::read(&Root::live()).unwrap();
    let mut events = events(&here, &["software"]);
    // One read for several events: the kernel gives groups of its own events, too.
    for event in &mut events {
        event.metric.group = Some(0);
    }
    let process = this_process();
    let target = CounterTarget::Process(&process);
    let counters = GroupCounters::open(&Root::live(), target, &events);
    match counters {
        Ok(counters) if counters.missing().next().is_none() => Some((events, counters)),
        Ok(counters) => {
            eprintln!("skipped: {:?}", counters.missing().collect::<Vec<_>>());
            None
        }
        Err(cause) => {
            eprintln!("skipped: {cause}");
            None
        }
    }
}

#[test]
fn page_faults_of_new_threads_are_counted() {
    const PAGES: u64 = 512;
    let Some((events, counters)) = software() else { return };
    let at = |name: &str| events.iter().position(|event| event.metric.name == name).unwrap();
    // While a thread of another test ends, the kernel refuses to read its group (ECHILD).
    let read = || {
        let whole = (0..200).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            Some(counters.read()).filter(|readings| readings.iter().all(Option::is_some))
        });
        whole.expect("all events can be read within a second")
    };
    let before = read();
    let sizes = crate::memory::page_sizes(&Root::live()).unwrap();
    let touch = move || {
        let bytes = Bytes::new(PAGES * sizes.base.get());
        let mut map = AnonMap::new(bytes, Pages::Base, sizes).unwrap();
        let stride = usize::try_from(sizes.base.get() / 8).unwrap();
        map.words_mut().iter_mut().step_by(stride).for_each(|word| *word = 1);
    };
    std::thread::spawn(touch).join().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(2));
    let faults = |readings: &[Option<EventReading>]| readings[at("minor_fault_events")].unwrap();
    let mut after = read();
    // The thread ends a little after join: see `GroupCounters::read`.
    for _ in 0..200 {
        if faults(&after).since(faults(&before)).value >= PAGES {
            break;
        }
        let earlier = std::mem::replace(&mut after, read());
        assert!(faults(&after).value >= faults(&earlier).value);
    }
    let since = |name: &str| after[at(name)].unwrap().since(before[at(name)].unwrap());
    let faults = since("page_fault_events");
    assert!(faults.value >= PAGES, "{faults:?}");
    assert_eq!(faults.certainty(), Certainty::Exact, "{faults:?}");
    assert!(since("minor_fault_events").value >= PAGES);
    assert!(since("task_clock").value > 0);
    assert!(since("context_switch_events").value > 0, "this thread slept");
    let threads = counters.read_threads();
    assert!(!threads.is_empty());
    let sum: u64 =
        threads.iter().filter_map(|(_, values)| values[at("task_clock")]).map(|r| r.value).sum();
    assert!(sum >= after[at("task_clock")].unwrap().value);
}

#[test]
fn a_process_alone_lacks_the_faults_of_its_children_and_has_those_of_new_threads() {
    const PAGES: u64 = 512;
    let here = crate::cpu::read(&Root::live()).unwrap();
    let events = events(&here, &["page-faults"]);
    let process = this_process();
    let open = |target| GroupCounters::open(&Root::live(), target, &events).unwrap();
    let both = [CounterTarget::Process(&process), CounterTarget::ProcessAlone(&process)].map(open);
    requires!(both[0].missing().next().map_or(Ok(()), |(_, cause)| Err(cause.to_string())));
    // While a thread of another test ends, the kernel refuses to read its group (ECHILD).
    let read = |counters: &GroupCounters| {
        std::iter::repeat_with(|| counters.read()[0]).take(100_000).flatten().next().unwrap()
    };
    let before = both.each_ref().map(read);
    // Both count other tests of this process, too, so only the difference is the child's.
    let script = "a=x; i=0; while [ $i -lt 22 ]; do a=$a$a; i=$((i + 1)); done";
    let child = std::process::Command::new("sh").args(["-c", script]).status().unwrap();
    assert!(child.success());
    let touch = || std::hint::black_box(vec![1_u8; 4096 * 512]).len();
    std::thread::spawn(touch).join().unwrap();
    // Counts may come a little after an end: see `GroupCounters::read`.
    std::thread::sleep(std::time::Duration::from_millis(50));
    let [whole, alone] = [0, 1].map(|at| read(&both[at]).since(before[at]).value);
    assert!(whole > alone + PAGES, "{whole} faults, {alone} alone");
    assert!(alone >= PAGES, "{alone}");
}

#[test]
fn events_that_do_not_exist_have_a_cause_and_the_others_count() {
    let mut events = events(&cpu(INTEL, 6, 85), &["task-clock", "page-faults"]);
    let code = EventCode::Fixed { kind: 1, config: 0xffff, config1: 0 };
    events.insert(1, ResolvedEvent { code, ..events[0].clone() });
    let process = this_process();
    let target = CounterTarget::Process(&process);
    let counters = GroupCounters::open(&Root::live(), target, &events).unwrap();
    let missing: Vec<usize> = counters.missing().map(|(index, _)| index).collect();
    if missing == [0, 1, 2] {
        eprintln!("skipped: no perf events here");
        return;
    }
    assert_eq!(missing, [1]);
    let read = counters.read();
    assert!(read[0].unwrap().value > 0 && read[1].is_none() && read[2].is_some());
    assert!(counters.descriptors() >= 2);
}

#[test]
fn the_list_of_this_machine_has_an_event_or_a_cause_for_each_metric() {
    let here = crate::cpu::read(&Root::live()).unwrap();
    let list = events_here(&Root::live(), &here, &this_process());
    for metric in &list.metrics {
        assert!(metric.event.is_some() || metric.unavailable.is_some(), "{metric:?}");
    }
    let software = list.metrics.iter().find(|metric| metric.name == "task_clock").unwrap();
    eprintln!("task_clock: {:?}", software.unavailable);
}

#[test]
fn events_that_all_lack_counters_have_one_cause() {
    let here = cpu(INTEL, 6, 85);
    let mut events = events(&here, &["ipc", "dtlb_load_walks", "task-clock", "dram_reads"]);
    events[0].code = EventCode::Devices(vec![DeviceEvent {
        unit: "cpu".to_owned(),
        terms: "event=0xc0".to_owned(),
    }]);
    let absent = || Some(Unsupported::NoSuchEvent { errno: Errno::ENOENT });
    let unit = |unit: &str| Some(Unsupported::NoUnit { unit: unit.to_owned() });
    let all = vec![unit("cpu"), absent(), absent(), None, unit("uncore_imc")];
    let one = Some(Unsupported::NoCounters { hypervisor: true });
    let joined = |mut causes: Vec<Option<Unsupported>>, cause: Option<Unsupported>| {
        absent::join_causes(&events, &mut causes, || cause);
        causes
    };
    let expected = vec![one.clone(), one.clone(), one.clone(), None, unit("uncore_imc")];
    assert_eq!(joined(all.clone(), one.clone()), expected);
    assert_eq!(joined(all.clone(), None), all, "cycles can be counted");
    for other in [None, Some(Unsupported::CountersBusy)] {
        let some = vec![unit("cpu"), other, absent(), None, unit("uncore_imc")];
        assert_eq!(joined(some.clone(), one.clone()), some);
    }
    let mut software = vec![None];
    absent::join_causes(&events[3..4], &mut software, || panic!("no event of the cores"));
}

#[test]
fn a_machine_without_counters_names_them_and_not_its_events() {
    let process = this_process();
    let target = CounterTarget::Process(&process);
    let events = events(&crate::cpu::read(&Root::live()).unwrap(), &["ipc", "task-clock"]);
    let counters = GroupCounters::open(&Root::live(), target, &events).unwrap();
    let missing: Vec<_> = counters.missing().collect();
    let cause = absent::no_counters(&Root::live());
    requires!(cause.as_ref().ok_or("this machine counts cycles, or forbids it"));
    let cause = cause.unwrap();
    assert_eq!(missing[..2], [(0, &cause), (1, &cause)]);
}
