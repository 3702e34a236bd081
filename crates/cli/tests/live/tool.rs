//! Runs of the command under test.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use std::{fmt, thread};

use hugepilot_reports::tune::TuneReport;
use hugepilot_testkit::make_room;
use hugepilot_units::Bytes;
use rustix::process::{Pid, Signal};
use serde::de::DeserializeOwned;

use crate::look;
use crate::validation::validate;

/// Command under test.
pub(crate) const HUGEPILOT: &str = env!("CARGO_BIN_EXE_hugepilot");

/// Policy of tests that need promotions, whatever the CPU gains by them and however few samples it
/// takes: it makes no trial, and follows the addresses. Its first decision comes within twice the
/// first observation, also on a busy machine.
pub(crate) const ANYWHERE: &str = "--policy linux --observe 1s";

/// Time limit, far longer than any single run here.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Runs `hugepilot` with `args` to its end.
#[track_caller]
pub(crate) fn hugepilot<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Done {
    let mut command = Command::new(HUGEPILOT);
    command.args(args);
    Running::start(command).wait(LIMIT)
}

/// Runs `hugepilot tune -p PID --json`, fast and without a prediction, so that every selected
/// region is promoted; `more` holds further words.
#[track_caller]
pub(crate) fn tune(pid: u32, more: &str) -> Done {
    hugepilot(tune_args(pid, more))
}

/// Returns the words of [`tune`]. Words that `more` repeats must not be here: a flag can be given
/// once.
pub(crate) fn tune_args(pid: u32, more: &str) -> Vec<String> {
    let line = format!("tune -p {pid} --json --calibration off {more}");
    let mut words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    // On a busy machine a collapse may be slow. If it ended rounds, the counts would depend on
    // chance.
    // The default rate depends on the cost of a sample.
    let defaults =
        [("--rate", "1000"), ("--observe", "500ms"), ("--for", "2s"), ("--max-collapse", "2s")];
    for (flag, value) in defaults {
        if !words.iter().any(|word| word == flag) {
            words.extend([flag.to_owned(), value.to_owned()]);
        }
    }
    words
}

/// Running program. Killed on drop.
pub(crate) struct Running {
    child: Child,
    stdout: File,
    stderr: File,
    peak: Bytes,
}

