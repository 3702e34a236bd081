//! Reader of recordings, within bounds.

use std::io::{self, BufRead, BufReader, Cursor, ErrorKind, Read};

use flate2::bufread::MultiGzDecoder;
use hugepilot_units::Bytes;

use super::{Head, Line, SCHEMA};

/// First bytes of a gzip member.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Name of [`SCHEMA`] without its version.
const NAME: &str = "hugepilot.recording/";
/// Start of the head, up to its version.
const START: &[u8] = b"{\"head\":{\"schema\":\"hugepilot.recording/";

/// Bounds of a recording, so that a damaged one cannot fill the memory.
#[derive(Clone, Copy, Debug)]
pub struct RecordingLimits {
    /// Longest line.
    pub line: Bytes,
    /// Most bytes of all lines together.
    pub total: Bytes,
}

impl Default for RecordingLimits {
    fn default() -> Self {
        Self { line: Bytes::mib(256), total: Bytes::gib(16) }
    }
}

/// Cause why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The first line is not the head of a recording.
    #[error("not a recording of hugepilot")]
    NoRecording,
    /// Another version of hugepilot wrote it.
    #[error("schema {found:?}; this hugepilot reads {SCHEMA:?}")]
    Version {
        /// Its schema.
        found: String,
    },
    /// A line is not what hugepilot writes, or its bytes are damaged.
    #[error("line {line} is damaged: {what}")]
    Damaged {
        /// Line, from 1.
        line: u64,
        /// Cause.
        what: String,
    },
    /// A line, or the whole recording, is longer than allowed.
    #[error("line {line}: more than {limit}")]
    Long {
        /// Line, from 1.
        line: u64,
        /// The limit.
        limit: Bytes,
    },
}

/// Reader of a recording: an iterator over the lines after the head. It ends where the file ends,
/// or was cut.
pub struct RecordingReader<'a> {
    from: Box<dyn BufRead + 'a>,
    limits: RecordingLimits,
    head: Option<Head>,
    pub(super) line: Vec<u8>,
    pub(super) number: u64,
    total: u64,
    is_cut: bool,
    is_over: bool,
}

impl std::fmt::Debug for RecordingReader<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordingReader").field("number", &self.number).finish_non_exhaustive()
    }
}

impl<'a> RecordingReader<'a> {
    /// Bytes of a file that [`Self::is_likely`] requires.
    pub const LIKELY_BYTES: u64 = 8;

    /// Whether a file that begins with these bytes may be a recording: gzip, or the head as text.
    pub fn is_likely(first: &[u8]) -> bool {
        is_gzip(first) || first.starts_with(b"{\"head\"")
    }

    /// Reads the head. Lines without compression are read, too. If the file was cut inside the
    /// head, [`Self::head`] is [`Head::default`], and no lines follow.
    ///
    /// # Errors
    /// The file is not a recording, or one of a later version.
    pub fn new(mut from: impl Read + 'a, limits: RecordingLimits) -> Result<Self, RecordingError> {
        let mut first = [0; 2];
        let mut length = 0;
        while length < first.len() {
            match from.read(&mut first[length..]) {
                Ok(0) => break,
                Ok(read) => length += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        let whole = BufReader::new(Cursor::new(first[..length].to_vec()).chain(from));
        let from: Box<dyn BufRead + 'a> = if is_gzip(&first[..length]) {
            Box::new(BufReader::new(MultiGzDecoder::new(whole)))
        } else {
            Box::new(whole)
        };
        let (line, number, total) = (Vec::new(), 0, 0);
        let head = None;
        let mut reader =
            Self { from, limits, head, line, number, total, is_cut: false, is_over: false };
        reader.head = Some(reader.read_head()?);
        Ok(reader)
    }

    /// The head.
    ///
    /// # Panics
    /// Never: a reader without a head cannot be made.
    pub fn head(&self) -> &Head {
        self.head.as_ref().expect("read by new")
    }

    /// Whether the file ended within a line or a member, once all lines are read.
    pub const fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Lines read so far.
    pub const fn lines(&self) -> u64 {
        self.number
    }

    fn read_head(&mut self) -> Result<Head, RecordingError> {
        let has_line = self.next_line().map_err(|error| match error {
            RecordingError::Damaged { .. } => RecordingError::NoRecording,
            error => error,
        })?;
        if !has_line {
            let is_begun = START.starts_with(&self.line) || self.line.starts_with(START);
            self.is_over = self.is_cut && is_begun;
            return if self.is_over {
                Ok(Head::default())
            } else {
                Err(RecordingError::NoRecording)
            };
        }
        let value: serde_json::Value =
            serde_json::from_slice(&self.line).map_err(|_| RecordingError::NoRecording)?;
        let schema = value["head"]["schema"].as_str().unwrap_or_default();
        if !schema.starts_with(NAME) {
            return Err(RecordingError::NoRecording);
        }
        if schema != SCHEMA {
            let found = schema.chars().take(64).collect();
            return Err(RecordingError::Version { found });
        }
        match serde_json::from_value(value) {
            Ok(Line::Head(head)) => Ok(*head),
            Ok(_) => Err(RecordingError::NoRecording),
            Err(error) => Err(RecordingError::Damaged { line: 1, what: error.to_string() }),
        }
    }

    /// Reads the next whole line. Returns whether there is one.
    pub(super) fn next_line(&mut self) -> Result<bool, RecordingError> {
        self.line.clear();
        if self.is_over {
            return Ok(false);
        }
        self.number += 1;
        let left = self.limits.total.get().saturating_sub(self.total);
        let limit = self.limits.line.get().min(left);
        let read =
            self.from.by_ref().take(limit.saturating_add(1)).read_until(b'\n', &mut self.line);
        match read {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                self.is_cut = true;
                return Ok(false);
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::InvalidData) =>
            {
                return Err(RecordingError::Damaged { line: self.number, what: error.to_string() });
            }
            Err(error) => return Err(error.into()),
        }
        let length = self.line.len() as u64;
        if length > limit {
            let limit = if limit == left { self.limits.total } else { self.limits.line };
            return Err(RecordingError::Long { line: self.number, limit });
        }
        self.total += length;
        if self.line.last() == Some(&b'\n') {
            return Ok(true);
        }
        self.is_cut = !self.line.is_empty();
        Ok(false)
    }

    fn read(&mut self) -> Result<Option<Line>, RecordingError> {
        if !self.next_line()? {
            return Ok(None);
        }
        serde_json::from_slice(&self.line)
            .map(Some)
            .map_err(|error| RecordingError::Damaged { line: self.number, what: error.to_string() })
    }
}

/// Whether a file that begins with these bytes is compressed. It may end after the first byte.
fn is_gzip(first: &[u8]) -> bool {
    !first.is_empty() && GZIP.starts_with(&first[..first.len().min(GZIP.len())])
}

impl Iterator for RecordingReader<'_> {
    type Item = Result<Line, RecordingError>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.read();
        self.is_over |= !matches!(read, Ok(Some(_)));
        read.transpose()
    }
}
