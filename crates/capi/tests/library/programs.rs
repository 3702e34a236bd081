//! Test programs in C and C++: by each compiler and standard, with each kind of linking, under
//! sanitizers.

use std::fs;
use std::path::Path;
use std::process::Command;

use hugepilot_testkit::requires;

use crate::built::{Compiler, Link, folder, run, source};

const GCC: Compiler = Compiler { program: "gcc", standard: "c11" };
const CLANG: Compiler = Compiler { program: "clang", standard: "c11" };
const GXX: Compiler = Compiler { program: "g++", standard: "c++17" };
const CLANGXX: Compiler = Compiler { program: "clang++", standard: "c++17" };

/// Unoptimised: gcc 12 takes minutes for variable tracking with both optimisation and sanitizers.
const SANITIZED: [&str; 3] = ["-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

/// Compiles a program of `tests/c`, links it in each of these ways, and runs it.
#[track_caller]
fn checked(compiler: Compiler, name: &str, links: &[Link], sanitizers: &[&str]) {
    let folder = folder();
    let (object, built) = (folder.path().join("program.o"), folder.path().join("program"));
    let program = source().join("tests/c").join(name);
    run(compiler.command().args(sanitizers).arg("-c").arg(program).arg("-o").arg(&object));
    for link in links {
        let mut linked = Command::new(compiler.program);
        run(linked
            .args(sanitizers)
            .arg("-pthread")
            .arg(&object)
            .arg("-o")
            .arg(&built)
            .args(link.args()));
        let printed = run(&mut Command::new(&built));
        assert!(printed.ends_with("all checks passed\n"), "{printed}");
    }
}

#[track_caller]
fn checked_all_ways(compiler: Compiler, name: &str) {
    checked(compiler, name, &[Link::Shared], &[]);
    checked(compiler, name, &[Link::Static, Link::Shared], &SANITIZED);
}

#[test]
fn c_by_gcc() {
    requires!(GCC.sanitizes());
    checked_all_ways(GCC, "regions.c");
    checked(GCC, "exhausted.c", &[Link::Shared], &[]);
}

#[test]
fn c_by_clang() {
    requires!(CLANG.sanitizes());
    checked_all_ways(CLANG, "regions.c");
    checked(CLANG, "exhausted.c", &[Link::Static], &[]);
}

#[test]
fn cpp_by_gcc() {
    requires!(GXX.sanitizes());
    checked_all_ways(GXX, "objects.cpp");
    checked_all_ways(GXX, "allocators.cpp");
    checked(GXX, "exhausted.cpp", &[Link::Shared], &[]);
}

#[test]
fn cpp_by_clang() {
    requires!(CLANGXX.sanitizes());
    checked_all_ways(CLANGXX, "objects.cpp");
    checked_all_ways(CLANGXX, "allocators.cpp");
    checked(CLANGXX, "exhausted.cpp", &[Link::Static], &[]);
}

/// Checks the programs by later standards, which warn about more.
#[test]
fn later_standards_take_the_headers() {
    let takes = |compiler: Compiler, name: &str| {
        let program = source().join("tests/c").join(name);
        run(compiler.command().arg("-fsyntax-only").arg(program));
    };
    for compiler in [GCC, CLANG] {
        requires!(compiler.there());
        takes(Compiler { standard: "c17", ..compiler }, "regions.c");
    }
    for compiler in [GXX, CLANGXX] {
        requires!(compiler.there());
        let compiler = Compiler { standard: "c++20", ..compiler };
        takes(compiler, "objects.cpp");
        takes(compiler, "allocators.cpp");
    }
}

#[test]
fn a_program_marks_its_phases_in_the_file_of_a_recording() {
    requires!(GCC.there());
    let folder = folder();
    let (program, markers) = (folder.path().join("phases"), folder.path().join("markers"));
    let source = source().join("tests/c/phases.c");
    run(GCC.command().arg(source).arg("-o").arg(&program).args(Link::Shared.args()));
    let checked = |markers: Option<&Path>| {
        let mut command = Command::new(&program);
        command.env_remove("HUGEPILOT_MARKERS");
        command.envs(markers.map(|path| ("HUGEPILOT_MARKERS", path)));
        assert_eq!(run(&mut command), "all checks passed\n");
    };
    checked(None);
    checked(Some(&markers));
    assert!(!markers.exists(), "only hugepilot creates the file");
    fs::write(&markers, "").unwrap();
    checked(Some(&markers));
    assert_eq!(fs::read_to_string(&markers).unwrap(), "load it\nsolve \u{fffd}\n");
}
