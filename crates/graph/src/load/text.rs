//! Text cut at line ends into blocks that threads read at the same time.

use std::io::{self, BufRead};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use hugepilot_units::Bytes;
use memchr::{memchr, memchr_iter, memrchr};

use crate::{GraphError, Result, ThreadPool};

/// Bytes of a block, about: the edges of each are a mapping, of which a process has some ten thousands.
const BLOCK: usize = 4 << 20;
/// Bytes of a line that leads a file, at most.
const LINE: usize = 1 << 20;
/// Bytes of all that says nothing and leads a file, at most.
const COMMENTS: usize = 16 << 20;

/// Text, line by line or block by block.
pub(super) struct Text<'a> {
    input: Box<dyn BufRead + Send + 'a>,
    path: PathBuf,
    /// What was read and not given out, from `start` on.
    pending: Vec<u8>,
    start: usize,
    /// Lines given out.
    lines: u64,
    /// Bytes read.
    bytes: u64,
    ended: bool,
}

/// What is wrong, at a byte of a block.
#[derive(Debug)]
pub(super) struct SyntaxError {
    pub(super) at: usize,
    pub(super) what: String,
}

impl<'a> Text<'a> {
    pub(super) fn new(path: &Path, input: Box<dyn BufRead + Send + 'a>) -> Self {
        let path = path.to_owned();
        Self { input, path, pending: Vec::new(), start: 0, lines: 0, bytes: 0, ended: false }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
    /// Bytes of text read until now.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
    /// What is wrong in the line given out last, or where the first should be.
    pub(super) fn error(&self, what: impl Into<String>) -> GraphError {
        at_line(&self.path, self.lines.max(1), what)
    }

    /// What comes next: at least a line, unless that is longer than any that leads a file, and as much as was read with it.
    pub(super) fn ahead(&mut self) -> Result<&[u8]> {
        let mut searched = self.start;
        while memchr(b'\n', &self.pending[searched..]).is_none()
            && !self.ended
            && searched < self.start + LINE
        {
            searched = self.pending.len();
            self.more(LINE)?;
        }
        Ok(&self.pending[self.start..])
    }

    /// The same up to the second line that says something, if there is one: not blank, and not beginning with one of these. The
    /// first may be names of columns.
    ///
    /// # Errors
    /// [`GraphError::Format`] where none comes in 16 MiB.
    pub(super) fn told(&mut self, comments: &[u8]) -> Result<&[u8]> {
        let (mut at, mut told) = (self.start, 0);
        loop {
            while let Some(len) = memchr(b'\n', &self.pending[at..]) {
                told += usize::from(tells(&self.pending[at..at + len], comments));
                if told == 2 {
                    return Ok(&self.pending[self.start..]);
                }
                at += len + 1;
            }
            let is_enough = self.pending.len() - self.start >= COMMENTS;
            if self.ended || (is_enough && told > 0) {
                return Ok(&self.pending[self.start..]);
            }
            if is_enough {
                let what =
                    "16 MiB without an edge; leave comments out, or say by --format what it is";
                return Err(at_line(&self.path, self.lines + 1, what));
            }
            self.more(LINE)?;
        }
    }

    /// The next line, without its end; none at the end.
    pub(super) fn line(&mut self) -> Result<Option<&[u8]>> {
        if self.ahead()?.is_empty() {
            return Ok(None);
        }
        let start = self.start;
        let len = memchr(b'\n', &self.pending[start..]);
        if len.is_none() && !self.ended {
            return Err(at_line(
                &self.path,
                self.lines + 1,
                "is no text: the line is longer than 1 MiB",
            ));
        }
        let end = len.map_or(self.pending.len(), |len| start + len);
        self.start = (end + 1).min(self.pending.len());
        self.lines += 1;
        let line = &self.pending[start..end];
        match lone(line) {
            Some(SyntaxError { what, .. }) => Err(self.error(what)),
            None => Ok(Some(line.strip_suffix(b"\r").unwrap_or(line))),
        }
    }

    /// The next line that says something: not blank, and not beginning with one of these.
    pub(super) fn telling(&mut self, comments: &[u8]) -> Result<Option<String>> {
        while let Some(line) = self.line()? {
            if tells(line, comments) {
                return Ok(Some(String::from_utf8_lossy(line.trim_ascii()).into_owned()));
            }
        }
        Ok(None)
    }

    /// Whole lines, about as long as a block. False at the end. What is packed may be a line without an end: a line takes no
    /// more than is available.
    fn block(&mut self, into: &mut Vec<u8>, available: Option<Bytes>) -> Result<bool> {
        self.pending.drain(..self.start);
        self.start = 0;
        let mut searched = 0;
        let end = loop {
            self.more(BLOCK)?;
            if self.ended {
                break self.pending.len();
            }
            // A line may be longer than a block: that of a hub in METIS is.
            if let Some(last) = memrchr(b'\n', &self.pending[searched..]) {
                break searched + last + 1;
            }
            searched = self.pending.len();
            fits(Bytes::new(searched as u64), available)?;
        };
        std::mem::swap(into, &mut self.pending);
        self.pending.clear();
        self.pending.extend_from_slice(&into[end..]);
        into.truncate(end);
        Ok(end > 0)
    }

    /// Reads that much more, or what there is.
    fn more(&mut self, most: usize) -> Result<()> {
        let mut left = most;
        while left > 0 && !self.ended {
            let ahead = match self.input.fill_buf() {
                Ok(ahead) => ahead,
                Err(error) => return Err(self.broken(error)),
            };
            let len = ahead.len().min(left);
            self.ended = len == 0;
            self.pending.extend_from_slice(&ahead[..len]);
            self.input.consume(len);
            self.bytes += len as u64;
            left -= len;
        }
        Ok(())
    }

    /// What was packed and is damaged is wrong in the file; all else is the system's.
    fn broken(&self, error: io::Error) -> GraphError {
        use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
        if matches!(error.kind(), InvalidData | InvalidInput | UnexpectedEof) {
            let place =
                format!("{}, byte {} of what is packed in it", self.path.display(), self.bytes);
            return GraphError::Format { place, what: format!("cannot be unpacked: {error}") };
        }
        GraphError::Io { path: self.path.display().to_string(), source: error }
    }
}

/// Whether a line says something.
fn tells(line: &[u8], comments: &[u8]) -> bool {
    line.trim_ascii_start().first().is_some_and(|byte| !comments.contains(byte))
}

/// A carriage return inside of a line: passed over as a gap, it would join what old Macs wrote as lines.
fn lone(text: &[u8]) -> Option<SyntaxError> {
    let is_inside = |&at: &usize| text.get(at + 1).is_some_and(|next| !b"\r\n".contains(next));
    let at = memchr_iter(b'\r', text).find(is_inside)?;
    let what = "a carriage return without a line feed; lines end with \\n or \\r\\n, \
        and tr '\\r' '\\n' has them do so";
    Some(SyntaxError { at, what: what.to_owned() })
}

pub(super) fn at_line(path: &Path, line: u64, what: impl Into<String>) -> GraphError {
    GraphError::Format { place: format!("{}:{line}", path.display()), what: what.into() }
}

/// Memory that edges and vertices may take while they are read: a packed file does not tell how many come.
pub(super) struct Budget {
    pub(super) available: Option<Bytes>,
    taken: AtomicU64,
}

impl Budget {
    pub(super) fn new(available: Option<Bytes>) -> Self {
        Self { available, taken: AtomicU64::new(0) }
    }

