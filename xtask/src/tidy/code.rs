//! Rust source without what the compiler does not run: comments, the insides of strings, tests.

/// `source` with comments and the contents of strings and characters blanked; every line stays where it is.
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
    const MARK: &str = "#[cfg(test)]";
    let (mut kept, mut rest) = (String::with_capacity(code.len()), code);
    while let Some(start) = rest.find(MARK) {
        kept.push_str(&rest[..start]);
        let end = start + item_len(&rest[start..]);
        blank(&rest[start..end].chars().collect::<Vec<_>>(), &mut kept);
        rest = &rest[end..];
    }
    kept + rest
}

/// Where `word` stands in `code` as a whole word, as line numbers from 1.
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

/// The length of the item that `code` starts with: to its closing brace, or its semicolon when it has no braces.
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
    fn tests_are_left_out_and_lines_stay() {
        let code = "a\n#[cfg(test)]\nmod tests {\n  { b }\n}\nc\n#[cfg(test)] use d;\ne";
        let kept = without_tests(code);
        let words: Vec<_> = kept.split_whitespace().collect();
        assert_eq!(words, ["a", "c", "e"]);
        assert_eq!(kept.lines().position(|line| line == "c"), Some(5));
    }

    #[test]
    fn words_are_whole() {
        let lines = |word| {
            lines_with("unsafe {}\nunsafe_code\nnot_unsafe\n  unsafe", word).collect::<Vec<_>>()
        };
        assert_eq!(lines("unsafe"), [1, 4]);
    }
}
