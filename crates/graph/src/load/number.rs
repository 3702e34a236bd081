//! Numbers in text, at the speed of memory rather than of the standard library.

use super::text::SyntaxError;
use crate::error::WIDER;

/// What weights become.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weights {
    /// What real weights are multiplied with before they are rounded; without, there are whole ones only.
    pub(super) scale: Option<f64>,
    /// The largest, and one more is too large.
    pub(super) limit: u64,
}

/// What stands between numbers of a line.
#[inline]
pub(super) const fn is_gap(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b',' | b';' | b'\r')
}

/// Steps over what separates, but not over the end of the line.
#[inline]
pub(super) fn gap(text: &[u8], at: &mut usize) {
    while text.get(*at).copied().is_some_and(is_gap) {
        *at += 1;
    }
}

/// Whether the line ends here.
#[inline]
pub(super) fn is_end(text: &[u8], at: usize) -> bool {
    text.get(at).is_none_or(|&byte| byte == b'\n')
}

/// Steps over the rest of the line and its end.
#[inline]
pub(super) fn skip_line(text: &[u8], at: &mut usize) {
    if text.get(*at) == Some(&b'\n') {
        *at += 1;
        return;
    }
    *at = memchr::memchr(b'\n', &text[*at..]).map_or(text.len(), |len| *at + len + 1);
}

/// A whole number, after which a gap or an end comes.
#[inline]
pub(super) fn number(text: &[u8], at: &mut usize) -> Result<u64, SyntaxError> {
    if let Some(word) = text.get(*at..).and_then(|rest| rest.first_chunk::<8>()) {
        let (value, digits) = eight(u64::from_le_bytes(*word));
        if matches!(digits, 1..=7) && (word[digits] == b'\n' || is_gap(word[digits])) {
            *at += digits;
            return Ok(value);
        }
    }
    careful(text, at)
}

/// The number that a word of text begins with, and how many digits it has, without a branch: how long numbers are is what no
/// processor predicts. All eight bytes at once, as in Lemire's *Quickly parsing eight digits*.
#[inline]
const fn eight(word: u64) -> (u64, usize) {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let digits = word ^ (ONES * 0x30);
    // The highest bit of each byte that is above 9, up to the first of them at least.
    let others = (digits | digits.wrapping_add(ONES * 0x76)) & (ONES * 0x80);
    let count = others.trailing_zeros() as usize / 8;
    if count == 0 {
        return (0, 0);
    }
    // Zeros come before the first digit; then pairs, fours, and all are put together.
    let aligned = digits << (64 - 8 * count);
    let pairs = (aligned.wrapping_mul(1 + (10 << 8)) >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs.wrapping_mul(1 + (100 << 16)) >> 16) & 0x0000_ffff_0000_ffff;
    (fours.wrapping_mul(1 + (10_000 << 32)) >> 32, count)
}

/// The same for what is long, at the end of the text, or wrong.
fn careful(text: &[u8], at: &mut usize) -> Result<u64, SyntaxError> {
    let word = word(text, *at);
    let wrong = |what| Err(SyntaxError { at: *at, what });
    if word.is_empty() {
        return wrong("a number is missing".to_owned());
    }
    let shown = shown(word);
    if !word.iter().all(u8::is_ascii_digit) {
        return wrong(format!("{shown} is no whole number from 0 on"));
    }
    let digits = std::str::from_utf8(word).ok().and_then(|digits| digits.parse().ok());
    let Some(value) = digits else { return wrong(format!("{shown} is more than 64 bits count")) };
    *at += word.len();
    Ok(value)
}

const ABOVE: &str = "weights are above 0; --ignore-weights leaves them out";

/// A weight: a whole number above 0, or what scaling makes of a real one.
#[inline]
pub(super) fn weight(text: &[u8], at: &mut usize, rule: &Weights) -> Result<u64, SyntaxError> {
    let start = *at;
    let value = match rule.scale {
        Some(scale) => scaled(text, at, scale)?,
        None => match number(text, at) {
            Ok(value) => value,
            Err(wrong) => return Err(no_weight(text, wrong)),
        },
    };
    if value == 0 {
        return Err(SyntaxError { at: start, what: format!("the weight 0; {ABOVE}") });
    }
    if value >= rule.limit {
        let what =
            format!("the weight {value} is more than fits; {WIDER}, or a smaller --scale-weights");
        return Err(SyntaxError { at: start, what });
    }
    Ok(value)
}

