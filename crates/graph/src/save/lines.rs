//! Lines that say something of each vertex.

use std::fmt::Display;
use std::io::Write;
use std::path::Path;

use hugepilot_units::Bytes;

use crate::run::OriginalIds;
use crate::{Result, Width};
use hugepilot_kernel::file::NewFile;

/// Writes a number and a value on each line, and gives how many bytes that took. What is there already stays, unless it is to be
/// replaced.
///
/// # Errors
/// [`GraphError::Io`](crate::GraphError::Io).
pub(crate) fn pairs<T: Display>(
    path: &Path,
    replace: bool,
    lines: impl Iterator<Item = (u64, T)>,
) -> Result<Bytes> {
    let mut out = NewFile::create(path, replace)?;
    let mut line = Vec::new();
    for (number, value) in lines {
        line.clear();
        // A vector takes whatever is written.
        let _ = writeln!(line, "{number} {value}");
        out.write(&line)?;
    }
    Ok(out.finish()?)
}

/// Writes which number each of `vertices` vertices has where it came from, and which it has now: `OLD NEW`, ascending by the new
/// one. Gives how many bytes that took. What is there already stays, unless it is to be replaced.
///
/// # Errors
/// [`GraphError::Io`](crate::GraphError::Io).
pub fn save_map<V: Width>(
    path: impl AsRef<Path>,
    replace: bool,
    names: &OriginalIds<'_, V>,
    vertices: usize,
) -> Result<Bytes> {
    pairs(path.as_ref(), replace, (0..vertices).map(|v| (names.of(v), v)))
}
