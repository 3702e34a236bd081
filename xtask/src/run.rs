//! Programs that xtask runs, and the counts of tests in their output.

use std::cmp::Reverse;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::iter::Sum;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

use anyhow::{Context, Result, ensure};
use serde::de::DeserializeOwned;

/// Tests in the list of the slowest.
const SLOWEST: usize = 20;
/// Characters of a panic in the list of failed tests.
const PANIC_CHARS: usize = 600;

/// The checkout on which xtask acts: that of the cargo that started it, else that of the current
/// directory. Checkouts with one target folder share the program, so it must not compile a path in.
///
/// # Errors
/// Neither lies in a checkout.
pub(crate) fn find_root() -> Result<PathBuf> {
    let package = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let starts = package.into_iter().chain(env::current_dir());
    let is_root = |folder: &&Path| folder.join("xtask/Cargo.toml").is_file();
    let root = |start: PathBuf| start.ancestors().find(is_root).map(Path::to_owned);
    starts
        .into_iter()
        .find_map(root)
        .context("no folder above the current one has xtask/Cargo.toml")
}

/// The folder of the workspace, which `main` has found.
pub(crate) fn root() -> PathBuf {
    find_root().expect("xtask runs in a checkout")
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

/// Makes memory of cached files free, and joins free memory to huge pages, as root. Without root,
/// measurements and tests report what they lack.
pub(crate) fn join_free_memory() {
    for file in ["drop_caches", "compact_memory"] {
        let _ = fs::write(format!("/proc/sys/vm/{file}"), "1");
    }
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

/// Runs `command` without input, and reads the JSON on its stdout. A status of 1 is an answer, too.
pub(crate) fn json<T: DeserializeOwned>(command: &mut Command) -> Result<T> {
    let shown = show(command);
    let output = command.stdin(Stdio::null()).output().with_context(|| shown.clone())?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(matches!(output.status.code(), Some(0 | 1)), "{shown}: {}", errors.trim());
    serde_json::from_slice(&output.stdout).with_context(|| format!("{shown}: {}", errors.trim()))
}

/// Prints the slowest tests.
pub(crate) fn print_slowest(mut times: Vec<(Duration, String)>) {
    times.sort_by_key(|&(time, _)| Reverse(time));
    println!("\nslowest tests:");
    for (time, name) in times.iter().take(SLOWEST) {
        println!("{:>8.1} s  {name}", time.as_secs_f64());
    }
}

/// Runs `command`, prints its stdout line by line, and reads the tests in it. Calls `finished` for
/// each test that ended, with the time since the line before.
pub(crate) fn run_tests(
    name: &str,
    command: &mut Command,
    mut finished: impl FnMut(Duration, &str),
) -> Tests {
    println!("$ {}", show(command));
    let mut read = || {
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().context("stdout is piped")?;
        let (mut tests, mut last) = (TestReader::default(), Instant::now());
        for line in BufReader::new(stdout).split(b'\n') {
            let line = line?;
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            tests.add(&line);
            if let Some(name) = finished_test(&line) {
                finished(last.elapsed(), name);
            }
            last = Instant::now();
        }
        Ok((tests, child.wait()?))
    };
    TestReader::finish(name, read())
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

/// Tests of a program or of several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tests {
    /// Passed, including those that skipped themselves.
    pub(crate) passed: u64,
    /// Marked `#[ignore]`.
    pub(crate) ignored: u64,
    /// Failed, as `PROGRAM: TEST: PANIC`, or `PROGRAM: STATUS` of one that named none.
    pub(crate) failed: Vec<String>,
}

/// Reads the output of a test program.
#[derive(Debug, Default)]
pub(crate) struct TestReader {
    tests: Tests,
    /// Names since the last line `failures:`. The runner prints that twice: before the output of
    /// the failed tests, and before their names.
    listed: Option<Vec<String>>,
    /// Each failed test with its output.
    outputs: Vec<(String, Vec<String>)>,
}

impl TestReader {
    /// Reads the next line.
    pub(crate) fn add(&mut self, line: &str) {
        if let Some(name) = line.strip_prefix("---- ").and_then(|s| s.strip_suffix(" stdout ----"))
        {
            self.outputs.push((name.to_owned(), Vec::new()));
        } else if line == "failures:" {
            self.listed = Some(Vec::new());
        } else if let Some((passed, ignored)) = result(line) {
            self.tests.passed += passed;
            self.tests.ignored += ignored;
            let failed = self.listed.take().unwrap_or_default();
            let with_panic = |name: String| self.panic_of(&name).unwrap_or(name);
            let failed: Vec<String> = failed.into_iter().map(with_panic).collect();
            self.tests.failed.extend(failed);
            self.outputs.clear();
        } else {
            if let Some((_, output)) = self.outputs.last_mut() {
                output.push(line.to_owned());
            }
            if let (Some(listed), Some(name)) = (&mut self.listed, line.strip_prefix("    ")) {
                listed.push(name.to_owned());
            }
        }
    }

    /// The name of a failed test and its first panic, in one line of which the start is kept.
    fn panic_of(&self, name: &str) -> Option<String> {
        let (_, output) = self.outputs.iter().find(|(of, _)| of == name)?;
        let start = output.iter().position(|line| line.contains(" panicked at "))?;
        let is_text = |line: &&String| !line.starts_with("stack backtrace") && !line.is_empty();
        let lines = output[start..].iter().take_while(is_text);
        let text = lines.map(|line| line.trim()).collect::<Vec<_>>().join(" ");
        let place = text.split_once(" panicked at ")?.1;
        Some(format!("{name}: {}", place.chars().take(PANIC_CHARS).collect::<String>()))
    }

    /// Returns the tests of the program `name`, which ended with this status.
    pub(crate) fn finish(name: &str, read: Result<(Self, ExitStatus)>) -> Tests {
        let (mut tests, cause) = match read {
            Ok((reader, status)) if status.success() => return reader.tests,
            Ok((reader, status)) => (reader.tests, status.to_string()),
            Err(error) => (Tests::default(), format!("{error:#}")),
        };
        if tests.failed.is_empty() {
            tests.failed.push(cause);
        }
        tests.failed.iter_mut().for_each(|failed| *failed = format!("{name}: {failed}"));
        tests
    }
}

/// Reads passed and ignored from `test result: ok. 13 passed; 0 failed; 2 ignored; …`.
fn result(line: &str) -> Option<(u64, u64)> {
    let counts = line.strip_prefix("test result: ")?.split_once(". ")?.1;
    let count =
        |name| counts.split("; ").find_map(|part| part.strip_suffix(name)?.trim().parse().ok());
    Some((count("passed")?, count("ignored")?))
}

impl Sum for Tests {
    fn sum<I: Iterator<Item = Self>>(runs: I) -> Self {
        runs.fold(Self::default(), |mut sum, run| {
            sum.failed.extend(run.failed);
            Self { passed: sum.passed + run.passed, ignored: sum.ignored + run.ignored, ..sum }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of a test program with two failures, one of which prints indented lines.
    const FAILED: &str = "\
running 3 tests
test a ... ok
test live::b ... FAILED
test c ... FAILED

failures:

---- live::b stdout ----
    indented
test result: is not this

thread 'live::b' (7) panicked at tests/b.rs:3:5:
assertion failed
  left: 1
stack backtrace:
   0: core

failures:
    c
    live::b

test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out
";

    fn tests(script: &str) -> Tests {
        run_tests("p", Command::new("sh").args(["-c", script]), |_, _| {})
    }

    #[test]
    fn tests_are_counted_and_failed_ones_named() {
        let passed = "echo 'test result: ok. 13 passed; 0 failed; 2 ignored; 0 measured'; ";
        let both = Tests { passed: 26, ignored: 4, failed: Vec::new() };
        assert_eq!(tests(&format!("{passed}{passed}")), both);
        let failed = ["p: c", "p: live::b: tests/b.rs:3:5: assertion failed left: 1"]
            .map(str::to_owned)
            .to_vec();
        let script = format!("{passed}cat <<'E'\n{FAILED}E\nexit 101");
        assert_eq!(tests(&script), Tests { passed: 14, ignored: 2, failed });
        // A program that ends otherwise has no list.
        assert_eq!(tests("kill -9 $$").failed, ["p: signal: 9 (SIGKILL)"]);
        assert_eq!(run_tests("p", &mut Command::new("/no/such"), |_, _| {}).failed.len(), 1);
        assert_eq!(finished_test("test live::a ... ok"), Some("live::a"));
        assert_eq!(finished_test("test result: ok. 1 passed"), None);
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

    #[test]
    fn an_answer_of_no_is_a_report() {
        let run = |script: &str| json::<u32>(Command::new("sh").args(["-c", script]));
        assert_eq!(run("echo 7; exit 1").unwrap(), 7);
        assert!(run("echo bad >&2; exit 2").unwrap_err().to_string().contains("bad"));
        assert!(run("echo text").is_err());
    }
}
