//! Test programs: built with cargo, run two at a time.
//!
//! Each program already runs its tests on all CPUs. A second one uses the time in which the tests
//! of the first wait for something.

use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::run::{TestReader, Tests, cargo, show};

/// Programs that run at the same time.
const PARALLEL: usize = 2;

/// Arguments for all tests but the live ones.
const WORKSPACE: [&str; 2] = ["--workspace", "--all-features"];

/// Name of the Miri run.
pub(super) const MIRI: &str = "Miri";

/// A program whose output counts tests.
pub(super) struct Program {
    pub(super) name: String,
    pub(super) command: Command,
}

/// Result of a program.
pub(super) struct ProgramResult {
    pub(super) name: String,
    pub(super) tests: Tests,
    pub(super) seconds: f64,
}

/// Builds the tests of the workspace; returns their programs and the command for the doctests.
pub(super) fn build() -> Result<Vec<Program>> {
    let mut programs = build_tests(&WORKSPACE)?;
    let mut doctests = cargo(&["test", "--doc"]);
    doctests.args(WORKSPACE);
    programs.push(Program { name: "doctests".to_owned(), command: doctests });
    // The long ones first: no program should run alone at the end.
    programs.sort_by_key(|program| !program.name.contains(" tests/"));
    Ok(programs)
}

/// Builds the tests that the arguments select, and returns their programs.
pub(super) fn build_tests(selected: &[&str]) -> Result<Vec<Program>> {
    let mut build = cargo(&["test", "--no-run", "--message-format=json-render-diagnostics"]);
    build.args(selected).stdout(Stdio::piped());
    println!("$ {}", show(&build));
    let mut child = build.spawn().context("cargo")?;
    let stdout = child.stdout.take().context("stdout is piped")?;
    let mut programs = Vec::new();
    for line in BufReader::new(stdout).lines() {
        programs.extend(test_program(&line?));
    }
    let status = child.wait()?;
    ensure!(status.success(), "cargo test --no-run: {status}");
    Ok(programs)
}

/// Reads a message of cargo that names a test program.
fn test_program(message: &str) -> Option<Program> {
    let message: Value = serde_json::from_str(message).ok()?;
    let is_test = message["profile"]["test"].as_bool()?;
    let executable = message["executable"].as_str().filter(|_| is_test)?;
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
    let target = message["target"]["src_path"].as_str().map(Path::new)?;
    let source = target.strip_prefix(folder).unwrap_or(target);
    let package = folder.file_name()?.to_string_lossy();
    let mut command = Command::new(executable);
    // As cargo starts it.
    command.current_dir(folder).env("CARGO_MANIFEST_DIR", folder);
    Some(Program { name: format!("{package} {}", source.display()), command })
}

/// Tests of `alloc` that run under Miri: code on raw memory, without the ones that take minutes
/// there.
const MIRI_TESTS: [&str; 7] = [
    "arena::",
    "heap::span::",
    "plain::",
    "region::grow::",
    "vec::",
    "--skip",
    "vec::tests::a_vector_behaves_like_vec",
];

/// The program that runs them.
pub(super) fn miri(mut miri: Command) -> Program {
    miri.args(["test", "--package", "hugepilot-alloc", "--lib", "--"]).args(MIRI_TESTS);
    miri.env("MIRIFLAGS", "-Zmiri-permissive-provenance").current_dir(crate::run::root());
    Program { name: MIRI.to_owned(), command: miri }
}

/// Runs all `programs`, in order. Prints the output of each when it ends.
pub(super) fn run(programs: Vec<Program>) -> Vec<ProgramResult> {
    let waiting = Mutex::new(VecDeque::from(programs));
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    thread::scope(|scope| {
        let work = || std::iter::from_fn(|| next().map(run_one)).collect::<Vec<_>>();
        let workers: Vec<_> = (0..PARALLEL).map(|_| scope.spawn(work)).collect();
        let results = workers.into_iter().map(|worker| worker.join().expect("no program panics"));
        results.flatten().collect()
    })
}

