//! A program that kills the process with which hugepilot watches it.

use hugepilot_testkit::{need, requires};

use crate::tool::{Done, hugepilot};

/// Runs `hugepilot WORDS -- sh -c …` of a program that kills its parent. By itself, it would
/// outlast the limit of a run.
fn killed(words: &str) -> Done {
    let script = "kill -9 $PPID; sleep 600";
    hugepilot(words.split_whitespace().chain(["--", "sh", "-c", script]))
}

#[test]
fn a_killed_watcher_ends_each_command_with_that_error() {
    requires!(need::live());
    requires!(need::cap_perfmon());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file").display().to_string();
    let table = [
        "tune --calibration off".to_owned(),
        "tune --calibration off --baseline".to_owned(),
        format!("record -o {file}"),
        "compare --rounds 1 --modes thp".to_owned(),
    ];
    for words in table {
        let said = ["cannot follow \"sh\"", "was killed", "help: check whether"];
        killed(&words).exits(2).says(&said);
    }
}

#[test]
fn a_killed_watcher_of_a_traced_program_is_an_error() {
    requires!(need::live());
    requires!(need::program("qemu-x86_64"));
    requires!(need::c_compiler());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file").display().to_string();
    let done = killed(&format!("trace -o {file}"));
    done.exits(2).says(&["cannot follow", "qemu-x86_64", "was killed", "help: check whether"]);
}
