//! Words and first words of prose, by the project's guide to language.

mod list;

use std::collections::HashMap;
use std::sync::LazyLock;

use super::Report;
use super::prose::{Passage, passages};

/// A line with this mark may quote a refused word.
const ESCAPE: &str = "tidy: allow-word";

/// The list of refused words, which cannot avoid them.
const LIST: &str = "xtask/src/tidy/words/list.rs";

/// Words that no doc comment starts with.
const FIRST_WORDS: [&str; 12] =
    ["what", "which", "who", "that", "it", "they", "one", "of", "for", "so", "as", "by"];

/// Reports refused words in the prose of one file.
pub(super) fn check(path: &str, text: &str, report: &mut Report) {
    if path == LIST {
        return;
    }
    let lines: Vec<_> = text.lines().collect();
    let mut finding = |line: usize, message: String| {
        let quoted = [line.saturating_sub(1), line].map(|index| lines.get(index));
        if !quoted.into_iter().flatten().any(|line| line.contains(ESCAPE)) {
            report.finding(format!("{path}:{line}"), message);
        }
    };
    for passage in passages(path, text) {
        let words = words(&passage);
        for (found, instead) in LISTS.refused(&words) {
            let phrase: Vec<_> = found.iter().map(|word| word.text.as_str()).collect();
            finding(found[0].line, format!("\"{}\": write \"{instead}\"", phrase.join(" ")));
        }
        if let (true, Some(word)) = (passage.is_doc, words.first())
            && FIRST_WORDS.contains(&word.text.as_str())
        {
            let message = format!("doc comment starts with \"{}\": write a summary", word.text);
            finding(word.line, message);
        }
    }
}

/// Word or other character, in lower case.
struct Word {
    text: String,
    line: usize,
}

/// Splits a passage into words. An empty line becomes an empty word, so that no phrase spans it.
fn words(passage: &Passage) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    for (line, text) in (passage.line..).zip(passage.text.lines()) {
        if text.trim().is_empty() {
            if !words.is_empty() {
                words.push(Word { text: String::new(), line });
            }
            continue;
        }
        let text = text.to_lowercase();
        words.extend(split(&text).map(|text| Word { text: text.to_owned(), line }));
    }
    words
}

/// The words of one line without possessive endings, and every other character but spaces.
fn split(line: &str) -> impl Iterator<Item = &str> {
    let mut rest = line;
    std::iter::from_fn(move || {
        rest = rest.trim_start();
        let first = rest.chars().next()?;
        let end = if is_letter(first) { word_end(rest) } else { first.len_utf8() };
        let (word, after) = rest.split_at(end);
        rest = after;
        Some(word.strip_suffix("'s").or_else(|| word.strip_suffix("’s")).unwrap_or(word))
    })
}

/// The end of the word that starts `text`; a hyphen or an apostrophe belongs to it inside only.
fn word_end(text: &str) -> usize {
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let joins = matches!(c, '-' | '\'' | '’');
        let is_inside = joins && chars.peek().is_some_and(|&(_, next)| is_letter(next));
        if !(is_letter(c) || is_inside) {
            return at;
        }
    }
    text.len()
}

