//! Installed library, compilers, and runs of compiled programs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::{env, fs};

use hugepilot_testkit::{Need, need};
use tempfile::TempDir;

/// Returns the folder of this crate.
pub(crate) fn source() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Installs the library into a folder with the command that users run, once per test run. The
/// folder is beside the build output, and the next run overwrites it.
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

/// Returns the output of pkg-config for the installed library.
pub(crate) fn pkg_config(what: &str) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.args([what, "hugepilot"]).env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig"));
    run(&mut command).split_whitespace().map(str::to_owned).collect()
}

/// Runs `command` and returns its stdout.
///
/// # Panics
/// Unless it exits with 0; the message has its output.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let Output { status, stdout, stderr } = output;
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{stdout}{stderr}");
    stdout.into_owned()
}

/// Compiler, and the language standard to use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compiler {
    pub(crate) program: &'static str,
    pub(crate) standard: &'static str,
}

impl Compiler {
    pub(crate) fn there(self) -> Need {
        need::all([need::program(self.program), need::program("pkg-config")])
    }

    /// Requires the compiler and its sanitizers, by trying them.
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

    /// Creates a command with all warnings as errors, and the flags of pkg-config.
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

/// Kind of linking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// Shared library, found below the prefix at run time.
    Shared,
    /// Static library.
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

/// Creates a folder for compiled files, removed on drop.
pub(crate) fn folder() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder can be made")
}
