//! Parsers of `/proc/PID`, from bytes: names may hold newlines, escape codes and invalid UTF-8.

mod io;
mod kib;
mod list;
mod maps;
mod owner;
mod stat;

pub use io::{IoCounts, parse_io};
pub(crate) use kib::{field, kib};
pub use list::{named, pids, resident};
pub use maps::{parse_map_line, parse_smaps};
pub use owner::{user, user_names};
pub use stat::{Stat, parse_stat};

use std::path::Path;

use hugepilot_record::is_unsafe;

/// Returns `bytes` as text that is safe on a terminal: control characters, those that reorder or
/// hide others, and invalid UTF-8 are escaped.
pub fn printable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if is_unsafe(c) { text.extend(c.escape_default()) } else { text.push(c) }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// Returns a path as text that is safe on a terminal, as [`printable`].
pub fn printable_path(path: &Path) -> String {
    printable(path.as_os_str().as_encoded_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_cannot_reach_the_terminal() {
        assert_eq!(printable(b"a\nb\x1b[31m\xff</script>"), "a\\nb\\u{1b}[31m\\xff</script>");
        assert_eq!(printable("größe".as_bytes()), "größe");
        assert_eq!(printable_path(Path::new("a/\u{1b}[31m")), "a/\\u{1b}[31m");
        assert_eq!(printable("\u{9b}31m".as_bytes()), "\\u{9b}31m", "C1 controls too");
        assert_eq!(printable("a\u{202e}b".as_bytes()), "a\\u{202e}b", "reordered text too");
    }
}
