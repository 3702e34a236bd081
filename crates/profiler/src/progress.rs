//! Progress metric of a program, read from its output.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::mpsc::Receiver;

use hugepilot_kernel::{KernelError, file};
use hugepilot_reports::tune::TuneWarning;
use hugepilot_units::Nanos;
use regex::Regex;

/// Bytes at the end of an existing file that are searched for values.
const LOOK_BACK_BYTES: u64 = 1 << 20;
/// Longest line, so that a program without newlines does not fill memory.
const MAX_LINE: usize = 64 << 10;
/// Most values that are stored.
const MAX_VALUES: usize = 100_000;

enum Source {
    /// `is_cut`: the next line is the end of one that began earlier.
    File {
        file: File,
        partial: Vec<u8>,
        is_cut: bool,
    },
    Lines(Receiver<String>),
}

/// Reader of a progress metric: all values so far, each with the time of its arrival.
pub struct ProgressReader {
    pattern: Regex,
    source: Source,
    values: Vec<(Nanos, f64)>,
    /// Lines that were read.
    lines: u64,
    /// Lines that match the pattern.
    matches: u64,
}

impl ProgressReader {
    /// Follows a file that a program writes. Values already in it get the time `now`.
    ///
    /// # Errors
    /// [`KernelError::Read`] if it cannot be opened.
    pub fn follow(path: &Path, pattern: Regex, now: Nanos) -> Result<Self, KernelError> {
        let open = || {
            let mut file = file::open(path)?;
            let start = file.metadata()?.len().saturating_sub(LOOK_BACK_BYTES);
            // The byte before, so that a line that begins at `start` is whole.
            file.seek(SeekFrom::Start(start.saturating_sub(1)))?;
            Ok((file, start > 0))
        };
        let (file, is_cut) =
            open().map_err(|source| KernelError::Read { path: path.to_owned(), source })?;
        let mut reader = Self {
            pattern,
            source: Source::File { file, partial: Vec::new(), is_cut },
            values: Vec::new(),
            lines: 0,
            matches: 0,
        };
        reader.poll(now);
        Ok(reader)
    }

    /// Reads lines from a channel.
    pub const fn lines(pattern: Regex, lines: Receiver<String>) -> Self {
        let source = Source::Lines(lines);
        Self { pattern, source, values: Vec::new(), lines: 0, matches: 0 }
    }

    /// Reads the output since the last call.
    pub fn poll(&mut self, now: Nanos) {
        let mut lines = Vec::new();
        match &mut self.source {
            Source::Lines(receiver) => lines.extend(receiver.try_iter()),
            Source::File { file, partial, is_cut } => {
                let _ = file.take(LOOK_BACK_BYTES + 1).read_to_end(partial);
                let whole = partial.iter().rposition(|&b| b == b'\n').map_or(0, |end| end + 1);
                for line in partial[..whole].split_inclusive(|&b| b == b'\n') {
                    if !std::mem::take(is_cut) {
                        lines.push(String::from_utf8_lossy(&line[..line.len() - 1]).into_owned());
                    }
                }
                partial.drain(..whole);
                if partial.len() > MAX_LINE {
                    partial.clear();
                    *is_cut = true;
                }
            }
        }
        for line in lines {
            self.lines += 1;
            self.matches += u64::from(self.pattern.is_match(&line));
            if let Some(value) = self.value(&line)
                && self.values.len() < MAX_VALUES
            {
                self.values.push((now, value));
            }
        }
    }

    /// Values that arrived from `from` until before `to`, in order.
    pub fn between(&self, from: Nanos, to: Nanos) -> Vec<f64> {
        self.values
            .iter()
            .filter(|(time, _)| (from..to).contains(time))
            .map(|&(_, value)| value)
            .collect()
    }

    /// Warnings about the pattern and what it found.
    pub fn warnings(&self) -> Vec<TuneWarning> {
        let (lines, matches) = (self.lines, self.matches);
        // The first group is the whole match.
        let has_group = self.pattern.captures_len() > 1;
        let none =
            self.values.is_empty().then_some(TuneWarning::NoProgressValues { lines, matches });
        // Matches without a number have the same help.
        let is_said = none.is_some() && matches > 0;
        let whole = (!has_group && !is_said).then_some(TuneWarning::ProgressRegexWithoutGroup);
        none.into_iter().chain(whole).collect()
    }

