//! Root directory of `/proc` and `/sys`.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::{KernelError, Result};

/// Directory that holds `proc` and `sys`: `/`, or a captured tree.
///
/// ```
/// use hugepilot_kernel::{Root, memory};
///
/// let live = memory::mem_info(&Root::live())?;
/// assert!(live.available <= live.total);
/// // A bug report with a copy of /proc and /sys is read the same way.
/// assert!(memory::mem_info(&Root::at("/no/such/tree")).is_err());
/// # Ok::<(), hugepilot_kernel::KernelError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root(PathBuf);

impl Root {
    /// Returns the root of the running system.
    pub fn live() -> Self {
        Self(PathBuf::from("/"))
    }
    /// Returns the root of a captured tree, such as a test fixture or a bug report.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self(directory.into())
    }
    /// Returns `path` (relative, such as `proc/meminfo`) below this root.
    pub fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        self.0.join(path)
    }
    /// Reads the bytes of a file.
    ///
    /// # Errors
    /// [`KernelError::Read`].
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let path = self.join(path);
        fs::read(&path).map_err(|source| KernelError::read(&path, source))
    }
    /// Writes `text` to an existing file in one system call, as kernel settings require. A signal
    /// ends the write with EINTR; it is not repeated.
    ///
    /// # Errors
    /// [`KernelError::Write`].
    pub fn write(&self, path: impl AsRef<Path>, text: &str) -> Result<()> {
        let path = self.join(path);
        let open = fs::OpenOptions::new().write(true).truncate(true).open(&path);
        let written = open.and_then(|mut file| file.write(text.as_bytes()));
        written.map(|_| ()).map_err(|source| KernelError::write(&path, source))
    }
    /// Reads the text of a file, trimmed; invalid UTF-8 is replaced.
    ///
    /// # Errors
    /// [`KernelError::Read`].
    pub fn read_text(&self, path: impl AsRef<Path>) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.read(path)?).trim().to_owned())
    }
}

/// Returns a directory with these files and its root. The directory lives as long as the first
/// part.
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
