//! Text cut at line ends into blocks that threads parse concurrently.

use std::io::{self, BufRead};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use hugepilot_alloc::AllocError;
use hugepilot_units::Bytes;
use memchr::{memchr, memchr_iter, memrchr};

use crate::error::{Access, GraphStep, Position};
use crate::{GraphError, LoadFault, Result, ThreadPool};

/// Target size of a block in bytes. Each block becomes a mapping, and a process may have tens of
/// thousands.
const BLOCK: usize = 4 << 20;
/// Maximum length of a header line in bytes.
const LINE: usize = 1 << 20;
/// Maximum length of the comments before the first edge in bytes.
const COMMENTS: usize = 16 << 20;

/// Byte order mark of UTF-8, which text may start with.
pub(super) const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";

/// Text, read by line or by block.
pub(super) struct Text<'a> {
    input: Box<dyn BufRead + Send + 'a>,
    path: PathBuf,
    /// Bytes that were read; those from `start` on are not consumed.
    pending: Vec<u8>,
    start: usize,
    /// Consumed lines.
    lines: u64,
    /// Bytes read.
    bytes: u64,
    ended: bool,
}

/// Fault at a byte of a block, or an error without a position.
#[derive(Debug)]
pub(super) enum SyntaxError {
    At { byte: usize, fault: LoadFault },
    Other(GraphError),
}

impl From<GraphError> for SyntaxError {
    fn from(error: GraphError) -> Self {
        Self::Other(error)
    }
}

impl From<AllocError> for SyntaxError {
    fn from(error: AllocError) -> Self {
        Self::Other(error.into())
    }
}

impl SyntaxError {
    pub(super) fn at(byte: usize, fault: LoadFault) -> Self {
        Self::At { byte, fault }
    }
}

