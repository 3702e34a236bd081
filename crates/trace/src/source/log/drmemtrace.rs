//! Lines of drmemtrace's view tool: `drrun -t drmemtrace -tool view -indir DIR`.
//!
//! ```text
//!   9  2: W0.T3256418 ifetch       5 byte(s) @ 0x00007fc205a61943 e8 b8 0c 00 00   call …
//!  10  2: W0.T3256418 write        8 byte(s) @ 0x00007fff9a9e3528 by PC 0x00007fc205a61943
//!  11  2: W0.T3256418 <marker: timestamp 13312410768080478>
//! ```
//!
//! A record has ordinals of itself and of its instruction, workload and thread, and a text. Reads
//! and writes are accesses. Instructions, prefetches, flushes and markers are ignored, and so are
//! the head, the lines between threads, and the results at the end. A marker of an idle core has no
//! ordinals and no thread. Versions of 2021 and 2022 have one ordinal or none, and instructions
//! without `ifetch`; later ones write the thread in decimal or hexadecimal digits without `T`.

use super::{Line, address, number, quoted};

/// Bits of the number of a thread: Linux has at most 2^22 of them.
const THREAD_BITS: u32 = 22;

/// Parses a line.
pub(super) fn line(line: &[u8]) -> Result<Line, String> {
    let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let words: Vec<&[u8]> = words.collect();
    let meaning = match &words[..] {
        [] | [b"View", b"tool", b"results:"] | [b"Output", b"format:"] => Some(Line::Other),
        [first, ..] if first.starts_with(b"---") || first.starts_with(b"<--") => Some(Line::Other),
        [_, b":", b"total", b"instructions"] => Some(Line::Other),
        [b"<marker:", ..] => Some(Line::Other),
        [record, instruction, thread, rest @ ..]
            if number_of_any_size(record) && instruction.ends_with(b":") =>
        {
            let is_record = number_of_any_size(&instruction[..instruction.len() - 1]);
            self::thread(thread).filter(|_| is_record).and_then(|thread| text(thread, rest))
        }
        [record, thread, rest @ ..]
            if record.strip_suffix(b":").is_some_and(number_of_any_size) =>
        {
            self::thread(thread).and_then(|thread| text(thread, rest))
        }
        [thread, rest @ ..] if thread.starts_with(b"T") => {
            self::thread(thread).and_then(|thread| text(thread, rest))
        }
        _ => None,
    };
    meaning.ok_or_else(|| format!("{} is not a record of the view tool", quoted(line)))
}

/// Parses the text of a record.
fn text(thread: u32, words: &[&[u8]]) -> Option<Line> {
    let is_byte = |word: &&[u8]| word.len() == 2 && word.iter().all(u8::is_ascii_hexdigit);
    match words {
        [first, ..] if first.starts_with(b"<") => Some(Line::Other),
        [kind, size, b"byte(s)", b"@", place, ..] => {
            number(size)?;
            let address = address(place.strip_prefix(b"0x")?)?;
            match *kind {
                b"read" => Some(Line::Access { thread, address, load: true, store: false }),
                b"write" => Some(Line::Access { thread, address, load: false, store: true }),
                b"ifetch" | b"non-fetched" | b"iflush" | b"dflush" => Some(Line::Other),
                kind if kind.starts_with(b"pref") => Some(Line::Other),
                _ => None,
            }
        }
        // An instruction of 2021: its address, bytes and text.
        [place, byte, ..] if place.starts_with(b"0x") && is_byte(byte) => Some(Line::Other),
        // More bytes of a long instruction.
        [_, ..] if words.iter().all(is_byte) => Some(Line::Other),
        _ => None,
    }
}

/// Parses `W0.T3256418`, or `T3256418` or `31b062` of other versions.
fn thread(word: &[u8]) -> Option<u32> {
    let (workload, thread) = match word.strip_prefix(b"W") {
        Some(rest) => {
            let dot = rest.iter().position(|&byte| byte == b'.')?;
            (number(&rest[..dot])?, &rest[dot + 1..])
        }
        None => (0, word),
    };
    let Some(thread) = thread.strip_prefix(b"T") else {
        // Any digits name a thread.
        return address(thread).filter(|_| workload == 0)?.try_into().ok();
    };
    let thread = number(thread)?;
    let fits = workload < 1 << (u32::BITS - THREAD_BITS) && thread < 1 << THREAD_BITS;
    fits.then_some(workload << THREAD_BITS | thread)
}

