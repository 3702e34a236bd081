//! Lines of text with a value for each vertex.

use std::fmt::Display;
use std::io::Write;
use std::path::Path;

use hugepilot_units::Bytes;

use crate::run::OriginalIds;
use crate::{Result, Width};
use hugepilot_kernel::file::NewFile;

/// Writes an ID and a value on each line, and returns the bytes written. Keeps an existing file
/// unless `replace`.
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
    for (id, value) in lines {
        line.clear();
        // Writing to a vector cannot fail.
        let _ = writeln!(line, "{id} {value}");
        out.write(&line)?;
    }
    Ok(out.finish()?)
}

/// Writes the map of vertex IDs, `OLD NEW` on each line, ascending by new ID from `first` on.
/// Returns the bytes written. Keeps an existing file unless `replace`.
///
/// # Errors
/// [`GraphError::Io`](crate::GraphError::Io).
pub fn save_map<V: Width>(
    path: impl AsRef<Path>,
    replace: bool,
    ids: &OriginalIds<'_, V>,
    vertices: usize,
    first: u64,
) -> Result<Bytes> {
    let new = (first..).take(vertices).enumerate();
    pairs(path.as_ref(), replace, new.map(|(v, new)| (ids.of(v), new)))
}
