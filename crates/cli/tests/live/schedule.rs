//! Schedules: the promotions of a tune, replayed on another run of the program at other addresses.

mod refused; // traces without a schedule, and schedules that cannot be replayed

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use hugepilot_kernel::Target;
use hugepilot_policy::tune::{find_mappings, region_at};
use hugepilot_record::schedule::{Schedule, ScheduleAction};
use hugepilot_reports::tune::{ScheduleReport, TuneReport};
use hugepilot_testkit::{Victim, compiled, need, requires};
use hugepilot_units::{Bytes, VirtAddr};
use rustix::process::{Pid, Signal, kill_process};

use crate::look::{huge_now, tunable};
use crate::tool::{Done, HUGEPILOT, LIMIT, Running, hugepilot, tune};
use crate::workload::{SOON, Workload, open, sizes};

/// 128 hot regions of 512: the same ones in each run.
const WORK: &str = "hot-set --footprint 1GiB --hot 256MiB --pages default --seed 7";

fn run(line: &str) -> Done {
    hugepilot(line.split_whitespace())
}

fn read(path: &str) -> Schedule {
    Schedule::read(std::fs::read(path).unwrap().as_slice()).unwrap()
}

/// Mapping (name and size) and index of each promotion.
fn places(schedule: &Schedule) -> BTreeSet<(String, Bytes, u64)> {
    let place = |event: &hugepilot_record::schedule::IndexedEvent| {
        let mapping = &schedule.mappings()[event.mapping as usize];
        (mapping.name.clone(), mapping.bytes, event.index)
    };
    let promoted = schedule.events().iter().filter(|one| one.action == ScheduleAction::Promote);
    promoted.map(place).collect()
}

#[track_caller]
fn replayed(report: &TuneReport) -> &ScheduleReport {
    report.schedule.as_ref().expect("a report of the schedule")
}

/// First addresses of the regions of `workload` that the pagemap shows as huge.
fn huge(workload: &Workload) -> BTreeSet<u64> {
    huge_of(workload.pid())
}

fn huge_of(pid: u32) -> BTreeSet<u64> {
    let process = open(pid);
    let mappings = process.mappings().unwrap();
    let large = mappings.iter().filter(|mapping| mapping.huge > Bytes::ZERO);
    large
        .flat_map(|mapping| sizes().regions_inside(mapping.range))
        .filter(|&region| process.region_pages(region).is_ok_and(|pages| pages.huge))
        .map(|region| region.range(sizes()).start.get())
        .collect()
}

/// Schedule of a tuned workload, written to `folder`, and the workload's hot regions. All tests
/// share one tune.
fn recorded(folder: &Path) -> (String, BTreeSet<u64>) {
    static RECORDED: OnceLock<(Vec<u8>, BTreeSet<u64>)> = OnceLock::new();
    let (schedule, hot) = RECORDED.get_or_init(record);
    let path = folder.join("schedule.ndjson");
    std::fs::write(&path, schedule).unwrap();
    (path.display().to_string(), hot.clone())
}

/// Tunes a workload by `pcc`. Returns its schedule and its hot regions.
fn record() -> (Vec<u8>, BTreeSet<u64>) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (journal, schedule) = (path("tune.ndjson"), path("schedule.ndjson"));
    let workload = Workload::start(WORK);
    let words = format!("--policy pcc --rate 4000 --observe 1s --for 3s --journal {journal}");
    let report = tune(workload.pid(), &words).exits(0).report();
    assert!(report.acts.verified_regions >= 120, "{report:?}");
    run(&format!("explain {journal} --schedule {schedule}")).exits(0);
    assert_eq!(read(&schedule).events().len() as u64, report.acts.verified_regions);
    (std::fs::read(schedule).unwrap(), workload.hot.clone())
}

#[test]
fn what_a_tune_promoted_is_promoted_in_another_run() {
    requires!(tunable());
    let folder = tempfile::tempdir().unwrap();
    let (path, first_hot) = recorded(folder.path());
    let (schedule, second) = (read(&path), Workload::start(WORK));
    assert_ne!(second.hot, first_hot, "the addresses are those of the first run");

    // The oracle finds the regions by itself, before anything is promoted.
    let mappings = open(second.pid()).mappings().unwrap();
    let found = find_mappings(schedule.mappings(), &mappings, sizes(), |_| true);
    let region = |event: &hugepilot_record::schedule::IndexedEvent| {
        let mapping = &mappings[found[event.mapping as usize].unwrap().position];
        region_at(mapping, event.index, sizes()).unwrap().range(sizes()).start.get()
    };
    let expected: BTreeSet<u64> = schedule.events().iter().map(region).collect();
    let hot = expected.intersection(&second.hot).count();
    assert!(hot >= 120, "{hot} of {} hot regions", second.hot.len());

    let dry = tune(second.pid(), &format!("--schedule {path} --dry-run")).exits(0).report();
    let planned = &replayed(&dry).planned;
    let starts: BTreeSet<u64> =
        planned.iter().filter_map(|one| one.start.map(VirtAddr::get)).collect();
    assert_eq!((&starts, huge_now(second.pid())), (&expected, Bytes::ZERO));
    assert!(planned.iter().all(|one| one.skip.is_none() && one.found_by.is_some()));

    let again = folder.path().join("again.ndjson").display().to_string();
    // It ends with the last event; on a busy machine, promotions take longer.
    let words = format!("--schedule {path} --for 20s --journal {again}");
    let report = tune(second.pid(), &words).exits(0).report();
    let counts = replayed(&report);
    assert_eq!(counts.promoted_events, expected.len() as u64, "{report:?}");
    assert_eq!((counts.not_found, counts.resized), (0, 0), "{counts:?}");
    assert_eq!(huge(&second), expected);
    let explained = run(&format!("explain {again} --schedule {path}.again")).exits(0).out();
    assert!(explained.contains("decisions reproduced"), "{explained}");
    assert_eq!(places(&read(&format!("{path}.again"))), places(&schedule));
    eprintln!("{hot} of 128 hot regions; {counts:?}");
}

