//! Documents: targets of links exist, and the Rust version is that of Cargo.toml.

use super::Report;
use super::tree::Tree;

pub(super) fn check(tree: &Tree, report: &mut Report) {
    for (path, text) in tree.texts_ending(".md") {
        for (line, target) in links(text) {
            if resolve(path, &target).is_none_or(|target| !tree.has(&target)) {
                report.finding(format!("{path}:{line}"), format!("{target} is not there"));
            }
        }
    }
    let wanted = rust_version(tree.text("Cargo.toml").unwrap_or_default());
    match (tree.text("README.md"), wanted) {
        (Some(readme), Some(wanted)) => check_version(readme, wanted, report),
        (None, _) => report.note("README.md", "is not there"),
        (_, None) => report.finding("Cargo.toml", "no rust-version"),
    }
}

fn check_version(readme: &str, wanted: &str, report: &mut Report) {
    let stated = stated_versions(readme);
    if stated.is_empty() {
        report.finding("README.md", format!("does not say that it needs Rust {wanted}"));
    }
    for (line, version) in stated {
        if version != wanted {
            report.finding(
                format!("README.md:{line}"),
                format!("Rust {version}, but Cargo.toml says {wanted}"),
            );
        }
    }
}

/// The value of `rust-version = "…"`.
fn rust_version(manifest: &str) -> Option<&str> {
    let value = manifest.lines().find_map(|line| line.trim().strip_prefix("rust-version"))?;
    value.trim_start().strip_prefix('=')?.split('"').nth(1)
}

/// Versions in `Rust 1.88`, `rustc >= 1.88`, `rust-1.88` and similar, with their lines.
fn stated_versions(text: &str) -> Vec<(usize, &str)> {
    const BETWEEN: [&str; 13] =
        ["version", "toolchain", "c ", "**", " ", "-", "_", "`", "≥", ">", "=", ":", "/"];
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let lower = line.to_ascii_lowercase(); // the same length, so positions agree
        for (at, word) in lower.match_indices("rust") {
            let mut rest = &line[at + word.len()..];
            while let Some(less) = BETWEEN.iter().find_map(|between| rest.strip_prefix(between)) {
                rest = less;
            }
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
            let version = rest[..end].trim_end_matches('.');
            if version.starts_with("1.") {
                found.push((number, version));
            }
        }
    }
    found
}

/// Targets of the relative links of a document, with their lines; code has no links.
fn links(text: &str) -> Vec<(usize, String)> {
    let (mut found, mut fenced) = (Vec::new(), false);
    for (number, line) in (1..).zip(text.lines()) {
        let trimmed = line.trim_start();
        if trimmed.starts_with("```") || trimmed.starts_with("~~~") {
            fenced = !fenced;
        } else if !fenced {
            let line = without_code(line);
            let inline = line
                .match_indices("](")
                .map(|(at, mark)| inside_parentheses(&line[at + mark.len()..]));
            let definition =
                line.strip_prefix('[').and_then(|rest| rest.split_once("]: ")).map(|(_, to)| to);
            let targets = inline.chain(definition).filter_map(target);
            found.extend(targets.map(|target| (number, target)));
        }
    }
    found
}

/// `line` without the parts between backquotes.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

/// Up to the parenthesis that closes the one before `text`.
fn inside_parentheses(text: &str) -> &str {
    let mut depth = 1;
    let close = text.find(|c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        depth == 0
    });
    &text[..close.unwrap_or(text.len())]
}

/// The path that a link's destination names, without title and anchor; `None` for other sites and
/// for anchors.
fn target(destination: &str) -> Option<String> {
    let destination = destination.trim();
    let path = match destination.strip_prefix('<') {
        Some(rest) => rest.split('>').next()?,
        None => destination.split_whitespace().next()?,
    };
    let path = path.split(['#', '?']).next()?;
    let elsewhere = path.contains("://") || path.starts_with("mailto:") || path.starts_with("//");
    (!path.is_empty() && !elsewhere).then(|| path.replace("%20", " "))
}

/// `target` as seen from the file at `from`, from the root; `None` outside it.
fn resolve(from: &str, target: &str) -> Option<String> {
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let start = if target.starts_with('/') { "" } else { folder };
    let mut parts = Vec::new();
    for part in start.split('/').chain(target.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_where_they_are_links() {
        let text = "\
See [a](a.md), [b](<b c.md> \"title\") and ![c](img/c.svg#x).
`[code](no.md)` and [site](https://example.org/x) and [here](#here)
```
[fenced](no.md)
```
[ref]: docs/d.md
[wiki](e_(f).md)
";
        let want =
            [(1, "a.md"), (1, "b c.md"), (1, "img/c.svg"), (7, "e_(f).md"), (6, "docs/d.md")];
        let mut want = want.map(|(line, path)| (line, path.to_owned()));
        want.sort();
        assert_eq!(links(text), want);
    }

    #[test]
    fn links_are_resolved_from_their_file() {
        let table = [
            ("README.md", "docs/a.md", Some("docs/a.md")),
            ("docs/a.md", "../README.md", Some("README.md")),
            ("docs/a.md", "./b/", Some("docs/b")),
            ("docs/a.md", "/LICENSE", Some("LICENSE")),
            ("docs/a.md", "..", Some("")),
            ("docs/a.md", "../../x", None),
        ];
        for (from, to, want) in table {
            assert_eq!(resolve(from, to).as_deref(), want, "{from} {to}");
        }
    }

    #[test]
    fn a_missing_target_is_a_finding() {
        let tree =
            Tree::of(&[("docs/a.md", "[x](b.md)\n[y](c.md)\n[z](../docs)\n"), ("docs/b.md", "")]);
        let mut report = Report::default();
        check(&tree, &mut report);
        assert_eq!(report.lines(), ["docs/a.md:2: c.md is not there"]);
    }

    #[test]
    fn versions_are_found_as_people_write_them() {
        assert_eq!(rust_version("[package]\nrust-version = \"1.88\" # why\n"), Some("1.88"));
        for text in [
            "Rust 1.88",
            "rustc >= 1.88.",
            "badge/rust-1.88%2B",
            "Rust **1.88**",
            "Rust version: `1.88`",
        ] {
            assert_eq!(stated_versions(text), [(1, "1.88")], "{text}");
        }
        assert_eq!(stated_versions("Rust allocators save 1.5 GiB. Trust 11 of 12."), []);
    }

    #[test]
    fn the_readme_says_the_version_of_the_manifest() {
        let lines = |readme| {
            let mut report = Report::default();
            check(
                &Tree::of(&[("Cargo.toml", "rust-version = \"1.88\"\n"), ("README.md", readme)]),
                &mut report,
            );
            report.lines()
        };
        assert_eq!(lines("Rust 1.88"), [""; 0]);
        assert_eq!(lines("\nRust 1.76"), ["README.md:2: Rust 1.76, but Cargo.toml says 1.88"]);
        assert_eq!(lines("C only"), ["README.md: does not say that it needs Rust 1.88"]);
    }
}
