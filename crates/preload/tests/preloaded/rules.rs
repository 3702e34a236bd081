//! Tests of documented behaviour, and of the environment variables.

use std::path::{Path, PathBuf};

use hugepilot_testkit::{compiled, need, requires};

use super::Preloaded;

fn rules() -> PathBuf {
    compiled(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/preloaded/rules.c"))
}

#[test]
fn the_rules_of_malloc_are_kept() {
    requires!(need::c_compiler());
    for pages in ["thp,base", "base", "thp:50%,base"] {
        let mut rules = Preloaded::new(rules(), &[]);
        rules.command.env("HUGEPILOT_PAGES", pages);
        let (printed, report) = rules.run();
        assert_eq!((printed.as_str(), report["pages"].as_str()), ("kept\n", Some(pages)));
    }
}

/// Checks the test itself: the C library follows the same rules.
#[test]
fn the_c_library_keeps_the_same_rules() {
    requires!(need::c_compiler());
    let output = std::process::Command::new(rules()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "kept\n");
}

/// Forks beside a thread that may hold a lock of the C library while it allocates.
#[test]
fn fork_does_not_deadlock_with_an_allocating_thread() {
    requires!(need::c_compiler());
    let forks = compiled(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/preloaded/forks.c"));
    let output = Preloaded::new(forks, &["3"]).output();
    assert_eq!(
        (output.status.code(), String::from_utf8_lossy(&output.stdout).as_ref()),
        (Some(0), "forked\n")
    );
}

#[test]
fn an_invalid_value_is_reported_once_and_the_default_used() {
    for pages in ["huge", "thp,thp", "hugetlb-2m,thp,base,system,collapse,hugetlb-1g,thp:20%"] {
        let mut program = Preloaded::new("/bin/ls", &["/"]);
        let output = program.command.env("HUGEPILOT_PAGES", pages).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success());
        assert!(said.starts_with("hugepilot: HUGEPILOT_PAGES: ") && said.contains(pages), "{said}");
        assert!(said.ends_with("; using thp,base\n") && said.lines().count() == 1, "{said}");
        assert_eq!(program.report()["pages"], "thp,base");
    }
    // Only the first process of a tree prints it.
    let mut shell = Preloaded::new("/bin/sh", &["-c", "ls / >/dev/null; sh -c 'ls /; true'; true"]);
    let output = shell.command.env("HUGEPILOT_PAGES", "huge").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1, "{output:?}");
}

#[test]
fn the_report_goes_to_its_file_or_the_error_is_printed() {
    requires!(need::program("git"));
    let mut program = Preloaded::new("git", &["--version"]);
    let output = program.command.env("HUGEPILOT_STATS", "1").output().unwrap();
    assert!(
        String::from_utf8_lossy(&output.stderr)
            .starts_with("{\"schema\":\"hugepilot.preload/2\",\"program\":\"git\",\"pid\":")
    );
    let output = program.command.env("HUGEPILOT_STATS", "/no/such/folder/file").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("hugepilot: HUGEPILOT_STATS=/no/such/folder/file: "), "{said}");
    for none in ["", "0"] {
        let output = program.command.env("HUGEPILOT_STATS", none).output().unwrap();
        assert_eq!(output.stderr.len(), 0);
    }
}

#[test]
fn a_missing_pool_is_skipped_and_reported() {
    let mut program = Preloaded::new("/bin/ls", &["/"]);
    program.command.env("HUGEPILOT_PAGES", "hugetlb-1g,base");
    let (_, report) = program.run();
    // If this machine has such pages to spare, no backing was refused.
    assert!(
        ["pool_empty", "no_pool"].contains(&report["refused"]["code"].as_str().unwrap_or_default())
            || report["usage"]["hugetlb_1g_bytes"].as_u64() > Some(0),
        "{report}"
    );
}