fn number_of_any_size(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(thread: u32, address: u64, store: bool) -> Result<Line, String> {
        Ok(Line::Access { thread, address, load: !store, store })
    }

    #[test]
    fn lines_of_other_versions_are_parsed() {
        let table = [
            ("<marker: core is idle>", Ok(Line::Other)),
            // From 2021, and from 2022.
            (
                "T327767     read  8 byte(s) @ 0x7fe61d483ef0",
                access(327_767, 0x7fe6_1d48_3ef0, false),
            ),
            ("  9: T327767     write 8 byte(s) @ 0x10", access(327_767, 16, true)),
            ("  9: T327767   0x00007fe61d582a56  74 01   jz  $0x10", Ok(Line::Other)),
            ("  9: T327767   ifetch 5 byte(s) @ 0x00007f7fe3a61755  non-branch", Ok(Line::Other)),
            // From 2024, and from 2025.
            ("  9  8:  872894 read   32 byte(s) @ 0x10 by PC 0x00", access(0x87_2894, 16, false)),
            ("  9  8:   d51be read   32 byte(s) @ 0x10 by PC 0x00", access(0xd_51be, 16, false)),
            ("  9  8:  872894 <marker: tid 872894 on core 0>", Ok(Line::Other)),
        ];
        for (text, expected) in table {
            assert_eq!(line(text.as_bytes()), expected, "{text}");
        }
    }

    /// Lines as DynamoRIO's documentation prints them, and as its `view.cpp` does.
    #[test]
    fn each_kind_of_line_is_parsed() {
        let table = [
            (
                "  10  2: W0.T3256418 write        8 byte(s) @ 0x00007fff9a9e3528 by PC \
                 0x00007fc205a61943",
                access(3_256_418, 0x7fff_9a9e_3528, true),
            ),
            (
                "  801357  601833: W2.T7 read         4 byte(s) @ 0x00007fff8044e92c by PC 0x00",
                access(2 << 22 | 7, 0x7fff_8044_e92c, false),
            ),
            ("1 1: T7 read  4 byte(s) @ 0x10 by PC 0x00", access(7, 16, false)),
            (
                "9 2: W0.T7 ifetch 5 byte(s) @ 0x00007fc2 e8 b8 0c 00 00 call $0x5600",
                Ok(Line::Other),
            ),
            ("9 2: W0.T7                               00 00 01", Ok(Line::Other)),
            ("9 2: W0.T7 pref-r-L1 1 byte(s) @ 0x0000000000000010 by PC 0x10", Ok(Line::Other)),
            ("9 2: W0.T7 dflush 64 byte(s) @ 0x0000000000000010 by PC 0x10", Ok(Line::Other)),
            ("7 0: W0.T7 <marker: W0.T3256418 on core 7>", Ok(Line::Other)),
            ("7 0: W0.T7 <thread W0.T7 exited>", Ok(Line::Other)),
            ("Output format:", Ok(Line::Other)),
            ("<--record#-> <--instr#->: <Wrkld.Tid> <record details>", Ok(Line::Other)),
            ("------------------------------------------------------------", Ok(Line::Other)),
            ("View tool results:", Ok(Line::Other)),
            ("              8 : total instructions", Ok(Line::Other)),
            ("", Ok(Line::Other)),
        ];
        for (text, expected) in table {
            assert_eq!(line(text.as_bytes()), expected, "{text}");
        }
        let wrong = [
            "10",
            "10 2: W0.T7",
            "10 2: W0.T7 write",
            "10 2: W0.T7 write 8 byte(s) @",
            "10 2: W0.T7 write 8 byte(s) @ 7fff",
            "10 2: W0.T7 write x byte(s) @ 0x10",
            "10 2: W0.T7 wrote 8 byte(s) @ 0x10",
            "10 2: X7 write 8 byte(s) @ 0x10",
            "10 2: W0.T4194304 write 8 byte(s) @ 0x10",
            "10 2: W1024.T1 write 8 byte(s) @ 0x10",
            "10 2 W0.T7 write 8 byte(s) @ 0x10",
            "x 2: W0.T7 write 8 byte(s) @ 0x10",
            " L 10,8",
        ];
        for text in wrong {
            assert!(line(text.as_bytes()).is_err(), "{text}");
        }
    }
}
