//! Escaping of texts that may come from another process.

use std::fmt::Write;

use hugepilot_record::is_unsafe;

/// `text` without characters that control a terminal or the direction of writing: each becomes
/// `\u{…}`. The result is one line.
pub fn printable(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if is_unsafe(c) {
            let _ = write!(safe, "\\u{{{:x}}}", c as u32);
        } else {
            safe.push(c);
        }
    }
    safe
}

/// Text of XML and HTML, also inside quoted attributes.
pub(crate) fn xml(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in printable(text).chars() {
        match c {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // Not a character of XML.
            '\u{fffe}' | '\u{ffff}' => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

/// JSON inside an HTML script element: nothing in it ends the element or a line.
pub(crate) fn script_json(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(safe, "\\u{:04x}", c as u32);
            }
            c => safe.push(c),
        }
    }
    safe
}

/// Text of Markdown in one line: characters with a meaning are escaped.
pub(crate) fn markdown(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in printable(text).chars() {
        match c {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '\\' | '|' | '`' | '*' | '_' | '[' | ']' | '#' | '!' | '~' => {
                safe.push('\\');
                safe.push(c);
            }
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_the_terminal_or_ends_a_line() {
        let hostile = "a\x1b[31m\r\n\u{9b}\u{202e}b\u{2028}é";
        let safe = "a\\u{1b}[31m\\u{d}\\u{a}\\u{9b}\\u{202e}b\\u{2028}é";
        assert_eq!(printable(hostile), safe);
        assert_eq!(xml("</script>\"'&"), "&lt;/script&gt;&quot;&#39;&amp;");
        let json = script_json("\"</script><!--&\u{2028}\"");
        assert_eq!(json, "\"\\u003c/script\\u003e\\u003c!--\\u0026\\u2028\"");
        let value: String = serde_json::from_str(&json).unwrap();
        assert_eq!(value, "</script><!--&\u{2028}");
        assert_eq!(markdown("a|b <i>[x](y)"), "a\\|b &lt;i&gt;\\[x\\](y)");
    }
}