/// Runs a program, and prints its output when it ends.
pub(super) fn run_one(Program { name, command }: Program) -> ProgramResult {
    let started = Instant::now();
    let tests = TestReader::finish(&name, read(&name, command));
    ProgramResult { name, tests, seconds: started.elapsed().as_secs_f64() }
}

fn read(name: &str, mut command: Command) -> Result<(TestReader, ExitStatus)> {
    // Both streams share one file and its position, so lines keep their order.
    let output = tempfile::NamedTempFile::new().context("temporary file")?;
    let [stdout, stderr] = [output.as_file().try_clone()?, output.as_file().try_clone()?];
    let started = Instant::now();
    let status = command.stdout(stdout).stderr(stderr).stdin(Stdio::null()).status()?;
    let seconds = started.elapsed().as_secs_f64();
    let text = String::from_utf8_lossy(&fs::read(output.path())?).into_owned();
    println!("\n-- {name}: {status}, {seconds:.1} s\n{text}");
    let mut reader = TestReader::default();
    text.lines().for_each(|line| reader.add(line));
    Ok((reader, status))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::run::output;

    fn shell(name: &str, script: &str) -> Program {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Program { name: name.to_owned(), command }
    }

    #[test]
    fn results_of_all_programs_are_counted() {
        let script = "echo 'test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured'";
        let finished = run((0..5).map(|i| shell(&i.to_string(), script)).collect());
        let tests: Tests = finished.into_iter().map(|run| run.tests).sum();
        assert_eq!(tests, Tests { passed: 10, ignored: 5, failed: Vec::new() });
    }

    #[test]
    fn a_failure_hides_no_other_program() {
        let list = "printf 'failures:\n    t::a\n\ntest result: FAILED. 0 passed; 1 failed; \
                    0 ignored\n'; exit 101";
        let ok = "echo 'test result: ok. 2 passed; 0 failed; 0 ignored'";
        let programs = [("bad", "exit 3"), ("worse", list), ("late", ok), ("last", ok)];
        let finished = run(programs.map(|(name, script)| shell(name, script)).into());
        let mut tests: Tests = finished.into_iter().map(|run| run.tests).sum();
        tests.failed.sort();
        assert_eq!(tests.failed, ["bad: exit status: 3", "worse: t::a"]);
        assert_eq!(tests.passed, 4);
    }

    #[test]
    fn test_programs_are_read_from_messages_of_cargo() {
        let message = r#"{"reason":"compiler-artifact","manifest_path":"/w/crates/a/Cargo.toml",
            "target":{"src_path":"/w/crates/a/tests/b.rs"},"profile":{"test":true},
            "executable":"/w/target/debug/deps/b-1"}"#;
        let program = test_program(message).unwrap();
        assert_eq!(program.name, "a tests/b.rs");
        assert_eq!(program.command.get_program(), "/w/target/debug/deps/b-1");
        assert!(test_program(&message.replace("true", "false")).is_none());
        assert!(test_program(r#"{"reason":"build-finished"}"#).is_none());
    }

    /// Packages and their features that cargo builds for these arguments.
    fn dependencies(args: &[&str]) -> BTreeSet<String> {
        let tree = ["tree", "--prefix", "none", "--format", "{p} {f}"];
        let text = output(&mut cargo(&[&tree, args].concat())).unwrap();
        // A repeated package has a mark.
        text.lines().map(|line| line.trim_end_matches(" (*)").trim_end().to_owned()).collect()
    }

    #[test]
    fn xtask_and_the_tests_share_their_dependencies() {
        let tests = dependencies(&WORKSPACE);
        let xtask = dependencies(&["--package", "xtask", "--edges", "normal,build"]);
        assert!(xtask.len() > 30 && xtask.len() < tests.len(), "{xtask:?}");
        let built_twice: Vec<_> = xtask.difference(&tests).collect();
        assert!(built_twice.is_empty(), "xtask/Cargo.toml lacks features: {built_twice:#?}");
    }
}
