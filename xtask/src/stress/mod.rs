//! Long tests of safety: the release binary on live processes, for as long as the caller asks.
//!
//! Each ends with one line of figures, or with the first promise that was broken and the evidence. However it ends, it leaves
//! no process, no changed kernel setting and no cgroup behind.

mod churn;
mod forks;
mod kills;
mod marked;
mod options;
mod random;
mod settings;
mod tool;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use hugepilot_testkit::need::{self, Need};
use hugepilot_units::Bytes;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use crate::run::{self, cargo};
use marked::Mark;
use options::Options;
use settings::Settings;

/// One stress test.
struct Stress {
    /// What `cargo xtask stress NAME` calls it.
    name: &'static str,
    /// The promise that it tests.
    about: &'static str,
    /// The most memory it takes.
    memory: Bytes,
    /// Runs it until its time is over, and returns the line of figures.
    run: fn(&Run<'_>) -> Result<String>,
}

const TESTS: [Stress; 3] = [
    Stress {
        name: "churn",
        about: "no byte changes while tune and debloat promote and split the same regions under their threads",
        memory: Bytes::gib(2),
        run: churn::run,
    },
    Stress {
        name: "forks",
        about: "what parents and children share stays shared, and right, while they are tuned and debloated",
        memory: Bytes::gib(2),
        run: forks::run,
    },
    Stress {
        name: "kills",
        about: "killed at any moment, hugepilot leaves no setting changed, no page lost and no process behind",
        memory: Bytes::gib(4),
        run: kills::run,
    },
];

/// This much memory stays available beside a test.
const RESERVE: Bytes = Bytes::gib(2);
/// How often a test says how far it is.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);

/// One run of one test.
struct Run<'a> {
    name: &'static str,
    hugepilot: &'a Path,
    seed: u64,
    begun: Instant,
    length: Duration,
    /// A signal came.
    interrupted: &'a AtomicBool,
    /// Something failed, and the threads of the test shall end.
    failed: AtomicBool,
    marks: AtomicU64,
    said: AtomicU64,
}

impl Run<'_> {
    /// Whether there is time left, and nothing happened that ends it.
    fn goes_on(&self) -> bool {
        self.begun.elapsed() < self.length && !self.is_interrupted() && !self.failed.load(Relaxed)
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Relaxed)
    }

    /// Ends the test early.
    fn fail(&self) {
        self.failed.store(true, Relaxed);
    }

    fn mark(&self) -> Mark {
        Mark::new(self.marks.fetch_add(1, Relaxed))
    }

    /// Prints how far it is, once in [`PROGRESS_EVERY`].
    fn progress(&self, text: impl FnOnce() -> String) {
        let turn = self.begun.elapsed().as_secs() / PROGRESS_EVERY.as_secs();
        if self.said.fetch_max(turn, Relaxed) < turn {
            println!("{}: {:.0} s: {}", self.name, self.begun.elapsed().as_secs_f64(), text());
        }
    }
}

/// The user ended a test.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// Runs the tests that `args` name on a fresh release build, or prints their names for `list`.
pub(crate) fn run(args: &[&str]) -> Result<()> {
    let options = Options::read(args)?;
    if options.name == "list" {
        print!("{}", list());
        return Ok(());
    }
    let tests: Vec<&Stress> =
        TESTS.iter().filter(|test| options.name == "all" || test.name == options.name).collect();
    ensure!(!tests.is_empty(), "no stress test {:?}; there are all and\n{}", options.name, list());
    for test in &tests {
        possible(test)?;
    }
    run::run(&mut cargo(&["build", "--release"]))?;
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    tests.into_iter().try_for_each(|test| one(test, &options, &interrupted))
}

fn one(test: &Stress, options: &Options, interrupted: &AtomicBool) -> Result<()> {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
    let seed = options.seed.unwrap_or((clock % 1_000_000) as u64);
    let seconds = options.length.as_secs();
    println!(
        "{}: {}; cargo xtask stress {} --seconds {seconds} --seed {seed}",
        test.name, test.about, test.name
    );
    let hugepilot = run::target().join("release/hugepilot");
    let run = Run {
        name: test.name,
        hugepilot: &hugepilot,
        seed,
        begun: Instant::now(),
        length: options.length,
        interrupted,
        failed: AtomicBool::new(false),
        marks: AtomicU64::new(0),
        said: AtomicU64::new(0),
    };
    let before = Before(Settings::read()?);
    let ended = (test.run)(&run);
    let left = before.0.differences(&Settings::read()?);
    drop(before);
    // What fails after Ctrl-C fails by it.
    let ended =
        ended.map_err(|error| if run.is_interrupted() { Interrupted.into() } else { error });
    let figures = ended.with_context(|| format!("{} (seed {seed})", test.name))?;
    println!("{}: {:.0} s, seed {seed}: {figures}", test.name, run.begun.elapsed().as_secs_f64());
    ensure!(left.is_empty(), "settings of the kernel are not as before: {}", left.join("; "));
    if run.is_interrupted() { Err(Interrupted.into()) } else { Ok(()) }
}

/// Settings of the kernel as a test found them. When dropped, what it started is ended, and they are put back.
struct Before(Settings);

impl Drop for Before {
    fn drop(&mut self) {
        Mark::any().kill();
        self.0.put_back();
    }
}

fn possible(test: &Stress) -> Result<()> {
    let needs = [
        need::root(),
        need::c_compiler(),
        need::cgroup_memory(),
        need::memory(test.memory + RESERVE),
    ];
    match need::all(needs) {
        Need::Ok => Ok(()),
        Need::Err(lack) => anyhow::bail!("{} cannot run here: {lack}", test.name),
    }
}

fn list() -> String {
    TESTS.iter().map(|test| format!("{:<8} {}\n", test.name, test.about)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_listed_once_each_and_no_test_takes_more_than_it_may() {
        assert_eq!(list().lines().count(), TESTS.len());
        let mut names: Vec<_> = TESTS.iter().map(|test| test.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TESTS.len());
        assert!(!names.contains(&"all") && !names.contains(&"list"));
        assert!(TESTS.iter().all(|test| test.memory <= Bytes::gib(8)));
    }

    #[test]
    fn a_test_that_does_not_exist_is_refused() {
        let error = run(&["no-such-test"]).unwrap_err().to_string();
        assert!(error.contains("churn"), "{error}");
    }
}
