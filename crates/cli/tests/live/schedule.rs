//! Schedules: the promotions of a tune, replayed on another run of the program at other addresses.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::OnceLock;

use hugepilot_kernel::Target;
use hugepilot_policy::tune::{find_mappings, region_at};
use hugepilot_record::schedule::{Schedule, ScheduleAction};
use hugepilot_record::tune::{ScheduleReport, TuneReport};
use hugepilot_testkit::{Victim, compiled, need, requires};
use hugepilot_units::{Bytes, VirtAddr};

use crate::look::{huge_now, tunable};
use crate::tool::{Done, HUGEPILOT, hugepilot, tune};
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
    let words = format!("--policy pcc --rate 2000 --observe 500ms --for 2s --journal {journal}");
    let report = tune(workload.pid(), &words).exits(0).report();
    assert!(report.verified_regions >= 120, "{report:?}");
    run(&format!("explain {journal} --schedule {schedule}")).exits(0);
    assert_eq!(read(&schedule).events().len() as u64, report.verified_regions);
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
    let done = run(&format!(
        "tune --json --calibration off --max-collapse 2s --schedule {path} --schedule-time 2s \
         --journal {journal} -- {HUGEPILOT} lab workload {WORK} --seconds 4"
    ));
    let report = done.exits(0).report();
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
        "sim pcc --budget 30% --interval 500000 --schedule {file} --journal {journal} \
         -- {HUGEPILOT} lab workload {SMALL} --ops 2000000"
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
    run(&format!("sim pcc --budget 12% --interval 500000 --schedule {file} -- {program} 2000000"))
        .exits(0);
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

#[test]
fn a_simulation_of_a_killed_program_has_a_report_and_no_schedule() {
    requires!(need::all([need::program("qemu-x86_64"), need::program("cc")]));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("schedule.ndjson").display().to_string();
    let words = ["sim", "pcc", "--schedule", &file, "--", "/bin/sh", "-c", "kill -9 $$"];
    let done = hugepilot(words);
    done.exits(2).says(&["cannot write schedule", "signal 9 killed"]);
    assert!(done.out().contains("decisions of policy pcc"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "no file is left");
}

/// The times of such a trace are not those of the program.
#[test]
fn a_stored_trace_of_a_part_has_a_report_and_no_schedule() {
    requires!(need::all([need::program("qemu-x86_64"), need::program("cc")]));
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (trace, schedule) = (path("part.trace"), path("schedule.ndjson"));
    let simulate = |options: &str, script: &str| {
        let words =
            ["trace", "--force", "-o", &trace].into_iter().chain(options.split_whitespace());
        hugepilot(words.chain(["--", "/bin/sh", "-c", script])).exits(0);
        hugepilot(["sim", "pcc", "--interval", "1000", "--schedule", &schedule, &trace])
    };
    for (options, script, cause, help) in [
        ("--skip 2000", "true", "--skip 2000", "trace the program without --skip"),
        ("--skip 9 --window 10/100", "true", "--skip 9", "without --skip and --window"),
        ("--max-accesses 5000", "true", "--max-accesses ended", "without --max-accesses"),
        ("--max-bytes 4KiB", "true", "--max-bytes ended", "simulate the program itself: -- CMD"),
        ("", "kill -9 $$", "signal 9 killed", "a complete trace of it"),
    ] {
        let done = simulate(options, script);
        done.exits(2).says(&["cannot write schedule", cause, help]);
        let notice =
            done.out().lines().any(|line| line.starts_with("warning:") && line.contains(cause));
        assert!(notice, "{done:?}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "only the trace is left");
    }
    // A part that has all: the limits are not reached. It has no region to promote.
    let done = simulate("--window 100000000/200000000 --max-accesses 100000000", "exit 3");
    done.exits(2).says(&["cannot write schedule", "the policy promoted no region"]);
    assert!(done.out().contains("the program exited with status 3"), "{done:?}");
}

#[test]
fn a_schedule_that_cannot_be_replayed_is_an_error_with_its_cause() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("schedule.ndjson");
    let shown = path.display().to_string();
    let of = |text: &str| {
        std::fs::write(&path, text).unwrap();
        run(&format!("tune --calibration off --schedule {shown} -- true"))
    };
    let header = r#"{"schema":"hugepilot.schedule/1","program":"","source":"","policy":""}"#;
    let event = |at: &str| {
        let mapping = r#"{"name":"[anon]","ordinal":0,"bytes":4194304}"#;
        format!("{{\"at\":{at},\"action\":\"promote\",\"mapping\":{mapping},\"index\":0}}")
    };
    of(header).exits(2).says(&[&shown, "it has no event"]);
    of("x").exits(2).says(&["line 1: not a schedule", "explain FILE --schedule OUT"]);
    let wrong = format!("{header}\n{}", event("{\"seconds\":-4}"));
    of(&wrong).exits(2).says(&["line 2: at.seconds", "-4", "hugepilot schema schedule"]);
    let shares = format!("{header}\n{}", event("{\"share\":0.5}"));
    of(&shares).exits(2).says(&["event 1 has no seconds", "--schedule-time TIME"]);
    run("tune --policy schedule -p 1").exits(2).says(&["requires a file", "--schedule FILE"]);
    run(&format!("tune --schedule {shown}")).exits(2).says(&["requires a target"]);
    run(&format!("tune --schedule {shown} --policy pcc -p 1")).exits(2);
}
