//! Where `/proc` and `/sys` are.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::{KernelError, Result};

/// The directory that holds `proc` and `sys`: `/`, or a captured tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root(PathBuf);

impl Root {
    /// The running system.
    pub fn live() -> Self {
        Self(PathBuf::from("/"))
    }
    /// A captured tree, such as a test fixture or a bug report.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self(directory.into())
    }
    /// `path` (relative, such as `proc/meminfo`) under this root.
    pub fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        self.0.join(path)
    }
    /// The bytes of a file.
    ///
    /// # Errors
    /// [`KernelError::Read`] with the system's reason.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let path = self.join(path);
        fs::read(&path).map_err(|source| KernelError::read(&path, source))
    }
    /// Writes `text` to a file that is there already, in one system call, as settings of the kernel want it. A signal
    /// ends it with EINTR instead of beginning it anew.
    ///
    /// # Errors
    /// [`KernelError::Write`] with the system's reason.
    pub fn write(&self, path: impl AsRef<Path>, text: &str) -> Result<()> {
        let path = self.join(path);
        let open = fs::OpenOptions::new().write(true).truncate(true).open(&path);
        let written = open.and_then(|mut file| file.write(text.as_bytes()));
        written.map(|_| ()).map_err(|source| KernelError::write(&path, source))
    }
    /// The text of a file, trimmed; bytes that are no UTF-8 are replaced.
    ///
    /// # Errors
    /// [`KernelError::Read`] with the system's reason.
    pub fn read_text(&self, path: impl AsRef<Path>) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.read(path)?).trim().to_owned())
    }
}

/// A directory with these files, and the root at it. Lives as long as the first part.
#[cfg(test)]
pub(crate) fn fixture(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let root = Root::at(dir.path());
    (dir, root)
}
