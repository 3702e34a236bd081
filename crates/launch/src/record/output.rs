//! Output of a recorded program: passed on untouched, and matched line by line.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hugepilot_kernel::clock;
use hugepilot_kernel::proc::printable;
use hugepilot_record::recording::Phase;
use hugepilot_units::Nanos;
use regex::bytes::Regex;

/// Longest line that is matched.
const MAX_LINE: usize = 64 << 10;
/// Longest name of a phase.
const MAX_NAME: usize = 200;

/// Patterns of lines.
#[derive(Clone, Debug, Default)]
pub struct LinePatterns {
    /// The recording begins at the first match.
    pub from: Option<Regex>,
    /// A match begins a phase, named by group 1, or else by the whole match.
    pub phase: Option<Regex>,
}

/// Event in the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OutputEvent {
    /// The recording begins.
    From(Nanos),
    /// A phase begins.
    Phase(Phase),
}

/// Thread that passes the output on.
pub(super) struct OutputCopy {
    events: Receiver<OutputEvent>,
    thread: JoinHandle<()>,
}

impl OutputCopy {
    /// Passes `from` on to `to`, until either ends.
    pub(super) fn start(from: io::PipeReader, to: OwnedFd, patterns: LinePatterns) -> Self {
        let (sender, events) = channel();
        let thread = std::thread::spawn(move || {
            let mut lines = Lines { patterns, sender, line: Vec::new(), is_long: false };
            copy(from, &mut File::from(to), &mut lines);
        });
        Self { events, thread }
    }

    /// Returns the events since the last call.
    pub(super) fn events(&self) -> impl Iterator<Item = OutputEvent> {
        self.events.try_iter()
    }

    /// Waits for the end of the output, for at most a second: another process may hold it.
    pub(super) fn wait(&self) {
        let until = Instant::now() + Duration::from_secs(1);
        while !self.thread.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn copy(mut from: impl Read, to: &mut impl Write, lines: &mut Lines) {
    let mut bytes = vec![0; 64 << 10];
    loop {
        match from.read(&mut bytes) {
            Ok(0) => break,
            Ok(read) => {
                // Before the write, which may wait for a slow reader.
                lines.add(&bytes[..read], clock::monotonic());
                // The program then gets SIGPIPE, as without hugepilot.
                if to.write_all(&bytes[..read]).and_then(|()| to.flush()).is_err() {
                    break;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
}

/// Lines of the output so far.
struct Lines {
    patterns: LinePatterns,
    sender: Sender<OutputEvent>,
    line: Vec<u8>,
    /// Whether the current line was cut and matched already.
    is_long: bool,
}

impl Lines {
    fn add(&mut self, mut bytes: &[u8], now: Nanos) {
        while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
            self.extend(&bytes[..end], now);
            self.end_line(now);
            self.is_long = false;
            bytes = &bytes[end + 1..];
        }
        self.extend(bytes, now);
    }

    fn extend(&mut self, bytes: &[u8], now: Nanos) {
        if self.is_long {
            return;
        }
        let room = MAX_LINE - self.line.len();
        self.line.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if bytes.len() > room {
            self.end_line(now);
            self.is_long = true;
        }
    }

    /// Matches the line. The receiver may be gone.
    fn end_line(&mut self, now: Nanos) {
        if self.is_long {
            return;
        }
        let line = std::mem::take(&mut self.line);
        if self.patterns.from.as_ref().is_some_and(|from| from.is_match(&line)) {
            let _ = self.sender.send(OutputEvent::From(now));
        }
        let found = self.patterns.phase.as_ref().and_then(|phase| phase.captures(&line));
        if let Some(name) = found.and_then(|found| found.get(1).or_else(|| found.get(0))) {
            let phase = Phase { time: now, name: phase_name(name.as_bytes()) };
            let _ = self.sender.send(OutputEvent::Phase(phase));
        }
    }
}

/// Returns the name of a phase: escaped, and of bounded length.
pub(super) fn phase_name(bytes: &[u8]) -> String {
    let name = printable(bytes.trim_ascii());
    name.chars().take(MAX_NAME).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines() -> (Lines, Receiver<OutputEvent>) {
        let pattern = |text| Some(Regex::new(text).unwrap());
        let patterns =
            LinePatterns { from: pattern("^loaded"), phase: pattern("^phase ((?-u:.)*)|^done$") };
        let (sender, events) = channel();
        (Lines { patterns, sender, line: Vec::new(), is_long: false }, events)
    }

    fn events(parts: &[&[u8]]) -> Vec<OutputEvent> {
        let (mut lines, events) = lines();
        for (at, part) in parts.iter().enumerate() {
            lines.add(part, Nanos::seconds(at as u64));
        }
        drop(lines);
        events.iter().collect()
    }

    fn phase(time: u64, name: &str) -> OutputEvent {
        OutputEvent::Phase(Phase { time: Nanos::seconds(time), name: name.to_owned() })
    }

    #[test]
    fn lines_are_matched_whole_at_the_time_of_their_end() {
        let found = events(&[b"load", b"ed\nphase b", b"fs \xff\x1b\nx\ndone\nphase cut"]);
        let from = OutputEvent::From(Nanos::seconds(1));
        assert_eq!(found, [from, phase(2, "bfs \\xff\\u{1b}"), phase(2, "done")]);
    }

    #[test]
    fn a_long_line_is_matched_once_by_its_begin() {
        let long = [b"phase ".to_vec(), vec![b'x'; 3 * MAX_LINE]].concat();
        let found = events(&[&long, b"phase a\nphase b\n"]);
        assert_eq!(found, [phase(0, &"x".repeat(MAX_NAME)), phase(1, "b")]);
    }

    #[test]
    fn the_output_is_untouched() {
        let text = b"a\0b\r\nphase x\n\xff no end";
        let (mut lines, events) = lines();
        let mut copied = Vec::new();
        copy(&text[..], &mut copied, &mut lines);
        assert_eq!(copied, text);
        assert_eq!(events.try_iter().count(), 1);
    }
}
