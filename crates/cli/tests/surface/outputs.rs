//! Real outputs against the schemas, without permissions: where one is missing, the output is an
//! error, which has a schema, too.

use std::fs;
use std::process::Command;

use crate::validation::validate;

/// Runs `hugepilot` with the words of `line`, whose JSON must be of the schema `name`.
#[track_caller]
fn prints(name: &str, line: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hugepilot"));
    let output = command.args(line.split_whitespace()).output().expect("the program starts");
    assert!(matches!(output.status.code(), Some(0..=3)), "{line}: {output:?}");
    match validate(&output.stdout) {
        Ok(found) => assert_eq!(found, name, "{line}: {output:?}"),
        Err(error) => panic!("{line}: {error}\n{output:?}"),
    }
}

#[test]
fn graph_reports() {
    for kernel in ["bfs", "sssp", "pr", "cc", "bc", "diameter", "tc"] {
        prints("graph", &format!("graph run {kernel} kronecker:6 --verify --json"));
    }
    prints("graph", "graph info uniform:6 --json --reorder dbg --width 64");
    let folder = tempfile::tempdir().unwrap();
    let [weighted, list] = ["a.wel", "a.el"].map(|name| folder.path().join(name));
    fs::write(folder.path().join("a.el.map"), "").unwrap();
    prints("graph", &format!("graph generate uniform:6:1 {} --json", weighted.display()));
    let (from, to) = (weighted.display(), list.display());
    prints("graph", &format!("graph convert {from} {to} --json"));
}

#[test]
fn errors() {
    prints("error", "graph info /nonexistent --json");
    prints("error", "graph run bfs kronecker:6 --trials 0 --json");
    prints("error", "status -p 2147483647 --json");
}
