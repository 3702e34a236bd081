//! Numbers in text, parsed at the speed of memory instead of the standard library.

use super::text::SyntaxError;
use crate::error::{Excerpt, LoadFault};

/// Rule for weights.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weights {
    /// Factor for real weights, applied before rounding; `None` requires integers.
    pub(super) scale: Option<f64>,
    /// Exclusive upper bound.
    pub(super) limit: u64,
}

/// Whether a byte may end a number of a line.
#[inline]
pub(super) const fn is_gap(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b',' | b';' | b'\r')
}

/// Skips blanks, but not the end of the line.
#[inline]
pub(super) fn blanks(text: &[u8], at: &mut usize) {
    while matches!(text.get(*at), Some(b' ' | b'\t' | b'\r')) {
        *at += 1;
    }
}

/// Whether the line ends here.
#[inline]
pub(super) fn is_end(text: &[u8], at: usize) -> bool {
    text.get(at).is_none_or(|&byte| byte == b'\n')
}

/// Skips the rest of the line and its end.
#[inline]
pub(super) fn skip_line(text: &[u8], at: &mut usize) {
    if text.get(*at) == Some(&b'\n') {
        *at += 1;
        return;
    }
    *at = memchr::memchr(b'\n', &text[*at..]).map_or(text.len(), |len| *at + len + 1);
}

/// Parses an unsigned integer that a separator or the end of the line follows.
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

/// Parses the digits at the start of eight bytes, and returns the value and the number of digits.
/// It has no branch on the length, which processors predict badly. All bytes at once, as in
/// Lemire, *Quickly parsing eight digits*.
#[inline]
const fn eight(word: u64) -> (u64, usize) {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let digits = word ^ (ONES * 0x30);
    // The highest bit of each byte above 9, exact up to the first such byte.
    let others = (digits | digits.wrapping_add(ONES * 0x76)) & (ONES * 0x80);
    let count = others.trailing_zeros() as usize / 8;
    if count == 0 {
        return (0, 0);
    }
    // Pads with leading zeros, then joins digits to pairs, fours and all eight.
    let aligned = digits << (64 - 8 * count);
    let pairs = (aligned.wrapping_mul(1 + (10 << 8)) >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs.wrapping_mul(1 + (100 << 16)) >> 16) & 0x0000_ffff_0000_ffff;
    (fours.wrapping_mul(1 + (10_000 << 32)) >> 32, count)
}

/// Parses long numbers and those at the end of the text, and reports faults.
fn careful(text: &[u8], at: &mut usize) -> Result<u64, SyntaxError> {
    let word = word(text, *at);
    let error = |fault| Err(SyntaxError::at(*at, fault));
    if word.is_empty() {
        return error(LoadFault::MissingNumber);
    }
    if !word.iter().all(u8::is_ascii_digit) {
        return error(LoadFault::NotUnsigned(Excerpt::new(word)));
    }
    let digits = std::str::from_utf8(word).ok().and_then(|digits| digits.parse().ok());
    let Some(value) = digits else {
        return error(LoadFault::NumberTooLarge(Excerpt::new(word)));
    };
    *at += word.len();
    Ok(value)
}

/// Parses a weight: a positive integer, or a scaled and rounded real number.
#[inline]
pub(super) fn weight(text: &[u8], at: &mut usize, rule: &Weights) -> Result<u64, SyntaxError> {
    let start = *at;
    let value = match rule.scale {
        Some(scale) => scaled(text, at, scale)?,
        None => match number(text, at) {
            Ok(value) => value,
            Err(error) => integral(text, at).ok_or_else(|| weight_error(text, error))?,
        },
    };
    if value == 0 {
        let found = Excerpt::new(word(text, start));
        return Err(SyntaxError::at(start, LoadFault::NotPositive(found)));
    }
    if value >= rule.limit {
        return Err(SyntaxError::at(start, LoadFault::WeightTooLarge(value)));
    }
    Ok(value)
}

/// Parses a real number without a fraction, such as `3.0`.
fn integral(text: &[u8], at: &mut usize) -> Option<u64> {
    let found = word(text, *at);
    let real: f64 = std::str::from_utf8(found).ok()?.parse().ok()?;
    // Below, each integer has its own number.
    let exact = 0.0..(1u64 << f64::MANTISSA_DIGITS) as f64;
    (real.fract() == 0.0 && exact.contains(&real) && real > 0.0).then(|| {
        *at += found.len();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let value = real as u64;
        value
    })
}

