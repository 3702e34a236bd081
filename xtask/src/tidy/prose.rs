//! Prose of source files and documents: comments, strings and text outside code.

use super::code::{Kind, Piece, code_only, is_test_file, pieces, test_lines};

/// A comment, a string or a document, without the marks of its syntax.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Passage {
    /// Line of the file, from 1, on which it starts.
    pub(super) line: usize,
    /// Text, line by line as in the file; code between backquotes or fences is blanked.
    pub(super) text: String,
    /// Whether it is a doc comment.
    pub(super) is_doc: bool,
}

impl Passage {
    fn new(line: usize, text: &str) -> Self {
        Self { line, text: text.to_owned(), is_doc: false }
    }
}

/// The prose of the file at `path`: of Rust also the strings outside tests.
pub(super) fn passages(path: &str, text: &str) -> Vec<Passage> {
    let mut passages = match path.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "md" => vec![Passage::new(1, text)],
        "rs" => {
            let pieces = pieces(text);
            let mut passages = comments(&pieces);
            if !is_test_file(path) {
                passages.extend(strings(text, &pieces));
            }
            passages
        }
        "h" | "hpp" | "c" | "cpp" => comments(&pieces(text)),
        "toml" | "sh" => hash_comments(text),
        _ => Vec::new(),
    };
    for passage in &mut passages {
        passage.text = without_code(&passage.text);
    }
    passages
}

/// The comments among `pieces`. Line comments with the same marker on adjacent lines are one.
fn comments(pieces: &[Piece]) -> Vec<Passage> {
    const MARKERS: [&str; 6] = ["///", "//!", "//", "/**", "/*!", "/*"];
    let mut passages: Vec<Passage> = Vec::new();
    let mut last = ("", 0);
    for piece in pieces.iter().filter(|piece| piece.kind == Kind::Comment) {
        let marked = |marker: &&&str| piece.text.starts_with(**marker);
        let marker = MARKERS.iter().find(marked).copied().unwrap_or_default();
        let body = &piece.text[marker.len()..];
        let is_block = marker.starts_with("/*");
        let continues = last == (marker, piece.line) && !is_block && !piece.follows_code;
        match passages.last_mut() {
            Some(passage) if continues => {
                passage.text.push('\n');
                passage.text.push_str(body);
            }
            _ => {
                let body = if is_block { block_text(body) } else { body.to_owned() };
                let is_doc = marker.len() > 2;
                passages.push(Passage { line: piece.line, text: body, is_doc });
            }
        }
        last = (marker, piece.line + 1);
    }
    passages
}

