//! What the tests need from the distribution.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use crate::run::{in_path, run};

/// Program, and the Debian package that brings it.
const WANTED: [(&str, &str); 8] = [
    ("cc", "gcc"),                    // victims written in C
    ("gcc", "gcc"),                   // the same
    ("strace", "strace"),             // faults injected into system calls
    ("memcached", "memcached"), // a workload; Debian also starts a server of its own, which nobody here talks to
    ("redis-server", "redis-server"), // runs on our malloc; the same goes for its server
    ("java", "default-jre-headless"), // the same
    ("python3", "python3"),     // the same
    ("git", "git"),             // the same
];

/// Installs what is missing, where that can be done without asking: as root, with apt. Returns what to print.
///
/// That it fails is no failure: the tests that miss something skip themselves, and are counted.
pub(crate) fn install() -> String {
    let missing = missing(in_path);
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
    match run(apt().args(["install", "-y", "--no-install-recommends"]).args(&missing)) {
        Ok(()) => format!("installed {names}"),
        Err(error) => loud(&format!("could not install {names}: {error:#}")),
    }
}

fn apt() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// The packages of programs that are not `there`, each once.
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
        let all = ["gcc", "strace", "memcached", "redis-server", "default-jre-headless", "python3", "git"];
        assert_eq!(missing(|_| false), all);
        assert_eq!(missing(|program| program == "gcc"), all);
        assert_eq!(missing(|program| program != "strace"), ["strace"]);
    }
}
