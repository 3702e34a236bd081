//! Compilation of victims written in C or Go, once per content, with the system's compiler.

use std::collections::hash_map::DefaultHasher;
use std::ffi::OsStr;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::{env, fs, process};

/// Compiler flags. -O1 is fast and keeps every access of the source.
const FLAGS: [&str; 6] = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-pthread"];

/// Compiles the C or Go file at `source` and returns the path of the program.
///
/// A bare name is one of this crate's victims. Use [`Victim::c`](crate::Victim::c) unless another
/// program must start the victim, such as a shell that enters a cgroup first.
///
/// Many test programs may call it at the same time. Each compiles to a unique name and renames the
/// result; the last one puts the same program in place again.
///
/// # Panics
/// If there is no compiler or it reports an error.
pub fn compiled(source: &Path) -> PathBuf {
    let victims = Path::new(env!("CARGO_MANIFEST_DIR")).join("victims");
    let source =
        if source.components().count() == 1 { victims.join(source) } else { source.to_owned() };
    let text = fs::read(&source).unwrap_or_else(|error| panic!("{}: {error}", source.display()));
    let headers =
        ["victim.h", "pages.h"].map(|name| fs::read(victims.join(name)).unwrap_or_default());
    let name = source.file_stem().unwrap_or(OsStr::new("victim")).to_string_lossy();

    let mut hash = DefaultHasher::new();
    (text, headers, FLAGS).hash(&mut hash);
    let folder = folder();
    let program = folder.join(format!("{name}-{:016x}", hash.finish()));
    if !program.exists() {
        fs::create_dir_all(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        compile(&source, &victims, &program);
    }
    program
}

fn compile(source: &Path, include: &Path, program: &Path) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Relaxed);
    let draft = program.with_extension(format!("{}-{number}", process::id()));
    let is_go = source.extension().is_some_and(|extension| extension == "go");
    let mut compiler = Command::new(if is_go { "go" } else { "cc" });
    if is_go {
        compiler.arg("build");
    } else {
        compiler.args(FLAGS).arg("-I").arg(include);
    }
    compiler.arg("-o").arg(&draft).arg(source);
    let output = compiler.output().unwrap_or_else(|error| {
        panic!("{error}; begin the test with requires!() of the compiler of {}", source.display())
    });
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cannot compile {}:\n{errors}", source.display());
    fs::rename(&draft, program).unwrap_or_else(|error| panic!("{}: {error}", program.display()));
}

/// The folder of compiled victims: beside the test programs, so that `cargo clean` removes it.
fn folder() -> PathBuf {
    let beside =
        env::current_exe().ok().and_then(|test| Some(test.parent()?.parent()?.join("victims")));
    beside.unwrap_or_else(|| env::temp_dir().join("hugepilot-victims"))
}
