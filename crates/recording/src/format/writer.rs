//! Writer of recordings.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;

use super::{Head, Line};

/// Bytes of a member before compression, at which it ends without a flush.
const MAX_MEMBER: usize = 1 << 20;

/// Line with contents of another format, which are written without a copy.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum ForeignLine<'a, T> {
    Journal(&'a T),
    Report(&'a T),
}

/// Writer of a recording. Lines are compressed together until [`Self::flush`], so a process that is
/// killed loses the lines since the last one.
#[derive(Debug)]
pub struct RecordingWriter<W: Write> {
    file: W,
    pending: Vec<u8>,
    bytes: u64,
}

impl<W: Write> RecordingWriter<W> {
    /// Writes the head.
    ///
    /// # Errors
    /// Those of `file`.
    pub fn new(file: W, head: Head) -> io::Result<Self> {
        let mut writer = Self { file, pending: Vec::new(), bytes: 0 };
        writer.add(&Line::Head(Box::new(head)))?;
        writer.flush()?;
        Ok(writer)
    }

    /// Adds a line.
    ///
    /// # Errors
    /// Those of the file.
    pub fn add(&mut self, line: &Line) -> io::Result<()> {
        self.push(line)
    }

    /// Adds a line of a journal ([`Line::Journal`]).
    ///
    /// # Errors
    /// Those of the file.
    pub fn add_journal(&mut self, line: &impl Serialize) -> io::Result<()> {
        self.push(&ForeignLine::Journal(line))
    }

    /// Adds a report ([`Line::Report`]).
    ///
    /// # Errors
    /// Those of the file.
    pub fn add_report(&mut self, report: &impl Serialize) -> io::Result<()> {
        self.push(&ForeignLine::Report(report))
    }

    fn push(&mut self, line: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.pending, line)?;
        self.pending.push(b'\n');
        if self.pending.len() >= MAX_MEMBER { self.flush() } else { Ok(()) }
    }

    /// Writes all lines so far to the file, as a gzip member.
    ///
    /// # Errors
    /// Those of the file.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&self.pending)?;
        let member = encoder.finish()?;
        self.pending.clear();
        // One write, so that another reader sees whole members.
        self.file.write_all(&member)?;
        self.bytes += member.len() as u64;
        self.file.flush()
    }

    /// Bytes in the file.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes the rest, and returns the file.
    ///
    /// # Errors
    /// Those of the file.
    pub fn finish(mut self) -> io::Result<W> {
        self.flush()?;
        Ok(self.file)
    }
}
