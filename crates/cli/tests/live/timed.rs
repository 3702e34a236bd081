//! `record`: times of recordings, which other tests would lengthen.

use hugepilot_record::recording::{RecordReport, RecordStop};

use crate::record::{Folder, Recording};
use crate::tool::{HUGEPILOT, hugepilot};

#[test]
fn reading_symbols_takes_no_time_of_the_recording() {
    let folder = Folder::new();
    let script = "cut -d' ' -f1 /proc/uptime; \
                  \"$0\" lab workload gups --footprint 16MiB --seconds 300ms >&2; \
                  echo end >>\"$HUGEPILOT_MARKERS\"; cut -d' ' -f1 /proc/uptime";
    let done = folder.run("", &["sh", "-c", script, HUGEPILOT]);
    let times: Vec<f64> = done.exits(0).out().lines().map(|line| line.parse().unwrap()).collect();
    let recording = Recording::read(&folder.file());
    let end = recording.end().unwrap().time;
    let took = (end - recording.head.started).as_seconds();
    eprintln!("{took:.3} s of {times:?}");
    assert!(recording.phase_times()[0] <= end);
    assert!(took < times[1] - times[0] + 0.3, "{took} s of {times:?}");
}

/// CPU time of the processes of the recording, in seconds.
fn cpu_seconds(recording: &Recording) -> f64 {
    ["user_time", "system_time"].iter().flat_map(|name| recording.values(name)).sum::<f64>() * 1e-9
}

/// A shell program that sleeps, and then is busy.
const PARTS: &str = "busy() { n=0; while [ $n -lt 400000 ]; do n=$((n + 1)); done; }; \
                     echo begin; echo first >>\"$HUGEPILOT_MARKERS\"; sleep 0.6; \
                     echo end; echo next >>\"$HUGEPILOT_MARKERS\"; busy; echo end; exit 7";

#[test]
fn a_recording_ends_with_its_part_and_the_program_runs_on() {
    for (flags, span) in [
        ("--to-regex ^end", "from the start to the first that matches `^end`"),
        (
            "--from-regex ^begin --to-regex ^end",
            "from the first line that matches `^begin` to the first that matches `^end`",
        ),
        ("--only-phase first", "phase first, to its end"),
    ] {
        let folder = Folder::new();
        let done = folder.run(&format!("--no-stalls --json {flags}"), &["sh", "-c", PARTS]);
        assert_eq!(done.status.code(), Some(7), "{done:?}");
        assert!(done.err().matches("end\n").count() >= 2, "the program ran on: {done:?}");
        let report: RecordReport = done.json();
        assert_eq!((report.stop, report.span.as_deref()), (RecordStop::Phase, Some(span)));
        assert!((0.4..1.0).contains(&report.wall_seconds), "{flags}: {}", report.wall_seconds);
        let recording = Recording::read(&folder.file());
        assert_eq!(recording.end().unwrap().span.as_deref(), Some(span));
        let busy = cpu_seconds(&recording);
        assert!(busy < 0.2, "{flags}: {busy} s of the sleep, not of the busy part");
        let shown = hugepilot(["report", folder.file().to_str().unwrap()]);
        shown.exits(0).shows(&[&format!("{span}.")]);
    }
}
