//! Tests of the examples: C with pkg-config, C++ with CMake.

use std::process::Command;

use hugepilot_testkit::{need, requires};

use crate::built::{Compiler, Link, folder, prefix, run, source};

fn examples() -> std::path::PathBuf {
    source().join("../../examples")
}

#[test]
fn the_example_in_c_reports_its_pages() {
    let cc = Compiler { program: "gcc", standard: "c11" };
    requires!(cc.there());
    let folder = folder();
    let built = folder.path().join("region");
    run(cc
        .command()
        .arg(examples().join("c/region.c"))
        .arg("-o")
        .arg(&built)
        .args(Link::Shared.args()));
    assert_eq!(
        run(Command::new(&built).args(["4", "base"])),
        "4 MiB on base, 0 MiB of it on huge pages\n"
    );
    let wrong = Command::new(&built).args(["4", "base,base"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("each once"), "{wrong:?}");
}

/// Parses a number that the example prints.
fn number(printed: &str, name: &str) -> f64 {
    let number = |line: &str| line.strip_prefix(name)?.trim().parse().ok();
    printed.lines().find_map(number).unwrap_or_else(|| panic!("no {name} in {printed}"))
}

#[test]
fn the_example_in_cpp_is_built_by_cmake_and_inserts() {
    requires!(need::all([need::program("cmake"), need::program("g++")]));
    let folder = folder();
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(examples().join("cpp")).arg("-B").arg(folder.path());
    configure.args(["-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS=-Wall -Wextra"]);
    run(configure.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix().display())));
    run(Command::new("cmake").arg("--build").arg(folder.path()));
    let example = || Command::new(folder.path().join("hash_insert"));

    // Table of 2^21 slots of 16 bytes: 32 MiB.
    let faults = ["std", "thp"].map(|allocator| {
        let printed = run(example().args(["--entries", "900000", "--allocator", allocator]));
        assert!(number(&printed, "inserts_per_second") > 1000.0, "{printed}");
        assert!(number(&printed, "seconds") > 0.0, "{printed}");
        let huge_bytes = number(&printed, "huge_bytes");
        (number(&printed, "page_faults"), huge_bytes)
    });
    eprintln!("page faults and huge bytes by std and by thp: {faults:?}");
    // Without a free huge page there is nothing to compare.
    if faults[1].1 >= 32e6 && faults[0].1 == 0.0 {
        assert!(faults[1].0 * 50.0 <= faults[0].0, "{faults:?}");
    }
    let wrong = example().args(["--allocator", "none"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    assert!(run(example().arg("--help")).starts_with("usage: hash_insert"));
}
