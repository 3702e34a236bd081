//! A file that has no name until it is whole.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use hugepilot_units::Bytes;
use rustix::fs::{Advice, AtFlags, CWD, OFlags, fadvise, linkat};
use tempfile::{NamedTempFile, TempPath};

use crate::{KernelError, Result};

/// A file that is being written. A process that is killed before the file is whole leaves nothing, unless the file system
/// has no files without names. A link of that name is replaced, and never followed.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
    /// Whether what has that name by then goes.
    replace: bool,
    file: BufWriter<File>,
    bytes: u64,
    /// Where files must have names.
    hidden: Option<TempPath>,
}

impl NewFile {
    /// Begins a file of that name, with mode 0666 less the umask. If `replace` is not set, a file that has the name by
    /// then stays.
    ///
    /// # Errors
    /// [`KernelError::Write`].
    pub fn create(path: &Path, replace: bool) -> Result<Self> {
        Self::of(path, replace, nameless(path).ok())
    }

    /// With a hidden name if there is no file without one.
    fn of(path: &Path, replace: bool, nameless: Option<File>) -> Result<Self> {
        const BUFFER: usize = 1 << 20;
        let (file, hidden) = match nameless {
            Some(file) => (file, None),
            None => {
                let made =
                    |at: &Path| OpenOptions::new().write(true).create_new(true).mode(MODE).open(at);
                let (file, hidden) =
                    beside(path, made).map_err(|source| io(path, source))?.into_parts();
                (file, Some(hidden))
            }
        };
        let file = BufWriter::with_capacity(BUFFER, file);
        Ok(Self { path: path.to_owned(), replace, file, bytes: 0, hidden })
    }

    /// Its name, once it is whole.
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// Bytes written until now.
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

    /// Writes over the beginning, at last.
    ///
    /// # Errors
    /// [`KernelError::Write`].
    pub fn write_first(&mut self, bytes: &[u8]) -> Result<()> {
        let done = self.file.rewind().and_then(|()| self.file.write_all(bytes));
        done.map_err(|source| self.io(source))
    }

    /// Waits until all that was written is on the disk.
    ///
    /// # Errors
    /// [`KernelError::Write`].
    pub fn sync(&mut self) -> Result<()> {
        let done = self.file.flush().and_then(|()| self.file.get_ref().sync_all());
        done.map_err(|source| self.io(source))
    }

    /// Gives the file its name, once it is on the disk. How long it is.
    ///
    /// # Errors
    /// [`KernelError::Write`]; of the kind `AlreadyExists` for a name that something got before, which is not to be replaced.
    pub fn finish(mut self) -> Result<Bytes> {
        self.sync()?;
        let Self { path, replace, file, bytes, hidden } = self;
        let file = file.get_ref();
        let named = match hidden {
            None if !replace => link(file, &path),
            Some(hidden) if !replace => {
                hidden.persist_noclobber(&path).map_err(|error| error.error)
            }
            // A link never replaces what is there; a rename does.
            hidden => hidden
                .map_or_else(
                    || beside(&path, |at| link(file, at)).map(NamedTempFile::into_temp_path),
                    Ok,
                )
                .and_then(|hidden| hidden.persist(&path).map_err(|error| error.error)),
        };
        named.map_err(|source| io(&path, source))?;
        // Only what is on the disk can be dropped.
        let _ = fadvise(file, 0, None, Advice::DontNeed);
        // A directory may be written and not read.
        if let Ok(directory) = File::open(directory(&path)) {
            directory.sync_all().map_err(|source| io(&path, source))?;
        }
        Ok(Bytes::new(bytes))
    }

    fn io(&self, source: io::Error) -> KernelError {
        io(&self.path, source)
    }
}

/// As any other file that is created: what the umask leaves of it.
const MODE: u32 = 0o666;

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file without a name beside where it goes, as only there it can be given that name.
fn nameless(path: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE.bits().cast_signed();
    OpenOptions::new().write(true).mode(MODE).custom_flags(flags).open(directory(path))
}

/// Makes something under a hidden name of its own in the directory of `path`, whose own name may be as long as names can be.
fn beside<T>(
    path: &Path,
    make: impl FnMut(&Path) -> io::Result<T>,
) -> io::Result<NamedTempFile<T>> {
    tempfile::Builder::new().prefix(".hugepilot-").suffix(".part").make_in(directory(path), make)
}

/// Gives a file without a name this one.
fn link(file: &File, at: &Path) -> io::Result<()> {
    let it = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(linkat(CWD, it, CWD, at, AtFlags::SYMLINK_FOLLOW)?)
}

fn io(path: &Path, source: io::Error) -> KernelError {
    KernelError::write(path, source)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Without a name until it is whole, and where files must have names.
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
        // No name is longer.
        for name in ["g.el".to_owned(), "g".repeat(255)] {
            let path = folder.path().join(&name);
            if nameless(&path).is_ok() {
                let _out = NewFile::create(&path, true).unwrap();
                assert_eq!(names(folder.path()), ["other"], "who is killed now leaves nothing");
            }
            for mut out in both_ways(&path, true) {
                let before = fs::read(&path).ok();
                out.write(b"0 1\n").unwrap();
                assert_eq!(fs::read(&path).ok(), before);
                // It replaces what is there, and is not readable by fewer than another new file.
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
    fn of_two_that_write_a_file_one_is_refused() {
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