/// The same rule for a weight that was read otherwise.
#[cold]
fn no_weight(text: &[u8], wrong: SyntaxError) -> SyntaxError {
    let found = word(text, wrong.at);
    let Some(real) = std::str::from_utf8(found).ok().and_then(|word| word.parse::<f64>().ok())
    else {
        let what = if found.is_empty() { "the weight is missing".to_owned() } else { wrong.what };
        return SyntaxError { what, ..wrong };
    };
    let shown = shown(found);
    let what = if real.is_finite() && real > 0.0 {
        format!(
            "the weight {shown} is no whole number; --scale-weights FACTOR multiplies with a factor and rounds, \
             --ignore-weights leaves them out"
        )
    } else {
        format!("the weight {shown}; {ABOVE}")
    };
    SyntaxError { what, ..wrong }
}

fn scaled(text: &[u8], at: &mut usize, scale: f64) -> Result<u64, SyntaxError> {
    let found = word(text, *at);
    let wrong = |what| Err(SyntaxError { at: *at, what });
    let real = std::str::from_utf8(found).ok().and_then(|word| word.parse::<f64>().ok());
    let Some(real) = real.filter(|real| real.is_finite() && *real > 0.0) else {
        return wrong(format!("the weight {}; {ABOVE}", shown(found)));
    };
    let product = (real * scale).round();
    if product < 1.0 {
        return wrong(format!(
            "the weight {} times {scale} is rounded to 0; use a greater factor",
            shown(found)
        ));
    }
    *at += found.len();
    // Saturates, which is past every limit.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Ok(product as u64)
}

/// What stands here, up to a gap or an end.
pub(super) fn word(text: &[u8], at: usize) -> &[u8] {
    let rest = &text[at.min(text.len())..];
    let len = rest.iter().position(|&byte| byte == b'\n' || is_gap(byte));
    &rest[..len.unwrap_or(rest.len())]
}

/// As it can be printed: foreign text may hold anything, of any length.
pub(super) fn shown(word: &[u8]) -> String {
    const MOST: usize = 40;
    let dots = if word.len() > MOST { "…" } else { "" };
    format!("{:?}{dots}", String::from_utf8_lossy(&word[..word.len().min(MOST)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Result<u64, String> {
        number(text.as_bytes(), &mut 0).map_err(|wrong| wrong.what)
    }

    #[test]
    fn numbers_are_read_as_the_standard_library_reads_them() {
        for text in ["0", "7", "007", "4294967296", "9999999999999999999", "18446744073709551615"] {
            for end in ["", " ", "\t1", "\r\n", ",5", "\n"] {
                assert_eq!(
                    one(&format!("{text}{end}")).unwrap(),
                    text.parse::<u64>().unwrap(),
                    "{text}{end:?}"
                );
            }
        }
        let mut digits = String::new();
        for i in 1..=20u8 {
            digits.push(char::from(b'0' + i * 7 % 10));
            for rest in [" 9999999999", ",1\n2 3 4 5", "\n12345678", "\t"] {
                assert_eq!(
                    one(&format!("{digits}{rest}")).ok(),
                    digits.parse::<u64>().ok(),
                    "{digits}{rest:?}"
                );
            }
            for rest in ["x 99999999", "/99999999", ":99999999", "\u{ff}9999999", "-"] {
                assert!(one(&format!("{digits}{rest}")).is_err(), "{digits}{rest:?}");
            }
        }
        for text in
            ["", " ", "-1", "+1", "1x", "x", "1.5", "18446744073709551616", "99999999999999999999"]
        {
            assert!(one(text).is_err(), "{text}");
        }
    }

    #[test]
    fn weights_are_above_0_and_whole_unless_scaled() {
        let read = |text: &str, scale| {
            let rule = Weights { scale, limit: 1000 };
            weight(text.as_bytes(), &mut 0, &rule).map_err(|wrong| wrong.what)
        };
        assert_eq!(read("12\n", None), Ok(12));
        for text in ["0", "-3", "NaN", "inf", "-0.5", "", "1000", "1e99", "x", "0.0"] {
            assert!(read(text, None).is_err(), "{text}");
            assert!(read(text, Some(10.0)).is_err() || text == "0", "{text}");
        }
        assert!(read("0.25", None).unwrap_err().contains("--scale-weights"));
        assert_eq!(read("0.25", Some(10.0)), Ok(3));
        assert_eq!(read("7", Some(2.0)), Ok(14));
        assert!(read("0.04", Some(10.0)).unwrap_err().contains("greater"));
    }
}
