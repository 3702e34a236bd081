//! Sizes, as notes: lines of Rust by crate, and the longest files.

use std::collections::BTreeMap;

use super::code::{code_only, is_test_file, test_lines};
use super::tree::Tree;
use super::{Report, crate_of};

/// Crates and files that a note names.
const SHOWN: usize = 5;

/// Notes the lines of all crates, and the largest crates and files, without tests.
pub(super) fn check(tree: &Tree, report: &mut Report) {
    let (mut crates, mut files, mut all) = (BTreeMap::<&str, usize>::new(), Vec::new(), 0);
    for (path, text) in tree.texts_ending(".rs") {
        all += text.lines().count();
        let Some((name, inner)) = crate_of(path) else { continue };
        if inner.starts_with("src/") && !is_test_file(path) {
            let lines = lines(text);
            *crates.entry(name).or_default() += lines;
            files.push((lines, path));
        }
    }
    let crates = crates.into_iter().map(|(name, lines)| (lines, name)).collect();
    let [crates, files] = [crates, files].map(largest);
    report.note("size", format!("{all} lines of Rust; without tests: {crates}; {files}"));
}

fn largest(mut sizes: Vec<(usize, &str)>) -> String {
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let named = sizes.iter().take(SHOWN).map(|(lines, name)| format!("{name} {lines}"));
    named.collect::<Vec<_>>().join(", ")
}

/// Lines of a file without those of its tests.
fn lines(text: &str) -> usize {
    let tests = test_lines(&code_only(text));
    text.lines().count() - tests.into_iter().map(|lines| lines.len()).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_count_in_the_sum_only() {
        assert_eq!(lines("a\n#[cfg(test)]\nmod tests {\n}\nb\n"), 2);
        let long = "//\n".repeat(100);
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", &long),
            ("crates/b/src/tests.rs", &long),
            ("crates/c/tests/live.rs", &long),
            ("crates/b/src/lib.rs", "//\n"),
        ]);
        let mut report = Report::default();
        check(&tree, &mut report);
        let expected = "size: 301 lines of Rust; without tests: a 100, b 1; crates/a/src/lib.rs \
                        100, crates/b/src/lib.rs 1";
        assert_eq!(report.notes[0].to_string(), expected);
        assert!(report.findings.is_empty());
    }
}
