//! Phases of a recording: by the output of the program, and by its markers.

use std::fs;
use std::path::Path;
use std::process::Command;

use hugepilot_recording::{RecordReport, RecordStop};
use hugepilot_testkit::{need, requires};
use hugepilot_units::Nanos;
use rustix::process::Signal;

use super::{Folder, Recording};
use crate::tool::{HUGEPILOT, Running, hugepilot};

#[test]
fn phases_come_from_the_output_and_from_markers() {
    let folder = Folder::new();
    let script = "echo phase early; echo loaded; sleep 0.4; echo phase one; sleep 0.3; \
                  echo two >>\"$HUGEPILOT_MARKERS\"; sleep 0.3; exit 7";
    let flags = "--no-stalls --from-regex ^loaded --phase-regex ^phase.(.*)";
    let done = folder.run(flags, &["sh", "-c", script]);
    assert_eq!(done.status.code(), Some(7), "{done:?}");
    assert_eq!(done.out(), "phase early\nloaded\nphase one\n");
    let recording = Recording::read(&folder.file());
    assert_eq!(recording.phases(), ["one", "two"]);
    assert_eq!(recording.end().unwrap().exit.as_deref(), Some("7"));
    assert_eq!(recording.head.sampler_missing.as_deref(), Some("disabled by --no-stalls"));
}

#[test]
fn nothing_is_sampled_or_counted_after_the_part() {
    let folder = Folder::new();
    let mut record = Command::new(HUGEPILOT);
    record.args(["record", "--events", "software", "--to-regex", "^end", "-o"]).arg(folder.file());
    record.args(["--", "sh", "-c", "sleep 0.5; echo end; sleep 60"]);
    let mut running = Running::start(record);
    let descriptors = format!("/proc/{}/fd", running.pid());
    let events = || {
        let files = fs::read_dir(&descriptors).unwrap().flatten();
        let targets = files.filter_map(|file| fs::read_link(file.path()).ok());
        targets.filter(|target| target.to_string_lossy().contains("[perf_event]")).count()
    };
    running.until("its events", || events() > 0);
    running.until("their end", || events() == 0);
    assert!(Recording::read(&folder.file()).end().is_some(), "the file is complete");
    running.signal(Signal::INT);
    running.wait(crate::tool::LIMIT);
}

#[test]
fn a_part_without_an_end_is_recorded_to_the_end_of_the_program() {
    let folder = Folder::new();
    let done = folder.run("--no-stalls --to-regex NEVER", &["echo", "loaded"]);
    done.exits(0).says(&["note: recorded: from the start to the end; no line matched"]);
    let flags = "--force --no-stalls --json --duration 0.2s";
    let report: RecordReport = folder.run(flags, &["sleep", "0.8"]).exits(0).json();
    let span = "from the start for the time of --duration";
    assert_eq!((report.stop, report.span.as_deref()), (RecordStop::Duration, Some(span)));
    let flags = "--force --no-stalls --only-phase solve";
    let done = folder.run(flags, &["echo", "loaded"]);
    done.exits(0).says(&["no phase of the program had the name of --only-phase, `solve`; "]);
    hugepilot(["record", "--duration", "0", "--", "true"])
        .exits(2)
        .says(&["--duration is 0", "help: name a time"]);
}

#[test]
fn phases_beyond_the_limit_are_a_warning() {
    let folder = Folder::new();
    let script = "yes \"\" | head -n 30000 >>\"$HUGEPILOT_MARKERS\"; sleep 0.3";
    let done = folder.run("--no-stalls --json", &["sh", "-c", script]);
    let report: RecordReport = done.exits(0).json();
    let recording = Recording::read(&folder.file());
    assert_eq!((report.phases, recording.phases().len()), (10_000, 10_000));
    assert!(report.too_many_phases);
    let warnings: Vec<_> = recording.warnings().collect();
    assert_eq!(warnings, ["more than 10000 phases; later ones are not recorded"]);
}

