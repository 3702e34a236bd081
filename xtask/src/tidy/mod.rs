//! The rules of the house that no compiler checks. Each has a file here.
//!
//! The tree is read once; the rules are pure and see only texts and names.

mod code;
mod documents;
mod layers;
mod length;
mod purity;
mod tree;
mod unsafety;

use std::fmt;
use std::path::Path;

use anyhow::{Result, ensure};

use tree::Tree;

/// Checks the tree at `root`, and prints what is wrong with it.
pub(crate) fn run(root: &Path) -> Result<()> {
    let report = check(&Tree::read(root)?);
    for note in &report.notes {
        println!("note: {note}");
    }
    for finding in &report.findings {
        eprintln!("{finding}");
    }
    ensure!(report.findings.is_empty(), "tidy: {} findings", report.findings.len());
    println!("tidy: no findings");
    Ok(())
}

fn check(tree: &Tree) -> Report {
    let mut report = Report::default();
    for (path, text) in tree.texts_ending(".rs") {
        length::check(path, text, &mut report);
        unsafety::check(path, text, &mut report);
        purity::check(path, text, &mut report);
    }
    for (path, text) in tree.texts_ending("/Cargo.toml") {
        layers::check(path, text, &mut report);
    }
    documents::check(tree, &mut report);
    report
}

/// What the rules found.
#[derive(Debug, Default)]
struct Report {
    /// Must be put right.
    findings: Vec<Finding>,
    /// Worth a look.
    notes: Vec<Finding>,
}

impl Report {
    fn finding(&mut self, place: impl Into<String>, what: impl Into<String>) {
        self.findings.push(Finding { place: place.into(), what: what.into() });
    }
    fn note(&mut self, place: impl Into<String>, what: impl Into<String>) {
        self.notes.push(Finding { place: place.into(), what: what.into() });
    }
    /// As the tests compare them.
    #[cfg(test)]
    fn lines(&self) -> Vec<String> {
        self.findings.iter().map(Finding::to_string).collect()
    }
}

/// Where, and what.
#[derive(Debug)]
struct Finding {
    place: String,
    what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// The crate that a path lies in (`crates/NAME/…`, or `xtask`), and the rest of the path.
fn crate_of(path: &str) -> Option<(&str, &str)> {
    match path.strip_prefix("crates/") {
        Some(rest) => rest.split_once('/'),
        None => path.strip_prefix("xtask/").map(|rest| ("xtask", rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tidy_tree_has_no_findings() {
        let tree = Tree::of(&[
            ("Cargo.toml", "[workspace.package]\nrust-version = \"1.88\"\n"),
            ("README.md", "Needs Rust 1.88. See [units](crates/units/src/lib.rs).\n"),
            ("crates/units/Cargo.toml", "[dependencies]\nserde.workspace = true\n"),
            ("crates/units/src/lib.rs", "//! Units.\n#![forbid(unsafe_code)]\n"),
        ]);
        let report = check(&tree);
        assert_eq!(report.lines(), [""; 0]);
        assert!(report.notes.is_empty());
    }

    #[test]
    fn every_rule_is_asked() {
        let long = "//\n".repeat(801);
        let tree = Tree::of(&[
            ("Cargo.toml", "rust-version = \"1.88\"\n"),
            ("README.md", "Needs Rust 1.76.\n"),
            ("docs/a.md", "[gone](b.md)\n"),
            ("crates/units/Cargo.toml", "[dependencies]\nhugepilot-cli.workspace = true\n"),
            ("crates/units/src/lib.rs", "use std::fs;\n"),
            ("crates/cli/src/long.rs", &long),
        ]);
        assert_eq!(check(&tree).findings.len(), 6);
    }

    #[test]
    fn paths_name_their_crate() {
        assert_eq!(crate_of("crates/units/src/lib.rs"), Some(("units", "src/lib.rs")));
        assert_eq!(crate_of("xtask/src/main.rs"), Some(("xtask", "src/main.rs")));
        assert_eq!(crate_of("docs/a.rs"), None);
    }
}
