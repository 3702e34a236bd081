//! The library for C and C++ into a folder: headers, shared and static library, and what pkg-config and CMake read.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result};

use crate::run::{cargo, root, run, target};

/// Builds the library, with debug assertions for `debug`, and installs it below `prefix`. All that is installed finds the
/// rest from where it is itself, so the folder may be moved.
pub(crate) fn capi(prefix: &Path, debug: bool) -> Result<()> {
    let build: &[&str] = if debug { &[] } else { &["--release"] };
    run(&mut cargo(&[&["build", "-p", "hugepilot-capi"], build].concat()))?;
    let built = target().join(if debug { "debug" } else { "release" });
    let source = root().join("crates/capi");
    let header = read(&source.join("include/hugepilot.h"))?;
    let version = defined(&header, "HUGEPILOT_VERSION").context("the header says its version")?;
    let abi = defined(&header, "HUGEPILOT_ABI").context("the header says its ABI")?;

    for name in ["hugepilot.h", "hugepilot.hpp"] {
        put(&prefix.join("include").join(name), &fs::read(source.join("include").join(name))?)?;
    }
    let lib = prefix.join("lib");
    let shared = format!("libhugepilot.so.{abi}");
    put(&lib.join("libhugepilot.a"), &fs::read(built.join("libhugepilot.a"))?)?;
    put(&lib.join(&shared), &fs::read(built.join("libhugepilot.so"))?)?;
    let link = lib.join("libhugepilot.so");
    let _ = fs::remove_file(&link);
    symlink(&shared, &link).with_context(|| link.display().to_string())?;

    let cmake = lib.join("cmake/hugepilot");
    let files = [
        ("hugepilot.pc.in", lib.join("pkgconfig/hugepilot.pc")),
        ("hugepilot-config.cmake", cmake.join("hugepilot-config.cmake")),
        ("hugepilot-config-version.cmake.in", cmake.join("hugepilot-config-version.cmake")),
    ];
    for (name, path) in files {
        let text = read(&source.join("install").join(name))?.replace("@VERSION@", version);
        put(&path, text.as_bytes())?;
    }
    println!("installed hugepilot {version} in {}", prefix.display());
    println!(
        "use it with PKG_CONFIG_PATH={}/pkgconfig, or CMAKE_PREFIX_PATH={}",
        lib.display(),
        prefix.display()
    );
    Ok(())
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}

/// Writes a file beside its place and renames it: a running program keeps the library that it has mapped.
fn put(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = path.parent().context("a file lies in a folder")?;
    let draft = path.with_extension("new");
    let put = fs::create_dir_all(folder).and_then(|()| fs::write(&draft, bytes));
    put.and_then(|()| fs::rename(&draft, path)).with_context(|| path.display().to_string())
}

/// What the header defines `name` as, without quotes.
fn defined<'a>(header: &'a str, name: &str) -> Option<&'a str> {
    let value =
        |line: &'a str| line.strip_prefix("#define ")?.strip_prefix(name)?.strip_prefix(' ');
    header.lines().find_map(value).map(|value| value.trim().trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_read_from_the_header() {
        let header =
            "#define HUGEPILOT_ABI 7\n#define HUGEPILOT_VERSION \"1.2.3\"\n#define HUGEPILOT_H\n";
        assert_eq!(defined(header, "HUGEPILOT_ABI"), Some("7"));
        assert_eq!(defined(header, "HUGEPILOT_VERSION"), Some("1.2.3"));
        assert_eq!(defined(header, "HUGEPILOT"), None);
        assert_eq!(defined(header, "HUGEPILOT_H"), None);
    }
}
