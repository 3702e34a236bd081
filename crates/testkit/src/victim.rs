//! Processes that a test owns, and may do anything to.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use hugepilot_units::{AddrRange, Bytes, VirtAddr};
use rustix::process::{Pid, Signal};

use crate::compile::compiled;
use crate::room::make_room;

/// A child process with its lines. Killed, and waited for, when dropped.
///
/// Its stderr is the test's. The victims in C end by themselves when their stdin ends, so even a test program that
/// is killed leaves none behind.
#[derive(Debug)]
pub struct Victim {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    name: String,
}

/// What a victim says first: `ready ADDR LEN …`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The memory to look at.
    pub memory: AddrRange,
    /// The words after it: the PID, for most.
    pub rest: Vec<String>,
}

impl Victim {
    /// Starts the C program at `source`, compiled when needed; a bare name such as `pattern.c` is one of this
    /// crate's victims, whose first comment says what it takes and prints.
    ///
    /// Begin the test with `requires!(need::c_compiler())`.
    ///
    /// # Panics
    /// Where it cannot be compiled or started.
    #[track_caller]
    pub fn c(source: impl AsRef<Path>, args: &[&str]) -> Self {
        let mut command = Command::new(compiled(source.as_ref()));
        command.args(args);
        Self::spawn(command)
    }

    /// Starts `command` with stdin and stdout piped to the test.
    ///
    /// # Panics
    /// Where it cannot be started.
    #[track_caller]
    pub fn spawn(mut command: Command) -> Self {
        make_room();
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.unwrap_or_else(|error| panic!("{name}: {error}"));
        let lines = follow(child.stdout.take().expect("stdout is piped"));
        let stdin = child.stdin.take();
        Self { child, stdin, lines, name }
    }

    /// Its process number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line it prints, without the line break; `None` when there will be no more.
    ///
    /// # Panics
    /// Where none comes within `limit`.
    #[track_caller]
    pub fn line(&self, limit: Duration) -> Option<String> {
        match self.lines.recv_timeout(limit) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("{} printed nothing for {limit:?}", self.name),
        }
    }

    /// A line that is there already; does not wait.
    pub fn line_now(&self) -> Option<String> {
        self.lines.try_recv().ok()
    }

    /// Waits for the line that begins with the word `first`, skipping others, and gives the words after it.
    ///
    /// # Panics
    /// Where it ends first, or does not say so within `limit`.
    #[track_caller]
    pub fn says(&self, first: &str, limit: Duration) -> Vec<String> {
        let mut seen = Vec::new();
        let until = Instant::now() + limit;
        while let Some(line) = self.line(until.saturating_duration_since(Instant::now())) {
            let mut words = line.split_whitespace();
            if words.next() == Some(first) {
                return words.map(str::to_owned).collect();
            }
            seen.push(line);
        }
        panic!("{} ended without saying {first:?}; it said {seen:?}", self.name);
    }

    /// Waits for `ready ADDR LEN …`.
    ///
    /// # Panics
    /// Where it does not come within `limit`.
    #[track_caller]
    pub fn ready(&self, limit: Duration) -> Ready {
        let words = self.says("ready", limit);
        Ready::read(&words)
            .unwrap_or_else(|| panic!("{} is ready, but where? {words:?}", self.name))
    }

    /// Writes a line to its stdin. That it may have ended is no error: its exit status will tell.
    pub fn send(&mut self, line: &str) {
        if let Some(stdin) = &mut self.stdin {
            let _ = writeln!(stdin, "{line}");
        }
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// Where that fails, though it is our child and not yet waited for.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("a child can be signalled");
    }

    /// Its exit status, if it has ended; does not wait.
    ///
    /// # Panics
    /// Where its state cannot be read, though it is our child.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    /// Ends its stdin, which the victims in C take as the sign to finish. [`finish`](Self::finish) also waits.
    pub fn end_input(&mut self) {
        self.stdin = None;
    }

    /// Ends its stdin, which the victims in C take as the sign to finish, and waits for it.
    ///
    /// # Panics
    /// Where it does not end within `limit`.
    #[track_caller]
    pub fn finish(&mut self, limit: Duration) -> ExitStatus {
        self.end_input();
        self.wait(limit)
    }

    /// Waits for it to end by itself.
    ///
    /// # Panics
    /// Where it does not end within `limit`.
    #[track_caller]
    pub fn wait(&mut self, limit: Duration) -> ExitStatus {
        let until = Instant::now() + limit;
        loop {
            if let Some(status) = self.ended() {
                return status;
            }
            assert!(Instant::now() < until, "{} did not end within {limit:?}", self.name);
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // It may have ended: then there is nothing to kill, and nothing to report.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ready {
    /// Reads `0xADDR LEN …`, as C's `%p %zu` prints them.
    fn read(words: &[String]) -> Option<Self> {
        let [start, len, rest @ ..] = words else { return None };
        let start = u64::from_str_radix(start.strip_prefix("0x")?, 16).ok()?;
        let memory = AddrRange::at(VirtAddr::new(start), Bytes::new(len.parse().ok()?));
        Some(Self { memory, rest: rest.to_vec() })
    }
}

/// Reads lines on a thread of their own, so that a test can wait for one with a limit and a victim never blocks on
/// a full pipe. The thread ends with the pipe.
fn follow(stdout: ChildStdout) -> Receiver<String> {
    let (send, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
            if send.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                break;
            }
        }
    });
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ready_line_names_its_memory() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let ready = Ready::read(&words("0x7f0000200000 2097152 17")).unwrap();
        assert_eq!(ready.memory, AddrRange::at(VirtAddr::new(0x7f00_0020_0000), Bytes::mib(2)));
        assert_eq!(ready.rest, ["17"]);
        for bad in ["", "0x10", "10 20", "0x10 many", "(nil) 5"] {
            assert_eq!(Ready::read(&words(bad)), None, "{bad}");
        }
    }

    #[test]
    fn a_dropped_victim_is_dead() {
        let victim = Victim::spawn(Command::new("cat"));
        let status = format!("/proc/{}/status", victim.pid());
        assert!(Path::new(&status).exists());
        drop(victim);
        assert!(!Path::new(&status).exists());
    }

    #[test]
    fn lines_go_both_ways() {
        let mut victim = Victim::spawn(Command::new("cat"));
        victim.send("first");
        victim.send("second thing");
        assert_eq!(victim.line(Duration::from_secs(10)).as_deref(), Some("first"));
        assert_eq!(victim.says("second", Duration::from_secs(10)), ["thing"]);
        assert!(victim.finish(Duration::from_secs(10)).success());
        assert_eq!(victim.line(Duration::from_secs(10)), None);
    }
}
