//! Memory to leave: an amount, or one beyond the footprint of a program.

use std::str::FromStr;

use hugepilot_units::{Bytes, ParseError};

const EXPECTED: &str = "an amount such as 3GiB, or footprint+0.5GiB";

/// Value of `--leave`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    Amount(Bytes),
    /// The footprint and this amount.
    Footprint(Bytes),
}

impl Leave {
    /// The memory to leave; `None` without a footprint that it needs.
    pub(super) fn bytes(self, footprint: Option<Bytes>) -> Option<Bytes> {
        match self {
            Self::Amount(bytes) => Some(bytes),
            Self::Footprint(more) => Some(footprint? + more),
        }
    }
}

impl FromStr for Leave {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let fail = |_| ParseError { expected: EXPECTED, found: text.to_owned() };
        match text.trim().strip_prefix("footprint") {
            None => text.parse().map(Self::Amount).map_err(fail),
            Some("") => Ok(Self::Footprint(Bytes::ZERO)),
            Some(rest) => {
                let more = rest.trim().strip_prefix('+').unwrap_or("missing");
                more.parse().map(Self::Footprint).map_err(fail)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_footprint_is_added_if_the_text_names_it() {
        let table = [
            ("3GiB", None, Some(Bytes::gib(3))),
            ("footprint+0.5GiB", Some(Bytes::gib(2)), Some(Bytes::mib(2560))),
            ("footprint + 1GiB", Some(Bytes::gib(2)), Some(Bytes::gib(3))),
            ("footprint", Some(Bytes::gib(2)), Some(Bytes::gib(2))),
            ("footprint+1GiB", None, None),
            ("1GiB", Some(Bytes::gib(2)), Some(Bytes::gib(1))),
        ];
        for (text, footprint, bytes) in table {
            assert_eq!(text.parse::<Leave>().unwrap().bytes(footprint), bytes, "{text}");
        }
        for text in ["", "footprint-1GiB", "footprint1GiB", "half"] {
            assert!(text.parse::<Leave>().is_err(), "{text}");
        }
    }
}