    /// Number in the first group of the pattern, otherwise in the whole match. Thousands separators
    /// are removed.
    fn value(&self, line: &str) -> Option<f64> {
        let found = self.pattern.captures(line)?;
        let text = found.get(1).or_else(|| found.get(0))?.as_str();
        let number: f64 = text.trim().replace(',', "").parse().ok()?;
        number.is_finite().then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};

    use super::*;

    fn pattern() -> Regex {
        Regex::new(r"Trial Time:\s+([\d.]+)").unwrap()
    }

    #[test]
    fn a_growing_file_is_followed_and_half_lines_wait() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "Trial Time:   1.50\nnoise").unwrap();
        let mut reader = ProgressReader::follow(file.path(), pattern(), Nanos::seconds(1)).unwrap();
        write!(file, "Trial Time:   1.2").unwrap();
        reader.poll(Nanos::seconds(2));
        writeln!(file, "5").unwrap();
        reader.poll(Nanos::seconds(3));
        assert_eq!(reader.between(Nanos::ZERO, Nanos::seconds(3)), [1.5]);
        assert_eq!(reader.between(Nanos::seconds(3), Nanos::seconds(9)), [1.25]);
    }

    #[test]
    fn the_end_of_a_line_is_no_line() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let log = "7\n12345\n2\n";
        let pattern = || Regex::new(r"^(\d+)$").unwrap();
        let follow = |file: &tempfile::NamedTempFile| {
            let reader = ProgressReader::follow(file.path(), pattern(), Nanos::ZERO).unwrap();
            reader.between(Nanos::ZERO, Nanos::seconds(1))
        };
        // The part that is read begins with `12345`, then within it.
        for (start, values) in [(2, vec![12345.0, 2.0]), (4, vec![2.0])] {
            let rest = usize::try_from(LOOK_BACK_BYTES).unwrap() - log.len() + start;
            file.as_file().set_len(0).unwrap();
            file.rewind().unwrap();
            write!(file, "{log}{}", "\n".repeat(rest)).unwrap();
            assert_eq!(follow(&file), values, "{start}");
        }
        // A line that is too long has no end that is a line.
        let mut long = ProgressReader::follow(file.path(), pattern(), Nanos::ZERO).unwrap();
        write!(file, "{}", "x".repeat(MAX_LINE + 1)).unwrap();
        long.poll(Nanos::seconds(2));
        writeln!(file, "\n5").unwrap();
        long.poll(Nanos::seconds(2));
        assert_eq!(long.between(Nanos::seconds(1), Nanos::seconds(3)), [5.0]);
    }

    #[test]
    fn lines_may_come_from_a_pipe_and_hold_anything() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let mut reader = ProgressReader::lines(Regex::new(r"[\d,.]+ ops").unwrap(), receiver);
        for line in ["", "x\u{1b}[31m", "1,234 ops", "ops"] {
            sender.send(line.to_owned()).unwrap();
        }
        reader.poll(Nanos::ZERO);
        assert!(
            reader.between(Nanos::ZERO, Nanos::seconds(1)).is_empty(),
            "`1,234 ops` is no number as a whole"
        );
        assert_eq!(
            reader.warnings(),
            [TuneWarning::NoProgressValues { lines: 4, matches: 1 }],
            "both have the same help"
        );
        let (_sender, receiver) = std::sync::mpsc::channel();
        let unmatched = ProgressReader::lines(Regex::new("[0-9]+").unwrap(), receiver);
        let none = TuneWarning::NoProgressValues { lines: 0, matches: 0 };
        assert_eq!(unmatched.warnings(), [none, TuneWarning::ProgressRegexWithoutGroup]);
        let mut grouped = ProgressReader::lines(Regex::new(r"([\d,.]+) ops").unwrap(), {
            let (sender, receiver) = std::sync::mpsc::channel();
            sender.send("1,234 ops".to_owned()).unwrap();
            receiver
        });
        grouped.poll(Nanos::ZERO);
        assert_eq!(grouped.between(Nanos::ZERO, Nanos::seconds(1)), [1234.0]);
        assert_eq!(grouped.warnings(), []);
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = ProgressReader::follow(Path::new("/no/such/log"), pattern(), Nanos::ZERO)
            .err()
            .unwrap();
        assert!(error.to_string().contains("/no/such/log"));
    }
}