#[test]
fn phases_come_from_a_c_program_by_the_library() {
    let library = Path::new(HUGEPILOT).with_file_name("libhugepilot.a");
    let built = if library.exists() { Ok(()) } else { Err("libhugepilot.a is not built") };
    requires!(need::c_compiler());
    requires!(built);
    let folder = Folder::new();
    let capi = Path::new(env!("CARGO_MANIFEST_DIR")).join("../capi");
    let program = folder.0.path().join("phases");
    let mut compiler = Command::new("cc");
    compiler.arg(capi.join("tests/c/phases.c")).arg("-I").arg(capi.join("include"));
    compiler.arg(&library).args(["-lgcc_s", "-lpthread", "-lm", "-ldl", "-o"]).arg(&program);
    assert!(compiler.status().unwrap().success());
    let done = folder.run("--no-stalls", &[program.to_str().unwrap()]);
    assert_eq!((done.status.code(), done.out().as_str()), (Some(0), "all checks passed\n"));
    let recording = Recording::read(&folder.file());
    assert_eq!(recording.phases(), ["load it", "solve \u{fffd}"]);
    let starts = recording.phase_times();
    assert!(starts[1] - starts[0] > Nanos::millis(50), "{starts:?}");
}

#[test]
fn a_pattern_without_a_match_is_a_warning() {
    let folder = Folder::new();
    let done = folder.run("--no-stalls --from-regex NEVER", &["echo", "loaded"]);
    assert_eq!((done.status.code(), done.out().as_str()), (Some(0), "loaded\n"));
    let text = String::from_utf8(done.stderr).unwrap();
    let warning = "no line of the program's stdout matched --from-regex `NEVER`; ";
    assert!(text.contains(&format!("warning: {warning}")), "{text}");
    assert!(!text.contains("--only-phase"), "{text}");
    // With samples, of which none is recorded.
    let busy = "timeout 0.3 yes >/dev/null; exit 7";
    let done = folder.run("--force --json --from-regex NEVER", &["sh", "-c", busy]);
    assert_eq!(done.status.code(), Some(7), "{done:?}");
    let report: RecordReport = serde_json::from_slice(&done.stdout).unwrap();
    assert!(!report.began && report.no_begin.is_some() && report.tree.is_none());
    assert_eq!((report.slices, report.processes, report.samples), (0, 0, 0));
    assert_eq!((report.wall_seconds, report.own_cpu_ratio), (0.0, 0.0));
    let recording = Recording::read(&folder.file());
    let end = recording.end().unwrap();
    assert_eq!((end.time, end.samples.total()), (recording.head.started, 0));
    assert_eq!((recording.slices().count(), end.exit.as_deref()), (0, Some("7")));
    assert!(recording.warnings().any(|text| text.starts_with(warning)));
    let shown = hugepilot(["report", folder.file().to_str().unwrap()]);
    shown.exits(0).shows(&["Nothing is recorded: see the warnings.", warning]);
}

#[test]
fn a_begin_within_the_last_slice_is_no_contradiction() {
    let folder = Folder::new();
    let flags = "--json --no-stalls --every 2s --from-regex ^loaded";
    let done = folder.run(flags, &["echo", "loaded"]);
    let report: RecordReport = serde_json::from_str(&done.exits(0).out()).unwrap();
    let recording = Recording::read(&folder.file());
    let warnings: Vec<_> = recording.warnings().collect();
    let text = "the program ended before the first slice; the recording has no values";
    assert_eq!((report.began, &warnings[..]), (true, &[text][..]));
    assert_eq!(recording.slices().count(), 0);
}

#[test]
fn the_markers_of_a_killed_recording_are_removed_by_the_next() {
    let folder = Folder::new();
    let markers = || {
        let all = fs::read_dir(folder.0.path()).unwrap().map(|entry| entry.unwrap().file_name());
        all.filter(|name| name.to_string_lossy().starts_with("hugepilot-markers-")).count()
    };
    let record = |command: &[&str]| {
        let mut record = Command::new(HUGEPILOT);
        record.args(["record", "--no-stalls", "--force", "-o"]).arg(folder.file()).arg("--");
        record.args(command).env("TMPDIR", folder.0.path());
        Running::start(record)
    };
    let mut running = record(&["sleep", "60"]);
    running.until("its markers", || markers() == 1);
    running.signal(Signal::KILL);
    running.wait(crate::tool::LIMIT);
    assert_eq!(markers(), 1);
    record(&["true"]).wait(crate::tool::LIMIT).exits(0);
    assert_eq!(markers(), 0);
}
