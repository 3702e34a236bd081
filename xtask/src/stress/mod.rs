//! Stress tests: the release binary on live processes, and the engine on simulated machines, for a
//! chosen time.
//!
//! Each ends with one line of counts, or with the first broken promise and the evidence. It always
//! leaves no process, no changed kernel setting and no cgroup behind.

mod churn;
mod forks;
mod kills;
mod limits;
mod marked;
mod options;
mod rounds;
mod settings;
mod tool;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hugepilot_testkit::need::{self, Need};
use hugepilot_units::Bytes;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use crate::random::new_seed;
use crate::run::{self, cargo};
use marked::Mark;
use options::Options;
use settings::Settings;

/// Stress test.
struct Stress {
    /// Name for `cargo xtask stress NAME`.
    name: &'static str,
    /// Promise that it tests.
    about: &'static str,
    /// Memory that it needs at most.
    memory: Bytes,
    /// Function that runs it until its time is over and returns the line of counts.
    run: fn(&Run<'_>) -> Result<String>,
}

const TESTS: [Stress; 5] = [
    Stress {
        name: "churn",
        about: "no byte changes while tune and debloat promote and split the same regions of \
            running threads",
        memory: Bytes::gib(2),
        run: churn::run,
    },
    Stress {
        name: "forks",
        about: "memory that parents and children share stays shared, and correct, while they are \
            tuned and debloated",
        memory: Bytes::gib(2),
        run: forks::run,
    },
    Stress {
        name: "kills",
        about: "killed at any moment, hugepilot leaves no changed setting, no lost page and no \
            process behind",
        memory: Bytes::gib(4),
        run: kills::run,
    },
    Stress {
        name: "limits",
        about: "in cgroups of 64 to 512 MiB, no command gets a process killed, and the daemon \
            takes 16 MiB at most; prints the table of their peaks",
        memory: Bytes::gib(1),
        run: limits::run,
    },
    Stress {
        name: "rounds",
        about: "in a million rounds of random simulated machines, no policy of tune breaks a \
            limit, no region flaps, and every decision is made again from its line of a journal",
        memory: Bytes::gib(1),
        run: rounds::run,
    },
];

/// Memory that stays available beside a test.
const RESERVE: Bytes = Bytes::gib(2);
/// Interval of progress lines.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);

/// Run of a test.
struct Run<'a> {
    name: &'static str,
    hugepilot: &'a Path,
    seed: u64,
    begun: Instant,
    length: Duration,
    /// Whether a signal arrived.
    interrupted: &'a AtomicBool,
    /// Whether a part failed, so that the threads of the test end.
    failed: AtomicBool,
    marks: AtomicU64,
    said: AtomicU64,
}

impl Run<'_> {
    /// Whether time is left, without a signal or a failure.
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

    /// Prints a line of progress, once in [`PROGRESS_EVERY`].
    fn progress(&self, text: impl FnOnce() -> String) {
        let turn = self.begun.elapsed().as_secs() / PROGRESS_EVERY.as_secs();
        if self.said.fetch_max(turn, Relaxed) < turn {
            println!("{}: {:.0} s: {}", self.name, self.begun.elapsed().as_secs_f64(), text());
        }
    }
}

/// Error of a test that the user ended.
#[derive(Debug)]
pub(crate) struct Interruption;

impl fmt::Display for Interruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interruption {}

impl Interruption {
    /// Lets signals that would end xtask set the returned flag instead.
    pub(crate) fn watched() -> Result<Arc<AtomicBool>> {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
            signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
        }
        Ok(interrupted)
    }
}

/// Runs the tests that `args` name on a fresh release build; `list` prints all names.
pub(crate) fn run(args: &[&str]) -> Result<()> {
    let options = Options::read(args)?;
    if options.name == "list" {
        print!("{}", list());
        return Ok(());
    }
    let tests: Vec<&Stress> =
        TESTS.iter().filter(|test| options.name == "all" || test.name == options.name).collect();
    ensure!(
        !tests.is_empty(),
        "no stress test {:?}; stress tests: all, or\n{}",
        options.name,
        list()
    );
    for test in &tests {
        possible(test)?;
    }
    run::run(&mut cargo(&["build", "--release"]))?;
    let interrupted = Interruption::watched()?;
    tests.into_iter().try_for_each(|test| one(test, &options, &interrupted))
}

fn one(test: &Stress, options: &Options, interrupted: &AtomicBool) -> Result<()> {
    let seed = options.seed.unwrap_or_else(new_seed);
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
    let before = SettingsGuard(Settings::read()?);
    let ended = (test.run)(&run);
    let changed = before.0.differences(&Settings::read()?);
    drop(before);
    // After Ctrl-C, any failure is a consequence of it.
    let ended =
        ended.map_err(|error| if run.is_interrupted() { Interruption.into() } else { error });
    let counts = ended.with_context(|| format!("{} (seed {seed})", test.name))?;
    println!("{}: {:.0} s, seed {seed}: {counts}", test.name, run.begun.elapsed().as_secs_f64());
    ensure!(changed.is_empty(), "kernel settings differ from before: {}", changed.join("; "));
    if run.is_interrupted() { Err(Interruption.into()) } else { Ok(()) }
}

/// Kernel settings before a test. On drop, ends all processes of the test and restores the
/// settings.
struct SettingsGuard(Settings);

impl Drop for SettingsGuard {
    fn drop(&mut self) {
        Mark::any().kill();
        self.0.restore();
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
        Need::Err(missing) => anyhow::bail!("{} cannot run here: {missing}", test.name),
    }
}

fn list() -> String {
    TESTS.iter().map(|test| format!("{:<8} {}\n", test.name, test.about)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_listed_once_each_and_memory_is_bounded() {
        assert_eq!(list().lines().count(), TESTS.len());
        let mut names: Vec<_> = TESTS.iter().map(|test| test.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TESTS.len());
        assert!(!names.contains(&"all") && !names.contains(&"list"));
        assert!(TESTS.iter().all(|test| test.memory <= Bytes::gib(8)));
    }

    #[test]
    fn an_unknown_name_is_an_error() {
        let error = run(&["no-such-test"]).unwrap_err().to_string();
        assert!(error.contains("churn"), "{error}");
    }
}
