//! Checks of output files before any work.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use hugepilot_graph::error::Access;
use hugepilot_graph::{Format, GraphError, SaveFault, try_save};

/// Single-file format, for lines that are not a graph.
pub(super) const LINES: Format = Format::EdgeList;

/// Checks that a file can be written, and that it does not exist unless `force`.
///
/// # Errors
/// [`GraphError::Save`], [`GraphError::Io`].
pub(super) fn check(path: &Path, force: bool, format: Format) -> Result<(), GraphError> {
    let fault = |path: &Path, fault| Err(GraphError::save(path, fault));
    let is_directory = format == Format::FourFiles;
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if let Some(plain) = [".gz", ".zst"].iter().find_map(|suffix| name.strip_suffix(suffix)) {
        return fault(path, SaveFault::CompressedName { plain: plain.to_owned() });
    }
    let parent = parent(path);
    if !parent.is_dir() {
        return fault(parent, SaveFault::NoDirectory);
    }
    match fs::symlink_metadata(path) {
        Ok(_) if !force => return fault(path, SaveFault::Exists),
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(GraphError::io(Access::Write, path, error));
        }
        _ => {}
    }
    match fs::metadata(path) {
        Ok(existing) if is_directory && !existing.is_dir() => {
            return fault(path, SaveFault::NotDirectory);
        }
        // A device would be replaced as well.
        Ok(existing) if !is_directory && !existing.is_file() => {
            return fault(path, SaveFault::NotFile);
        }
        _ => {}
    }
    try_save(path, format)
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whether two paths have the same name in the same directory.
pub(super) fn is_same(a: &Path, b: &Path) -> bool {
    let parts =
        |path: &Path| (parent(path).canonicalize().ok(), path.file_name().map(ToOwned::to_owned));
    parts(a) == parts(b)
}

/// Returns the format of an output file: `to`, or by its name.
///
/// # Errors
/// [`GraphError::Save`] if the name does not determine a format, and for formats that are only
/// read.
pub(super) fn format(path: &Path, to: Option<Format>) -> Result<Format, GraphError> {
    let fault = match to.or_else(|| Format::of_name(path)) {
        Some(Format::Ldbc) => SaveFault::ReadOnlyFormat(Format::Ldbc),
        // The name is that of a file in the directory.
        Some(Format::FourFiles) if to.is_none() => SaveFault::FourFilesName,
        Some(format) => return Ok(format),
        None => SaveFault::UnknownFormat,
    };
    Err(GraphError::save(path, fault))
}

/// Returns the path of the map beside an output file.
pub(super) fn map_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".map");
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_determine_formats() {
        let of = |name: &str, to| {
            format(Path::new(name), to).map_err(|error| {
                let help: Vec<_> = error.help().iter().map(ToString::to_string).collect();
                format!("{error}; {}", help.join("; "))
            })
        };
        assert_eq!(of("a/g.sg", None), Ok(Format::Gap));
        assert_eq!(of("g.sg", Some(Format::Native)), Ok(Format::Native));
        assert_eq!(of("dir", Some(Format::FourFiles)), Ok(Format::FourFiles));
        for (name, words) in
            [("g", "--to"), ("g.e", "read only"), ("num_nodes_edges.txt", "--to four-files")]
        {
            let error = of(name, None).unwrap_err();
            assert!(error.contains(words) && error.contains(name), "{error}");
        }
    }

    #[test]
    fn a_map_is_beside_its_graph() {
        assert_eq!(map_of(Path::new("a/g.sg")), Path::new("a/g.sg.map"));
        assert_eq!(map_of(Path::new("a/four/")), Path::new("a/four.map"));
    }

    #[test]
    fn several_paths_can_name_one_file() {
        let same = |a: &str, b: &str| is_same(Path::new(a), Path::new(b));
        assert!(same("g.sg", "./g.sg") && same("/tmp/g.sg", "/tmp/../tmp/g.sg"));
        assert!(!same("g.sg", "g.sg.map") && !same("/tmp/g.sg", "/dev/g.sg"));
    }
}
