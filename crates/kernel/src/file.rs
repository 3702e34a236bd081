//! Regular files that a user names: read within bounds, and written whole or not at all.
//!
//! Opening a FIFO waits for its other end, and opening a device can have any effect. [`open`]
//! neither waits nor accepts one. All files here are opened with the permissions of the user
//! ([`crate::privilege`]).

mod new;
mod own;

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::OnceLock;

use hugepilot_units::Bytes;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};

pub use new::NewFile;
pub use own::OwnDirectory;

/// Opening a FIFO or a terminal with these flags never waits and has no effect.
const READ: OFlags =
    OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// Opens a regular file for reading.
///
/// # Errors
/// The error of `open`; `InvalidInput` for a FIFO, a device or a socket; `IsADirectory`.
pub fn open(path: impl AsRef<Path>) -> io::Result<File> {
    regular(openat(CWD, path.as_ref(), READ, Mode::empty())?)
}

/// Opens a file to write to while a command runs, and creates it if there is none. What it contains
/// stays until it is emptied. A link is not followed: root would write to the target of a link of
/// another user.
///
/// # Errors
/// The error of `open` (ELOOP for a link); as [`open`].
pub fn open_to_write(path: impl AsRef<Path>) -> io::Result<File> {
    let flags = OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::NOFOLLOW);
    let flags = flags.union(READ.difference(OFlags::RDONLY));
    regular(openat(CWD, path.as_ref(), flags, Mode::from_raw_mode(0o666))?)
}

/// Name of the standard input on the command line; of a file to write, that of stdout.
pub const STDIN: &str = "-";

/// Help for a failed write to stdout.
pub const STDOUT_HELP: &str = "free space where stdout is written, or redirect it to another place";

/// Returns the standard input as a regular file: itself if it is one, else an unnamed temporary
/// file with all that it gives. Reads a pipe to its end on the first call.
///
/// # Errors
/// The error of reading, or of writing a temporary file (ENOSPC).
pub fn stdin() -> io::Result<File> {
    static WHOLE: OnceLock<File> = OnceLock::new();
    if let Some(file) = WHOLE.get() {
        return file.try_clone();
    }
    let own = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let file = if own.metadata()?.is_file() { own } else { spooled(own)? };
    WHOLE.get_or_init(|| file).try_clone()
}

fn spooled(mut from: impl Read) -> io::Result<File> {
    let mut file = tempfile::tempfile()?;
    io::copy(&mut from, &mut file)?;
    file.rewind()?;
    Ok(file)
}

/// Opens a regular file below a directory. Absolute paths, links and `..` do not leave it.
///
/// # Errors
/// As [`open`].
pub fn open_below(directory: impl AsFd, path: &Path) -> io::Result<File> {
    regular(openat2(directory, path, READ, Mode::empty(), ResolveFlags::IN_ROOT)?)
}

/// Reads a regular file of at most `limit`.
///
/// # Errors
/// As [`open`]; `FileTooLarge` beyond `limit`, also if the file grows meanwhile.
pub fn read(path: impl AsRef<Path>, limit: Bytes) -> io::Result<Vec<u8>> {
    read_open(open(path)?, limit)
}

/// Reads an open file of at most `limit` to its end.
///
/// # Errors
/// `FileTooLarge`; the error of `read`.
pub fn read_open(file: File, limit: Bytes) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(limit.get().saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit.get() {
        return Err(io::Error::new(ErrorKind::FileTooLarge, format!("larger than {limit}")));
    }
    Ok(bytes)
}

/// # Errors
/// `InvalidInput` or `IsADirectory`, with the kind of file.
fn regular(file: OwnedFd) -> io::Result<File> {
    let file = File::from(file);
    let kind = file.metadata()?.file_type();
    let other = match () {
        () if kind.is_file() => return Ok(file),
        () if kind.is_dir() => {
            return Err(io::Error::new(ErrorKind::IsADirectory, "a directory, not a regular file"));
        }
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_socket() => "a socket",
        () => "a device",
    };
    Err(io::Error::new(ErrorKind::InvalidInput, format!("{other}, not a regular file")))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_a_pipe_gave_is_read_from_its_begin() {
        let mut text = String::new();
        spooled(&b"a journal"[..]).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "a journal");
    }

    #[test]
    fn other_files_than_regular_ones_are_rejected_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        rustix::fs::mkfifoat(CWD, &fifo, Mode::RWXU).unwrap();
        for (path, says) in [
            (fifo.as_path(), "a FIFO"),
            (Path::new("/dev/null"), "a device"),
            (folder.path(), "a directory"),
        ] {
            let error = open(path).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        assert_eq!(open(folder.path().join("none")).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a_file_longer_than_the_limit_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "12345").unwrap();
        assert_eq!(read(&path, Bytes::new(5)).unwrap(), b"12345");
        assert_eq!(read(&path, Bytes::new(4)).unwrap_err().kind(), ErrorKind::FileTooLarge);
        // `/dev/zero` has no length and no end.
        assert!(read("/dev/zero", Bytes::new(4)).is_err());
    }

    #[test]
    fn nothing_above_a_directory_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("inside");
        fs::create_dir(&inside).unwrap();
        fs::write(folder.path().join("secret"), "above").unwrap();
        fs::write(inside.join("secret"), "below").unwrap();
        symlink("/secret", inside.join("link")).unwrap();
        let root = File::open(&inside).unwrap();
        for path in ["secret", "/secret", "../secret", "link"] {
            let found =
                read_open(open_below(&root, Path::new(path)).unwrap(), Bytes::kib(1)).unwrap();
            assert_eq!(found, b"below", "{path}");
        }
    }
}