#[test]
fn a_program_gets_the_schedule_from_its_start() {
    requires!(tunable());
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = recorded(folder.path());
    let journal = folder.path().join("launched.ndjson").display().to_string();
    let mut command = Command::new(HUGEPILOT);
    let line = format!(
        "tune --json --calibration off --max-collapse 2s --schedule {path} --schedule-time 1s \
         --journal {journal} -- {HUGEPILOT} lab workload {WORK} --seconds 0"
    );
    command.args(line.split_whitespace());
    let mut tool = Running::start(command);
    let pid: i32 = tool.until_line("ready ", 0).parse().unwrap();
    let all = sizes().huge.times(read(&path).events().len() as u64);
    tool.until("all events", || huge_now(pid.unsigned_abs()) == all);
    // The last one is verified.
    thread::sleep(Duration::from_secs(1));
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let report = tool.wait(LIMIT).exits(0).report();
    let counts = replayed(&report);
    assert_eq!(counts.promoted_events, counts.events, "{counts:?}");
    run(&format!("explain {journal} --schedule {path}.launched")).exits(0);
    let (first, second) = (read(&path), read(&format!("{path}.launched")));
    let indices = |schedule: &Schedule| -> BTreeSet<u64> {
        schedule.events().iter().map(|event| event.index).collect()
    };
    assert_eq!(indices(&first), indices(&second));
}

#[test]
fn what_a_simulation_of_the_program_planned_is_promoted_in_a_live_run() {
    requires!(need::all([tunable(), need::program("qemu-x86_64"), need::program("cc")]));
    const SMALL: &str = "hot-set --footprint 256MiB --hot 64MiB --pages default --seed 7";
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (file, journal) = (path("schedule.ndjson"), path("sim.ndjson"));
    run(&format!(
        "sim pcc --preset haswell --budget 30% --interval 500000 --schedule {file} \
         --journal {journal} -- {HUGEPILOT} lab workload {SMALL} --ops 2000000"
    ))
    .exits(0);
    let explained = run(&format!("explain {journal}")).exits(0).out();
    assert!(explained.contains("decisions reproduced"), "{explained}");
    let schedule = read(&file);
    assert!(schedule.events().len() >= 30, "{} of 32 hot regions", schedule.events().len());

    let workload = Workload::start(SMALL);
    let words = format!("--schedule {file} --schedule-time 2s --for 20s");
    let report = tune(workload.pid(), &words).exits(0).report();
    let counts = replayed(&report);
    let hot = huge(&workload).intersection(&workload.hot).count();
    assert!(hot >= 30, "{hot} of 32 hot regions, {counts:?}");
}

/// Under QEMU, the arrays of this program are in one mapping, in the order of their allocation.
#[test]
fn a_simulation_finds_an_array_among_merged_ones() {
    requires!(need::all([tunable(), need::program("qemu-x86_64"), need::program("cc")]));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("schedule.ndjson").display().to_string();
    let program = compiled(Path::new("holes.c")).display().to_string();
    let flags = "--preset haswell --budget 12% --interval 500000";
    run(&format!("sim pcc {flags} --schedule {file} -- {program} 2000000")).exits(0);
    let events = read(&file).events().len();
    assert!(events >= 5, "{events} of 9 hot regions");

    let victim = Victim::c("holes.c", &[]);
    let hot = victim.ready(SOON).memory;
    let words = format!("--schedule {file} --schedule-time 1s --for 20s --max-added 100%");
    let report = tune(victim.pid(), &words).exits(0).report();
    let counts = replayed(&report);
    assert_eq!((counts.promoted_events, counts.resized), (events as u64, 0), "{counts:?}");
    let all = huge_of(victim.pid());
    assert_eq!(all.len(), events);
    assert!(all.iter().all(|&start| hot.contains(VirtAddr::new(start))), "{all:x?} {hot:?}");
}
