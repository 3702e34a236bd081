//! Files that are to be written.

use std::fs;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use hugepilot_graph::{Format, GraphError};

/// Refuses, before any work, a file that cannot be written or is there already, unless `force`; `directory` where it is one.
///
/// # Errors
/// [`GraphError::Io`].
pub(super) fn check(path: &Path, force: bool, directory: bool) -> Result<(), GraphError> {
    let io = |path: &Path, kind: ErrorKind, what: String| {
        Err(GraphError::Io { path: path.display().to_string(), source: Error::new(kind, what) })
    };
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if let Some(plain) = [".gz", ".zst"].iter().find_map(|packed| name.strip_suffix(packed)) {
        let what = format!("nothing is packed here; write {plain} and pack that");
        return io(path, ErrorKind::InvalidInput, what);
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !parent.is_dir() {
        return io(parent, ErrorKind::NotADirectory, "is no directory; make it first".to_owned());
    }
    if fs::symlink_metadata(path).is_ok() && !force {
        return io(path, ErrorKind::AlreadyExists, "is there already".to_owned());
    }
    match fs::metadata(path) {
        Ok(there) if directory && !there.is_dir() => {
            io(path, ErrorKind::NotADirectory, "is no directory; four-files are written into one".to_owned())
        }
        // A device would be replaced as well.
        Ok(there) if !directory && !there.is_file() => {
            io(path, ErrorKind::InvalidInput, "is not a file".to_owned())
        }
        _ => Ok(()),
    }
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
        for (name, says) in [("g", "--to"), ("g.e", "only read"), ("num_nodes_edges.txt", "--to four-files")]
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
}
