//! Victims: processes that a test starts and may promote, stop or damage.

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

/// A child process and the lines that it prints. Dropping it kills and reaps the process.
///
/// It shares the test's stderr. Victims in C exit at the end of stdin, so none survives a test
/// program that is killed.
#[derive(Debug)]
pub struct Victim {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    name: String,
}

/// First line of a victim: `ready ADDR LEN …`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The memory under test.
    pub memory: AddrRange,
    /// The following words; usually the pid.
    pub rest: Vec<String>,
}

impl Victim {
    /// Starts the C program at `source`, compiling it if necessary.
    ///
    /// A bare name such as `pattern.c` is one of this crate's victims; the comment at the top of
    /// its source describes its arguments and output. Begin the test with
    /// `requires!(need::c_compiler())`.
    ///
    /// # Panics
    /// If it cannot be compiled or started.
    #[track_caller]
    pub fn c(source: impl AsRef<Path>, args: &[&str]) -> Self {
        let mut command = Command::new(compiled(source.as_ref()));
        command.args(args);
        Self::spawn(command)
    }

    /// Starts `command` with stdin and stdout piped to the test.
    ///
    /// # Panics
    /// If it cannot be started.
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

    /// The pid.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the next line without its line break; `None` at the end of output.
    ///
    /// # Panics
    /// If it prints no line within `limit`.
    #[track_caller]
    pub fn line(&self, limit: Duration) -> Option<String> {
        match self.lines.recv_timeout(limit) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("{} printed nothing for {limit:?}", self.name),
        }
    }

    /// Returns the next line if it has already been printed; does not block.
    pub fn line_now(&self) -> Option<String> {
        self.lines.try_recv().ok()
    }

    /// Waits for a line that begins with the word `first` and returns the words after it.
    ///
    /// Skips other lines.
    ///
    /// # Panics
    /// If no such line comes before the end of output or within `limit`.
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
        panic!("{} ended without a line {first:?}; it printed {seen:?}", self.name);
    }

    /// Waits for `ready ADDR LEN …`.
    ///
    /// # Panics
    /// If no such line comes within `limit`.
    #[track_caller]
    pub fn ready(&self, limit: Duration) -> Ready {
        let words = self.says("ready", limit);
        Ready::read(&words)
            .unwrap_or_else(|| panic!("{}: no address in its ready line: {words:?}", self.name))
    }

    /// Writes a line to its stdin. Ignores errors: if it has ended, its exit status shows that.
    pub fn send(&mut self, line: &str) {
        if let Some(stdin) = &mut self.stdin {
            let _ = writeln!(stdin, "{line}");
        }
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// If the signal cannot be sent. A child that has not been reaped always accepts one.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("a child can be signalled");
    }

    /// Returns the exit status if it has ended; does not block.
    ///
    /// # Panics
    /// If its state cannot be read.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    /// Closes its stdin, on which victims in C exit. [`finish`](Self::finish) also waits.
    pub fn end_input(&mut self) {
        self.stdin = None;
    }

    /// Closes its stdin, on which victims in C exit, and waits for the exit.
    ///
    /// # Panics
    /// If it does not end within `limit`.
    #[track_caller]
    pub fn finish(&mut self, limit: Duration) -> ExitStatus {
        self.end_input();
        self.wait(limit)
    }

    /// Waits for it to end.
    ///
    /// # Panics
    /// If it does not end within `limit`.
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
        // Both fail if it has already been reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ready {
    /// Parses `0xADDR LEN …`, the output of C's `%p %zu`. `None` if that is not there.
    pub fn read(words: &[String]) -> Option<Self> {
        let [start, len, rest @ ..] = words else { return None };
        let start = u64::from_str_radix(start.strip_prefix("0x")?, 16).ok()?;
        let memory = AddrRange::at(VirtAddr::new(start), Bytes::new(len.parse().ok()?));
        Some(Self { memory, rest: rest.to_vec() })
    }
}

/// Reads lines on a separate thread, which ends with the pipe.
///
/// A test can thus wait for a line with a limit, and a victim never blocks on a full pipe.
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
