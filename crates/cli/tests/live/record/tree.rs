//! Use of a program with children that end before they are found.

use std::fs;
use std::path::Path;
use std::process::Command;

use hugepilot_recording::{RecordReport, TreeUse};
use hugepilot_testkit::{compiled, need, requires};
use rustix::process::Signal;

use super::{Folder, Recording};
use crate::tool::{LIMIT, Running, hugepilot};
use crate::workload::sizes;

/// Children, and the MiB that each touches.
const CHILDREN: f64 = 100.0;
const MIB: f64 = 8.0;

fn faults_in_slices(recording: &Recording) -> f64 {
    ["minor_faults", "major_faults"].iter().flat_map(|name| recording.values(name)).sum()
}

#[test]
fn children_that_live_for_milliseconds_are_counted_with_the_tree() {
    requires!(need::c_compiler());
    let folder = Folder::new();
    let program = compiled(Path::new("forks.c"));
    let line = [program.to_str().unwrap(), &CHILDREN.to_string(), &MIB.to_string()];
    let done = folder.run("--no-stalls --json", &line);
    let report: RecordReport = done.exits(0).json();
    let recording = Recording::read(&folder.file());
    let tree = report.tree.expect("the program was started");
    assert_eq!(recording.end().unwrap().tree.as_ref(), Some(&tree));
    let pages = CHILDREN * MIB * f64::from(1 << 20) / sizes().base.as_f64();
    assert!((pages..pages * 1.15).contains(&(tree.faults as f64)), "{tree:?} of {pages}");
    let seen = faults_in_slices(&recording);
    assert_eq!(seen as u64 + tree.unseen_faults, tree.faults);
    assert!(tree.is_much_unseen(), "{tree:?}, {seen} seen");
    assert!(tree.context_switches.unwrap() >= CHILDREN as u64, "{tree:?}");
    let file = folder.file();
    let shown = hugepilot(["report", file.to_str().unwrap()]);
    shown.exits(0).shows(&["children not seen  ", "warning: children not seen: "]);
}

/// The parent of the orphan ends at once. The kernel then gives the orphan to hugepilot.
#[test]
fn orphans_are_recorded_and_counted_with_the_tree() {
    requires!(need::c_compiler());
    let folder = Folder::new();
    let program = compiled(Path::new("forks.c"));
    let ready = tempfile::tempdir().unwrap();
    let done = ready.path().join("done").display().to_string();
    // The orphan is adopted while it sleeps. The program ends once the orphan had its children.
    let orphan = "(sleep 0.3; \"$0\" 50 8; echo >\"$1\"; sleep 0.4) &";
    let script = "sh -c \"$1\" \"$0\" \"$2\"; until test -e \"$2\"; do sleep 0.02; done; sleep 0.5";
    let line = ["sh", "-c", script, program.to_str().unwrap(), orphan, &done];
    let done = folder.run("--no-stalls --json", &line);
    let report: RecordReport = done.exits(0).json();
    let tree = report.tree.expect("the program was started");
    let pages = 50.0 * MIB * f64::from(1 << 20) / sizes().base.as_f64();
    assert!((pages..pages * 1.3).contains(&(tree.faults as f64)), "{tree:?} of {pages}");
}

/// A child started before the recording. When its parent has waited for it, the parent also has its
/// faults from before.
#[test]
fn the_tree_of_a_running_process_has_the_children_since_the_begin() {
    requires!(need::c_compiler());
    let (folder, target) = (Folder::new(), tempfile::tempdir().unwrap());
    let program = compiled(Path::new("forks.c"));
    let wait = "until test -e $D/go; do sleep 0.02; done";
    let script = format!(
        "(\"$0\" 50 8; echo >$D/ready; {wait}) & {wait}; wait; \"$0\" 100 8; echo >$D/done; \
         exec sleep 100"
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).arg(&program).env("D", target.path());
    let mut shell = Running::start(shell);
    shell.until("the first children", || target.path().join("ready").exists());
    let flags = format!("--no-stalls --json --pid {}", shell.pid());
    let mut recorder = folder.start(&flags, &[]);
    let file = folder.file();
    recorder.until("a slice", || fs::metadata(&file).is_ok_and(|about| about.len() > 1200));
    fs::write(target.path().join("go"), "").unwrap();
    recorder.until("all children", || target.path().join("done").exists());
    recorder.signal(Signal::INT);
    let report: RecordReport = recorder.wait(LIMIT).exits(0).json();
    let tree = report.tree.expect("a single process");
    let pages = CHILDREN * MIB * f64::from(1 << 20) / sizes().base.as_f64();
    assert!((pages..pages * 1.15).contains(&(tree.faults as f64)), "{tree:?} of {pages}");
    let seen = faults_in_slices(&Recording::read(&file));
    assert_eq!(seen as u64 + tree.unseen_faults, tree.faults);
    assert!(tree.earlier_processes.is_some_and(|number| number > 0), "{tree:?}");
}

#[test]
fn a_program_without_children_is_seen_whole() {
    requires!(need::c_compiler());
    let folder = Folder::new();
    let program = compiled(Path::new("late.c"));
    let flags = "--no-stalls --json";
    let done = folder.run(flags, &[program.to_str().unwrap(), "64"]);
    let report: RecordReport = done.exits(0).json();
    let TreeUse { faults, unseen_faults, unseen_cpu_seconds, .. } = report.tree.unwrap();
    assert!(faults as f64 >= 64.0 * f64::from(1 << 20) / sizes().base.as_f64(), "{faults}");
    assert_eq!((unseen_faults, unseen_cpu_seconds), (0, 0.0));
}
