//! An installed library, compilers, and running what they made.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::{env, fs};

use hugepilot_testkit::{Need, need};
use tempfile::TempDir;

/// This crate's folder.
pub(crate) fn source() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A folder into which the library was installed, by the command that users run; once per test run. It stands beside what
/// cargo builds, and the next run overwrites it.
pub(crate) fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("prefix");
        let _ = fs::remove_dir_all(&prefix);
        let mut install = Command::new(env!("CARGO"));
        install
            .args(["run", "--quiet", "--package", "xtask", "--", "install", "--only", "capi"])
            .arg(&prefix)
            .arg("--debug");
        run(install.current_dir(source()));
        prefix
    })
}

/// What pkg-config says about the installed library.
pub(crate) fn pkg_config(what: &str) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.args([what, "hugepilot"]).env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig"));
    run(&mut command).split_whitespace().map(str::to_owned).collect()
}

/// Runs `command` and returns what it printed.
///
/// # Panics
/// Unless it exits with 0, with all that it said.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let Output { status, stdout, stderr } = output;
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{stdout}{stderr}");
    stdout.into_owned()
}

/// A compiler, and the standard that it is to follow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compiler {
    pub(crate) program: &'static str,
    pub(crate) standard: &'static str,
}

impl Compiler {
    pub(crate) fn there(self) -> Need {
        need::all([need::program(self.program), need::program("pkg-config")])
    }

    /// It is there, and so is what it needs for sanitizers, which is tried.
    pub(crate) fn sanitizes(self) -> Need {
        let missing = || Need::Err(format!("{} has no sanitizers", self.program));
        let tries = || {
            let (folder, mut command) = (folder(), Command::new(self.program));
            let source = folder.path().join("empty.c");
            fs::write(&source, "int main(void) { return 0; }\n").expect("a file can be written");
            command.args(["-fsanitize=address,undefined", "-x", "c"]).arg(&source);
            command
                .arg("-o")
                .arg(folder.path().join("empty"))
                .output()
                .is_ok_and(|made| made.status.success())
        };
        let there = self.there();
        if there != Need::Ok || tries() { there } else { missing() }
    }

    /// With all warnings as errors, and what pkg-config says.
    pub(crate) fn command(self) -> Command {
        let mut command = Command::new(self.program);
        command.arg(format!("-std={}", self.standard));
        command.args([
            "-O1",
            "-g",
            "-Wall",
            "-Wextra",
            "-pedantic",
            "-Wshadow",
            "-Werror",
            "-pthread",
        ]);
        command.args(pkg_config("--cflags"));
        command
    }
}

/// How a program is linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// With the shared library, found beside the prefix at run time.
    Shared,
    /// With the static one.
    Static,
}

impl Link {
    pub(crate) fn args(self) -> Vec<String> {
        let lib = prefix().join("lib").display().to_string();
        match self {
            Self::Shared => [pkg_config("--libs"), vec![format!("-Wl,-rpath,{lib}")]].concat(),
            Self::Static => {
                let all = run(Command::new("pkg-config")
                    .args(["--libs", "--static", "hugepilot"])
                    .env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig")));
                let archive = |word: &str| match word {
                    "-lhugepilot" => "-l:libhugepilot.a".to_owned(),
                    word => word.to_owned(),
                };
                all.split_whitespace().map(archive).collect()
            }
        }
    }
}

/// A folder for what a test builds, gone afterwards.
pub(crate) fn folder() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder can be made")
}
