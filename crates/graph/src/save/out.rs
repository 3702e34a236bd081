//! A file that has no name until it is whole.

use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Seek, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use hugepilot_units::Bytes;
use rustix::fs::{Advice, fadvise};
use tempfile::NamedTempFile;

use crate::{GraphError, Result};

/// A file that is being written.
pub(super) struct Out {
    path: PathBuf,
    file: BufWriter<NamedTempFile>,
    bytes: u64,
}

impl Out {
    /// # Errors
    /// [`GraphError::Io`].
    pub(super) fn create(path: &Path) -> Result<Self> {
        const BUFFER: usize = 1 << 20;
        // Beside where it goes, as only there it can be given another name; readable as any other that is created.
        let directory =
            path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut named = std::ffi::OsString::from(".");
        named.push(path.file_name().unwrap_or_default());
        let mut builder = tempfile::Builder::new();
        let file = builder
            .prefix(&named)
            .suffix(".part")
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(directory);
        let file = file.map_err(|source| GraphError::Io { path: path.display().to_string(), source })?;
        Ok(Self { path: path.to_owned(), file: BufWriter::with_capacity(BUFFER, file), bytes: 0 })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
    /// Bytes written until now.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// # Errors
    /// [`GraphError::Io`].
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes += bytes.len() as u64;
        self.file.write_all(bytes).map_err(|source| self.io(source))
    }

    /// Writes over the beginning, at last.
    ///
    /// # Errors
    /// [`GraphError::Io`].
    pub(super) fn write_first(&mut self, bytes: &[u8]) -> Result<()> {
        let done = self.file.rewind().and_then(|()| self.file.write_all(bytes));
        done.map_err(|source| self.io(source))
    }

    /// Gives the file its name, once it is on the disk. How long it is.
    ///
    /// # Errors
    /// [`GraphError::Io`].
    pub(super) fn finish(mut self) -> Result<Bytes> {
        let done = self.file.flush().and_then(|()| self.file.get_ref().as_file().sync_all());
        done.map_err(|source| self.io(source))?;
        let Self { path, file, bytes } = self;
        let io = |source| GraphError::Io { path: path.display().to_string(), source };
        let file = file.into_inner().map_err(|error| io(error.into_error()))?;
        let kept = file.persist(&path).map_err(|error| io(error.error))?;
        // Only what is on the disk can be dropped.
        let _ = fadvise(&kept, 0, None, Advice::DontNeed);
        let directory =
            path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(directory).and_then(|directory| directory.sync_all()).map_err(io)?;
        Ok(Bytes::new(bytes))
    }

    fn io(&self, source: io::Error) -> GraphError {
        GraphError::Io { path: self.path.display().to_string(), source }
    }
}
