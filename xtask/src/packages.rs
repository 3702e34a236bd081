//! What the tests need from the distribution.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use crate::run::{in_path, run};

/// Program, or file, and the Debian package that brings it.
const WANTED: &[(&str, &str)] = &[
    ("cc", "gcc"),                                        // victims written in C
    ("gcc", "gcc"),                                       // the same
    ("strace", "strace"),                                 // faults injected into system calls
    ("/usr/sbin/setcap", "libcap2-bin"), // file capabilities for a copy of the binary
    ("memcached", "memcached"), // a workload; Debian also starts a server of its own, which nobody here talks to
    ("redis-server", "redis-server"), // runs on our malloc; the same goes for its server
    ("/usr/lib/postgresql/*/bin/postgres", "postgresql"), // the same, but no server of its own is started
    ("java", "default-jre-headless"),                     // the same
    ("python3", "python3"),                               // the same
    ("git", "git"),                                       // the same
    ("g++", "g++"),                                       // programs that use our headers
    ("clang", "clang"),                                   // the same
    ("clang", "libclang-rt-dev"),                         // its sanitizers
    ("cmake", "cmake"),                                   // the example in C++
    ("pkg-config", "pkg-config"),                         // how programs find our library
    ("/usr/include/absl/base/config.h", "libabsl-dev"),   // the hash table of the example
];

/// Installs what is missing, where that can be done without asking: as root, with apt. Returns what to print.
///
/// That it fails is no failure: the tests that miss something skip themselves, and are counted.
pub(crate) fn install() -> String {
    let missing = missing(there);
    if missing.is_empty() {
        return "all there".to_owned();
    }
    let names = missing.join(" ");
    if !is_root() || !in_path("apt-get") {
        return loud(&format!("missing: {names}; as root: apt-get install {names}"));
    }
    // An old index may do, so a failed update alone stops nothing.
    if let Err(error) = run(apt().arg("update")) {
        loud(&format!("{error:#}"));
    }
    let no_cluster = missing.contains(&"postgresql").then(NoCluster::write);
    let installed = run(apt().args(["install", "-y", "--no-install-recommends"]).args(&missing));
    drop(no_cluster);
    match installed {
        Ok(()) => format!("installed {names}"),
        Err(error) => loud(&format!("could not install {names}: {error:#}")),
    }
}

/// While it lives, Debian installs PostgreSQL without a database and a server of its own: that would take huge pages.
struct NoCluster;

impl NoCluster {
    const FILE: &str = "/etc/postgresql-common/createcluster.d/hugepilot.conf";

    fn write() -> Self {
        let folder = Path::new(Self::FILE).parent().map_or(Ok(()), fs::create_dir_all);
        if let Err(error) =
            folder.and_then(|()| fs::write(Self::FILE, "create_main_cluster = false\n"))
        {
            loud(&format!("{}: {error}", Self::FILE));
        }
        Self
    }
}

impl Drop for NoCluster {
    fn drop(&mut self) {
        let _ = fs::remove_file(Self::FILE);
        // Only if it was made for this file, and is empty.
        let _ = Path::new(Self::FILE).parent().map(fs::remove_dir);
    }
}

fn apt() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// A program in `PATH`, or a file, in whose path `*` is any one folder.
fn there(wanted: &str) -> bool {
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

/// The packages of what is not `there`, each once.
fn missing(there: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let mut packages: Vec<_> =
        WANTED.iter().filter(|(program, _)| !there(program)).map(|&(_, package)| package).collect();
    packages.dedup();
    packages
}

/// A process's own folder in /proc belongs to its effective user.
fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

fn loud(what: &str) -> String {
    eprintln!("\n*** {what}\n*** tests that need it will skip themselves\n");
    what.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_named_once() {
        assert_eq!(missing(|_| true), [""; 0]);
        let all = missing(|_| false);
        assert_eq!((&all[..2], all.last()), (&["gcc", "strace"][..], Some(&"libabsl-dev")));
        assert_eq!(missing(|program| program == "gcc"), all);
        assert_eq!(missing(|program| program != "strace"), ["strace"]);
    }

    #[test]
    fn files_are_wanted_as_programs_are() {
        assert!(there("sh") && there("/proc/self/stat") && there("/proc/*/stat"));
        assert!(
            !there("no-such-program")
                && !there("/proc/self/no-such-file")
                && !there("/proc/*/no-such-file")
        );
    }
}
