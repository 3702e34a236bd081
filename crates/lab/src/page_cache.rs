//! Clean pages of a file in the page cache.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use hugepilot_kernel::page_cache::{
    CachedPages, cached_pages, drop_pages, is_in_memory, stop_readahead,
};
use hugepilot_kernel::{Root, memory};
use hugepilot_record::Pid;
use hugepilot_reports::lab::weather::{PAGE_CACHE_SCHEMA, PageCacheReport, WeatherRefusal};
use hugepilot_units::Bytes;

use crate::condition::Condition;
use crate::{LabError, Result};

/// Bytes of a read.
const PIECE: Bytes = Bytes::mib(1);
/// Length of a temporary file: more than any memory, all of it a hole.
const LONG: Bytes = Bytes::gib(1 << 13);

/// Pages of a file that were read into the page cache. Dropping it drops those that were not there
/// before.
#[derive(Debug)]
pub struct PageCacheFill {
    file: File,
    path: Option<PathBuf>,
    /// Bytes from the start that were read.
    end: Bytes,
    /// Pieces that were in the page cache before.
    kept: Vec<u64>,
    base: Bytes,
}

impl PageCacheFill {
    /// Makes a temporary file without a name. It is one hole, so that its clean pages need no
    /// space on the disk; reading the hole fills the page cache as other data does.
    ///
    /// # Errors
    /// [`LabError::Refused`] if the directory of temporary files is in memory; [`LabError::File`].
    pub fn temporary() -> Result<Self> {
        let directory = std::env::temp_dir();
        let failed = |source| LabError::File { path: directory.clone(), source };
        let file = tempfile::tempfile_in(&directory).map_err(failed)?;
        if is_in_memory(&file).map_err(failed)? {
            let directory = directory.display().to_string();
            return Err(LabError::Refused(WeatherRefusal::MemoryFiles { directory }));
        }
        file.set_len(LONG.get()).map_err(failed)?;
        Self::new(file, None)
    }

    /// Opens a file of the user.
    ///
    /// # Errors
    /// [`LabError::File`].
    pub fn of_file(path: &Path) -> Result<Self> {
        let opened = hugepilot_kernel::file::open(path);
        let file = opened.map_err(|source| LabError::File { path: path.to_owned(), source })?;
        Self::new(file, Some(path.to_owned()))
    }

    fn new(file: File, path: Option<PathBuf>) -> Result<Self> {
        let base = memory::page_sizes(&Root::live())?.base;
        let fill = Self { file, path, end: Bytes::ZERO, kept: Vec::new(), base };
        stop_readahead(&fill.file).map_err(|source| fill.failed(source))?;
        Ok(fill)
    }

    /// Reads the first `size` bytes, as far as the file has them and `stopped` permits.
    ///
    /// # Errors
    /// [`LabError::File`].
    pub fn fill(&mut self, size: Bytes, stopped: &dyn Fn() -> bool) -> Result<PageCacheReport> {
        let (began, before) = (Instant::now(), self.cached()?.cached);
        while self.end < size && !stopped() {
            if self.read_on(PIECE.min(size - self.end))?.is_zero() {
                break;
            }
        }
        self.report(size, before, false, began)
    }

    /// Drops all clean pages of the file from the page cache, also those of other readers.
    ///
    /// # Errors
    /// [`LabError::File`].
    pub fn drop_all(&mut self) -> Result<PageCacheReport> {
        let (began, before) = (Instant::now(), self.cached()?.cached);
        // Dirty pages cannot be dropped.
        self.file.sync_data().map_err(|source| self.failed(source))?;
        self.drop_from(Bytes::ZERO, Bytes::ZERO)?;
        self.report(self.base.times(before), before, true, began)
    }

    fn report(
        &self,
        requested_bytes: Bytes,
        before: u64,
        dropped: bool,
        began: Instant,
    ) -> Result<PageCacheReport> {
        let pages = self.cached()?;
        Ok(PageCacheReport {
            schema: PAGE_CACHE_SCHEMA.to_owned(),
            file: self.path.as_ref().map(|path| path.display().to_string()),
            dropped,
            requested_bytes,
            cached_before_bytes: self.base.times(before),
            cached_bytes: self.base.times(pages.cached),
            dirty_bytes: self.base.times(pages.dirty),
            seconds: began.elapsed().as_secs_f64(),
        })
    }

