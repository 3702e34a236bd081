//! Line width: 100 columns for code, comments and the prose of documents.

use super::Report;
use super::code::{Kind, pieces};
use super::prose::fenced_lines;

/// Columns of a line at most; rustfmt has the same limit.
const LIMIT: usize = 100;

/// Reports lines that are too wide. A line with a web address may be wider.
pub(super) fn check(path: &str, text: &str, report: &mut Report) {
    let is_document = path.ends_with(".md");
    let exempt = match path.rsplit_once('.') {
        Some((_, "md")) => document_exemptions(text),
        Some((_, "rs")) => raw_string_lines(text),
        _ => Vec::new(),
    };
    for (index, line) in text.lines().enumerate() {
        let line = if is_document { &without_destinations(line) } else { line };
        let width = line.chars().count();
        let is_exempt = exempt.get(index) == Some(&true) || line.contains("://");
        if width > LIMIT && !is_exempt {
            report.finding(
                format!("{path}:{}", index + 1),
                format!("{width} columns; at most {LIMIT}"),
            );
        }
    }
}

/// Flags the lines of a document that are fenced code, tables, headings or targets of links.
fn document_exemptions(text: &str) -> Vec<bool> {
    let is_fixed = |line: &str| {
        line.trim_start().starts_with(['|', '#']) || line.starts_with('[') && line.contains("]: ")
    };
    text.lines().zip(fenced_lines(text)).map(|(line, fenced)| fenced || is_fixed(line)).collect()
}

/// `line` without the destinations of its links.
fn without_destinations(line: &str) -> String {
    let mut parts = line.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |kept, part| kept + part.split_once(')').map_or("", |(_, after)| after))
}

/// Flags the lines that start inside a raw string, which cannot be wrapped.
fn raw_string_lines(text: &str) -> Vec<bool> {
    let mut inside = vec![false; text.lines().count()];
    for piece in pieces(text) {
        if piece.kind == Kind::String && piece.text.starts_with('r') {
            let last = piece.line + piece.text.matches('\n').count();
            inside[piece.line..last].fill(true);
        }
    }
    inside
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        let mut report = Report::default();
        check(path, text, &mut report);
        report.lines()
    }

    #[test]
    fn a_line_has_a_hundred_columns() {
        let wide = "é".repeat(101);
        assert_eq!(findings("a.rs", &wide), ["a.rs:1: 101 columns; at most 100"]);
        assert_eq!(findings("a.toml", &format!("\n# {wide}")).len(), 1);
        assert_eq!(findings("a.md", &format!("{wide}\n")).len(), 1);
        assert_eq!(findings("a.h", &wide[2..]), [""; 0]);
        assert_eq!(findings("a.rs", &format!("// https://a.example/{wide}")), [""; 0]);
    }

    #[test]
    fn raw_strings_may_be_wider() {
        let wide = "a".repeat(101);
        assert_eq!(findings("a.rs", &format!("r\"\n{wide}\n{wide}\";\n{wide}")).len(), 1);
        assert_eq!(findings("a.rs", &format!("\"\n{wide}\"")).len(), 1);
    }

    #[test]
    fn tables_headings_code_and_links_may_be_wider() {
        let wide = "a ".repeat(51);
        for text in [
            format!("| {wide} |"),
            format!("## {wide}"),
            format!("```\n{wide}\n```"),
            format!("[a]: {wide}"),
            format!("See [this](docs/{wide})."),
        ] {
            assert_eq!(findings("a.md", &text), [""; 0], "{text}");
        }
        assert_eq!(findings("a.md", &format!("[a](b) {wide}")).len(), 1);
    }
}