/// The text of a block comment without its end and without the asterisks that start lines.
fn block_text(body: &str) -> String {
    let body = body.strip_suffix("*/").unwrap_or(body);
    let line = |line: &str| line.trim_start().trim_start_matches('*').to_owned();
    body.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// The strings among `pieces` that no test holds.
fn strings(source: &str, pieces: &[Piece]) -> Vec<Passage> {
    let tests = test_lines(&code_only(source));
    let is_prose = |piece: &&Piece| {
        piece.kind == Kind::String && !tests.iter().any(|lines| lines.contains(&piece.line))
    };
    let passage = |piece: &Piece| Passage::new(piece.line, &string_text(&piece.text));
    pieces.iter().filter(is_prose).map(passage).collect()
}

/// The contents of a string literal; escapes become spaces.
fn string_text(literal: &str) -> String {
    if literal.starts_with('r') {
        return literal.trim_start_matches(['r', '#']).trim_matches(['#', '"']).to_owned();
    }
    let (mut text, mut chars) = (String::new(), literal.trim_matches('"').chars());
    while let Some(c) = chars.next() {
        match c {
            '\\' => text.push(if chars.next() == Some('\n') { '\n' } else { ' ' }),
            c => text.push(c),
        }
    }
    text
}

/// The comments of TOML and shell: from a `#` that starts a word, outside quotes.
fn hash_comments(text: &str) -> Vec<Passage> {
    let mut passages: Vec<Passage> = Vec::new();
    let mut next = 0;
    for (number, line) in (1..).zip(text.lines()) {
        let Some(at) = hash(line) else { continue };
        let continues = next == number && line[..at].trim().is_empty();
        match passages.last_mut() {
            Some(passage) if continues => {
                passage.text.push('\n');
                passage.text.push_str(&line[at + 1..]);
            }
            _ => passages.push(Passage::new(number, &line[at + 1..])),
        }
        next = number + 1;
    }
    passages
}

fn hash(line: &str) -> Option<usize> {
    let (mut quote, mut before) = (None, ' ');
    for (at, c) in line.char_indices() {
        match (quote, c) {
            (None, '#') if before.is_whitespace() => return Some(at),
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            _ => {}
        }
        before = c;
    }
    None
}

/// Flags the lines of a document that belong to fenced code.
pub(super) fn fenced_lines(text: &str) -> Vec<bool> {
    let mut fenced = false;
    let is_fenced = |line: &str| {
        let line = line.trim_start();
        let is_fence = line.starts_with("```") || line.starts_with("~~~");
        fenced ^= is_fence;
        fenced || is_fence
    };
    text.lines().map(is_fenced).collect()
}

/// `text` with fenced code and code between backquotes blanked; lines keep their numbers.
fn without_code(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    for (line, fenced) in text.lines().zip(fenced_lines(text)) {
        kept.push_str(if fenced { "" } else { line });
        kept.push('\n');
    }
    without_spans(&kept)
}

/// `text` with each code span replaced by one backquote and the line breaks in it.
fn without_spans(text: &str) -> String {
    let (mut kept, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(open) = rest.find('`') {
        let len = rest[open..].len() - rest[open..].trim_start_matches('`').len();
        let (mark, after) = rest[open..].split_at(len);
        kept.push_str(&rest[..open]);
        kept.push('`');
        rest = after;
        if let Some(close) = closing(after, mark) {
            kept.extend(after[..close].matches('\n'));
            rest = &after[close + len..];
        }
    }
    kept + rest
}

/// The position of the backquotes that close a span opened by `mark`, in the same paragraph.
fn closing(text: &str, mark: &str) -> Option<usize> {
    let paragraph = text.find("\n\n").map_or(text, |end| &text[..end]);
    let mut at = 0;
    while let Some(start) = paragraph[at..].find('`').map(|found| at + found) {
        let run = &paragraph[start..];
        let len = run.len() - run.trim_start_matches('`').len();
        if len == mark.len() {
            return Some(start);
        }
        at = start + len;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str, text: &str) -> Vec<(usize, String)> {
        passages(path, text).into_iter().map(|it| (it.line, it.text)).collect()
    }

    fn of(list: &[(usize, &str)]) -> Vec<(usize, String)> {
        list.iter().map(|&(line, text)| (line, text.to_owned())).collect()
    }

    #[test]
    fn adjacent_comments_are_one_passage() {
        let source =
            "//! A\n//! b.\n\n/// C\nfn f() {} // d\n          // e\ng(); // f\n/* g\n * h */";
        let want = [(1, " A\n b.\n"), (4, " C\n"), (5, " d\n e\n"), (7, " f\n"), (8, "g\n h \n")];
        assert_eq!(read("a.rs", source), of(&want));
        let docs: Vec<_> = passages("a.rs", source).iter().map(|it| it.is_doc).collect();
        assert_eq!(docs, [true, true, false, false, false]);
    }

    #[test]
    fn strings_outside_tests_are_prose() {
        let source = "f(\"a \\\n   b\\tc\", r#\"d\"#);\n#[cfg(test)]\nmod tests { \"e\" }\n";
        assert_eq!(read("a.rs", source), of(&[(1, "a \n   b c\n"), (2, "d\n")]));
        assert_eq!(read("crates/a/tests/live.rs", source), []);
        assert_eq!(read("a.c", "f(\"a\"); // b"), of(&[(1, " b\n")]));
    }

    #[test]
    fn hashes_start_comments() {
        let text = "# a\n# b\nkey = \"#x\" # c\n\n    # d\nx=$#\n";
        assert_eq!(read("a.toml", text), of(&[(1, " a\n b\n"), (3, " c\n"), (5, " d\n")]));
        assert_eq!(read("a.png", text), []);
    }

    #[test]
    fn code_is_blanked() {
        let table = [
            ("a `b` c", "a ` c\n"),
            ("a `b\nc` d", "a `\n d\n"),
            ("a `b\n\nc` d", "a `b\n\nc` d\n"),
            ("``a ` b`` c", "` c\n"),
            ("a\n```sh\nb\n```\nc", "a\n\n\n\nc\n"),
        ];
        for (text, want) in table {
            assert_eq!(without_code(text), want, "{text}");
        }
    }
}
