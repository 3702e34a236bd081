//! Output of a recorded program: passed on untouched, and matched line by line.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hugepilot_kernel::clock;
use hugepilot_kernel::proc::printable;
use hugepilot_recording::{NoBegin, Phase, RecordStop};
use hugepilot_units::Nanos;
use regex::bytes::Regex;

/// Longest line that is matched.
const MAX_LINE: usize = 64 << 10;
/// Longest name of a phase.
const MAX_NAME: usize = 200;

/// Patterns of lines, and the phase of interest.
#[derive(Clone, Debug, Default)]
pub struct LinePatterns {
    /// The recording begins at the first match.
    pub from: Option<Regex>,
    /// The recording ends at the first match after its begin.
    pub to: Option<Regex>,
    /// A match begins a phase, named by group 1, or else by the whole match.
    pub phase: Option<Regex>,
    /// Only the first phase with this name is recorded.
    pub only: Option<String>,
}

impl LinePatterns {
    /// Whether the recording waits for its begin.
    pub(super) const fn waits(&self) -> bool {
        self.from.is_some() || self.only.is_some()
    }

    /// Whether the output is matched.
    pub(super) const fn has_any(&self) -> bool {
        self.from.is_some() || self.to.is_some() || self.phase.is_some()
    }

    /// Why a recording with these patterns did not begin; `None` if it waits for nothing.
    pub(super) fn no_begin(&self) -> Option<NoBegin> {
        let shown = |text: &str| printable(text.as_bytes());
        let of_phase = self.only.as_deref().map(|name| NoBegin::OnlyPhase { name: shown(name) });
        let of_line = self.from.as_ref();
        let of_line = of_line.map(|regex| NoBegin::FromRegex { pattern: shown(regex.as_str()) });
        of_phase.or(of_line)
    }

    /// Returns the part of the run that a recording with this end has, as a phrase; `None` for all
    /// of it.
    pub(super) fn span(&self, stop: RecordStop) -> Option<String> {
        let line = |regex: &Regex| format!("`{}`", printable(regex.as_str().as_bytes()));
        let end = match stop {
            RecordStop::End | RecordStop::Phase => "to the end",
            RecordStop::Duration => "for the time of --duration",
            RecordStop::Interrupted => "to an interruption",
            RecordStop::WriteError => "until the file could not be written",
        };
        let is_reached = stop == RecordStop::Phase;
        if let Some(only) = &self.only {
            let name = printable(only.as_bytes());
            let end = if is_reached { "to its end" } else { end };
            return Some(format!("phase {name}, {end}"));
        }
        if !self.waits() && self.to.is_none() {
            return (stop != RecordStop::End).then(|| format!("from the start {end}"));
        }
        let from = self.from.as_ref().map_or_else(
            || "from the start".to_owned(),
            |from| format!("from the first line that matches {}", line(from)),
        );
        let to = match &self.to {
            Some(to) if is_reached => format!("to the first that matches {}", line(to)),
            Some(to) => format!("{end}; no line matched {} until then", line(to)),
            None => end.to_owned(),
        };
        Some(format!("{from} {to}"))
    }
}

/// Event in the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OutputEvent {
    /// The recording begins.
    From(Nanos),
    /// The recording ends.
    To,
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
            Ok(0) => {
                lines.end(clock::monotonic());
                break;
            }
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

    /// Matches a last line without a newline.
    fn end(&mut self, now: Nanos) {
        if !self.line.is_empty() {
            self.end_line(now);
        }
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
        let is_match = |regex: &mut Regex| regex.is_match(&line);
        if self.patterns.from.take_if(is_match).is_some() {
            let _ = self.sender.send(OutputEvent::From(now));
        } else if self.patterns.from.is_none() && self.patterns.to.take_if(is_match).is_some() {
            let _ = self.sender.send(OutputEvent::To);
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
        let patterns = LinePatterns {
            from: pattern("^loaded"),
            phase: pattern("^phase ((?-u:.)*)|^done$"),
            to: pattern("^(loaded|saved)"),
            only: None,
        };
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
    fn a_last_line_without_a_newline_is_matched_at_the_end_of_the_output() {
        for (text, count) in [(&b"loaded"[..], 1), (b"loaded\nsaved", 2), (b"loaded\n", 1)] {
            let (mut lines, events) = lines();
            copy(text, &mut Vec::new(), &mut lines);
            let found: Vec<_> = events.try_iter().collect();
            assert!(matches!(found[0], OutputEvent::From(_)), "{found:?}");
            assert_eq!((found.len(), found.contains(&OutputEvent::To)), (count, count == 2));
        }
    }

    #[test]
    fn the_end_is_the_first_match_after_the_begin() {
        let found = events(&[b"saved\nloaded\nphase a\n", b"saved\nloaded\nphase b\n"]);
        let from = OutputEvent::From(Nanos::ZERO);
        assert_eq!(found, [from, phase(0, "a"), OutputEvent::To, phase(1, "b")]);
    }

    #[test]
    fn a_span_names_its_ends() {
        let pattern = |text| Some(Regex::new(text).unwrap());
        let all = LinePatterns { phase: pattern("x"), ..LinePatterns::default() };
        assert_eq!(all.span(RecordStop::End), None);
        let in_time = all.span(RecordStop::Duration);
        assert_eq!(in_time.as_deref(), Some("from the start for the time of --duration"));
        let to = LinePatterns { to: pattern("b\x1b"), ..all };
        let text = |patterns: &LinePatterns, stop| patterns.span(stop).unwrap();
        let expected = "from the start to the first that matches `b\\u{1b}`";
        assert_eq!(text(&to, RecordStop::Phase), expected);
        let both = LinePatterns { from: pattern("a"), ..to };
        let until = |end| {
            let line = "no line matched `b\\u{1b}` until then";
            format!("from the first line that matches `a` {end}; {line}")
        };
        assert_eq!(text(&both, RecordStop::End), until("to the end"));
        assert_eq!(text(&both, RecordStop::Duration), until("for the time of --duration"));
        assert_eq!(text(&both, RecordStop::Interrupted), until("to an interruption"));
        let only = LinePatterns { only: Some("solve".to_owned()), ..LinePatterns::default() };
        assert_eq!(text(&only, RecordStop::Phase), "phase solve, to its end");
        assert_eq!(text(&only, RecordStop::End), "phase solve, to the end");
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
