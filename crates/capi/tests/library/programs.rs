//! Test programs in C and C++: by each compiler and standard, with each way of linking, under sanitizers.

use std::process::Command;

use hugepilot_testkit::requires;

use crate::built::{Compiler, Link, folder, run, source};

const GCC: Compiler = Compiler { program: "gcc", standard: "c11" };
const CLANG: Compiler = Compiler { program: "clang", standard: "c11" };
const GXX: Compiler = Compiler { program: "g++", standard: "c++17" };
const CLANGXX: Compiler = Compiler { program: "clang++", standard: "c++17" };

const SANITIZED: [&str; 2] = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

/// Compiles one of the programs beside this file, runs it, and returns what it printed.
#[track_caller]
fn checked(compiler: Compiler, name: &str, link: Link, sanitizers: &[&str]) -> String {
    let folder = folder();
    let built = folder.path().join("program");
    let program = source().join("tests/c").join(name);
    run(compiler.command().args(sanitizers).arg("-o").arg(&built).arg(program).args(link.args()));
    let printed = run(Command::new(&built).env("ASAN_OPTIONS", "detect_leaks=1:abort_on_error=0"));
    assert!(printed.ends_with("all checks passed\n"), "{printed}");
    printed
}

#[track_caller]
fn checked_all_ways(compiler: Compiler, name: &str) {
    checked(compiler, name, Link::Shared, &[]);
    checked(compiler, name, Link::Static, &SANITIZED);
    checked(compiler, name, Link::Shared, &SANITIZED);
}

#[test]
fn c_by_gcc() {
    requires!(GCC.there());
    checked_all_ways(GCC, "regions.c");
    checked(GCC, "exhausted.c", Link::Shared, &[]);
}

#[test]
fn c_by_clang() {
    requires!(CLANG.there());
    checked_all_ways(CLANG, "regions.c");
    checked(CLANG, "exhausted.c", Link::Static, &[]);
}

#[test]
fn cpp_by_gcc() {
    requires!(GXX.there());
    checked_all_ways(GXX, "objects.cpp");
}

#[test]
fn cpp_by_clang() {
    requires!(CLANGXX.there());
    checked_all_ways(CLANGXX, "objects.cpp");
}

/// Later standards warn about more.
#[test]
fn later_standards_take_the_headers() {
    for compiler in [GCC, CLANG] {
        requires!(compiler.there());
        checked(Compiler { standard: "c17", ..compiler }, "regions.c", Link::Shared, &[]);
    }
    for compiler in [GXX, CLANGXX] {
        requires!(compiler.there());
        checked(Compiler { standard: "c++20", ..compiler }, "objects.cpp", Link::Shared, &[]);
    }
}
