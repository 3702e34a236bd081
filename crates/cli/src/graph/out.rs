//! Files that are to be written.

use std::fs;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use hugepilot_graph::{Format, GraphError, try_save};

/// Any format of one file, for lines that are no graph.
pub(super) const LINES: Format = Format::EdgeList;

/// Refuses, before any work, a file that cannot be written or is there already, unless `force`.
///
/// # Errors
/// [`GraphError::Io`].
pub(super) fn check(path: &Path, force: bool, format: Format) -> Result<(), GraphError> {
    let io =
        |path: &Path, source: Error| GraphError::Io { path: path.display().to_string(), source };
    let wrong =
        |path: &Path, kind: ErrorKind, what: &str| Err(io(path, Error::new(kind, what.to_owned())));
    let directory = format == Format::FourFiles;
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if let Some(plain) = [".gz", ".zst"].iter().find_map(|packed| name.strip_suffix(packed)) {
        let what = format!("nothing is packed here; write {plain} and pack that");
        return wrong(path, ErrorKind::InvalidInput, &what);
    }
    let parent = parent(path);
    if !parent.is_dir() {
        return wrong(parent, ErrorKind::NotADirectory, "is no directory; make it first");
    }
    match fs::symlink_metadata(path) {
        Ok(_) if !force => return wrong(path, ErrorKind::AlreadyExists, "is there already"),
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(io(path, error)),
        _ => {}
    }
    match fs::metadata(path) {
        Ok(there) if directory && !there.is_dir() => {
            let what = "is no directory; four-files are written into one";
            return wrong(path, ErrorKind::NotADirectory, what);
        }
        // A device would be replaced as well.
        Ok(there) if !directory && !there.is_file() => {
            return wrong(path, ErrorKind::InvalidInput, "is not a file");
        }
        _ => {}
    }
    try_save(path, format)
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whether both are one name in one directory.
pub(super) fn is_same(a: &Path, b: &Path) -> bool {
    let place =
        |path: &Path| (parent(path).canonicalize().ok(), path.file_name().map(ToOwned::to_owned));
    place(a) == place(b)
}

/// What is written to a file of that name, unless `to` says it.
///
/// # Errors
/// [`GraphError::Format`] where the name says nothing, and for what is only read.
pub(super) fn format(path: &Path, to: Option<Format>) -> Result<Format, GraphError> {
    let what = match to.or_else(|| Format::of_name(path)) {
        Some(Format::Ldbc) => "ldbc is only read; el and wel are lists of edges, too".to_owned(),
        // The name of one of them is not that of a directory.
        Some(Format::FourFiles) if to.is_none() => {
            "four files go into a directory; name that, and --to four-files".to_owned()
        }
        Some(format) => return Ok(format),
        None => {
            let names = Format::ALL.into_iter().filter(|&format| format != Format::Ldbc);
            let names: Vec<_> = names.map(Format::name).collect();
            format!("its name tells no format; --to says which: {}", names.join(", "))
        }
    };
    Err(GraphError::Format { place: path.display().to_string(), what })
}

/// Where the numbers of vertices are kept that have no place in `path`.
pub(super) fn map_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".map");
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_formats_or_why_not() {
        let of = |name: &str, to| format(Path::new(name), to).map_err(|error| error.to_string());
        assert_eq!(of("a/g.sg", None), Ok(Format::Gap));
        assert_eq!(of("g.sg", Some(Format::Native)), Ok(Format::Native));
        assert_eq!(of("dir", Some(Format::FourFiles)), Ok(Format::FourFiles));
        for (name, says) in
            [("g", "--to"), ("g.e", "only read"), ("num_nodes_edges.txt", "--to four-files")]
        {
            let error = of(name, None).unwrap_err();
            assert!(error.contains(says) && error.contains(name), "{error}");
        }
    }

    #[test]
    fn a_map_is_beside_what_it_is_of() {
        assert_eq!(map_of(Path::new("a/g.sg")), Path::new("a/g.sg.map"));
        assert_eq!(map_of(Path::new("a/four/")), Path::new("a/four.map"));
    }

    #[test]
    fn one_place_may_be_written_in_several_ways() {
        let same = |a: &str, b: &str| is_same(Path::new(a), Path::new(b));
        assert!(same("g.sg", "./g.sg") && same("/tmp/g.sg", "/tmp/../tmp/g.sg"));
        assert!(!same("g.sg", "g.sg.map") && !same("/tmp/g.sg", "/dev/g.sg"));
    }
}
