//! Rust source taken apart: code, comments, strings and tests.

use std::ops::Range;

/// Syntax that is not code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `// …`, `/* … */`.
    Comment,
    /// `"…"`, `r#"…"#`.
    String,
    /// `'…'`.
    Char,
}

/// A comment, string or character with its delimiters.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) kind: Kind,
    /// Line, from 1, on which it starts.
    pub(super) line: usize,
    /// Whether something else than spaces precedes it on this line.
    pub(super) follows_code: bool,
    pub(super) text: String,
}

/// The comments, strings and characters of `source`, in order.
pub(super) fn pieces(source: &str) -> Vec<Piece> {
    let chars: Vec<char> = source.chars().collect();
    let (mut pieces, mut at, mut line, mut follows_code) = (Vec::new(), 0, 1, false);
    while at < chars.len() {
        let end = token_end(&chars, at);
        if end.is_some() {
            let kind = match chars[at] {
                '/' => Kind::Comment,
                '\'' => Kind::Char,
                _ => Kind::String,
            };
            let text = chars[at..end.unwrap_or(at)].iter().collect();
            pieces.push(Piece { kind, line, follows_code, text });
        }
        for &c in &chars[at..end.unwrap_or(at + 1)] {
            line += usize::from(c == '\n');
            follows_code = c != '\n' && (follows_code || !c.is_whitespace());
        }
        at = end.unwrap_or(at + 1);
    }
    pieces
}

/// Whether the whole file at `path` is test code.
pub(super) fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

/// `source` with comments and the contents of strings and characters blanked; lines keep their
/// numbers.
pub(super) fn code_only(source: &str) -> String {
    let chars: Vec<char> = source.chars().collect();
    let mut code = String::with_capacity(source.len());
    let mut at = 0;
    while at < chars.len() {
        let end = token_end(&chars, at);
        match end {
            Some(end) => blank(&chars[at..end], &mut code),
            None => code.push(chars[at]),
        }
        at = end.unwrap_or(at + 1);
    }
    code
}

/// `code` (of [`code_only`]) with the items under `#[cfg(test)]` blanked.
pub(super) fn without_tests(code: &str) -> String {
    let (mut kept, mut start) = (String::with_capacity(code.len()), 0);
    for test in tests(code) {
        kept.push_str(&code[start..test.start]);
        blank(&code[test.clone()].chars().collect::<Vec<_>>(), &mut kept);
        start = test.end;
    }
    kept + &code[start..]
}

/// The lines, from 1, of the items under `#[cfg(test)]`.
pub(super) fn test_lines(code: &str) -> Vec<Range<usize>> {
    let lines = |test: Range<usize>| line_at(code, test.start)..line_at(code, test.end) + 1;
    tests(code).into_iter().map(lines).collect()
}

/// The items under `#[cfg(test)]`, as positions in `code`.
fn tests(code: &str) -> Vec<Range<usize>> {
    const MARK: &str = "#[cfg(test)]";
    let (mut tests, mut end) = (Vec::new(), 0);
    while let Some(start) = code[end..].find(MARK).map(|at| end + at) {
        end = start + item_len(&code[start..]);
        tests.push(start..end);
    }
    tests
}

/// The lines, from 1, on which `word` stands in `code` as a whole word.
pub(super) fn lines_with<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let in_word = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).filter_map(move |(at, _)| {
        let before = code[..at].chars().next_back().is_some_and(in_word);
        let after =
            word.ends_with(in_word) && code[at + word.len()..].chars().next().is_some_and(in_word);
        (!before && !after).then(|| line_at(code, at))
    })
}

/// The line, from 1, of a position.
pub(super) fn line_at(code: &str, at: usize) -> usize {
    code[..at].matches('\n').count() + 1
}

fn blank(chars: &[char], out: &mut String) {
    out.extend(chars.iter().map(|&c| if c == '\n' { '\n' } else { ' ' }));
}

/// The end of the comment, string or character that starts at `at`, if one does.
fn token_end(chars: &[char], at: usize) -> Option<usize> {
    let next = chars.get(at + 1).copied();
    match (chars[at], next) {
        ('/', Some('/')) => Some(find(chars, at, |rest| rest[0] == '\n')),
        ('/', Some('*')) => Some(block_comment_end(chars, at)),
        ('"', _) => Some(quoted_end(chars, at + 1, '"')),
        ('\'', Some('\\')) => Some(quoted_end(chars, at + 1, '\'')),
        // 'a' is a character, 'a a lifetime.
        ('\'', Some(_)) if chars.get(at + 2) == Some(&'\'') => Some(at + 3),
        ('r', Some('"' | '#')) => raw_string_end(chars, at),
        _ => None,
    }
}

