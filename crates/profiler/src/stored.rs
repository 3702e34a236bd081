//! Measurements of a machine, kept between runs as JSON in a directory of the user.

use std::io;
use std::path::{Path, PathBuf};

use hugepilot_kernel::file::OwnDirectory;
use hugepilot_units::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Size limit of a file; a valid one has less than 1 KiB.
const MAX_FILE: Bytes = Bytes::kib(64);

/// Directory of measurements of the user: `$XDG_CACHE_HOME/hugepilot`, by default
/// `~/.cache/hugepilot`.
pub fn directory() -> Option<PathBuf> {
    let absolute =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || Some(absolute("HOME")?.join(".cache"));
    Some(absolute("XDG_CACHE_HOME").or_else(home)?.join("hugepilot"))
}

/// Reads `file` in `directory`; `None` if there is none, if another user wrote it, or if it is not
/// of this form.
pub(crate) fn read<T: DeserializeOwned>(directory: &Path, file: &str) -> Option<T> {
    let bytes = OwnDirectory::open(directory).ok()?.read(file, MAX_FILE).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// Writes `file` into `directory`, which is created if it is missing.
///
/// # Errors
/// `PermissionDenied` if the directory, or one of its parents, belongs to another user; errors of
/// `open` and `write`.
pub(crate) fn write(directory: &Path, file: &str, value: &impl Serialize) -> io::Result<()> {
    OwnDirectory::make(directory)?.replace(file, &serde_json::to_vec_pretty(value)?)
}
