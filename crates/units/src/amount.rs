//! Shares of a whole, and amounts: `4%` or `2GiB`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Bytes, ParseError};

const EXPECTED_SHARE: &str = "a share from 0% to 100%, such as 4% or 0.5%";
const EXPECTED_AMOUNT: &str = "an amount such as 512MiB, or a share up to 100%, such as 4%";

/// Share of a whole, 0 to 1. Printed in percent; a ratio in JSON.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Share(f64);

impl Share {
    /// The whole.
    pub const ALL: Self = Self(1.0);

    /// Makes a share from a percentage, clamped to 0–100.
    pub fn percent(percent: f64) -> Self {
        Self((percent / 100.0).clamp(0.0, 1.0))
    }
    /// Makes a share from a ratio, clamped to 0–1.
    pub fn ratio(ratio: f64) -> Self {
        Self(ratio.clamp(0.0, 1.0))
    }
    /// Returns the ratio, 0 to 1.
    pub const fn get(self) -> f64 {
        self.0
    }
    /// Returns this share of `whole`, rounded down.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn of(self, whole: Bytes) -> Bytes {
        Bytes::new((whole.as_f64() * self.0) as u64)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:.2}", self.0 * 100.0);
        f.pad(&format!("{}%", digits.trim_end_matches('0').trim_end_matches('.')))
    }
}

impl FromStr for Share {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let fail = || ParseError::new(EXPECTED_SHARE, text);
        let number = text.trim().strip_suffix('%').ok_or_else(fail)?;
        let percent: f64 = number.trim().parse().map_err(|_| fail())?;
        if !(0.0..=100.0).contains(&percent) {
            return Err(fail());
        }
        Ok(Self::percent(percent))
    }
}

/// Number of bytes, or a share of a whole that is known later. Tagged in JSON:
/// `{"share": 0.04}`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Amount {
    /// Number of bytes.
    Bytes(Bytes),
    /// Share of the whole.
    Share(Share),
}

impl Amount {
    /// Returns the bytes, for this `whole`.
    pub fn of(self, whole: Bytes) -> Bytes {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Share(share) => share.of(whole),
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => bytes.fmt(f),
            Self::Share(share) => share.fmt(f),
        }
    }
}

impl FromStr for Amount {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let parsed = if text.contains('%') {
            text.parse().map(Self::Share)
        } else {
            text.parse().map(Self::Bytes)
        };
        parsed.map_err(|_| ParseError::new(EXPECTED_AMOUNT, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_of_a_whole_and_bytes_are_not() {
        assert_eq!("25%".parse::<Amount>().unwrap().of(Bytes::gib(8)), Bytes::gib(2));
        assert_eq!("512MiB".parse::<Amount>().unwrap().of(Bytes::gib(8)), Bytes::mib(512));
    }

    #[test]
    fn prints_what_it_reads() {
        for text in ["4%", "0.5%", "100%", "1.5GiB"] {
            assert_eq!(text.parse::<Amount>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn refuses_more_than_all() {
        for text in ["101%", "-4%", "%", "nan%", "4%%"] {
            assert!(text.parse::<Amount>().is_err(), "{text}");
        }
    }
}