/// Turns the fault of an integer into that of a weight.
#[cold]
fn weight_error(text: &[u8], error: SyntaxError) -> SyntaxError {
    let SyntaxError::At { byte, fault } = error else { return error };
    let found = word(text, byte);
    let real = std::str::from_utf8(found).ok().and_then(|word| word.parse::<f64>().ok());
    let fault = match real {
        Some(real) if real.is_finite() && real > 0.0 => {
            LoadFault::FractionalWeight(Excerpt::new(found))
        }
        Some(_) => LoadFault::NotPositive(Excerpt::new(found)),
        None if found.is_empty() => LoadFault::MissingWeight,
        None => fault,
    };
    SyntaxError::At { byte, fault }
}

fn scaled(text: &[u8], at: &mut usize, scale: f64) -> Result<u64, SyntaxError> {
    let found = word(text, *at);
    let error = |fault| Err(SyntaxError::at(*at, fault));
    let real = std::str::from_utf8(found).ok().and_then(|word| word.parse::<f64>().ok());
    let Some(real) = real.filter(|real| real.is_finite() && *real > 0.0) else {
        return error(match found.is_empty() {
            true => LoadFault::MissingWeight,
            false => LoadFault::NotPositive(Excerpt::new(found)),
        });
    };
    let product = (real * scale).round();
    if product < 1.0 {
        return error(LoadFault::WeightRoundedToZero { weight: Excerpt::new(found), scale });
    }
    *at += found.len();
    // Saturates, which exceeds every limit.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Ok(product as u64)
}

/// Returns the word at `at`, up to a separator or the end of the line.
pub(super) fn word(text: &[u8], at: usize) -> &[u8] {
    let rest = &text[at.min(text.len())..];
    let len = rest.iter().position(|&byte| byte == b'\n' || is_gap(byte));
    &rest[..len.unwrap_or(rest.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(error: SyntaxError) -> LoadFault {
        match error {
            SyntaxError::At { fault, .. } => fault,
            SyntaxError::Other(error) => panic!("{error}"),
        }
    }

    fn parsed(text: &str) -> Option<u64> {
        number(text.as_bytes(), &mut 0).ok()
    }

    #[test]
    fn numbers_parse_as_in_the_standard_library() {
        for text in ["0", "7", "007", "4294967296", "9999999999999999999", "18446744073709551615"] {
            for end in ["", " ", "\t1", "\r\n", ",5", "\n"] {
                assert_eq!(parsed(&format!("{text}{end}")), text.parse().ok(), "{text}{end:?}");
            }
        }
        let mut digits = String::new();
        for i in 1..=20u8 {
            digits.push(char::from(b'0' + i * 7 % 10));
            for rest in [" 9999999999", ",1\n2 3 4 5", "\n12345678", "\t"] {
                let text = format!("{digits}{rest}");
                assert_eq!(parsed(&text), digits.parse().ok(), "{text:?}");
            }
            for rest in ["x 99999999", "/99999999", ":99999999", "\u{ff}9999999", "-"] {
                assert_eq!(parsed(&format!("{digits}{rest}")), None, "{digits}{rest:?}");
            }
        }
        for text in
            ["", " ", "-1", "+1", "1x", "x", "1.5", "18446744073709551616", "99999999999999999999"]
        {
            assert_eq!(parsed(text), None, "{text}");
        }
    }

    #[test]
    fn weights_are_positive_integers_unless_scaled() {
        let read = |text: &str, scale| {
            let rule = Weights { scale, limit: 1000 };
            weight(text.as_bytes(), &mut 0, &rule).map_err(fault)
        };
        assert_eq!(read("12\n", None).unwrap(), 12);
        assert_eq!(read("12.0\n", None).unwrap(), 12);
        for text in ["0", "-3", "NaN", "inf", "-0.5", "", "1000", "1e99", "x", "0.0", "1000.0"] {
            assert!(read(text, None).is_err(), "{text}");
            assert!(read(text, Some(10.0)).is_err() || text == "0", "{text}");
        }
        assert!(matches!(read("0.25", None), Err(LoadFault::FractionalWeight(_))));
        assert_eq!(read("0.25", Some(10.0)).unwrap(), 3);
        assert_eq!(read("7", Some(2.0)).unwrap(), 14);
        let rounded = read("0.04", Some(10.0));
        assert!(matches!(rounded, Err(LoadFault::WeightRoundedToZero { .. })));
    }
}