    /// # Errors
    /// [`GraphError::InsufficientMemory`].
    pub(super) fn take(&self, bytes: u64) -> Result<()> {
        let needed = Bytes::new(self.taken.fetch_add(bytes, Relaxed).saturating_add(bytes));
        fits(needed, self.available)
    }
}

/// # Errors
/// [`GraphError::InsufficientMemory`].
pub(super) fn fits(needed: Bytes, available: Option<Bytes>) -> Result<()> {
    match available {
        Some(available) if needed > available => {
            Err(GraphError::InsufficientMemory { needed, available })
        }
        _ => Ok(()),
    }
}

/// What a block came to, in the order of the file.
struct ParsedBlock<T> {
    index: usize,
    lines: u64,
    found: std::result::Result<T, Fault>,
}

enum Fault {
    /// In a line of the block, from 1 on.
    Line(u64, String),
    Other(GraphError),
}

/// Reads the rest of the text by all threads: `parse` turns each block into something and says how much memory that takes.
///
/// # Errors
/// The first that is wrong in the file, whoever saw it; [`GraphError::InsufficientMemory`].
pub(super) fn parse<T: Send>(
    text: &mut Text<'_>,
    pool: ThreadPool,
    budget: &Budget,
    parse: impl Fn(&[u8]) -> std::result::Result<(T, u64), SyntaxError> + Sync,
) -> Result<Vec<T>> {
    let (path, before) = (text.path.clone(), text.lines);
    let (next, stop) = (Mutex::new((text, 0)), AtomicBool::new(false));
    let work = || -> Vec<ParsedBlock<T>> {
        let (mut done, mut block) = (Vec::new(), Vec::new());
        while !stop.load(Relaxed) {
            let Ok(mut guard) = next.lock() else { break };
            let (text, count) = &mut *guard;
            let (index, read) = (*count, text.block(&mut block, budget.available));
            *count += 1;
            drop(guard);
            let found = match read {
                Ok(false) => break,
                Err(error) => Err(Fault::Other(error)),
                Ok(true) => match lone(&block).map_or_else(|| parse(&block), Err) {
                    Ok((found, bytes)) => budget.take(bytes).map(|()| found).map_err(Fault::Other),
                    Err(SyntaxError { at, what }) => {
                        Err(Fault::Line(lines(&block[..at.min(block.len())]) + 1, what))
                    }
                },
            };
            if found.is_err() {
                stop.store(true, Relaxed);
            }
            done.push(ParsedBlock { index, lines: lines(&block), found });
        }
        done
    };
    let mut all: Vec<ParsedBlock<T>> = pool.run(|_| work()).into_iter().flatten().collect();
    all.sort_unstable_by_key(|done| done.index);
    let mut line = before;
    let mut found = Vec::with_capacity(all.len());
    for done in all {
        match done.found {
            Ok(one) => found.push(one),
            Err(Fault::Line(inside, what)) => return Err(at_line(&path, line + inside, what)),
            Err(Fault::Other(error)) => return Err(error),
        }
        line += done.lines;
    }
    Ok(found)
}

fn lines(text: &[u8]) -> u64 {
    memchr_iter(b'\n', text).count() as u64
}