impl<'a> Text<'a> {
    pub(super) fn new(path: &Path, input: Box<dyn BufRead + Send + 'a>) -> Self {
        let path = path.to_owned();
        Self { input, path, pending: Vec::new(), start: 0, lines: 0, bytes: 0, ended: false }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
    /// Returns the bytes of text read so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
    /// Returns the lines consumed so far.
    pub(super) fn lines(&self) -> u64 {
        self.lines
    }
    /// Makes an error of a fault in the last consumed line, or in line 1 before that.
    pub(super) fn error(&self, fault: LoadFault) -> GraphError {
        at_line(&self.path, self.lines.max(1), fault)
    }

    /// Returns the text ahead: at least one line, unless it exceeds the limit of a header line.
    pub(super) fn ahead(&mut self) -> Result<&[u8]> {
        let mut searched = self.start;
        while memchr(b'\n', &self.pending[searched..]).is_none()
            && !self.ended
            && searched < self.start + LINE
        {
            searched = self.pending.len();
            self.read_more(LINE)?;
        }
        Ok(&self.pending[self.start..])
    }

    /// Returns the text ahead up to the second line with content, if any. The first such line may
    /// hold column names.
    ///
    /// # Errors
    /// [`LoadFault::NoEdgeInHead`] if 16 MiB have no content.
    pub(super) fn ahead_to_content(&mut self, comments: &[u8]) -> Result<&[u8]> {
        let (mut at, mut count) = (self.start, 0);
        loop {
            while let Some(len) = memchr(b'\n', &self.pending[at..]) {
                count += usize::from(has_content(&self.pending[at..at + len], comments));
                if count == 2 {
                    return Ok(&self.pending[self.start..]);
                }
                at += len + 1;
            }
            let is_enough = self.pending.len() - self.start >= COMMENTS;
            if self.ended || (is_enough && count > 0) {
                return Ok(&self.pending[self.start..]);
            }
            if is_enough {
                return Err(at_line(&self.path, self.lines + 1, LoadFault::NoEdgeInHead));
            }
            self.read_more(LINE)?;
        }
    }

    /// Returns whole lines ahead: at least two with content, if there are two.
    ///
    /// # Errors
    /// [`LoadFault::NoEdgeInHead`].
    pub(super) fn sample(&mut self, comments: &[u8]) -> Result<&[u8]> {
        self.ahead_to_content(comments)?;
        let ahead = &self.pending[self.start..];
        let whole = memrchr(b'\n', ahead).filter(|_| !self.ended).map_or(ahead.len(), |at| at + 1);
        Ok(&ahead[..whole])
    }

    /// Consumes the next line, and returns it without its end; `None` at the end of the text.
    pub(super) fn line(&mut self) -> Result<Option<&[u8]>> {
        if self.ahead()?.is_empty() {
            return Ok(None);
        }
        let start = self.start;
        let len = memchr(b'\n', &self.pending[start..]);
        if len.is_none() && !self.ended {
            return Err(at_line(&self.path, self.lines + 1, LoadFault::LineTooLong));
        }
        let end = len.map_or(self.pending.len(), |len| start + len);
        self.start = (end + 1).min(self.pending.len());
        self.lines += 1;
        let line = &self.pending[start..end];
        match lone_carriage_return(line) {
            Some(_) => Err(self.error(LoadFault::CarriageReturn)),
            None => Ok(Some(line.strip_suffix(b"\r").unwrap_or(line))),
        }
    }

    /// Consumes lines up to the next one with content, and returns it.
    pub(super) fn content_line(&mut self, comments: &[u8]) -> Result<Option<String>> {
        while let Some(line) = self.line()? {
            if has_content(line, comments) {
                return Ok(Some(String::from_utf8_lossy(line.trim_ascii()).into_owned()));
            }
        }
        Ok(None)
    }

    /// Moves whole lines of about one block into `into`. False at the end. Compressed text may be
    /// one endless line, so a line takes at most the available memory.
    fn block(&mut self, into: &mut Vec<u8>, available: Option<Bytes>) -> Result<bool> {
        self.pending.drain(..self.start);
        self.start = 0;
        let mut searched = 0;
        let end = loop {
            self.read_more(BLOCK)?;
            if self.ended {
                break self.pending.len();
            }
            // A line may exceed a block: that of a hub in METIS does.
            if let Some(last) = memrchr(b'\n', &self.pending[searched..]) {
                break searched + last + 1;
            }
            searched = self.pending.len();
            check_memory(Bytes::new(searched as u64), available)?;
        };
        std::mem::swap(into, &mut self.pending);
        self.pending.clear();
        self.pending.extend_from_slice(&into[end..]);
        into.truncate(end);
        Ok(end > 0)
    }

    /// Reads up to `limit` more bytes.
    fn read_more(&mut self, limit: usize) -> Result<()> {
        let (mut left, is_first) = (limit, self.bytes == 0);
        while left > 0 && !self.ended {
            let ahead = match self.input.fill_buf() {
                Ok(ahead) => ahead,
                Err(error) => return Err(self.read_error(error)),
            };
            let len = ahead.len().min(left);
            self.ended = len == 0;
            self.pending.extend_from_slice(&ahead[..len]);
            self.input.consume(len);
            self.bytes += len as u64;
            left -= len;
        }
        if is_first && self.pending.starts_with(UTF8_MARK) {
            self.start = UTF8_MARK.len();
        }
        Ok(())
    }

    /// Separates damaged compressed data from failed system calls.
    fn read_error(&self, error: io::Error) -> GraphError {
        use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
        if matches!(error.kind(), InvalidData | InvalidInput | UnexpectedEof) {
            let position = Position::DecompressedByte(self.bytes);
            return GraphError::load(&self.path, position, LoadFault::Decompression(error));
        }
        GraphError::io(Access::Read, &self.path, error)
    }
}

/// Whether a line is neither blank nor a comment.
fn has_content(line: &[u8], comments: &[u8]) -> bool {
    line.trim_ascii_start().first().is_some_and(|byte| !comments.contains(byte))
}

/// Finds a carriage return inside a line. As a separator, it would join the lines of classic
/// Mac OS files.
pub(super) fn lone_carriage_return(text: &[u8]) -> Option<usize> {
    let is_inside = |&at: &usize| text.get(at + 1).is_some_and(|next| !b"\r\n".contains(next));
    memchr_iter(b'\r', text).find(is_inside)
}

/// Makes an error of a fault in a line.
pub(super) fn at_line(path: &Path, line: u64, fault: LoadFault) -> GraphError {
    GraphError::load(path, Position::Line(line), fault)
}

/// Memory for edges and vertices during the parse: a compressed file does not state their number.
pub(super) struct Budget {
    pub(super) available: Option<Bytes>,
    taken: AtomicU64,
}

impl Budget {
    pub(super) fn new(available: Option<Bytes>) -> Self {
        Self { available, taken: AtomicU64::new(0) }
    }

