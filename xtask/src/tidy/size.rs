//! Crate size: 8,000 lines of code without tests.

use std::collections::BTreeMap;

use super::code::{code_only, is_test_file, test_lines};
use super::tree::Tree;
use super::{Report, crate_of};

/// Lines of a crate at most, comments included.
const LIMIT: usize = 8_000;

/// Crates without a limit: an engine with many algorithms stays one crate, and so do commands of
/// which each is a folder of its own, interfaces of Linux, records and reports of which each is a
/// file.
const EXEMPT: [&str; 6] = ["cli", "graph", "kernel", "record", "report", "xtask"];

/// Reports crates that are too large.
pub(super) fn check(tree: &Tree, report: &mut Report) {
    let mut sizes = BTreeMap::<&str, usize>::new();
    for (path, text) in tree.texts_ending(".rs") {
        let Some((name, inner)) = crate_of(path) else { continue };
        if inner.starts_with("src/") && !is_test_file(path) {
            *sizes.entry(name).or_default() += lines(text);
        }
    }
    for (name, size) in sizes {
        if size > LIMIT && !EXEMPT.contains(&name) {
            let path = format!("crates/{name}/");
            let message = format!("{size} lines without tests; at most {LIMIT}");
            report.finding(&*path, message);
        }
    }
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
    fn tests_do_not_count() {
        assert_eq!(lines("a\n#[cfg(test)]\nmod tests {\n}\nb\n"), 2);
        let long = "//\n".repeat(LIMIT + 1);
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", &long),
            ("crates/b/src/tests.rs", &long),
            ("crates/c/tests/live.rs", &long),
            ("crates/graph/src/lib.rs", &long),
        ]);
        let mut report = Report::default();
        check(&tree, &mut report);
        assert_eq!(report.lines(), ["crates/a/: 8001 lines without tests; at most 8000"]);
    }
}
