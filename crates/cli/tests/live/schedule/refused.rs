//! Traces without a schedule, and schedules that cannot be replayed.

use hugepilot_testkit::{need, requires};

use super::run;
use crate::tool::hugepilot;

#[test]
fn a_simulation_of_a_killed_program_has_a_report_and_no_schedule() {
    requires!(need::all([need::program("qemu-x86_64"), need::program("cc")]));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("schedule.ndjson").display().to_string();
    let words = ["sim", "pcc", "--schedule", &file, "--", "/bin/sh", "-c", "kill -9 $$"];
    let done = hugepilot(words);
    done.exits(2).says(&["cannot write schedule", "signal 9 killed"]);
    assert!(done.out().contains("Decisions of policy pcc"));
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
    of(&shares).exits(2).says(&["event 1 has no seconds", "--schedule-time 20s"]);
    run("tune --policy schedule -p 1").exits(2).says(&["requires a file", "--schedule FILE"]);
    run(&format!("tune --schedule {shown}")).exits(2).says(&["requires a target"]);
    run(&format!("tune --schedule {shown} --policy pcc -p 1")).exits(2);
}
