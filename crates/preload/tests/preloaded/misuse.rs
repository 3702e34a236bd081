//! Tests of misuse, which ends the program with a line that names the address.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use hugepilot_testkit::{compiled, need, requires};

use super::Preloaded;

fn misuse() -> PathBuf {
    compiled(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/preloaded/misuse.c"))
}

const FOREIGN: &str =
    "not memory of this allocator; it may belong to another one, or was freed before";

/// Runs a program that misuses memory in this way. Returns its signal, the address that it printed,
/// and its stderr.
fn wrong(kind: &str) -> (Option<i32>, String, String) {
    let mut program = Preloaded::new(misuse(), &[kind]);
    let output = program.command.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!printed.contains("survived"), "{kind}: nothing ended it: {said}");
    (output.status.signal(), printed, said)
}

/// Checks that each kind of misuse ends with this signal and line. `ADDRESS` stands for the
/// address.
fn ends_with(ends_by: i32, kinds: &[(&str, &str)]) {
    for (kind, line) in kinds {
        let (signal, address, said) = wrong(kind);
        assert_eq!(signal, Some(ends_by), "{kind}: {said}");
        let line = format!("hugepilot: {}\n", line.replace("ADDRESS", &address));
        // START is an address unknown to the test.
        let mut rest = said.as_str();
        for part in line.split("START") {
            let found = rest.find(part).unwrap_or_else(|| panic!("{kind}: {said}"));
            rest = &rest[found + part.len()..];
        }
        assert_eq!(said.lines().count(), 1, "{kind}: {said}");
    }
}

#[test]
fn misuse_ends_the_program_and_names_the_address() {
    requires!(need::c_compiler());
    let (free, freed_before) = (
        "double free of ADDRESS: the object of 48 bytes is already free",
        "free of ADDRESS: no object is allocated there; it may have been freed before",
    );
    let changed = "free object at ADDRESS: written after it was freed, or freed twice";
    let foreign = format!("free of ADDRESS: {FOREIGN}");
    let foreign = foreign.as_str();
    ends_with(
        libc::SIGABRT,
        &[
            ("twice", free),
            ("twice-with-another-between", changed),
            (
                "twice-before-the-span-is-empty",
                "free objects of 1024 bytes from START: one was freed twice, or written after it \
                 was freed",
            ),
            ("twice-in-another-thread", free),
            ("once-in-each-of-two-threads", changed),
            ("large-twice", freed_before),
            ("huge-twice", foreign),
            ("inside", "free of ADDRESS: address inside the object of 48 bytes at START"),
            (
                "inside-in-another-thread",
                "free of ADDRESS: address inside the object of 48 bytes at START",
            ),
            (
                "inside-large",
                "free of ADDRESS: address inside the object of 1048576 bytes at START",
            ),
            (
                "inside-huge",
                "free of ADDRESS: address inside the object of 20971520 bytes at START",
            ),
            ("never-allocated", freed_before),
            ("static", foreign),
            ("stack", foreign),
            ("mapped", foreign),
            ("unmapped", foreign),
            ("resize-static", &format!("realloc of ADDRESS: {FOREIGN}")),
            ("resize-inside", "realloc of ADDRESS: address inside the object of 48 bytes at START"),
            ("resize-free", "realloc of ADDRESS: the object of 48 bytes is already free"),
            ("measure-static", &format!("malloc_usable_size of ADDRESS: {FOREIGN}")),
            (
                "measure-free",
                "malloc_usable_size of ADDRESS: the object of 48 bytes is already free",
            ),
            ("write-after-free", changed),
        ],
    );
}
