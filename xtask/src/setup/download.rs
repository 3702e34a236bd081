//! Downloads, each with the checksum of its content.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use crate::run::{output, target};

/// A file on the web, of which only one content is accepted.
pub(super) struct Download {
    pub(super) url: &'static str,
    pub(super) sha256: &'static str,
}

impl Download {
    /// Fetches the file to `place` with curl. It gets this name only when it is complete and has
    /// the checksum.
    pub(super) fn fetch(&self, place: &Path) -> Result<(), String> {
        create_parent(place).map_err(|error| format!("{}: {error}", place.display()))?;
        let part = place.with_extension("part");
        let mut curl = Command::new("curl");
        curl.args(["--fail", "--silent", "--show-error", "--location"]);
        curl.args(["--connect-timeout", "10", "--max-time", "60"]);
        output(curl.arg("--output").arg(&part).arg(self.url))?;
        self.verify(&part)?;
        fs::rename(&part, place).map_err(|error| error.to_string())
    }

    fn verify(&self, file: &Path) -> Result<(), String> {
        let printed = output(Command::new("sha256sum").arg(file))?;
        let sum = printed.split_whitespace().next().unwrap_or_default();
        if sum == self.sha256 {
            return Ok(());
        }
        Err(format!("{}: SHA-256 is {sum}, not {}", self.url, self.sha256))
    }
}

/// The folder of downloads.
pub(super) fn folder() -> PathBuf {
    target().join("fetched")
}

pub(super) fn create_parent(place: &Path) -> io::Result<()> {
    place.parent().map_or(Ok(()), fs::create_dir_all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_known_content_is_accepted() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        fs::write(&file, "a\n").unwrap();
        let sha256 = "87428fc522803d31065e7bce3cf03fe475096631e5e07bbd7a0fde60c4cf25c7";
        assert_eq!(Download { url: "a", sha256 }.verify(&file), Ok(()));
        let error = Download { url: "a", sha256: "0" }.verify(&file).unwrap_err();
        assert_eq!(error, format!("a: SHA-256 is {sha256}, not 0"));
    }

    #[test]
    fn a_failed_download_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("deep/a");
        let download = Download { url: "file:///no/such/file", sha256: "" };
        assert!(download.fetch(&place).is_err());
        assert!(!place.exists());
    }
}