    /// Reads `size` more bytes. Returns how many there were.
    pub(crate) fn read_on(&mut self, size: Bytes) -> Result<Bytes> {
        let mut buffer = vec![0; PIECE.as_usize()];
        let goal = self.end + size;
        while self.end < goal {
            let length = PIECE.min(goal - self.end).as_usize();
            let piece = self.end.get() / PIECE.get();
            let is_there = self.path.is_some()
                && self.count(PIECE.times(piece), PIECE)?.cached * self.base.get() >= PIECE.get();
            let read = self.file.read_at(&mut buffer[..length], self.end.get());
            match read.map_err(|source| self.failed(source))? {
                0 => return Ok(size - (goal - self.end)),
                read => self.end += Bytes::new(read as u64),
            }
            if is_there && self.kept.last() != Some(&piece) {
                self.kept.push(piece);
            }
        }
        Ok(size)
    }

    /// Drops the last `size` bytes that were read.
    pub(crate) fn drop_last(&mut self, size: Bytes) -> Result<()> {
        self.end -= size;
        self.drop_from(self.end, size)
    }

    fn drop_from(&self, offset: Bytes, length: Bytes) -> Result<()> {
        drop_pages(&self.file, offset, length).map_err(|source| self.failed(source))
    }

    fn cached(&self) -> Result<CachedPages> {
        self.count(Bytes::ZERO, Bytes::ZERO)
    }

    fn count(&self, offset: Bytes, length: Bytes) -> Result<CachedPages> {
        cached_pages(&self.file, offset, length)
            .map_err(|errno| self.failed(std::io::Error::from_raw_os_error(errno.0)))
    }

    fn failed(&self, source: std::io::Error) -> LabError {
        LabError::File { path: self.path.clone().unwrap_or_else(std::env::temp_dir), source }
    }
}

impl Condition for PageCacheFill {
    fn keep(&mut self, _: Option<Pid>) -> Result<()> {
        Ok(())
    }
}

impl Drop for PageCacheFill {
    fn drop(&mut self) {
        // The pages of a temporary file end with it.
        let pieces = self.end.get().div_ceil(PIECE.get());
        for piece in (0..pieces).filter(|piece| self.kept.binary_search(piece).is_err()) {
            if self.path.is_some() {
                let _ = self.drop_from(PIECE.times(piece), PIECE);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cached(fill: &PageCacheFill) -> u64 {
        fill.cached().unwrap().cached * fill.base.get()
    }

    #[test]
    fn a_temporary_file_fills_the_page_cache_and_takes_no_space() {
        use std::os::unix::fs::MetadataExt;
        let Ok(mut fill) = PageCacheFill::temporary() else { return };
        let report = fill.fill(Bytes::mib(16), &|| false).unwrap();
        assert_eq!((report.cached_bytes, report.dirty_bytes), (Bytes::mib(16), Bytes::ZERO));
        assert_eq!(fill.file.metadata().unwrap().blocks(), 0);
        fill.drop_last(Bytes::mib(8)).unwrap();
        assert_eq!(cached(&fill), 8 << 20);
    }

    #[test]
    fn pages_that_were_cached_before_stay() {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, vec![7; 8 << 20]).unwrap();
        let mut all = PageCacheFill::of_file(&path).unwrap();
        assert_eq!(all.drop_all().unwrap().cached_bytes, Bytes::ZERO);
        let first = all.read_on(Bytes::mib(2)).unwrap();
        assert_eq!(first, Bytes::mib(2));
        let mut fill = PageCacheFill::of_file(&path).unwrap();
        let report = fill.fill(Bytes::mib(64), &|| false).unwrap();
        assert_eq!(report.cached_bytes, Bytes::mib(8), "as long as the file is");
        drop(fill);
        assert_eq!(cached(&all), 2 << 20);
    }
}
