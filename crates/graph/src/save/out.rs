//! A file that has no name until it is whole.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use hugepilot_units::Bytes;
use rustix::fs::{Advice, AtFlags, CWD, OFlags, fadvise, linkat};
use tempfile::{NamedTempFile, TempPath};

use crate::{GraphError, Result};

/// A file that is being written. Whatever ends us before it is whole, nothing is left of it, unless the file system knows no
/// files without names.
pub(super) struct Out {
    path: PathBuf,
    file: BufWriter<File>,
    bytes: u64,
    /// Where files must have names.
    hidden: Option<TempPath>,
}

impl Out {
    /// # Errors
    /// [`GraphError::Io`].
    pub(super) fn create(path: &Path) -> Result<Self> {
        const BUFFER: usize = 1 << 20;
        // Beside where it goes, as only there it can be given that name.
        let nameless = OpenOptions::new()
            .write(true)
            .mode(MODE)
            .custom_flags(OFlags::TMPFILE.bits().cast_signed())
            .open(directory(path));
        let (file, hidden) = match nameless {
            Ok(file) => (file, None),
            Err(_) => {
                let made = |at: &Path| OpenOptions::new().write(true).create_new(true).mode(MODE).open(at);
                let hidden = beside(path, made).map_err(|source| io(path, source))?;
                let (file, hidden) = hidden.into_parts();
                (file, Some(hidden))
            }
        };
        Ok(Self { path: path.to_owned(), file: BufWriter::with_capacity(BUFFER, file), bytes: 0, hidden })
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
        let done = self.file.flush().and_then(|()| self.file.get_ref().sync_all());
        done.map_err(|source| self.io(source))?;
        let Self { path, file, bytes, hidden } = self;
        let file = file.get_ref();
        // A link never replaces what is there; a rename does.
        let named =
            hidden.map_or_else(|| beside(&path, |at| link(file, at)).map(NamedTempFile::into_temp_path), Ok);
        let named = named.map_err(|source| io(&path, source))?;
        named.persist(&path).map_err(|error| io(&path, error.error))?;
        // Only what is on the disk can be dropped.
        let _ = fadvise(file, 0, None, Advice::DontNeed);
        let synced = File::open(directory(&path)).and_then(|directory| directory.sync_all());
        synced.map_err(|source| io(&path, source))?;
        Ok(Bytes::new(bytes))
    }

    fn io(&self, source: io::Error) -> GraphError {
        io(&self.path, source)
    }
}

/// As any other file that is created: what the umask leaves of it.
const MODE: u32 = 0o666;

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes something under a hidden name of its own in the directory of `path`.
fn beside<T>(path: &Path, make: impl FnMut(&Path) -> io::Result<T>) -> io::Result<NamedTempFile<T>> {
    let mut named = std::ffi::OsString::from(".");
    named.push(path.file_name().unwrap_or_default());
    tempfile::Builder::new().prefix(&named).suffix(".part").make_in(directory(path), make)
}

/// Gives a file without a name this one.
fn link(file: &File, at: &Path) -> io::Result<()> {
    let it = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(linkat(CWD, it, CWD, at, AtFlags::SYMLINK_FOLLOW)?)
}

fn io(path: &Path, source: io::Error) -> GraphError {
    GraphError::Io { path: path.display().to_string(), source }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_whole_or_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("g.el");
        let names =
            || fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect::<Vec<_>>();
        let mut out = Out::create(&path).unwrap();
        out.write(b"0 1\n").unwrap();
        assert_eq!(names(), [""; 0]);
        assert_eq!(out.finish().unwrap(), Bytes::new(4));
        // It replaces what is there, and is not readable by fewer than another new file.
        let mut out = Out::create(&path).unwrap();
        out.write(b"0 1\n1 2\n").unwrap();
        out.finish().unwrap();
        assert_eq!(names(), ["g.el"]);
        assert_eq!(fs::read(&path).unwrap(), b"0 1\n1 2\n");
        let other = folder.path().join("other");
        fs::write(&other, "").unwrap();
        let mode = |path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&path), mode(&other));
    }

    #[test]
    fn a_hidden_name_goes_where_it_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("g.el");
        drop(beside(&path, |at| File::create_new(at)).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let hidden = beside(&path, |at| File::create_new(at)).unwrap();
        assert!(hidden.path().file_name().unwrap().to_str().unwrap().starts_with(".g.el"));
    }
}
