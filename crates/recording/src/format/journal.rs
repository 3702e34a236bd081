//! Journal in a recording.

use std::io::{self, BufRead, Read};

use super::{RecordingError, RecordingReader};

/// Start of a line of a journal.
const START: &[u8] = b"{\"journal\":";
/// End of each line.
const END: &[u8] = b"}\n";

/// Text of the journal in a recording: its headers and rounds, each a line. All other lines are
/// skipped. If the file was cut inside a line of the journal, the text ends inside that line.
///
/// Damage is an [`io::Error`] whose source is a [`RecordingError`].
#[derive(Debug)]
pub struct RecordedJournal<'a> {
    from: RecordingReader<'a>,
    /// First byte of the line that is not consumed.
    at: usize,
    is_over: bool,
}

impl<'a> RecordedJournal<'a> {
    /// The journal in the lines that are not read yet.
    pub fn new(from: RecordingReader<'a>) -> Self {
        Self { from, at: usize::MAX, is_over: false }
    }

    /// Reads up to the next line of the journal.
    fn advance(&mut self) -> Result<(), RecordingError> {
        while !self.is_over {
            self.is_over = true;
            let is_whole = self.from.next_line()?;
            self.is_over = !is_whole;
            let line = &mut self.from.line;
            if !line.starts_with(START) {
                continue;
            }
            if is_whole && !line.ends_with(END) {
                self.is_over = true;
                let what = "not a line of a journal".to_owned();
                return Err(RecordingError::Damaged { line: self.from.number, what });
            }
            if is_whole {
                line.truncate(line.len() - END.len());
                line.push(b'\n');
            }
            self.at = START.len();
            return Ok(());
        }
        self.at = self.from.line.len();
        Ok(())
    }
}

impl BufRead for RecordedJournal<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at >= self.from.line.len() {
            self.advance().map_err(|error| match error {
                RecordingError::Io(error) => error,
                error => io::Error::new(io::ErrorKind::InvalidData, error),
            })?;
        }
        Ok(&self.from.line[self.at.min(self.from.line.len())..])
    }

    fn consume(&mut self, amount: usize) {
        self.at = self.at.saturating_add(amount);
    }
}

impl Read for RecordedJournal<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut left = self.fill_buf()?;
        let read = left.read(buffer)?;
        self.consume(read);
        Ok(read)
    }
}
