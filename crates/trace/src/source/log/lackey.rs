//! Lines of lackey, a tool of valgrind, with `--trace-mem=yes`.
//!
//! ```text
//!  L 1fff000698,8    a load of 8 bytes
//!  S 1fff000698,8    a store
//!  M 1fff000698,8    a load, then a store
//! I  0401ab70,3      an instruction, ignored
//! ==4711== text      a message, ignored; likewise with -- and **
//! ```

use super::{Line, address, number, quoted};

/// Parses a line. Empty lines are ignored.
pub(super) fn line(line: &[u8]) -> Result<Line, String> {
    if line.is_empty() || [b"==", b"--", b"**"].iter().any(|begin| line.starts_with(*begin)) {
        let is_end = line.windows(10).any(|text| text == b"Exit code:");
        return Ok(if is_end { Line::End } else { Line::Other });
    }
    let access = line.split_at_checked(3).and_then(|(kind, place)| {
        let comma = place.iter().position(|&byte| byte == b',')?;
        number(&place[comma + 1..])?;
        let address = address(&place[..comma])?;
        let [load, store] = match kind {
            b" L " => [true, false],
            b" S " => [false, true],
            b" M " => [true, true],
            b"I  " => return Some(Line::Other),
            _ => return None,
        };
        Some(Line::Access { thread: 0, address, load, store })
    });
    access.ok_or_else(|| format!("{} is not an access", quoted(line)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_line_is_parsed() {
        let access = |address, load, store| Ok(Line::Access { thread: 0, address, load, store });
        let table = [
            (" L 10,8", access(16, true, false)),
            (" S 1fff000698,16", access(0x1f_ff00_0698, false, true)),
            (" M 0,1", access(0, true, true)),
            ("I  0401ab70,3", Ok(Line::Other)),
            ("==4711== L 10,8", Ok(Line::Other)),
            ("--4711-- warning", Ok(Line::Other)),
            ("", Ok(Line::Other)),
            ("==4711== Exit code:       0", Ok(Line::End)),
        ];
        for (text, expected) in table {
            assert_eq!(line(text.as_bytes()), expected, "{text}");
        }
        let wrong = [
            " L",
            " L 10",
            " L 10,",
            " L x,8",
            " X 10,8",
            "L 10,8",
            " L 0x10,8",
            " L 10,-8",
            "I  ,3",
        ];
        for text in wrong {
            assert!(line(text.as_bytes()).is_err(), "{text}");
        }
    }
}
