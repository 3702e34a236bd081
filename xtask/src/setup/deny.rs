//! cargo-deny: an installed one, or the released binary.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::State;
use super::download::{Download, folder};
use crate::run::{beside, in_path, output};

const VERSION: &str = "0.20.2";

/// The archive for x86-64.
const ARCHIVE: Download = Download {
    url: "https://github.com/EmbarkStudios/cargo-deny/releases/download/0.20.2/\
          cargo-deny-0.20.2-x86_64-unknown-linux-musl.tar.gz",
    sha256: "9f12ed4c49936e09b48bf862b595cde2fe64fcbd9d74dfacac6131ca824c8d5f",
};

/// Downloads the released binary unless cargo-deny is there.
pub(super) fn install() -> State {
    if program().is_some() {
        return State::Present;
    }
    let result = if cfg!(target_arch = "x86_64") {
        unpack()
    } else {
        Err("no released binary for this CPU".to_owned())
    };
    match result {
        Ok(()) => State::Installed(format!("cargo-deny {VERSION}")),
        Err(error) => {
            State::missing(&error, &format!("cargo install --locked cargo-deny@{VERSION}"))
        }
    }
}

/// The program in `PATH`, or the downloaded one.
pub(crate) fn program() -> Option<PathBuf> {
    if in_path("cargo-deny") {
        return Some("cargo-deny".into());
    }
    let downloaded = place();
    downloaded.exists().then_some(downloaded)
}

/// Fetches the database of advisories by `deny`, a command of cargo-deny, within a minute.
pub(crate) fn fetch_advisories(deny: &Command) -> Result<(), String> {
    let mut limited = beside(deny, "timeout".as_ref());
    limited.arg("60").arg(deny.get_program()).args(["fetch", "db"]);
    let last = |error: String| error.lines().last().unwrap_or("no database").to_owned();
    output(&mut limited).map(drop).map_err(last)
}

fn place() -> PathBuf {
    folder().join(format!("cargo-deny-{VERSION}"))
}

fn unpack() -> Result<(), String> {
    let archive = folder().join("cargo-deny.tar.gz");
    ARCHIVE.fetch(&archive)?;
    let mut tar = Command::new("tar");
    tar.arg("--extract").arg("--file").arg(&archive).arg("--directory").arg(folder());
    output(tar.args(["--strip-components=1", "--wildcards", "*/cargo-deny"]))?;
    fs::rename(folder().join("cargo-deny"), place()).map_err(|error| error.to_string())
}
