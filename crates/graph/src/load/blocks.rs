//! A file read in blocks, so that it leaves the page cache as it should.

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
use crate::{GraphError, Result};

/// What is asked of the device at once.
pub(super) const BLOCK: usize = 4 << 20;
/// What `O_DIRECT` wants files and memory to be aligned to: no device has larger sectors.
const ALIGN: u64 = 4096;
/// What Linux says of a tmpfs.
const TMPFS: u64 = 0x0102_1994;

/// A file of which parts are read, from any thread.
pub(super) struct FileBlocks<'a> {
    path: PathBuf,
    cached: File,
    direct: Option<File>,
    /// `O_DIRECT` was not to be had.
    refused: AtomicBool,
    load_mode: LoadMode,
    len: u64,
    done: AtomicU64,
    progress: Progress<'a>,
}

impl<'a> FileBlocks<'a> {
    /// # Errors
    /// [`GraphError::Io`], also for what is no regular file; [`GraphError::Format`] for a file that should be on a tmpfs.
    pub(super) fn open(path: &Path, load_mode: LoadMode, progress: Progress<'a>) -> Result<Self> {
        let io = |source| GraphError::Io { path: path.display().to_string(), source };
        let is_stdin = path == Path::new(file::STDIN);
        let cached = if is_stdin { file::stdin() } else { file::open(path) }.map_err(io)?;
        let about = cached.metadata().map_err(io)?;
        if load_mode == LoadMode::Tmpfs {
            let kind = fstatfs(&cached).map_err(|errno| io(errno.into()))?.f_type;
            if u64::try_from(kind) != Ok(TMPFS) {
                return Err(whole(
                    path,
                    "is not on a tmpfs; copy it to one, such as /dev/shm, or use --load cached",
                ));
            }
        }
        let flags = OFlags::DIRECT.bits().cast_signed();
        let direct = match load_mode {
            // The same file again, whatever has its name by now. The standard input may be open to us and not readable.
            LoadMode::Direct => {
                let again = format!("/proc/self/fd/{}", cached.as_raw_fd());
                match File::options().read(true).custom_flags(flags).open(again) {
                    Ok(file) => Some(file),
                    Err(error)
                        if is_stdin
                            || error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) =>
                    {
                        None
                    }
                    Err(error) => return Err(io(error)),
                }
            }
            _ => None,
        };
        let refused = AtomicBool::new(direct.is_none());
        let (path, len, done) = (path.to_owned(), about.len(), AtomicU64::new(0));
        Ok(Self { path, cached, direct, refused, load_mode, len, done, progress })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
    pub(super) fn len(&self) -> u64 {
        self.len
    }
    /// How it was really read.
    pub(super) fn load_mode(&self) -> LoadMode {
        let refused = self.load_mode == LoadMode::Direct && self.refused.load(Relaxed);
        if refused { LoadMode::Drop } else { self.load_mode }
    }
    /// For one thread, with memory of its own.
    pub(super) fn reader(&self) -> Reader<'_> {
        Reader { file: self, buffer: HugeVec::new(Options::only(Backing::Base)) }
    }
    /// All of it, from first to last.
    pub(super) fn stream(&self) -> Stream<'_> {
        Stream { reader: self.reader(), start: 0, end: 0, next: 0 }
    }
    /// An error of the system's, for this file.
    pub(super) fn io(&self, source: io::Error) -> GraphError {
        GraphError::Io { path: self.path.display().to_string(), source }
    }
    /// What is wrong at a byte.
    pub(super) fn error_at(&self, byte: u64, what: impl Into<String>) -> GraphError {
        GraphError::Format {
            place: format!("{}, byte {byte}", self.path.display()),
            what: what.into(),
        }
    }

    /// Reads from an aligned place into aligned memory until it is full or the file ends. How much that is.
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut got = 0;
        while got < into.len() {
            let next = at + got as u64;
            // Past the end, what is left of the memory may begin anywhere.
            let aligned = next.is_multiple_of(ALIGN) && next < self.len;
            let direct = self.direct.as_ref().filter(|_| aligned && !self.refused.load(Relaxed));
            let from = direct.unwrap_or(&self.cached);
            match rustix::io::pread(from, &mut into[got..], next) {
                Ok(0) => break,
                Ok(more) => got += more,
                Err(Errno::INTR) => {}
                Err(Errno::INVAL) if direct.is_some() => self.refused.store(true, Relaxed),
                Err(errno) => return Err(errno.into()),
            }
        }
        if self.load_mode() == LoadMode::Drop
            && let Some(len) = NonZeroU64::new((into.len() as u64).next_multiple_of(ALIGN))
        {
            fadvise(&self.cached, at, Some(len), Advice::DontNeed)?;
        }
        let done = self.done.fetch_add(got as u64, Relaxed) + got as u64;
        (self.progress)(done.min(self.len), self.len);
        Ok(got)
    }
}

