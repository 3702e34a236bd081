//! Lines of `perf script -F tid,addr`, or with more fields: `comm`, `pid`, `time` and `event`.
//!
//! ```text
//! 17918     7f3d37fed110
//! probe 17918 12924.532018: page-faults:     7f3d37fed110
//! some name 17900/17918 7f3d37fed110
//! ```
//!
//! The address is last, or before a physical address (`phys_addr`). Before it may be the event,
//! then the time, each with a colon at its end. Before these is the thread, or process and thread;
//! before that the name, which is ignored. An event with `store` in its name is a store, all others
//! are loads. Address 0 means that the CPU gave none. Empty lines and lines that begin with `#` are
//! ignored. Three numbers of digits alone are either a name, a thread and an address, or a thread
//! and two addresses, and so an error.

use super::{Line, address, number, quoted};

/// Parses a line.
pub(super) fn line(line: &[u8]) -> Result<Line, String> {
    let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let words: Vec<&[u8]> = words.collect();
    let Some(first) = words.first() else { return Ok(Line::Other) };
    if first.starts_with(b"#") {
        return Ok(Line::Other);
    }
    let labels = words.iter().rposition(|word| word.ends_with(b":")).map_or(0, |last| last + 1);
    let (before, addresses) = words.split_at(if labels > 0 { labels } else { unlabelled(&words)? });
    let ([text] | [text, _]) = addresses else {
        return Err(format!("{} has other columns than a thread and an address", quoted(line)));
    };
    let parse =
        |text: &[u8]| address(text).ok_or_else(|| format!("{} is not an address", quoted(text)));
    let address = parse(text)?;
    addresses.iter().try_for_each(|text| parse(text).map(drop))?;
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

/// Returns the words before the address in a line without a time and an event.
fn unlabelled(words: &[&[u8]]) -> Result<usize, String> {
    let is_thread = |word: &&&[u8]| thread(word).is_some();
    match words {
        [.., one, two, _] if [one, two].iter().all(is_thread) => {
            let fields = "use perf script -F tid,addr or -F comm,tid,time,event,addr";
            Err(format!("{} is a thread or an address; {fields}", quoted(two)))
        }
        [.., one, two, _] if is_thread(&one) && address(two).is_some() => Ok(words.len() - 2),
        _ => Ok(words.len() - 1),
    }
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
            (" 4322     7f0010     19abc00010 ", access(4322, 0x7f_0010, false)),
            ("probe 7 1.5: page-faults:  600010  19abc00010", access(7, 0x60_0010, false)),
            ("7 page-faults:  600010  19abc00010", access(7, 0x60_0010, false)),
            ("7/8     600010", access(8, 0x60_0010, false)),
            ("7   0", Ok(Line::Lost)),
            ("# comment", Ok(Line::Other)),
            ("  ", Ok(Line::Other)),
        ];
        for (text, expected) in table {
            assert_eq!(line(text.as_bytes()), expected, "{text}");
        }
        for text in [
            "10",
            "name 10",
            "7 0x10",
            "7 10 sym",
            "7/ 10",
            "/8 10",
            "7 a: b: c: 10",
            "4322 600010 19abc00010",
            "7 8 10",
            "7 a: 10 20 30",
            "7 a: 10 main",
        ] {
            assert!(line(text.as_bytes()).is_err(), "{text}");
        }
    }
}
