//! Installation below a prefix: the program with its man pages, completions and JSON Schemas, the C
//! library, the allocator to preload, and the documents.
//!
//! Installed files find each other relative to their own place, so the prefix may be moved.

mod documents;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run::{cargo, output, root, run, target};

/// Completion scripts: shell and place below the prefix.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/hugepilot"),
    ("fish", "share/fish/vendor_completions.d/hugepilot.fish"),
    ("zsh", "share/zsh/site-functions/_hugepilot"),
];

/// Parts that can be installed alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Program, man pages, completions, JSON Schemas, documents.
    Program,
    /// Library for C and C++: headers, pkg-config and CMake files.
    Capi,
    /// Allocator to preload.
    Preload,
}

/// Arguments of the command.
#[derive(Debug, PartialEq, Eq)]
struct Options<'a> {
    prefix: &'a Path,
    parts: Vec<Part>,
    debug: bool,
}

impl<'a> Options<'a> {
    fn read(args: &[&'a str]) -> Result<Self> {
        let (mut prefix, mut parts, mut debug) = (None, Vec::new(), false);
        let mut args = args.iter();
        while let Some(&arg) = args.next() {
            match arg {
                "--debug" => debug = true,
                "--only" => parts.push(match args.next() {
                    Some(&"program") => Part::Program,
                    Some(&"capi") => Part::Capi,
                    Some(&"preload") => Part::Preload,
                    _ => bail!("--only takes program, capi or preload"),
                }),
                _ if arg.starts_with('-') => bail!("no such option: {arg}"),
                _ if prefix.is_some() => bail!("more than one prefix: {arg}"),
                _ => prefix = Some(Path::new(arg)),
            }
        }
        if parts.is_empty() {
            parts = vec![Part::Program, Part::Capi, Part::Preload];
        }
        Ok(Self {
            prefix: prefix.context("install needs a prefix, such as /usr/local")?,
            parts,
            debug,
        })
    }
}

/// Builds and installs the parts that `args` name.
pub(crate) fn install(args: &[&str]) -> Result<()> {
    let Options { prefix, parts, debug } = Options::read(args)?;
    let build = Build { debug };
    for part in parts {
        match part {
            Part::Program => program(prefix, &build)?,
            Part::Capi => capi(prefix, &build)?,
            Part::Preload => preload(prefix, &build)?,
        }
    }
    Ok(())
}

/// How packages are built.
struct Build {
    debug: bool,
}

impl Build {
    /// Builds a package, with its examples if wanted, and returns the folder of its files.
    fn package(&self, package: &str, examples: &[&str]) -> Result<PathBuf> {
        // A debug build is for tests, and takes what they have built: the same packages and
        // features must be selected, or cargo builds all of them again.
        let tests = ["--workspace", "--all-features", "--lib", "--bins", "--example", "man"];
        let release = [&["--release", "--package", package, "--lib", "--bins"], examples].concat();
        let selected = if self.debug { &tests[..] } else { &release };
        run(&mut cargo(&[&["build"], selected].concat()))?;
        Ok(target().join(if self.debug { "debug" } else { "release" }))
    }
}

fn program(prefix: &Path, build: &Build) -> Result<()> {
    let folder = build.package("hugepilot-cli", &["--example", "man"])?;
    let built = folder.join("hugepilot");
    let program = prefix.join("bin/hugepilot");
    put(&program, &read_bytes(&built)?)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;

    let pages = target().join("man");
    let _ = fs::remove_dir_all(&pages);
    run(Command::new(folder.join("examples/man")).arg(&pages))?;
    copy(&pages, &prefix.join("share/man/man1"))?;

    for (shell, place) in COMPLETIONS {
        let script = output(Command::new(&built).args(["completions", shell]));
        put(&prefix.join(place), script.map_err(anyhow::Error::msg)?.as_bytes())?;
    }
    let schema = |name: &[&str]| {
        output(Command::new(&built).arg("schema").args(name)).map_err(anyhow::Error::msg)
    };
    for name in schema(&[])?.lines().filter_map(|line| line.split_whitespace().next()) {
        let place = prefix.join(format!("share/hugepilot/schema/{name}.json"));
        put(&place, schema(&[name])?.as_bytes())?;
    }
    documents::install(&prefix.join("share/doc/hugepilot"))?;
    let share = prefix.join("share");
    println!(
        "installed {0}, man pages in {1}/man, completions and documents in {1}",
        program.display(),
        share.display()
    );
    Ok(())
}

fn preload(prefix: &Path, build: &Build) -> Result<()> {
    const NAME: &str = "libhugepilot_preload.so";
    let library = prefix.join("lib").join(NAME);
    put(&library, &read_bytes(&build.package("hugepilot-preload", &[])?.join(NAME))?)?;
    println!("installed {0}; use it with LD_PRELOAD={0}", library.display());
    Ok(())
}

fn capi(prefix: &Path, build: &Build) -> Result<()> {
    let built = build.package("hugepilot-capi", &[])?;
    let source = root().join("crates/capi");
    let header = read(&source.join("include/hugepilot.h"))?;
    let version = defined(&header, "HUGEPILOT_VERSION").context("the header has no version")?;
    let abi = defined(&header, "HUGEPILOT_ABI").context("the header has no ABI")?;
    copy(&source.join("include"), &prefix.join("include"))?;

    let lib = prefix.join("lib");
    let shared = format!("libhugepilot.so.{abi}");
    put(&lib.join("libhugepilot.a"), &read_bytes(&built.join("libhugepilot.a"))?)?;
    put(&lib.join(&shared), &read_bytes(&built.join("libhugepilot.so"))?)?;
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
    println!(
        "installed {}; use it with PKG_CONFIG_PATH={}/pkgconfig or CMAKE_PREFIX_PATH={}",
        lib.join(&shared).display(),
        lib.display(),
        prefix.display()
    );
    Ok(())
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}

fn read_bytes(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| path.display().to_string())
}

/// Copies a file, or a folder with all below it.
fn copy(from: &Path, to: &Path) -> Result<()> {
    if !from.is_dir() {
        return put(to, &read_bytes(from)?);
    }
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

/// Writes a file under another name and renames it: running programs keep a library that they have
/// mapped.
fn put(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = path.parent().context("a path without a folder")?;
    let draft = path.with_extension("new");
    let put = fs::create_dir_all(folder).and_then(|()| fs::write(&draft, bytes));
    put.and_then(|()| fs::rename(&draft, path)).with_context(|| path.display().to_string())
}

/// The definition of `name` in the header, without quotes.
fn defined<'a>(header: &'a str, name: &str) -> Option<&'a str> {
    let value =
        |line: &'a str| line.strip_prefix("#define ")?.strip_prefix(name)?.strip_prefix(' ');
    header.lines().find_map(value).map(|value| value.trim().trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_in_any_order() {
        let all = vec![Part::Program, Part::Capi, Part::Preload];
        let options = Options::read(&["/p"]).unwrap();
        assert_eq!(options, Options { prefix: Path::new("/p"), parts: all, debug: false });
        let options = Options::read(&["--only", "capi", "/p", "--debug"]).unwrap();
        assert_eq!(
            options,
            Options { prefix: Path::new("/p"), parts: vec![Part::Capi], debug: true }
        );
        for bad in [&[][..], &["--only"], &["--only", "x", "/p"], &["-x", "/p"], &["/p", "/q"]] {
            assert!(Options::read(bad).is_err(), "{bad:?}");
        }
    }

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
