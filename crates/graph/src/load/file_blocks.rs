//! Block reads of a file, with control of the page cache.

use std::fs::File;
use std::io::{self, BufRead, Read};
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use hugepilot_alloc::{Backing, HugeVec, Options};
use hugepilot_kernel::file;
use rustix::fs::{Advice, OFlags, fadvise, fstatfs};
use rustix::io::Errno;

use super::{LoadMode, Progress};
use crate::error::{Access, Position};
use crate::{GraphError, LoadFault, Result};

/// Bytes of one read.
pub(super) const BLOCK: usize = 4 << 20;
/// Alignment of file offsets and memory for `O_DIRECT`: no device has larger sectors.
const ALIGN: u64 = 4096;
/// Magic number of tmpfs in `statfs`.
const TMPFS: u64 = 0x0102_1994;

/// File that any thread reads in parts.
pub(super) struct FileBlocks<'a> {
    path: PathBuf,
    cached: File,
    direct: Option<File>,
    /// Whether `O_DIRECT` is unsupported.
    direct_failed: AtomicBool,
    load_mode: LoadMode,
    len: u64,
    done: AtomicU64,
    progress: Progress<'a>,
}

impl<'a> FileBlocks<'a> {
    /// Opens a regular file, or the standard input for `-`.
    ///
    /// # Errors
    /// [`GraphError::Io`], also for a FIFO, device or directory; [`LoadFault::NotTmpfs`].
    pub(super) fn open(path: &Path, load_mode: LoadMode, progress: Progress<'a>) -> Result<Self> {
        let io = |source| GraphError::io(Access::Read, path, source);
        let is_stdin = path == Path::new(file::STDIN);
        let cached = if is_stdin { file::stdin() } else { file::open(path) }.map_err(io)?;
        let metadata = cached.metadata().map_err(io)?;
        if load_mode == LoadMode::Tmpfs {
            let kind = fstatfs(&cached).map_err(|errno| io(errno.into()))?.f_type;
            if u64::try_from(kind) != Ok(TMPFS) {
                return Err(whole(path, LoadFault::NotTmpfs));
            }
        }
        let direct = match load_mode {
            LoadMode::Direct => reopen_direct(&cached, is_stdin).map_err(io)?,
            _ => None,
        };
        let direct_failed = AtomicBool::new(direct.is_none());
        let (path, len, done) = (path.to_owned(), metadata.len(), AtomicU64::new(0));
        Ok(Self { path, cached, direct, direct_failed, load_mode, len, done, progress })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
    pub(super) fn len(&self) -> u64 {
        self.len
    }
    /// Returns the load mode in effect: `Drop` if `O_DIRECT` is unsupported.
    pub(super) fn load_mode(&self) -> LoadMode {
        let is_cached = self.load_mode == LoadMode::Direct && self.direct_failed.load(Relaxed);
        if is_cached { LoadMode::Drop } else { self.load_mode }
    }
    /// Returns a reader with its own buffer, for one thread.
    pub(super) fn reader(&self) -> Reader<'_> {
        Reader { file: self, buffer: HugeVec::new(Options::only(Backing::Base)) }
    }
    /// Returns a sequential reader of the whole file.
    pub(super) fn stream(&self) -> Stream<'_> {
        Stream { reader: self.reader(), start: 0, end: 0, next: 0 }
    }
    /// Makes an error of a failed system call on this file.
    pub(super) fn io(&self, source: io::Error) -> GraphError {
        GraphError::io(Access::Read, &self.path, source)
    }
    /// Makes an error of a fault at a byte.
    pub(super) fn error_at(&self, byte: u64, fault: LoadFault) -> GraphError {
        GraphError::load(&self.path, Position::Byte(byte), fault)
    }

    /// Reads from an aligned offset into aligned memory until it is full or the file ends.
    /// Returns the bytes read.
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < into.len() {
            let next = at + filled as u64;
            // After the end of the file, the rest of the memory may be unaligned.
            let aligned = next.is_multiple_of(ALIGN) && next < self.len;
            let is_direct = aligned && !self.direct_failed.load(Relaxed);
            let direct = self.direct.as_ref().filter(|_| is_direct);
            let from = direct.unwrap_or(&self.cached);
            match rustix::io::pread(from, &mut into[filled..], next) {
                Ok(0) => break,
                Ok(more) => filled += more,
                Err(Errno::INTR) => {}
                Err(Errno::INVAL) if direct.is_some() => self.direct_failed.store(true, Relaxed),
                Err(errno) => return Err(errno.into()),
            }
        }
        if self.load_mode() == LoadMode::Drop
            && let Some(len) = NonZeroU64::new((into.len() as u64).next_multiple_of(ALIGN))
        {
            fadvise(&self.cached, at, Some(len), Advice::DontNeed)?;
        }
        let done = self.done.fetch_add(filled as u64, Relaxed) + filled as u64;
        (self.progress)(done.min(self.len), self.len);
        Ok(filled)
    }
}

