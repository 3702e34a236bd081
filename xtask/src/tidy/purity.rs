//! Pure crates: they never open a path, read a clock, spawn a process or print. So a recording of
//! one machine can be studied on any other. Their tests may do all of this.

use std::collections::BTreeSet;

use super::code::{code_only, is_test_file, line_at, lines_with, without_tests};
use super::{Report, crate_of};

const PURE: [&str; 9] =
    ["units", "stats", "record", "render", "reports", "events", "policy", "recording", "sim"];

/// Paths that a pure crate does not name.
const PATHS: [&str; 8] = [
    "std::fs",
    "std::net",
    "std::process",
    "std::time::Instant",
    "std::time::SystemTime",
    "std::io::stdin",
    "std::io::stdout",
    "std::io::stderr",
];

/// Other words that it does not use.
const WORDS: [&str; 7] =
    ["print!", "println!", "eprint!", "eprintln!", "dbg!", "Instant::now", "SystemTime::now"];

pub(super) fn check(path: &str, text: &str, report: &mut Report) {
    let Some((name, inner)) = crate_of(path) else { return };
    if !PURE.contains(&name) || !inner.starts_with("src/") || is_test_file(path) {
        return;
    }
    for (line, what) in impurities(&without_tests(&code_only(text))) {
        report.finding(format!("{path}:{line}"), format!("{what} in {name}, which only computes"));
    }
}

fn impurities(code: &str) -> BTreeSet<(usize, &'static str)> {
    let mut found = BTreeSet::new();
    for word in PATHS.into_iter().chain(WORDS) {
        found.extend(lines_with(code, word).map(|line| (line, word)));
    }
    for (line, import) in imports(code) {
        found
            .extend(PATHS.into_iter().filter(|path| names(&import, path)).map(|path| (line, path)));
    }
    found
}

/// Whether importing `import` gives access to `path`: is it, lies in it, or takes everything around
/// it.
fn names(import: &str, path: &str) -> bool {
    let inside = |whole: &str, part: &str| {
        part.strip_prefix(whole).is_some_and(|rest| rest.starts_with("::"))
    };
    import == path
        || inside(path, import)
        || import.strip_suffix("::*").is_some_and(|all| inside(all, path))
}

/// Every path that a `use` brings in, with the line of the `use`; `{…}` is spelt out.
fn imports(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("use ") {
        let starts_item = code[..at]
            .chars()
            .next_back()
            .is_none_or(|c| c.is_whitespace() || c == ';' || c == '}');
        if let (true, Some(end)) = (starts_item, code[at..].find(';')) {
            let tree: String =
                code[at + 4..at + end].split_whitespace().collect::<Vec<_>>().join(" ");
            let mut paths = Vec::new();
            spell_out("", &tree, &mut paths);
            found.extend(paths.into_iter().map(|path| (line_at(code, at), path)));
        }
    }
    found
}

/// Adds the paths of `tree` below `prefix`: `a::{b, c::d}` becomes `a::b` and `a::c::d`.
fn spell_out(prefix: &str, tree: &str, paths: &mut Vec<String>) {
    let tree = tree.trim();
    if let Some((head, inner)) = tree.split_once('{') {
        let prefix = format!("{prefix}{}", head.trim());
        let inner = inner.strip_suffix('}').unwrap_or(inner);
        for part in split_outside_braces(inner) {
            spell_out(&prefix, part, paths);
        }
    } else if !tree.is_empty() {
        let name = tree.split(" as ").next().unwrap_or(tree).trim();
        let path = format!("{prefix}{name}");
        let path = path.strip_suffix("::self").unwrap_or(&path).trim_start_matches("::");
        paths.push(path.to_owned());
    }
}

fn split_outside_braces(list: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[start..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> usize {
        let mut report = Report::default();
        check(path, text, &mut report);
        report.findings.len()
    }

    #[test]
    fn imports_are_spelt_out() {
        let paths: Vec<_> =
            imports("use std::{fs::{self, File}, time::Duration as D};\npub use a::b;\nreuse c;")
                .into_iter()
                .map(|(_, path)| path)
                .collect();
        assert_eq!(paths, ["std::fs", "std::fs::File", "std::time::Duration", "a::b"]);
    }

    #[test]
    fn what_is_impure_is_found_however_it_is_written() {
        for code in [
            "use std::fs;",
            "use std::fs::File;",
            "use std::{fmt, fs};",
            "use std::{\n    fmt,\n    process::Command,\n};",
            "use std::time::{Duration, Instant};",
            "use std::time::*;",
            "fn f() { let _ = ::std::fs::read(\"x\"); }",
            "fn f() { println!(\"{}\", 1); }",
            "fn f() { time::Instant::now(); }",
            "use std::io::{self, stdout};",
        ] {
            assert!(!impurities(code).is_empty(), "{code}");
        }
    }

    #[test]
    fn what_is_pure_is_not() {
        for code in [
            "use std::time::Duration;",
            "use std::fmt::*;",
            "use std::{io, mem};",
            "fn pprintln() {}",
        ] {
            assert_eq!(impurities(code), BTreeSet::new(), "{code}");
        }
    }

    #[test]
    fn only_pure_crates_and_no_tests_are_looked_at() {
        let code = "use std::fs;\n#[cfg(test)]\nmod tests {\n    use std::net;\n}\n";
        assert_eq!(findings("crates/policy/src/a.rs", code), 1);
        assert_eq!(findings("crates/kernel/src/a.rs", code), 0);
        assert_eq!(findings("crates/policy/tests/a.rs", code), 0);
        assert_eq!(findings("crates/policy/src/plan/tests.rs", code), 0);
        assert_eq!(findings("crates/policy/src/a.rs", "// println! and std::fs\n"), 0);
    }
}
