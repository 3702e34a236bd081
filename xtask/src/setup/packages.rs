//! Debian packages that the tests use.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use super::State;
use crate::run::{in_path, run, stdout};

/// Program or file, and the package that contains it.
const WANTED: &[(&str, &str)] = &[
    // Victims in C, faults injected into system calls, file capabilities.
    ("cc", "gcc"),
    ("gcc", "gcc"),
    ("strace", "strace"),
    ("/usr/sbin/setcap", "libcap2-bin"),
    // Workloads and programs that run on our malloc. Debian starts servers of memcached and redis;
    // the tests start their own.
    ("memcached", "memcached"),
    ("redis-server", "redis-server"),
    ("/usr/lib/postgresql/*/bin/postgres", "postgresql"),
    ("java", "default-jre-headless"),
    ("python3", "python3"),
    ("git", "git"),
    ("/usr/lib/*/libmimalloc.so.2", "libmimalloc2.0"),
    // Engines of traces.
    ("qemu-x86_64", "qemu-user"),
    ("chromium", "chromium"),
    ("valgrind", "valgrind"),
    // Programs in C and C++ that use our library; sanitizers; the hash table of the example.
    ("g++", "g++"),
    ("clang", "clang"),
    ("clang", "libclang-rt-dev"),
    ("cmake", "cmake"),
    ("pkg-config", "pkg-config"),
    // Readers of man pages and completions.
    ("man", "man-db"),
    ("bash", "bash"),
    ("fish", "fish"),
    ("zsh", "zsh"),
];

/// Installs missing packages with apt, if this process is root.
pub(super) fn install() -> State {
    let missing = missing(present);
    if missing.is_empty() {
        return State::Present;
    }
    let names = missing.join(" ");
    let help = format!("sudo apt-get install {names}");
    if !in_path("apt-get") {
        return State::missing(&format!("{names} (no apt-get here)"), "install these packages");
    }
    if !is_root() {
        return State::missing(&format!("{names} (installing needs root)"), &help);
    }
    // An old index may suffice, so a failed update does not stop this. If it reached no host, apt
    // would try that again for each package.
    let updated = stdout(apt().arg("update")).unwrap_or_default();
    let no_cluster = missing.contains(&"postgresql").then(NoCluster::write);
    let mut install = apt();
    install.args(["install", "-y", "--no-install-recommends"]);
    install.args((!has_reached_a_host(&updated)).then_some("--no-download")).args(&missing);
    let result = run(&mut install);
    drop(no_cluster);
    match result {
        Ok(()) => State::Installed(names),
        Err(error) => State::missing(&format!("{names}: {error:#}"), &help),
    }
}

/// Setting under which Debian installs PostgreSQL without a database server, which would take huge
/// pages. Removed on drop.
struct NoCluster;

impl NoCluster {
    const FILE: &str = "/etc/postgresql-common/createcluster.d/hugepilot.conf";

    fn write() -> Self {
        let folder = Path::new(Self::FILE).parent().map_or(Ok(()), fs::create_dir_all);
        if let Err(error) =
            folder.and_then(|()| fs::write(Self::FILE, "create_main_cluster = false\n"))
        {
            eprintln!("warning: {}: {error}", Self::FILE);
        }
        Self
    }
}

impl Drop for NoCluster {
    fn drop(&mut self) {
        let _ = fs::remove_file(Self::FILE);
        // Fails unless empty.
        let _ = Path::new(Self::FILE).parent().map(fs::remove_dir);
    }
}

fn apt() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    let once = ["Acquire::Retries=0", "Acquire::http::Timeout=10", "Acquire::https::Timeout=10"];
    command.args(once.iter().flat_map(|option| ["-o", option]));
    command
}

/// Whether `apt-get update` reached a host, by its output.
fn has_reached_a_host(updated: &str) -> bool {
    updated.lines().any(|line| line.starts_with("Hit:") || line.starts_with("Get:"))
}

/// Whether a program is in `PATH`, or a file exists; `*` in its path stands for any one folder.
fn present(wanted: &str) -> bool {
    match wanted.split_once("/*/") {
        Some((above, below)) => fs::read_dir(above)
            .into_iter()
            .flatten()
            .flatten()
            .any(|entry| entry.path().join(below).exists()),
        None if wanted.starts_with('/') => Path::new(wanted).exists(),
        None => in_path(wanted),
    }
}

/// The packages of programs that are not `present`, each once.
fn missing(present: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let mut packages: Vec<_> = WANTED
        .iter()
        .filter(|(program, _)| !present(program))
        .map(|&(_, package)| package)
        .collect();
    packages.dedup();
    packages
}

/// Whether the effective user is root: it owns the process's folder in /proc.
fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_missing_packages_are_named_once() {
        assert_eq!(missing(|_| true), [""; 0]);
        let all = missing(|_| false);
        assert_eq!((&all[..2], all.last()), (&["gcc", "strace"][..], Some(&"zsh")));
        assert_eq!(missing(|program| program == "gcc"), all);
        assert_eq!(missing(|program| program != "strace"), ["strace"]);
    }

    #[test]
    fn a_host_that_answers_is_known_by_the_update() {
        let closed = "Ign:1 http://deb.debian.org/debian trixie InRelease\n\
                      Err:1 http://deb.debian.org/debian trixie InRelease\n";
        assert!(!has_reached_a_host(closed) && !has_reached_a_host(""));
        assert!(has_reached_a_host("Ign:1 http://a InRelease\nHit:2 http://b InRelease\n"));
    }

    #[test]
    fn programs_and_files_are_detected() {
        assert!(present("sh") && present("/proc/self/stat") && present("/proc/*/stat"));
        assert!(
            !present("no-such-program")
                && !present("/proc/self/no-such-file")
                && !present("/proc/*/no-such-file")
        );
    }
}
