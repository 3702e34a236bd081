//! Programs that xtask runs, and the counts of tests in their output.

use std::cmp::Reverse;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::iter::Sum;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

use anyhow::{Context, Result, ensure};

/// Tests in the list of the slowest.
const SLOWEST: usize = 20;

/// The folder of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_owned()
}

/// The folder in which cargo builds.
pub(crate) fn target() -> PathBuf {
    root().join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// `cargo ARGS` in the workspace, with the cargo that runs this program.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    command
}

/// `command` at a priority that uses a CPU only while nothing else does.
pub(crate) fn when_idle(command: &Command) -> Command {
    let mut idle = beside(command, "chrt".as_ref());
    idle.args(["--idle", "0"]).arg(command.get_program()).args(command.get_args());
    idle
}

/// `program` in the folder and with the variables of `command`, without arguments.
pub(crate) fn beside(command: &Command, program: &OsStr) -> Command {
    let mut other = Command::new(program);
    command.get_current_dir().map(|folder| other.current_dir(folder));
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => other.env(name, value),
            None => other.env_remove(name),
        };
    }
    other
}

/// Whether a program of that name is in `PATH`.
pub(crate) fn in_path(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .any(|folder| fs::metadata(folder.join(name)).is_ok_and(|file| file.is_file()))
}

/// Runs `command` with inherited stdout and stderr; an error unless it exits 0.
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

/// Runs `command` without input, with inherited stderr, and returns its stdout; an error unless it
/// exits 0.
pub(crate) fn stdout(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let done = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let done = done.with_context(|| shown.clone())?;
    ensure!(done.status.success(), "{shown}: {}", done.status);
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// Prints the slowest tests.
pub(crate) fn print_slowest(mut times: Vec<(Duration, String)>) {
    times.sort_by_key(|&(time, _)| Reverse(time));
    println!("\nslowest tests:");
    for (time, name) in times.iter().take(SLOWEST) {
        println!("{:>8.1} s  {name}", time.as_secs_f64());
    }
}

/// Runs `command`, prints its stdout line by line, and counts the tests in it. Calls `finished` for
/// each test that ended, with the time since the line before.
pub(crate) fn run_tests(
    command: &mut Command,
    mut finished: impl FnMut(Duration, &str),
) -> Result<Tests> {
    let shown = show(command);
    println!("$ {shown}");
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| shown.clone())?;
    let stdout = child.stdout.take().context("stdout is piped")?;
    let (mut tests, mut last) = (Vec::new(), Instant::now());
    for line in BufReader::new(stdout).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        tests.extend(Tests::read(&line));
        if let Some(name) = finished_test(&line) {
            finished(last.elapsed(), name);
        }
        last = Instant::now();
    }
    let status = child.wait()?;
    ensure!(status.success(), "{shown}: {status}");
    Ok(tests.into_iter().sum())
}

/// Reads the name from `test NAME ... ok`.
fn finished_test(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.split_once(" ... ").map(|(name, _)| name)
}

/// The command line without the folder of the program.
pub(crate) fn show(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Counts of tests, from the result lines of test programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tests {
    /// Passed, including those that skipped themselves.
    pub(crate) passed: u64,
    /// Marked `#[ignore]`.
    pub(crate) ignored: u64,
}

impl Tests {
    /// Reads `test result: ok. 13 passed; 0 failed; 2 ignored; …`.
    pub(crate) fn read(line: &str) -> Option<Self> {
        let counts = line.strip_prefix("test result: ")?.split_once(". ")?.1;
        let count =
            |name| counts.split("; ").find_map(|part| part.strip_suffix(name)?.trim().parse().ok());
        Some(Self { passed: count("passed")?, ignored: count("ignored")? })
    }
}

impl Sum for Tests {
    fn sum<I: Iterator<Item = Self>>(runs: I) -> Self {
        runs.fold(Self::default(), |sum, run| Self {
            passed: sum.passed + run.passed,
            ignored: sum.ignored + run.ignored,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_result_lines() {
        let line = "test result: ok. 13 passed; 0 failed; 2 ignored; 0 measured; 1 filtered out; \
                    finished in 0.02s";
        assert_eq!(Tests::read(line), Some(Tests { passed: 13, ignored: 2 }));
        let line =
            "test result: FAILED. 12 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!(Tests::read(line), Some(Tests { passed: 12, ignored: 0 }));
        assert_eq!(finished_test("test live::a ... ok"), Some("live::a"));
        assert_eq!(finished_test("test result: ok. 1 passed"), None);
        for line in ["test a ... ok", "test result: ", "running 13 tests", ""] {
            assert_eq!(Tests::read(line), None, "{line}");
        }
    }

    #[test]
    fn an_idle_command_has_its_folder_and_variables() {
        let mut command = Command::new("sh");
        command.args(["-c", "chrt --pid $$; pwd; echo $A"]).current_dir("/").env("A", "b");
        let text = output(&mut when_idle(&command)).unwrap();
        assert!(text.contains("SCHED_IDLE") && text.ends_with("\n/\nb\n"), "{text}");
    }

    #[test]
    fn a_failing_program_is_an_error() {
        assert!(run(&mut Command::new("true")).is_ok());
        let error = run(&mut Command::new("false")).unwrap_err().to_string();
        assert!(error.starts_with("false: exit"), "{error}");
        let error = stdout(&mut Command::new("false")).unwrap_err().to_string();
        assert!(error.starts_with("false: exit"), "{error}");
        assert_eq!(stdout(Command::new("echo").arg("a")).unwrap(), "a\n");
    }
}