/// The first position from `at` on whose rest is `right`, or the end.
fn find(chars: &[char], at: usize, right: impl Fn(&[char]) -> bool) -> usize {
    (at..chars.len()).find(|&i| right(&chars[i..])).unwrap_or(chars.len())
}

fn block_comment_end(chars: &[char], at: usize) -> usize {
    let (mut depth, mut i) = (0, at);
    while i < chars.len() {
        match (chars[i], chars.get(i + 1)) {
            ('/', Some('*')) => depth += 1,
            ('*', Some('/')) => depth -= 1,
            _ => {
                i += 1;
                continue;
            }
        }
        i += 2;
        if depth == 0 {
            return i;
        }
    }
    i
}

fn quoted_end(chars: &[char], mut at: usize, quote: char) -> usize {
    while at < chars.len() && chars[at] != quote {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(chars.len())
}

/// `r"…"`, `r#"…"#`, and so `br"…"` too; but not `r#name` nor a word that ends in r.
fn raw_string_end(chars: &[char], at: usize) -> Option<usize> {
    let before = at.checked_sub(1).map(|i| chars[i]);
    if before.is_some_and(|c| (c.is_alphanumeric() || c == '_') && c != 'b' && c != 'c') {
        return None;
    }
    let hashes = chars[at + 1..].iter().take_while(|&&c| c == '#').count();
    let open = at + 1 + hashes;
    if chars.get(open) != Some(&'"') {
        return None;
    }
    let closes = |rest: &[char]| {
        rest[0] == '"' && rest[1..].iter().take(hashes).filter(|&&c| c == '#').count() == hashes
    };
    Some((find(chars, open + 1, closes) + 1 + hashes).min(chars.len()))
}

/// The length of the item that `code` starts with: to its closing brace, or to its semicolon if it
/// has no braces.
fn item_len(code: &str) -> usize {
    let mut depth = 0;
    for (at, c) in code.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth <= 1 => return at + 1,
            '}' => depth -= 1,
            ';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_is_left() {
        let table: [(&str, &[&str]); 8] = [
            ("a // unsafe\nb", &["a", "b"]),
            ("a /* x /* y */ z */ b", &["a", "b"]),
            ("f(\"un\\\"safe\") g", &["f(", ")", "g"]),
            ("r#\"a \" b\"# c", &["c"]),
            ("br\"x\\\" y", &["b", "y"]),
            ("'\"' 'a '\\'' x", &["'a", "x"]),
            ("r#type for\"x\"", &["r#type", "for"]),
            ("\"open", &[]),
        ];
        for (source, words) in table {
            let code = code_only(source);
            assert_eq!(code.split_whitespace().collect::<Vec<_>>(), words, "{source}");
            assert_eq!(
                (code.len(), code.lines().count()),
                (source.len(), source.lines().count()),
                "{source}"
            );
        }
    }

    #[test]
    fn tests_are_blanked_and_lines_stay() {
        let code = "a\n#[cfg(test)]\nmod tests {\n  { b }\n}\nc\n#[cfg(test)] use d;\ne";
        let kept = without_tests(code);
        let words: Vec<_> = kept.split_whitespace().collect();
        assert_eq!(words, ["a", "c", "e"]);
        assert_eq!(kept.lines().position(|line| line == "c"), Some(5));
        assert_eq!(test_lines(code), [2..6, 7..8]);
    }

    #[test]
    fn pieces_know_their_line_and_kind() {
        let source = "f('a'); // b\n\n  /* c\n */ \"d\\\"\" // é";
        let pieces: Vec<_> = pieces(source)
            .into_iter()
            .map(|piece| (piece.kind, piece.line, piece.follows_code, piece.text))
            .collect();
        let want = [
            (Kind::Char, 1, true, "'a'"),
            (Kind::Comment, 1, true, "// b"),
            (Kind::Comment, 3, false, "/* c\n */"),
            (Kind::String, 4, true, "\"d\\\"\""),
            (Kind::Comment, 4, true, "// é"),
        ];
        assert_eq!(
            pieces,
            want.map(|(kind, line, code, text)| (kind, line, code, text.to_owned()))
        );
    }

    #[test]
    fn words_are_whole() {
        let lines = |word| {
            lines_with("unsafe {}\nunsafe_code\nnot_unsafe\n  unsafe", word).collect::<Vec<_>>()
        };
        assert_eq!(lines("unsafe"), [1, 4]);
    }
}
