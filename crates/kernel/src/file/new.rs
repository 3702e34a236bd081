//! File that gets its name when it is whole.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use hugepilot_units::Bytes;
use rustix::fs::{Advice, AtFlags, CWD, OFlags, fadvise, linkat};
use tempfile::{NamedTempFile, TempPath};

use crate::{KernelError, Result};

/// File that is being written. A process that is killed before the file is whole leaves nothing,
/// unless the file system requires names. A link with that name is replaced, never followed.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
    /// Whether the file replaces another one with its name.
    replace: bool,
    file: BufWriter<File>,
    bytes: u64,
    /// Hidden name, if the file system requires one.
    hidden: Option<TempPath>,
}

impl NewFile {
    /// Creates a file for that name, with mode 0666 less the umask. Unless `replace` is set, a file
    /// that has the name by then stays.
    ///
    /// # Errors
    /// [`KernelError::Write`].
    pub fn create(path: &Path, replace: bool) -> Result<Self> {
        Self::of(path, replace, nameless(path).ok())
    }

    /// Creates the file under a hidden name if `nameless` is `None`.
    fn of(path: &Path, replace: bool, nameless: Option<File>) -> Result<Self> {
        const BUFFER: usize = 1 << 20;
        let (file, hidden) = match nameless {
            Some(file) => (file, None),
            None => {
                let create =
                    |at: &Path| OpenOptions::new().write(true).create_new(true).mode(MODE).open(at);
                let (file, hidden) =
                    beside(path, create).map_err(|source| io(path, source))?.into_parts();
                (file, Some(hidden))
            }
        };
        let file = BufWriter::with_capacity(BUFFER, file);
        Ok(Self { path: path.to_owned(), replace, file, bytes: 0, hidden })
    }

    /// Returns the name that the file will get.
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// Number of bytes written.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends `bytes`.
    ///
    /// # Errors
    /// [`KernelError::Write`].
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes += bytes.len() as u64;
        self.file.write_all(bytes).map_err(|source| self.io(source))
    }

    /// Overwrites the first bytes, as the last write.
    ///
    /// # Errors
    /// [`KernelError::Write`].
    pub fn write_first(&mut self, bytes: &[u8]) -> Result<()> {
        let done = self.file.rewind().and_then(|()| self.file.write_all(bytes));
        done.map_err(|source| self.io(source))
    }

    /// Waits until all data is on the disk.
    ///
    /// # Errors
    /// [`KernelError::Write`].
    pub fn sync(&mut self) -> Result<()> {
        let done = self.file.flush().and_then(|()| self.file.get_ref().sync_all());
        done.map_err(|source| self.io(source))
    }

    /// Names the file once it is on the disk, and returns its length.
    ///
    /// # Errors
    /// [`KernelError::Write`], with kind `AlreadyExists` if another file got the name first and
    /// must stay.
    pub fn finish(mut self) -> Result<Bytes> {
        self.sync()?;
        let Self { path, replace, file, bytes, hidden } = self;
        let file = file.get_ref();
        let named = match hidden {
            None if !replace => link(file, &path),
            Some(hidden) if !replace => {
                hidden.persist_noclobber(&path).map_err(|error| error.error)
            }
            // A link never replaces an existing file; a rename does.
            hidden => hidden
                .map_or_else(
                    || beside(&path, |at| link(file, at)).map(NamedTempFile::into_temp_path),
                    Ok,
                )
                .and_then(|hidden| hidden.persist(&path).map_err(|error| error.error)),
        };
        named.map_err(|source| io(&path, source))?;
        // Only pages that are on the disk can leave the cache.
        let _ = fadvise(file, 0, None, Advice::DontNeed);
        // A directory may be writable but not readable.
        if let Ok(directory) = File::open(directory(&path)) {
            directory.sync_all().map_err(|source| io(&path, source))?;
        }
        Ok(Bytes::new(bytes))
    }

    fn io(&self, source: io::Error) -> KernelError {
        io(&self.path, source)
    }
}

/// Mode of a new file, before the umask.
const MODE: u32 = 0o666;

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Opens a file without a name in the directory of `path`: it can only be linked there.
fn nameless(path: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE.bits().cast_signed();
    OpenOptions::new().write(true).mode(MODE).custom_flags(flags).open(directory(path))
}

/// Creates a file under a hidden name in the directory of `path`. The hidden name is short, because
/// the name of `path` may have the maximum length.
fn beside<T>(
    path: &Path,
    make: impl FnMut(&Path) -> io::Result<T>,
) -> io::Result<NamedTempFile<T>> {
    tempfile::Builder::new().prefix(".hugepilot-").suffix(".part").make_in(directory(path), make)
}

/// Names a file without a name.
fn link(file: &File, at: &Path) -> io::Result<()> {
    let source = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(linkat(CWD, source, CWD, at, AtFlags::SYMLINK_FOLLOW)?)
}

fn io(path: &Path, source: io::Error) -> KernelError {
    KernelError::write(path, source)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Creates a file without a name, and one with a hidden name.
    fn both_ways(path: &Path, replace: bool) -> [NewFile; 2] {
        [NewFile::create(path, replace).unwrap(), NewFile::of(path, replace, None).unwrap()]
    }

    fn names(folder: &Path) -> Vec<String> {
        let name =
            |file: io::Result<fs::DirEntry>| file.unwrap().file_name().into_string().unwrap();
        fs::read_dir(folder).unwrap().map(name).collect()
    }

    #[test]
    fn a_file_is_whole_or_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join("other");
        fs::write(&other, "").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        // 255 is the maximum length of a name.
        for name in ["g.el".to_owned(), "g".repeat(255)] {
            let path = folder.path().join(&name);
            if nameless(&path).is_ok() {
                let _out = NewFile::create(&path, true).unwrap();
                assert_eq!(names(folder.path()), ["other"], "a killed process leaves nothing");
            }
            for mut out in both_ways(&path, true) {
                let before = fs::read(&path).ok();
                out.write(b"0 1\n").unwrap();
                assert_eq!(fs::read(&path).ok(), before);
                // It replaces the file and has the mode of any other new file.
                assert_eq!(out.finish().unwrap(), Bytes::new(4));
                assert_eq!(fs::read(&path).unwrap(), b"0 1\n");
                assert_eq!(mode(&path), mode(&other));
                fs::write(&path, "old").unwrap();
            }
            drop(both_ways(&path, true));
            assert_eq!(fs::read(&path).unwrap(), b"old");
            fs::remove_file(&path).unwrap();
            assert_eq!(names(folder.path()), ["other"]);
        }
    }

    #[test]
    fn of_two_writers_of_a_file_the_second_fails() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("g.el");
        for mut late in both_ways(&path, false) {
            late.write(b"late").unwrap();
            let mut out = NewFile::create(&path, false).unwrap();
            out.write(b"0 1\n").unwrap();
            out.finish().unwrap();
            let error = late.finish().unwrap_err();
            let exists = |source: &io::Error| source.kind() == io::ErrorKind::AlreadyExists;
            assert!(
                matches!(&error, KernelError::Write { source, .. } if exists(source)),
                "{error}"
            );
            assert_eq!(fs::read(&path).unwrap(), b"0 1\n");
            fs::remove_file(&path).unwrap();
        }
        assert_eq!(names(folder.path()), [""; 0]);
    }
}
