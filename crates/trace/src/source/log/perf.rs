//! Lines of `perf script -F tid,addr`, or with more fields: `comm`, `pid`, `time` and `event`.
//!
//! ```text
//! 17918     7f3d37fed110
//! probe 17918 12924.532018: page-faults:     7f3d37fed110
//! some name 17900/17918 7f3d37fed110
//! ```
//!
//! The address is last. Before it may be the event, then the time, each with a colon at its end.
//! Before these is the thread, or process and thread; before that the name, which is ignored. An
//! event with `store` in its name is a store, all others are loads. Address 0 means that the CPU
//! gave none. Empty lines and lines that begin with `#` are ignored.

use super::{Line, address, number, quoted};

/// Parses a line.
pub(super) fn line(line: &[u8]) -> Result<Line, String> {
    let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let words: Vec<&[u8]> = words.collect();
    let Some((last, before)) = words.split_last() else { return Ok(Line::Other) };
    if words[0].starts_with(b"#") {
        return Ok(Line::Other);
    }
    let address = address(last).ok_or_else(|| format!("{} is not an address", quoted(last)))?;
    let event = before.iter().rev().take_while(|word| word.ends_with(b":")).count();
    let (before, labels) = before.split_at(before.len() - event.min(2));
    let thread = before.last().and_then(|word| thread(word));
    let thread = thread.ok_or_else(|| format!("{} has no thread", quoted(line)))?;
    if address == 0 {
        return Ok(Line::Lost);
    }
    let store = labels.last().is_some_and(|event| event.windows(5).any(|word| word == b"store"));
    Ok(Line::Access { thread, address, load: !store, store })
}

/// Parses `TID` or `PID/TID`.
fn thread(word: &[u8]) -> Option<u32> {
    match word.iter().position(|&byte| byte == b'/') {
        Some(slash) => number(&word[..slash]).and(number(&word[slash + 1..])),
        None => number(word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_of_line_is_parsed() {
        let access = |thread, address, store: bool| {
            Ok(Line::Access { thread, address, load: !store, store })
        };
        let table = [
            ("17918     7f3d37fed110", access(17918, 0x7f3d_37fe_d110, false)),
            ("  probe 7 12924.532018: page-faults:     10", access(7, 16, false)),
            ("a b 3 7/8 1.5: cpu/mem-stores/P:  10", access(8, 16, true)),
            ("7 cpu/mem-loads,ldlat=30/P:  10", access(7, 16, false)),
            ("7 1.5:  10", access(7, 16, false)),
            ("7   0", Ok(Line::Lost)),
            ("# comment", Ok(Line::Other)),
            ("  ", Ok(Line::Other)),
        ];
        for (text, expected) in table {
            assert_eq!(line(text.as_bytes()), expected, "{text}");
        }
        for text in ["10", "name 10", "7 0x10", "7 10 sym", "7/ 10", "/8 10", "7 a: b: c: 10"] {
            assert!(line(text.as_bytes()).is_err(), "{text}");
        }
    }
}
