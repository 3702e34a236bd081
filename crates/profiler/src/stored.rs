//! Measurements of a machine, kept between runs as JSON in a directory of the user.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use hugepilot_kernel::file::OwnDirectory;
use hugepilot_units::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Size limit of a file; a valid one has less than 1 KiB.
const MAX_FILE: Bytes = Bytes::kib(64);

/// Directory of measurements of the user: `$XDG_CACHE_HOME/hugepilot`, by default
/// `~/.cache/hugepilot`. A service without a home has that of its unit: `$CACHE_DIRECTORY`, else
/// `$STATE_DIRECTORY`.
pub fn directory() -> Option<PathBuf> {
    directory_by(&|name| std::env::var_os(name))
}

fn directory_by(variable: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    // systemd lists the directories of a unit, separated by colons.
    let of_unit = |name: &str| {
        let list = variable(name)?.into_string().ok()?;
        list.split(':').map(PathBuf::from).find(|path| path.is_absolute())
    };
    let of_user = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    let of_user = of_user.map(|cache| cache.join("hugepilot"));
    of_user.or_else(|| of_unit("CACHE_DIRECTORY")).or_else(|| of_unit("STATE_DIRECTORY"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_without_a_home_has_the_directories_of_its_unit() {
        let of = |variables: &[(&str, &str)]| {
            let get = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| OsString::from(value))
            };
            directory_by(&get).map(|path| path.display().to_string())
        };
        let unit = [
            ("CACHE_DIRECTORY", "/var/cache/hugepilot:/var/cache/x"),
            ("STATE_DIRECTORY", "/var/lib/hugepilot"),
        ];
        let with = |more: &[(&'static str, &'static str)]| of(&[more, &unit].concat());
        assert_eq!(with(&[]).unwrap(), "/var/cache/hugepilot");
        assert_eq!(of(&unit[1..]).unwrap(), "/var/lib/hugepilot");
        assert_eq!(with(&[("HOME", "/root")]).unwrap(), "/root/.cache/hugepilot");
        let both = [("HOME", "/root"), ("XDG_CACHE_HOME", "/cache")];
        assert_eq!(with(&both).unwrap(), "/cache/hugepilot");
        assert_eq!(of(&[("HOME", "relative"), ("CACHE_DIRECTORY", "too")]), None);
    }
}
