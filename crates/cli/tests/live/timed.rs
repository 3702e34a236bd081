//! `record` and `compare`: values that depend on times, which other tests would lengthen.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use hugepilot_record::Mode;
use hugepilot_recording::{RecordReport, RecordStop};
use hugepilot_reports::compare::CompareReport;
use hugepilot_reports::run::{CompareWarning, RunWarning};
use hugepilot_testkit::{compiled, need, requires};
use rustix::process::{Pid, Signal, kill_process};

use crate::record::{Folder, Recording};
use crate::signals::state;
use crate::tool::{HUGEPILOT, LIMIT, Running, hugepilot};
use crate::workload::sizes;

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
const PARTS: &str = "busy() { timeout 0.5 yes >/dev/null; }; \
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

#[test]
fn a_program_that_ends_within_a_slice_has_all_its_values() {
    requires!(need::c_compiler());
    let folder = Folder::new();
    let program = compiled(Path::new("late.c"));
    let flags = "--no-stalls --every 5s --events page-faults";
    folder.run(flags, &[program.to_str().unwrap(), "128"]).exits(0);
    let recording = Recording::read(&folder.file());
    let pages = f64::from(128 << 20) / sizes().base.as_f64();
    for name in ["minor_faults", "page_faults"] {
        let faults: f64 = recording.values(name).iter().sum();
        assert!((pages..pages * 1.1).contains(&faults), "{name}: {faults} of {pages}");
    }
    let [peak] = recording.values("rss_peak")[..] else { panic!("one peak at its end") };
    assert!((128.0..140.0).contains(&(peak / f64::from(1 << 20))), "{peak}");
    for name in ["voluntary_switches", "involuntary_switches"] {
        let switches: f64 = recording.values(name).iter().sum();
        assert!(switches < 1000.0 && recording.values(name).len() == 1, "{name}: {switches}");
    }
}

#[test]
fn events_of_a_child_are_its_own() {
    requires!(need::c_compiler());
    let folder = Folder::new();
    let program = compiled(Path::new("late.c"));
    // The child is found before it touches its memory.
    let script = "(sleep 0.5; exec \"$0\" 128) & wait; sleep 0.3";
    let flags = "--no-stalls --events page-faults";
    folder.run(flags, &["sh", "-c", script, program.to_str().unwrap()]).exits(0);
    let recording = Recording::read(&folder.file());
    let metric = recording.head.metrics.iter().find(|metric| metric.name == "page_faults").unwrap();
    requires!(metric.missing.clone().map_or(Ok(()), Err));
    let pages = f64::from(128 << 20) / sizes().base.as_f64();
    let mut faults = BTreeMap::<_, f64>::new();
    for (slice, more) in recording.timed("page_faults") {
        *faults.entry(slice.pid).or_default() += more;
    }
    let own = faults.values().copied().fold(0.0, f64::max);
    let others = faults.values().sum::<f64>() - own;
    assert!((pages..pages * 1.1).contains(&own), "{own} of {pages}");
    assert!(others < pages * 0.1, "{others} of other processes");
}

#[test]
fn the_tree_is_counted_from_the_begin_of_a_recording_that_waits() {
    requires!(need::c_compiler());
    let folder = Folder::new();
    let program = compiled(Path::new("forks.c"));
    let script = "\"$0\" 50 8; echo loaded; sleep 0.3; \"$0\" 10 8; sleep 0.3";
    let flags = "--no-stalls --json --from-regex ^loaded";
    let done = folder.run(flags, &["sh", "-c", script, program.to_str().unwrap()]);
    let report: RecordReport = done.exits(0).json();
    let tree = report.tree.expect("the program was started");
    let pages = 10.0 * 8.0 * f64::from(1 << 20) / sizes().base.as_f64();
    assert!((pages..pages * 1.3).contains(&(tree.faults as f64)), "{tree:?} of {pages}");
    assert_eq!(tree.context_switches, None);
}

#[test]
fn a_run_of_compare_that_was_stopped_is_made_again() {
    requires!(need::live());
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    // The first run is not timed.
    let script = "echo x >>$D/runs; \
                  test $(wc -l <$D/runs) = 2 && { echo $$ >$D/pid; kill -STOP $$; }; sleep 0.05";
    let mut command = Command::new(HUGEPILOT);
    command.args("compare --json --no-stalls --modes glibc-thp --rounds 1 -- sh -c".split(' '));
    command.arg(script).env("D", folder.path());
    let mut tool = Running::start(command);
    let pid = || Pid::from_raw(fs::read_to_string(path("pid")).ok()?.trim().parse().ok()?);
    tool.until("it is stopped", || pid().is_some_and(|pid| state(pid) == Some('T')));
    std::thread::sleep(Duration::from_millis(1500));
    kill_process(pid().unwrap(), Signal::CONT).unwrap();
    let report: CompareReport = tool.wait(LIMIT).json();
    assert!(report.modes[0].wall_seconds.unwrap().max < 1.5, "{report:?}");
    let repeated = CompareWarning { mode: Some(Mode::Base), warning: RunWarning::RunRepeated };
    assert!(report.warnings.contains(&repeated), "{report:?}");
    assert_eq!(fs::read_to_string(path("runs")).unwrap().lines().count(), 4, "one of base more");
}
