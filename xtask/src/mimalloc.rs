//! The stress test of mimalloc, which the allocator that is preloaded must pass. Its source is fetched for that, and is no part
//! of this repository.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use crate::run;

/// A fixed version, so that the test does not change by itself.
const SOURCE: &str = "https://raw.githubusercontent.com/microsoft/mimalloc/a3ca0e5e2eb283c2c9275f30872e30252a91b66c/test/test-stress.c";

/// Where the test looks for it.
fn place() -> PathBuf {
    run::target().join("fetched/mimalloc-test-stress.c")
}

/// Puts it in place: from the checkout of mimalloc that `HUGEPILOT_MIMALLOC` names, else from its home. Returns what to print.
///
/// That it fails is no failure: the test that misses it skips itself, and is counted.
pub(crate) fn fetch() -> String {
    let place = place();
    if place.exists() {
        return "there".to_owned();
    }
    let made = place.parent().map(fs::create_dir_all);
    let got = match (made, env::var_os("HUGEPILOT_MIMALLOC")) {
        (Some(Err(error)), _) => Err(error.to_string()),
        (_, Some(folder)) => copy(Path::new(&folder), &place),
        (_, None) => download(&place),
    };
    match got {
        Ok(()) => "fetched".to_owned(),
        Err(error) => {
            eprintln!(
                "\n*** mimalloc's stress test is missing: {error}\n*** the test that needs it will skip itself; name a checkout with HUGEPILOT_MIMALLOC\n"
            );
            format!("not there: {error}")
        }
    }
}

fn copy(folder: &Path, place: &Path) -> Result<(), String> {
    let source = folder.join("test/test-stress.c");
    fs::copy(&source, place).map(drop).map_err(|error| format!("{}: {error}", source.display()))
}

/// Written under another name first, so that a half of it is never taken for it.
fn download(place: &Path) -> Result<(), String> {
    let half = place.with_extension("half");
    let mut curl = Command::new("curl");
    curl.args(["--fail", "--silent", "--show-error", "--location", "--max-time", "60", "--output"]);
    let output = curl.arg(&half).arg(SOURCE).output().map_err(|error| format!("curl: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    fs::rename(&half, place).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkout_without_it_is_named() {
        let error = copy(Path::new("/no/such/checkout"), &place()).unwrap_err();
        assert!(error.starts_with("/no/such/checkout/test/test-stress.c: "), "{error}");
    }
}