impl Running {
    /// Starts `command` with an empty stdin. Its output goes to files, so it never blocks.
    #[track_caller]
    pub(crate) fn start(mut command: Command) -> Self {
        settings_before();
        make_room();
        let [stdout, stderr] = [(); 2].map(|()| tempfile::tempfile().expect("a temporary file"));
        let to = |file: &File| Stdio::from(file.try_clone().expect("a copy of a descriptor"));
        command.stdin(Stdio::null()).stdout(to(&stdout)).stderr(to(&stderr));
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self { child, stdout, stderr, peak: Bytes::ZERO }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.child), signal)
            .expect("a child can be signalled");
    }

    /// Waits until `happened`, while it runs.
    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, mut happened: impl FnMut() -> bool) {
        let until = Instant::now() + LIMIT;
        while !happened() {
            let ended = self.child.try_wait().expect("a child can be waited for");
            assert!(
                ended.is_none(),
                "it ended before {what}: {:?}",
                self.done(ended.unwrap_or_default())
            );
            assert!(Instant::now() < until, "{what} did not come");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until it prints `word` on stderr.
    #[track_caller]
    pub(crate) fn until_it_says(&mut self, word: &str) {
        let stderr = self.stderr.try_clone().expect("a copy of a descriptor");
        self.until(word, || first_text(&stderr).contains(word));
    }

    /// Waits for the first line of stdout, and returns it.
    #[track_caller]
    pub(crate) fn first_line(&mut self) -> String {
        let stdout = self.stdout.try_clone().expect("a copy of a descriptor");
        self.until("a line", || first_text(&stdout).contains('\n'));
        first_text(&stdout).lines().next().unwrap_or_default().to_owned()
    }

    /// Waits for the line of stderr that is number `index` of those that begin with `prefix`, and
    /// returns its rest.
    #[track_caller]
    pub(crate) fn until_line(&mut self, prefix: &str, index: usize) -> String {
        let stderr = self.stderr.try_clone().expect("a copy of a descriptor");
        let mut found = None;
        self.until(prefix, || {
            let text = first_text(&stderr);
            let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            let mut rests = lines.filter_map(|line| line.trim_end().strip_prefix(prefix));
            found = rests.nth(index).map(str::to_owned);
            found.is_some()
        });
        found.expect("it was found")
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn wait(mut self, limit: Duration) -> Done {
        let begin = Instant::now();
        loop {
            // The peak only grows, so rare samples miss at most the growth of the last moments.
            self.peak = look::peak(self.pid()).unwrap_or(Bytes::ZERO).max(self.peak);
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                let mut done = self.done(status);
                done.took = begin.elapsed();
                assert_eq!(
                    look::thp_settings(),
                    *settings_before(),
                    "a setting of the kernel is not as before"
                );
                return done;
            }
            if begin.elapsed() > limit {
                let _ = self.child.kill();
                let status = self.child.wait().expect("a child can be waited for");
                panic!("not done within {limit:?}: {:?}", self.done(status));
            }
            thread::sleep(Duration::from_millis(3));
        }
    }

    fn done(&mut self, status: ExitStatus) -> Done {
        Done {
            status,
            stdout: contents(&mut self.stdout),
            stderr: contents(&mut self.stderr),
            peak: self.peak,
            took: Duration::ZERO,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail if it has ended, as in nearly all cases.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads the first 64 KiB of a file. Its writer shares the position of the descriptor, so that the
/// position must not move.
fn first_text(file: &File) -> String {
    let mut text = vec![0; 64 << 10];
    let length = file.read_at(&mut text, 0).expect("a file of this test");
    String::from_utf8_lossy(&text[..length]).into_owned()
}

fn contents(file: &mut File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.rewind().and_then(|()| file.read_to_end(&mut bytes)).expect("a file of this test");
    bytes
}

/// Returns the THP settings from before the first run of the command.
fn settings_before() -> &'static Vec<(String, String)> {
    static BEFORE: OnceLock<Vec<(String, String)>> = OnceLock::new();
    BEFORE.get_or_init(look::thp_settings)
}

/// End and output of a run.
pub(crate) struct Done {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    /// Peak memory, as far as it was sampled.
    pub(crate) peak: Bytes,
    pub(crate) took: Duration,
}

impl Done {
    /// Asserts that the exit status is `code`, without a panic.
    #[track_caller]
    pub(crate) fn exits(&self, code: i32) -> &Self {
        assert_eq!(self.status.code(), Some(code), "{self:?}");
        self.sane()
    }

    /// Asserts that it ended by itself with one of its four exit statuses, without a panic.
    #[track_caller]
    pub(crate) fn sane(&self) -> &Self {
        assert!(matches!(self.status.code(), Some(0..=3)), "{self:?}");
        assert!(!self.err().contains("panicked"), "{self:?}");
        self
    }

    pub(crate) fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub(crate) fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Parses its stdout, which holds one complete JSON object that follows its schema.
    #[track_caller]
    pub(crate) fn json<T: DeserializeOwned>(&self) -> T {
        validate(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        serde_json::from_slice(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    #[track_caller]
    pub(crate) fn report(&self) -> TuneReport {
        self.json()
    }

    /// The reports on several processes: a line for each, by its schema.
    #[track_caller]
    pub(crate) fn reports(&self) -> Vec<TuneReport> {
        let read = |line: &str| {
            validate(line.as_bytes()).unwrap_or_else(|error| panic!("{error}: {self:?}"));
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {self:?}"))
        };
        self.out().lines().map(read).collect()
    }

    /// Asserts that each of `words` is on stdout.
    #[track_caller]
    pub(crate) fn shows(&self, words: &[&str]) -> &Self {
        let out = self.out();
        for word in words {
            assert!(out.contains(word), "no {word:?} in {self:?}");
        }
        self
    }

    /// Asserts that each of `words` is on stderr.
    #[track_caller]
    pub(crate) fn says(&self, words: &[&str]) -> &Self {
        let err = self.err();
        for word in words {
            assert!(err.contains(word), "no {word:?} in {self:?}");
        }
        self
    }
}

impl fmt::Debug for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n--- stdout\n{}\n--- stderr\n{}", self.status, self.out(), self.err())
    }
}

/// Copies `program` to `folder`, executable for every user.
pub(crate) fn copy_for_all(program: impl AsRef<Path>, folder: &Path) -> std::path::PathBuf {
    use std::fs::{Permissions, copy, set_permissions};
    use std::os::unix::fs::PermissionsExt;
    let theirs = folder.join(program.as_ref().file_name().expect("a program has a name"));
    copy(program, &theirs).expect("a program can be copied");
    for path in [folder, &theirs] {
        set_permissions(path, Permissions::from_mode(0o755)).expect("a file of this test");
    }
    theirs
}
