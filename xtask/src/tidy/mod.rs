//! Project rules that no compiler checks. Each has a file here.
//!
//! The tree is read once. The rules are pure: texts and names in, findings out.

mod code;
mod columns;
mod documents;
mod layers;
mod prose;
mod purity;
mod size;
mod tree;
mod unsafety;
mod words;

use std::fmt;
use std::path::Path;

use anyhow::{Result, ensure};

use tree::Tree;

/// Checks the tree at `root`, and prints the findings.
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

/// Applies all rules.
fn check(tree: &Tree) -> Report {
    let mut report = Report::default();
    for (path, text) in tree.texts() {
        words::check(path, text, &mut report);
        columns::check(path, text, &mut report);
    }
    for (path, text) in tree.texts_ending(".rs") {
        unsafety::check(path, text, &mut report);
        purity::check(path, text, &mut report);
    }
    for (path, text) in tree.texts_ending("/Cargo.toml") {
        layers::check(path, text, &mut report);
    }
    size::check(tree, &mut report);
    documents::check(tree, &mut report);
    report
}

/// Findings of the rules.
#[derive(Debug, Default)]
struct Report {
    /// Violations; any fails the check.
    findings: Vec<Finding>,
    /// Remarks that fail nothing.
    notes: Vec<Finding>,
}

impl Report {
    fn finding(&mut self, place: impl Into<String>, what: impl Into<String>) {
        self.findings.push(Finding { place: place.into(), what: what.into() });
    }

    fn note(&mut self, place: impl Into<String>, what: impl Into<String>) {
        self.notes.push(Finding { place: place.into(), what: what.into() });
    }

    /// Findings in the form that tests compare.
    #[cfg(test)]
    fn lines(&self) -> Vec<String> {
        self.findings.iter().map(Finding::to_string).collect()
    }
}

/// Violation or remark.
#[derive(Debug)]
struct Finding {
    /// Path, with a line if there is one.
    place: String,
    /// Description.
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
        assert_eq!(report.notes.len(), 1, "the sizes");
    }

    #[test]
    fn every_rule_is_applied() {
        let wide = format!("// told {}\n", "a".repeat(100));
        let tree = Tree::of(&[
            ("Cargo.toml", "rust-version = \"1.88\"\n"),
            ("README.md", "Needs Rust 1.76.\n"),
            ("docs/a.md", "[gone](b.md)\n"),
            ("crates/units/Cargo.toml", "[dependencies]\nhugepilot-cli.workspace = true\n"),
            ("crates/units/src/lib.rs", "use std::fs;\n"),
            ("crates/sim/src/wide.rs", &wide),
        ]);
        assert_eq!(check(&tree).findings.len(), 7);
    }

    #[test]
    fn paths_name_their_crate() {
        assert_eq!(crate_of("crates/units/src/lib.rs"), Some(("units", "src/lib.rs")));
        assert_eq!(crate_of("xtask/src/main.rs"), Some(("xtask", "src/main.rs")));
        assert_eq!(crate_of("docs/a.rs"), None);
    }
}