    /// Adds `bytes` to the memory in use.
    ///
    /// # Errors
    /// [`GraphError::InsufficientMemory`].
    pub(super) fn take(&self, bytes: u64) -> Result<()> {
        let needed = Bytes::new(self.taken.fetch_add(bytes, Relaxed).saturating_add(bytes));
        check_memory(needed, self.available)
    }
}

/// Checks the memory for a build.
///
/// # Errors
/// [`GraphError::InsufficientMemory`].
pub(super) fn check_memory(needed: Bytes, available: Option<Bytes>) -> Result<()> {
    match available {
        Some(available) if needed > available => {
            Err(GraphError::InsufficientMemory { step: GraphStep::Build, needed, available })
        }
        _ => Ok(()),
    }
}

/// Outcome of one block.
struct ParsedBlock<T> {
    /// Position in the file.
    index: usize,
    lines: u64,
    parsed: std::result::Result<T, BlockError>,
}

enum BlockError {
    /// Fault in a line of the block, from 1.
    Line(u64, LoadFault),
    Other(GraphError),
}

/// Parses the rest of the text on all threads. `parse` returns the content of a block and the
/// memory that it takes.
///
/// # Errors
/// The first fault in file order; [`GraphError::InsufficientMemory`].
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
            let parsed = match read {
                Ok(false) => break,
                Err(error) => Err(BlockError::Other(error)),
                Ok(true) => parse_block(&block, budget, &parse),
            };
            if parsed.is_err() {
                stop.store(true, Relaxed);
            }
            done.push(ParsedBlock { index, lines: count_lines(&block), parsed });
        }
        done
    };
    let mut all: Vec<ParsedBlock<T>> = pool.run(|_| work()).into_iter().flatten().collect();
    all.sort_unstable_by_key(|block| block.index);
    let mut line = before;
    let mut parsed = Vec::with_capacity(all.len());
    for block in all {
        match block.parsed {
            Ok(content) => parsed.push(content),
            Err(BlockError::Line(inside, fault)) => {
                return Err(at_line(&path, line + inside, fault));
            }
            Err(BlockError::Other(error)) => return Err(error),
        }
        line += block.lines;
    }
    Ok(parsed)
}

fn parse_block<T>(
    block: &[u8],
    budget: &Budget,
    parse: impl Fn(&[u8]) -> std::result::Result<(T, u64), SyntaxError>,
) -> std::result::Result<T, BlockError> {
    let parsed = match lone_carriage_return(block) {
        Some(byte) => Err(SyntaxError::at(byte, LoadFault::CarriageReturn)),
        None => parse(block),
    };
    match parsed {
        Ok((content, bytes)) => budget.take(bytes).map(|()| content).map_err(BlockError::Other),
        Err(SyntaxError::At { byte, fault }) => {
            Err(BlockError::Line(count_lines(&block[..byte.min(block.len())]) + 1, fault))
        }
        Err(SyntaxError::Other(error)) => Err(BlockError::Other(error)),
    }
}

pub(super) fn count_lines(text: &[u8]) -> u64 {
    memchr_iter(b'\n', text).count() as u64
}
