//! Characters that the locale can show.

use std::borrow::Cow;
use std::ffi::OsString;

/// Text for a terminal or a file of text. In a locale without UTF-8, such as `LC_ALL=C`, ASCII
/// replaces the other characters that hugepilot writes. A process without a locale gets UTF-8.
pub(crate) fn shown(text: &str) -> Cow<'_, str> {
    if text.is_ascii() || is_utf8(&|name| std::env::var_os(name)) {
        return Cow::Borrowed(text);
    }
    let mut ascii = String::with_capacity(text.len());
    for one in text.chars() {
        match one.is_ascii() {
            true => ascii.push(one),
            false => ascii.push_str(ascii_of(one)),
        }
    }
    Cow::Owned(ascii)
}

/// Whether the locale has UTF-8, by the variable that decides.
fn is_utf8(variable: &dyn Fn(&str) -> Option<OsString>) -> bool {
    let set = |name: &&str| variable(name).filter(|value| !value.is_empty());
    let Some(locale) = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(set) else { return true };
    let locale = locale.to_string_lossy().to_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// The ASCII of a character; `?` for one that hugepilot does not write, as in names of files.
const fn ascii_of(one: char) -> &'static str {
    match one {
        '…' => "...",
        '–' | '−' | '─' => "-",
        '×' => "x",
        'µ' | 'μ' => "u",
        '→' => "->",
        '≤' => "<=",
        '≥' => ">=",
        '·' => ".",
        '│' => "|",
        '█' | '▓' | '▇' | '▶' => "#",
        '▅' | '▆' => "=",
        '▒' | '▃' | '▄' => ":",
        '░' | '▁' | '▂' => "_",
        '±' => "+-",
        '↑' => "^",
        '↓' => "v",
        _ => "?",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    #[test]
    fn the_first_variable_that_is_set_decides() {
        let is = |variables: &[(&str, &str)]| {
            is_utf8(&|name| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| OsString::from(value))
            })
        };
        assert!(is(&[]) && is(&[("LC_ALL", ""), ("LANG", "en_US.UTF-8")]));
        assert!(is(&[("LC_ALL", "C.utf8"), ("LANG", "C")]));
        assert!(!is(&[("LC_ALL", "C"), ("LANG", "en_US.UTF-8")]));
        assert!(!is(&[("LANG", "POSIX")]) && !is(&[("LC_CTYPE", "de_DE.ISO-8859-1")]));
    }

    /// Files of code below `folder`.
    fn sources(folder: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
        let below = entries.flat_map(|path| match path.is_dir() {
            true => sources(&path),
            false => vec![path],
        });
        let is_code = |path: &PathBuf| {
            path.extension().is_some_and(|one| one == "rs") && !path.ends_with("tests.rs")
        };
        below.filter(is_code).collect()
    }

    #[test]
    fn each_character_of_the_reports_has_its_ascii() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut unknown = BTreeSet::new();
        for name in ["cli", "render", "reports", "recording", "events", "record", "stats", "units"]
        {
            for source in sources(&crates.join(name).join("src")) {
                let text = fs::read_to_string(&source).unwrap();
                let code = text.split("#[cfg(test)]").next().unwrap().lines();
                let code = code.filter(|line| !line.trim_start().starts_with("//"));
                let characters = code.flat_map(str::chars).filter(|one| !one.is_ascii());
                let new = characters.filter(|one| ascii_of(*one) == "?");
                unknown.extend(new.map(|one| (one, source.clone())));
            }
        }
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}
