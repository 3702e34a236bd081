//! Directory in which hugepilot keeps files between runs.

use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use hugepilot_units::Bytes;
use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, fchmod, flock, fstat, openat, renameat, unlinkat,
};

use super::{READ, read_open, regular};

/// Directory of the user who runs hugepilot. No path to it, and no name in it, leads through a link
/// of another user, so root neither reads nor writes files that another user planted.
#[derive(Debug)]
pub struct OwnDirectory {
    path: PathBuf,
    directory: OwnedFd,
}

impl OwnDirectory {
    /// Opens the directory.
    ///
    /// # Errors
    /// `NotFound`; `PermissionDenied` if the directory, or a directory or link on the way to it,
    /// belongs to a user other than this one and root; ELOOP or ENOTDIR for a link.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref().to_owned();
        path.ancestors().skip(1).try_for_each(check_owner)?;
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = openat(CWD, &path, flags, Mode::empty())?;
        if fstat(&directory)?.st_uid != own_user() {
            return Err(foreign(&path));
        }
        Ok(Self { path, directory })
    }

    /// Opens the directory. Creates it, and missing ones above it, with mode 0700.
    ///
    /// # Errors
    /// As [`OwnDirectory::open`], and those of `mkdir`.
    pub fn make(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        path.ancestors().skip(1).try_for_each(check_owner)?;
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        Self::open(path)
    }

    /// Denies access to other users, also if an earlier version or another umask allowed it.
    ///
    /// # Errors
    /// The error of `fchmod`.
    pub fn close_to_others(&self) -> io::Result<()> {
        Ok(fchmod(&self.directory, Mode::RWXU)?)
    }

    /// Returns the path of a file in it, for messages.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Reads a file of at most `limit`.
    ///
    /// # Errors
    /// `NotFound`; `PermissionDenied` for a file of another user, and for one that others may
    /// write; as [`super::read`]; ELOOP for a link.
    pub fn read(&self, name: &str, limit: Bytes) -> io::Result<Vec<u8>> {
        let file = regular(openat(&self.directory, name, READ | OFlags::NOFOLLOW, Mode::empty())?)?;
        self.check(name, &file)?;
        read_open(file, limit)
    }

    /// Locks a file until the returned one is closed; creates it with mode 0600 if necessary.
    ///
    /// # Errors
    /// `WouldBlock` if another process holds the lock; as [`OwnDirectory::read`].
    pub fn lock(&self, name: &str) -> io::Result<File> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = regular(openat(&self.directory, name, flags, Mode::RUSR | Mode::WUSR)?)?;
        self.check(name, &file)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(file)
    }

    /// Replaces a file, whole or not at all, by one with mode 0600.
    ///
    /// # Errors
    /// Those of `open`, `write` and `rename`.
    pub fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let partial = format!("{name}.{}.part", std::process::id());
        // A killed process with the same pid may have left one.
        let _ = unlinkat(&self.directory, &partial, AtFlags::empty());
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.directory, &partial, flags, Mode::RUSR | Mode::WUSR)?;
        let written = File::from(file)
            .write_all(bytes)
            .and_then(|()| Ok(renameat(&self.directory, &partial, &self.directory, name)?));
        if written.is_err() {
            let _ = unlinkat(&self.directory, &partial, AtFlags::empty());
        }
        written
    }

    /// Removes a file.
    ///
    /// # Errors
    /// Those of `unlink`.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.directory, name, AtFlags::empty())?)
    }

    fn check(&self, name: &str, file: &File) -> io::Result<()> {
        const WRITABLE_BY_OTHERS: u32 = 0o022;
        let about = file.metadata()?;
        if about.uid() != own_user() {
            return Err(foreign(&self.join(name)));
        }
        if about.mode() & WRITABLE_BY_OTHERS != 0 {
            return Err(denied(&self.join(name), "other users may write it"));
        }
        Ok(())
    }
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Rejects a component of a path that another user can turn into a link. A missing one cannot be.
fn check_owner(component: &Path) -> io::Result<()> {
    match component.symlink_metadata() {
        Ok(about) if about.uid() != own_user() && about.uid() != 0 => Err(foreign(component)),
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn foreign(path: &Path) -> io::Error {
    denied(path, "it belongs to another user")
}

fn denied(path: &Path, why: &str) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, format!("{}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions, set_permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    const LIMIT: Bytes = Bytes::kib(1);

    #[test]
    fn a_link_is_neither_read_nor_written_through() {
        let folder = tempfile::tempdir().unwrap();
        let own = OwnDirectory::make(folder.path().join("a/b")).unwrap();
        let secret = folder.path().join("secret");
        fs::write(&secret, "secret").unwrap();
        for name in ["file", "lock"] {
            symlink(&secret, own.join(name)).unwrap();
        }
        assert!(own.read("file", LIMIT).is_err() && own.lock("lock").is_err());
        own.replace("file", b"new").unwrap();
        assert_eq!(own.read("file", LIMIT).unwrap(), b"new");
        assert_eq!(fs::read(&secret).unwrap(), b"secret");
        symlink(folder.path().join("a"), folder.path().join("link")).unwrap();
        assert!(OwnDirectory::open(folder.path().join("link")).is_err());
        assert!(OwnDirectory::make(folder.path().join("link")).is_err());
    }

    #[test]
    fn it_is_closed_to_others_and_what_others_may_write_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own");
        fs::create_dir(&path).unwrap();
        set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
        let own = OwnDirectory::make(&path).unwrap();
        own.close_to_others().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        own.replace("file", b"mine").unwrap();
        assert_eq!(fs::metadata(own.join("file")).unwrap().mode() & 0o777, 0o600);
        set_permissions(own.join("file"), Permissions::from_mode(0o622)).unwrap();
        assert_eq!(own.read("file", LIMIT).unwrap_err().kind(), ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_directory_of_another_user_on_the_way_is_refused() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("skipped: only root can give a directory away");
        }
        let folder = tempfile::tempdir().unwrap();
        let theirs = folder.path().join("theirs");
        fs::create_dir(&theirs).unwrap();
        std::os::unix::fs::chown(&theirs, Some(65534), None).unwrap();
        for path in [theirs.clone(), theirs.join("cache/hugepilot")] {
            let error = OwnDirectory::make(&path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        }
        assert!(!theirs.join("cache").exists());
    }
}