/// Drops from the page cache also readahead and earlier content.
impl Drop for FileBlocks<'_> {
    fn drop(&mut self) {
        if matches!(self.load_mode, LoadMode::Direct | LoadMode::Drop) {
            let _ = fadvise(&self.cached, 0, None, Advice::DontNeed);
        }
    }
}

/// Opens an open file again with `O_DIRECT`; `None` if the file system does not support it.
fn reopen_direct(file: &File, is_stdin: bool) -> io::Result<Option<File>> {
    // By descriptor, because the path may name another file by now.
    let again = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::DIRECT.bits().cast_signed();
    match File::options().read(true).custom_flags(flags).open(again) {
        Ok(file) => Ok(Some(file)),
        // An open standard input may not be readable by path.
        Err(error) if is_stdin || error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Makes an error of a fault that concerns a file as a whole.
pub(super) fn whole(path: &Path, fault: LoadFault) -> GraphError {
    GraphError::load(path, Position::Whole, fault)
}

/// Reader of a file for one thread.
pub(super) struct Reader<'a> {
    file: &'a FileBlocks<'a>,
    buffer: HugeVec<u8>,
}

impl Reader<'_> {
    /// Returns `len` bytes from `at`; `len` is at most [`BLOCK`].
    ///
    /// # Errors
    /// [`GraphError::Io`]; [`LoadFault::Truncated`].
    pub(super) fn bytes(&mut self, at: u64, len: usize) -> Result<&[u8]> {
        let (filled, skip) = self.read_ahead(at, len).map_err(|error| self.file.io(error))?;
        if filled < skip + len {
            return Err(self.truncated(at + len as u64));
        }
        Ok(&self.buffer[skip..skip + len])
    }

    /// Reads up to `len` bytes from `at`. Returns the filled bytes of the buffer, and the position
    /// of `at` in it.
    fn read_ahead(&mut self, at: u64, len: usize) -> io::Result<(usize, usize)> {
        let start = at / ALIGN * ALIGN;
        let skip = usize::try_from(at - start).map_err(io::Error::other)?;
        let want = (skip + len).next_multiple_of(4096);
        if self.buffer.len() < want {
            let options = Options::only(Backing::Base).named("file");
            self.buffer = options
                .and_then(|options| HugeVec::zeroed(want, options))
                .map_err(io::Error::other)?;
        }
        Ok((self.file.read(start, &mut self.buffer[..want])?, skip))
    }

    /// Fills `into` from `at`, without a copy if both are aligned.
    ///
    /// # Errors
    /// See [`Self::bytes`].
    pub(super) fn fill(&mut self, at: u64, into: &mut [u8]) -> Result<()> {
        let aligned = at.is_multiple_of(ALIGN) && into.as_ptr().addr().is_multiple_of(4096);
        let any_alignment = self.file.load_mode() != LoadMode::Direct;
        let straight = match (any_alignment, aligned) {
            (true, _) => into.len(),
            (_, true) => into.len() / 4096 * 4096,
            _ => 0,
        };
        let filled =
            self.file.read(at, &mut into[..straight]).map_err(|error| self.file.io(error))?;
        if filled < straight {
            return Err(self.truncated(at + straight as u64));
        }
        for (i, chunk) in into[straight..].chunks_mut(BLOCK).enumerate() {
            chunk.copy_from_slice(self.bytes(at + (straight + i * BLOCK) as u64, chunk.len())?);
        }
        Ok(())
    }

    fn truncated(&self, expected: u64) -> GraphError {
        self.file.error_at(self.file.len, LoadFault::Truncated { expected })
    }
}

/// Sequential reader of a whole file.
pub(super) struct Stream<'a> {
    reader: Reader<'a>,
    start: usize,
    end: usize,
    next: u64,
}

impl BufRead for Stream<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.start == self.end {
            // At the end of the file, this reads the start of the last page again.
            let (filled, skip) = self.reader.read_ahead(self.next, BLOCK)?;
            (self.start, self.end) = (skip.min(filled), filled);
            self.next += (filled - self.start) as u64;
        }
        Ok(&self.reader.buffer[self.start..self.end])
    }
    fn consume(&mut self, amount: usize) {
        self.start = (self.start + amount).min(self.end);
    }
}

impl Read for Stream<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let ahead = self.fill_buf()?;
        let len = ahead.len().min(into.len());
        into[..len].copy_from_slice(&ahead[..len]);
        self.consume(len);
        Ok(len)
    }
}