fn is_letter(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// A phrase: for each position the words that match there.
type Phrase = Vec<Vec<&'static str>>;

static LISTS: LazyLock<Lists> = LazyLock::new(|| {
    let mut entries = HashMap::<_, Vec<_>>::new();
    for (index, &(phrase, _)) in list::REFUSED.iter().enumerate() {
        for &first in &pattern(phrase)[0] {
            entries.entry(first).or_default().push(index);
        }
    }
    let refused = list::REFUSED.iter().map(|&(phrase, instead)| (pattern(phrase), instead));
    Lists {
        refused: refused.collect(),
        by_first_word: entries,
        allowed: list::ALLOWED.iter().map(|phrase| pattern(phrase)).collect(),
    }
});

/// The lists, prepared for a search.
struct Lists {
    /// Phrases and what to write instead.
    refused: Vec<(Phrase, &'static str)>,
    /// Indices of `refused`.
    by_first_word: HashMap<&'static str, Vec<usize>>,
    allowed: Vec<Phrase>,
}

impl Lists {
    /// The refused phrases in `words`, each with what to write instead.
    fn refused<'a>(&self, words: &'a [Word]) -> Vec<(&'a [Word], &'static str)> {
        let mut found = Vec::new();
        for (at, word) in words.iter().enumerate() {
            let entries = self.by_first_word.get(word.text.as_str()).into_iter().flatten();
            for (pattern, instead) in entries.map(|&index| &self.refused[index]) {
                let len = pattern.len();
                if starts_with(&words[at..], pattern) && !self.is_allowed(words, at, len) {
                    found.push((&words[at..at + len], *instead));
                }
            }
        }
        found
    }

    /// Whether an allowed phrase covers the `len` words from `at`.
    fn is_allowed(&self, words: &[Word], at: usize, len: usize) -> bool {
        self.allowed.iter().any(|pattern| {
            let Some(spare) = pattern.len().checked_sub(len) else { return false };
            (at.saturating_sub(spare)..=at).any(|start| {
                start + pattern.len() >= at + len && starts_with(&words[start..], pattern)
            })
        })
    }
}

fn starts_with(words: &[Word], pattern: &Phrase) -> bool {
    words.len() >= pattern.len()
        && words.iter().zip(pattern).all(|(word, choices)| choices.contains(&word.text.as_str()))
}

fn pattern(phrase: &'static str) -> Phrase {
    split_phrase(phrase).map(|word| word.split('|').collect()).collect()
}

/// The words of a phrase; a colon at its end is a word.
fn split_phrase(phrase: &'static str) -> impl Iterator<Item = &'static str> {
    let (words, colon) = match phrase.strip_suffix(':') {
        Some(words) => (words, Some(":")),
        None => (phrase, None),
    };
    words.split(' ').chain(colon)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        let mut report = Report::default();
        check(path, text, &mut report);
        report.lines()
    }

    fn phrases(text: &str) -> Vec<String> {
        let passage = Passage { line: 1, text: text.to_owned(), is_doc: false };
        let words = words(&passage);
        let join = |found: &[Word]| found.iter().map(|it| it.text.clone()).collect::<Vec<_>>();
        LISTS.refused(&words).into_iter().map(|(found, _)| join(found).join(" ")).collect()
    }

    #[test]
    fn a_finding_names_the_replacement() {
        let want = ["a.md:2: \"to be had\": write \"available\""];
        assert_eq!(findings("a.md", "Memory\nis to be had.\n"), want);
    }

    #[test]
    fn words_are_whole_and_of_any_case() {
        let table = [
            ("Anew.", 1),
            ("anewer re-anew", 0),
            ("nobody's memory", 1),
            ("Told, and TELLS", 2),
            ("so\n  many", 1),
            ("so\n\nmany", 0),
            ("so. Many", 0),
            ("de-bloating a page", 1),
            ("fix: as root", 1),
            ("a fix is", 0),
        ];
        for (text, count) in table {
            assert_eq!(phrases(text).len(), count, "{text}");
        }
    }

    #[test]
    fn alternatives_match_and_exceptions_do_not() {
        assert_eq!(phrases("gives memory back"), ["gives memory back"]);
        assert_eq!(phrases("It is no page; they were no pages."), ["is no", "were no"]);
        assert_eq!(phrases("there is no page, it is no longer there"), [""; 0]);
        assert_eq!(phrases("its number of pages, its number"), ["its number"]);
    }

    #[test]
    fn code_is_not_prose() {
        assert_eq!(findings("a.md", "`told`\n\n```sh\ntold\n```\n"), [""; 0]);
        assert_eq!(
            findings("a.rs", "fn told() {}\n/// A `told` of\n/// `so\n/// many`.\n"),
            [""; 0]
        );
        assert_eq!(findings("a.rs", "// told\nfn f() {}\n").len(), 1);
        assert_eq!(findings("a.rs", "fn f() { g(\"told\") }\n").len(), 1);
        assert_eq!(findings("a.h", "/* Is\n * told. */\n").len(), 1);
        assert_eq!(findings("a.toml", "told = \"x\" # told\n").len(), 1);
    }

    #[test]
    fn a_marked_line_may_quote() {
        assert_eq!(findings("a.md", "\"told\" <!-- tidy: allow-word -->\n"), [""; 0]);
        assert_eq!(findings("a.rs", "// \"told\" (tidy: allow-word)\n// told\n").len(), 1);
    }

    #[test]
    fn doc_comments_start_with_a_summary() {
        let text = "//! What it is.\n\n/// Returns one.\n/// What.\nfn f() {}\n";
        let want = ["a.rs:1: doc comment starts with \"what\": write a summary"];
        assert_eq!(findings("a.rs", text), want);
        assert_eq!(findings("a.rs", "// What it is.\nfn f() {}\n"), [""; 0]);
        assert_eq!(findings("a.rs", "/// `what` is.\nfn f() {}\n"), [""; 0]);
    }

    #[test]
    fn no_list_repeats_itself() {
        let mut phrases: Vec<_> = list::REFUSED.iter().map(|(phrase, _)| phrase).collect();
        phrases.sort();
        assert!(phrases.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
