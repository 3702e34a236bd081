//! Checkouts that share a target folder (`CARGO_TARGET_DIR`).
//!
//! Cargo names builds after the path inside the workspace, and rebuilds a crate if a source is
//! newer than its build. So it takes the builds of another checkout for those of this one, if that
//! was built later than this one was changed, and the tests of the other one would run.

use std::env;
use std::fs::{self, File};
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result};

use crate::run::{self, cargo, root, target};

/// Set for the xtask that was rebuilt.
const REBUILT: &str = "HUGEPILOT_XTASK_REBUILT";
/// Folders with sources.
const SOURCES: [&str; 3] = ["crates", "examples", "xtask"];

/// Whether the builds may be those of another checkout: the target folder lies outside of this one.
pub(crate) fn shares_builds() -> bool {
    env::var_os(REBUILT).is_none() && !target().starts_with(root())
}

/// Makes all sources newer than any build, and runs `cargo xtask ARGS`, which cargo then rebuilds.
///
/// # Errors
/// A source cannot be touched, or that run fails.
pub(crate) fn run_rebuilt(args: &[&str]) -> Result<()> {
    println!("the target folder lies outside the checkout: all crates are built again");
    let now = SystemTime::now();
    SOURCES.iter().try_for_each(|folder| touch(&root().join(folder), now))?;
    run::run(cargo(&[&["xtask"], args].concat()).env(REBUILT, "1"))
}

/// Sets the time of the last change of a file, or of all files of a folder.
fn touch(path: &Path, time: SystemTime) -> Result<()> {
    let cannot = || path.display().to_string();
    let kind = fs::symlink_metadata(path).with_context(cannot)?.file_type();
    if kind.is_dir() {
        let mut entries = fs::read_dir(path).with_context(cannot)?;
        return entries.try_for_each(|entry| touch(&entry?.path(), time));
    }
    if kind.is_file() {
        File::open(path).and_then(|file| file.set_modified(time)).with_context(cannot)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_of_a_folder_get_the_time() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a/b.rs");
        fs::create_dir(folder.path().join("a")).unwrap();
        fs::write(&file, "").unwrap();
        touch(folder.path(), SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().modified().unwrap(), SystemTime::UNIX_EPOCH);
    }
}