/// What was read ahead, or cached before, goes too.
impl Drop for FileBlocks<'_> {
    fn drop(&mut self) {
        if matches!(self.load_mode, LoadMode::Direct | LoadMode::Drop) {
            let _ = fadvise(&self.cached, 0, None, Advice::DontNeed);
        }
    }
}

/// What is wrong with a file as a whole.
pub(super) fn whole(path: &Path, what: impl Into<String>) -> GraphError {
    GraphError::Format { place: path.display().to_string(), what: what.into() }
}

/// Reads a file from one thread.
pub(super) struct Reader<'a> {
    file: &'a FileBlocks<'a>,
    buffer: HugeVec<u8>,
}

impl Reader<'_> {
    /// The bytes from `at` on: `len` of them, which is at most [`BLOCK`].
    ///
    /// # Errors
    /// [`GraphError::Io`]; [`GraphError::Format`] where the file ends before.
    pub(super) fn bytes(&mut self, at: u64, len: usize) -> Result<&[u8]> {
        let (got, skip) = self.ahead(at, len).map_err(|error| self.file.io(error))?;
        if got < skip + len {
            return Err(self.short(at + len as u64));
        }
        Ok(&self.buffer[skip..skip + len])
    }

    /// The same as far as there are as many. How much of the buffer is full, and where `at` is there.
    fn ahead(&mut self, at: u64, len: usize) -> io::Result<(usize, usize)> {
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

    /// Fills `into` from `at` on, without a copy where both are aligned.
    ///
    /// # Errors
    /// As for [`Self::bytes`].
    pub(super) fn fill(&mut self, at: u64, into: &mut [u8]) -> Result<()> {
        let aligned = at.is_multiple_of(ALIGN) && into.as_ptr().addr().is_multiple_of(4096);
        let free = self.file.load_mode() != LoadMode::Direct;
        let straight = match (free, aligned) {
            (true, _) => into.len(),
            (_, true) => into.len() / 4096 * 4096,
            _ => 0,
        };
        let got = self.file.read(at, &mut into[..straight]).map_err(|error| self.file.io(error))?;
        if got < straight {
            return Err(self.short(at + straight as u64));
        }
        for (i, piece) in into[straight..].chunks_mut(BLOCK).enumerate() {
            piece.copy_from_slice(self.bytes(at + (straight + i * BLOCK) as u64, piece.len())?);
        }
        Ok(())
    }

    fn short(&self, wanted: u64) -> GraphError {
        self.file.error_at(self.file.len, format!("the file ends, byte {wanted} was to be read"))
    }
}

/// A file from its beginning to its end.
pub(super) struct Stream<'a> {
    reader: Reader<'a>,
    start: usize,
    end: usize,
    next: u64,
}

impl BufRead for Stream<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.start == self.end {
            // At the end, what is before it in its page comes once more.
            let (got, skip) = self.reader.ahead(self.next, BLOCK)?;
            (self.start, self.end) = (skip.min(got), got);
            self.next += (got - self.start) as u64;
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
