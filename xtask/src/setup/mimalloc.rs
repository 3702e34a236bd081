//! mimalloc's stress test, which the preloaded allocator must pass. Its source is not in this
//! repository.

use std::path::{Path, PathBuf};
use std::{env, fs};

use super::State;
use super::download::{Download, create_parent, folder};

/// Source at a fixed version, so that the test does not change by itself.
const SOURCE: Download = Download {
    url: "https://raw.githubusercontent.com/microsoft/mimalloc/\
          a3ca0e5e2eb283c2c9275f30872e30252a91b66c/test/test-stress.c",
    sha256: "17af4a6898dfeaac1ae92cd51b030de7165946553ca0f13057e6c435b9b35e9c",
};

/// Path at which the test expects the source.
fn place() -> PathBuf {
    folder().join("mimalloc-test-stress.c")
}

/// Copies the source from the checkout of mimalloc that `HUGEPILOT_MIMALLOC` names, or downloads
/// it.
pub(super) fn install() -> State {
    let place = place();
    if place.exists() {
        return State::Present;
    }
    let result = match env::var_os("HUGEPILOT_MIMALLOC") {
        Some(checkout) => copy(Path::new(&checkout), &place),
        None => SOURCE.fetch(&place),
    };
    match result {
        Ok(()) => State::Installed(place.display().to_string()),
        Err(error) => State::missing(&error, "set HUGEPILOT_MIMALLOC to a checkout of mimalloc"),
    }
}

fn copy(checkout: &Path, place: &Path) -> Result<(), String> {
    let source = checkout.join("test/test-stress.c");
    let copied = create_parent(place).and_then(|()| fs::copy(&source, place));
    copied.map(drop).map_err(|error| format!("{}: {error}", source.display()))
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
