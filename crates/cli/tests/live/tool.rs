//! Runs the command under test.

use std::fmt;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use hugepilot_record::tune::TuneReport;
use hugepilot_testkit::make_room;
use hugepilot_units::Bytes;
use rustix::process::{Pid, Signal};
use serde::de::DeserializeOwned;

use crate::look;
use crate::validation::validate;

/// The command under test.
pub(crate) const HUGEPILOT: &str = env!("CARGO_BIN_EXE_hugepilot");

/// Far more than any single run here takes.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Runs `hugepilot` with `args` to its end.
#[track_caller]
pub(crate) fn hugepilot<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Done {
    let mut command = Command::new(HUGEPILOT);
    command.args(args);
    Running::start(command).wait(LIMIT)
}

/// `hugepilot tune -p PID --json`, quick and without a prediction, so that nothing stands between a pick and its
/// promotion; and the words of `more`.
#[track_caller]
pub(crate) fn tune(pid: u32, more: &str) -> Done {
    hugepilot(tune_args(pid, more))
}

/// The words of [`tune`]. What `more` repeats must not be here: a flag can be given once.
pub(crate) fn tune_args(pid: u32, more: &str) -> Vec<String> {
    let line = format!("tune -p {pid} --json --calibration off {more}");
    let mut words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    // On a busy machine a collapse may be slow; rounds that end for it would make the counts a matter of luck.
    for (flag, value) in [("--observe", "1s"), ("--for", "3s"), ("--max-collapse", "2s")] {
        if !words.iter().any(|word| word == flag) {
            words.extend([flag.to_owned(), value.to_owned()]);
        }
    }
    words
}

/// A program under way. Killed when dropped.
pub(crate) struct Running {
    child: Child,
    stdout: File,
    stderr: File,
    peak: Bytes,
}

impl Running {
    /// Starts `command` with nothing on stdin; what it prints goes to files, so it never waits for us.
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

    /// Waits until it says `word` on stderr.
    #[track_caller]
    pub(crate) fn until_it_says(&mut self, word: &str) {
        let stderr = self.stderr.try_clone().expect("a copy of a descriptor");
        self.until(word, || {
            // The descriptor's position is the program's, too, and stays where it is.
            let mut text = vec![0; 64 << 10];
            let length = stderr.read_at(&mut text, 0).expect("our own file");
            String::from_utf8_lossy(&text[..length]).contains(word)
        });
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn wait(mut self, limit: Duration) -> Done {
        let begin = Instant::now();
        loop {
            // The peak only grows, so a look now and then misses at most what the last moments added.
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
        // Ended, nearly always.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn contents(file: &mut File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.rewind().and_then(|()| file.read_to_end(&mut bytes)).expect("our own file");
    bytes
}

/// The THP settings as they were before the first run of the command.
fn settings_before() -> &'static Vec<(String, String)> {
    static BEFORE: OnceLock<Vec<(String, String)>> = OnceLock::new();
    BEFORE.get_or_init(look::thp_settings)
}

/// How a run ended, and all it said.
pub(crate) struct Done {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    /// The most memory it had at once, as far as was seen.
    pub(crate) peak: Bytes,
    pub(crate) took: Duration,
}

impl Done {
    /// Its exit status, where that is `code`, and it did not panic.
    #[track_caller]
    pub(crate) fn exits(&self, code: i32) -> &Self {
        assert_eq!(self.status.code(), Some(code), "{self:?}");
        self.sane()
    }

    /// It ended by itself, with one of its four answers, and did not panic.
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

    /// Its stdout as one JSON object, complete, and nothing besides, which follows its schema.
    #[track_caller]
    pub(crate) fn json<T: DeserializeOwned>(&self) -> T {
        validate(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        serde_json::from_slice(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    #[track_caller]
    pub(crate) fn report(&self) -> TuneReport {
        self.json()
    }

    /// It says each of `words` on stderr.
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

/// A copy of `program` in `folder` that every user may run.
pub(crate) fn copy_for_all(program: impl AsRef<Path>, folder: &Path) -> std::path::PathBuf {
    use std::fs::{Permissions, copy, set_permissions};
    use std::os::unix::fs::PermissionsExt;
    let theirs = folder.join(program.as_ref().file_name().expect("a program has a name"));
    copy(program, &theirs).expect("a program can be copied");
    for path in [folder, &theirs] {
        set_permissions(path, Permissions::from_mode(0o755)).expect("our own file");
    }
    theirs
}
