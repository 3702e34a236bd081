//! Tests of the header against the library.

use std::collections::BTreeSet;
use std::fs;
use std::mem::offset_of;
use std::process::Command;

use hugepilot::{Code, RawCollapseOutcome, RawOptions, RawPageUsage, RawStats};
use hugepilot_testkit::{need, requires};

use crate::built::{Compiler, Link, folder, prefix, run, source};

fn header() -> String {
    fs::read_to_string(source().join("include/hugepilot.h")).unwrap()
}

/// Returns the header without its comments.
fn code() -> String {
    let (mut code, text) = (String::new(), header());
    let mut rest = text.as_str();
    while let Some((before, comment)) = rest.split_once("/*") {
        code += before;
        rest = comment.split_once("*/").expect("a comment ends").1;
    }
    code + rest
}

/// Returns the declared functions: names before a parenthesis with the library's prefix.
fn declared() -> BTreeSet<String> {
    let code = code();
    let before = code.split('(').filter_map(|part| part.split([' ', '*', '\n']).next_back());
    before.filter(|name| name.starts_with("hugepilot_")).map(str::to_owned).collect()
}

#[test]
fn the_library_exports_what_the_header_declares_and_nothing_else() {
    requires!(need::program("nm"));
    let symbols = run(Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(prefix().join("lib/libhugepilot.so")));
    let exported: BTreeSet<_> = symbols
        .lines()
        .filter_map(|line| Some(line.split_whitespace().nth(2)?.to_owned()))
        .collect();
    let declared = declared();
    assert!(declared.contains("hugepilot_region_map") && declared.len() > 20, "{declared:?}");
    assert_eq!(
        declared.difference(&exported).collect::<Vec<_>>(),
        [""; 0],
        "declared, not exported"
    );
    assert_eq!(
        exported.difference(&declared).collect::<Vec<_>>(),
        [""; 0],
        "exported, not declared"
    );
}

#[test]
fn the_shared_library_carries_the_number_of_the_abi() {
    requires!(need::program("readelf"));
    let name = format!("[libhugepilot.so.{}]", hugepilot::hugepilot_abi());
    let read = run(Command::new("readelf").arg("-d").arg(prefix().join("lib/libhugepilot.so")));
    let line = read.lines().find(|line| line.contains("(SONAME)")).unwrap();
    assert!(line.ends_with(&name), "{line}");
}

#[test]
fn the_version_is_that_of_the_crate() {
    let line = format!("#define HUGEPILOT_VERSION \"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(header().lines().any(|text| text == line), "{line}");
}

#[test]
fn the_numbers_of_the_errors_are_those_of_the_library() {
    let code = code();
    let number = |line: &str| {
        let (name, number) = line.trim().trim_end_matches(',').split_once(" = ")?;
        Some((
            name.strip_prefix("HUGEPILOT_")?.replace('_', "").to_lowercase(),
            number.parse::<i32>().ok()?,
        ))
    };
    let body = code.split_once("enum hugepilot_error {").unwrap().1.split_once('}').unwrap().0;
    let there: Vec<_> = body.lines().filter_map(number).collect();
    let ours = Code::ALL.map(|(code, _)| (format!("{code:?}").to_lowercase(), code as i32));
    assert_eq!(there, ours);
}

fn size_of_field<T, F>(_: impl Fn(&T) -> &F) -> usize {
    size_of::<F>()
}

/// Compares the layouts of structures by C's compiler and by Rust's.
#[test]
fn structures_are_laid_out_alike() {
    let cc = Compiler { program: "gcc", standard: "c11" };
    requires!(cc.there());
    let mut ours = Vec::new();
    let mut program =
        String::from("#include <hugepilot.h>\n#include <stdio.h>\nint main(void) {\n");
    macro_rules! layout {
        ($rust:ty, $c:literal, $($field:ident)*) => {
            program += concat!("printf(\"%zu\\n\", sizeof(", $c, "));\n");
            ours.push(size_of::<$rust>());
            $(
                let field = concat!($c, ", ", stringify!($field));
                program += &format!("printf(\"%zu\\n\", offsetof({field}));\n");
                ours.push(offset_of!($rust, $field));
                let field = concat!("((", $c, " *)0)->", stringify!($field));
                program += &format!("printf(\"%zu\\n\", sizeof({field}));\n");
                ours.push(size_of_field(|whole: &$rust| &whole.$field));
            )*
        };
    }
    layout!(RawOptions, "hugepilot_options", size chain align_bytes name numa fork);
    layout!(RawPageUsage, "hugepilot_usage", base_bytes thp_bytes hugetlb_2m_bytes
        hugetlb_1g_bytes zero_bytes swapped_bytes untouched_bytes);
    layout!(RawCollapseOutcome, "hugepilot_collapse_outcome", before_bytes after_bytes empty_bytes
        refused_bytes last_errno);
    layout!(RawStats, "hugepilot_stats", allocated_bytes held_bytes idle_bytes returned_bytes
        mapped_bytes);
    program += "}\n";
    let folder = folder();
    let (source, built) = (folder.path().join("layout.c"), folder.path().join("layout"));
    fs::write(&source, program).unwrap();
    run(cc.command().arg("-o").arg(&built).arg(&source).args(Link::Shared.args()));
    let printed = run(&mut Command::new(&built));
    let theirs: Vec<usize> = printed.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(theirs, ours);
}
