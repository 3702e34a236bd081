//! Running other programs, and reading what cargo says of its tests.

use std::io::{BufRead, BufReader};
use std::ops::AddAssign;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use anyhow::{Context, Result, ensure};

/// The folder of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_owned()
}

/// Where cargo builds.
pub(crate) fn target() -> PathBuf {
    root().join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// `cargo ARGS`, in the workspace; the same cargo that runs us.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    command
}

/// A program of that name is in `PATH`.
pub(crate) fn in_path(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .any(|folder| fs::metadata(folder.join(name)).is_ok_and(|file| file.is_file()))
}

/// Runs `command` with our own stdout and stderr; an error unless it exits 0.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = show(command);
    println!("$ {shown}");
    let status = command.status().with_context(|| shown.clone())?;
    ensure!(status.success(), "{shown}: {status}");
    Ok(())
}

/// Runs `command` and returns its stdout, or its stderr as an error.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{program}: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs `command`, passes its stdout on line by line, and counts the tests that it reports.
pub(crate) fn run_tests(command: &mut Command) -> Result<Tests> {
    let shown = show(command);
    println!("$ {shown}");
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| shown.clone())?;
    let stdout = child.stdout.take().context("stdout is piped")?;
    let mut tests = Tests::default();
    for line in BufReader::new(stdout).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        if let Some(more) = Tests::read(&line) {
            tests += more;
        }
    }
    let status = child.wait()?;
    ensure!(status.success(), "{shown}: {status}");
    Ok(tests)
}

fn show(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// How many tests did what, as the test programs print it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tests {
    /// Passed, those that skipped themselves among them.
    pub(crate) passed: u64,
    /// Marked `#[ignore]`.
    pub(crate) ignored: u64,
}

impl Tests {
    /// Reads `test result: ok. 13 passed; 0 failed; 2 ignored; …`.
    fn read(line: &str) -> Option<Self> {
        let counts = line.strip_prefix("test result: ")?.split_once(". ")?.1;
        let count =
            |name| counts.split("; ").find_map(|part| part.strip_suffix(name)?.trim().parse().ok());
        Some(Self { passed: count("passed")?, ignored: count("ignored")? })
    }
}

impl AddAssign for Tests {
    fn add_assign(&mut self, more: Self) {
        self.passed += more.passed;
        self.ignored += more.ignored;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_result_lines() {
        let line = "test result: ok. 13 passed; 0 failed; 2 ignored; 0 measured; 1 filtered out; finished in 0.02s";
        assert_eq!(Tests::read(line), Some(Tests { passed: 13, ignored: 2 }));
        let line =
            "test result: FAILED. 12 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!(Tests::read(line), Some(Tests { passed: 12, ignored: 0 }));
        for line in ["test a ... ok", "test result: ", "running 13 tests", ""] {
            assert_eq!(Tests::read(line), None, "{line}");
        }
    }

    #[test]
    fn a_failing_program_is_an_error() {
        assert!(run(&mut Command::new("true")).is_ok());
        let error = run(&mut Command::new("false")).unwrap_err().to_string();
        assert!(error.starts_with("false: exit"), "{error}");
    }
}
