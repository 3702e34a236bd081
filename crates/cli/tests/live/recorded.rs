//! `--record` of `tune` and `debloat`: metrics of the targets, and the rounds, on one axis of time.

use std::path::Path;

use hugepilot_policy::round::Round;
use hugepilot_record::{ActOutcome, Pid};
use hugepilot_recording::Line;
use hugepilot_testkit::{need, requires};
use hugepilot_units::{Bytes, Nanos};

use crate::look::{total, tunable};
use crate::record::Recording;
use crate::tool::{ANYWHERE, HUGEPILOT, hugepilot, tune};
use crate::workload::{HOT_SET, Workload, sizes};

const BETWEEN: &str = "Phases between rounds that changed pages";

/// Begin and end of the acts of each round that promoted.
fn acts(recording: &Recording) -> Vec<(Nanos, Nanos)> {
    let rounds = recording.lines.iter().filter_map(|line| match line {
        Line::Journal(line) => serde_json::from_value::<Round>(line.clone()).ok(),
        _ => None,
    });
    let outcomes = rounds.flat_map(|round| round.rows).map(|row| row.outcome);
    let promoted = outcomes.filter(|outcome| {
        outcome.attempts.acts.iter().any(|act| act.outcome == ActOutcome::Verified)
    });
    promoted.map(|outcome| (outcome.begun.unwrap(), outcome.ended.unwrap())).collect()
}

/// Values of a column of the phases between rounds, as CSV has them.
fn column(file: &str, name: &str) -> Vec<f64> {
    let csv = hugepilot(["report", file, "--format", "csv"]).exits(0).out();
    let rows = csv.lines().filter(|row| row.contains(BETWEEN));
    let values = rows.filter_map(|row| row.split_once(&format!(",{name},"))?.1.split_once(','));
    let values = values.map(|(value, _)| value.parse().unwrap_or(f64::NAN)).collect();
    eprintln!("{name}: {values:?}");
    values
}

#[test]
fn a_tune_has_metrics_before_during_and_after_its_promotions() {
    requires!(tunable());
    let workload = Workload::start(HOT_SET);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tune.rec").display().to_string();
    let done = tune(workload.pid(), &format!("{ANYWHERE} --budget 25% --for 3s --record {file}"));
    let report = done.exits(0).report();
    let recording = Recording::read(Path::new(&file));
    assert_eq!(recording.head.every, Nanos::millis(100));
    assert_eq!(recording.head.sampler.as_deref(), Some("rounds of the tune"));
    assert!(matches!(recording.lines.last(), Some(Line::End(_))));

    let acts = acts(&recording);
    let (begun, ended) = (acts[0].0, acts[acts.len() - 1].1);
    let pid = Some(Pid(workload.pid().cast_signed()));
    let faults: Vec<_> = recording.timed("minor_faults").collect();
    assert!(faults.iter().all(|(slice, _)| slice.pid == pid), "the target alone");
    let times: Vec<Nanos> = faults.iter().map(|(slice, _)| slice.time).collect();
    let count = |is_in: &dyn Fn(Nanos) -> bool| times.iter().filter(|time| is_in(**time)).count();
    let parts = [
        count(&|time| time < begun),
        count(&|time| (begun..=ended).contains(&time)),
        count(&|time| time > ended),
    ];
    eprintln!("slices before, during and after: {parts:?}, in rounds: {acts:?}");
    assert!(times.is_sorted() && parts[0] >= 3 && parts[2] >= 3, "{parts:?}");
    assert!(parts[1] >= 1 || ended - begun < Nanos::millis(200), "{parts:?}");

    let thp: Vec<_> = recording.timed("thp").map(|(slice, bytes)| (slice.time, bytes)).collect();
    let before = thp.iter().filter(|(time, _)| *time < begun);
    assert!(before.clone().count() > 0 && before.clone().all(|(_, bytes)| *bytes == 0.0));
    let promoted = sizes().huge.times(report.acts.verified_regions);
    assert_eq!(thp.last().map(|(_, bytes)| *bytes), Some(promoted.as_f64()), "{thp:?}");

    let huge = column(&file, "huge share");
    assert!(huge.len() > 1 && huge[0] == 0.0, "{huge:?}");
    assert!(*huge.last().unwrap() > 0.1, "{huge:?}");
    // Others may have most of the CPU.
    assert!(column(&file, "CPU use").iter().all(|ratio| (0.01..1.3).contains(ratio)));
}

#[test]
fn the_children_of_a_tuned_program_are_recorded() {
    requires!(tunable());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tune.rec").display().to_string();
    let work = "hot-set --footprint 256MiB --hot 64MiB --seconds 2";
    let script = format!("{HUGEPILOT} lab workload {work}; true");
    let flags = format!("tune --json --calibration off --record {file} -- sh -c");
    let words = flags.split_whitespace().chain([&*script]);
    hugepilot(words).sane();
    let recording = Recording::read(Path::new(&file));
    let names: Vec<&str> = recording
        .lines
        .iter()
        .filter_map(|line| match line {
            Line::Process(process) => Some(&*process.id.command),
            _ => None,
        })
        .collect();
    assert!(names.contains(&"sh") && names.contains(&"hugepilot"), "{names:?}");
    let most = recording.timed("rss").map(|(_, bytes)| bytes).fold(0.0, f64::max);
    assert!(most > Bytes::mib(256).as_f64(), "{most}");
}

/// Tests that a workload has its memory on huge pages.
fn is_huge(workload: &Workload, memory: Bytes) -> Result<(), String> {
    let huge = total(workload.pid(), "AnonHugePages");
    if huge < memory { Err(format!("{huge} on huge pages")) } else { Ok(()) }
}

/// Debloats a workload, and returns the recording.
fn debloated(workload: &Workload, file: &str, flags: &str) -> Recording {
    let line = format!("debloat -p {} {flags} --record {file}", workload.pid());
    hugepilot(line.split_whitespace()).exits(0);
    Recording::read(Path::new(file))
}

#[test]
fn a_debloat_has_metrics_before_and_after_its_splits() {
    requires!(need::all([need::live(), need::root()]));
    let workload = Workload::start("random-access --size 256MiB");
    requires!(is_huge(&workload, Bytes::mib(256)));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("debloat.rec").display().to_string();
    let recording = debloated(&workload, &file, "--calibration off --amount 100%");
    let missing = recording.head.sampler_missing.as_deref().unwrap_or_default();
    assert!(missing.starts_with("debloat samples once"), "{missing}");
    let rss: Vec<f64> = recording.timed("rss").map(|(_, bytes)| bytes).collect();
    let freed = rss[0] - rss[rss.len() - 1];
    assert!(rss.len() > 20 && freed > Bytes::mib(100).as_f64(), "{rss:?}");
    let huge = column(&file, "huge share");
    assert!(huge.len() == 2 && huge[0] > 0.9 && huge[1] < 0.2, "{huge:?}");
}

#[test]
fn a_short_debloat_has_the_memory_before_its_splits() {
    requires!(need::all([need::live(), need::root()]));
    let workload = Workload::start("random-access --size 64MiB");
    requires!(is_huge(&workload, Bytes::mib(64)));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("debloat.rec").display().to_string();
    let recording = debloated(&workload, &file, "--order exact --amount 50%");
    for name in ["rss", "thp"] {
        let values: Vec<f64> = recording.timed(name).map(|(_, bytes)| bytes).collect();
        assert!(values[0] >= Bytes::mib(64).as_f64(), "{name}: {values:?}");
        assert!(values[values.len() - 1] < values[0], "{name}: {values:?}");
    }
}
