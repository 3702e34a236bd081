//! Programs in documents, compiled and run unchanged.

use std::fs;
use std::process::Command;

use hugepilot_testkit::requires;

use crate::built::{Compiler, Link, folder, run, source};

/// Returns the fenced blocks of `language` in a document.
fn blocks(document: &str, language: &str) -> Vec<String> {
    let text = fs::read_to_string(source().join("../..").join(document)).unwrap();
    let fence = format!("```{language}\n");
    text.split(fence.as_str())
        .skip(1)
        .filter_map(|rest| Some(rest.split_once("```")?.0.to_owned()))
        .collect()
}

#[test]
fn the_program_of_the_guide_runs() {
    let gxx = Compiler { program: "g++", standard: "c++17" };
    requires!(gxx.there());
    let programs = blocks("docs/guide.md", "cpp");
    assert_eq!(programs.len(), 1, "{programs:?}");
    let folder = folder();
    let (file, built) = (folder.path().join("readme.cpp"), folder.path().join("readme"));
    fs::write(&file, &programs[0]).unwrap();
    run(gxx.command().arg(&file).arg("-o").arg(&built).args(Link::Shared.args()));
    let printed = run(&mut Command::new(&built));
    assert!(printed.contains("bytes on huge pages"), "{printed}");
}
