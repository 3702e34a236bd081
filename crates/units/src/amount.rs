//! Shares of a whole, and amounts: `4%` or `2GiB`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Bytes, ParseError};

const EXPECTED_SHARE: &str = "a share from 0% to 100%, such as 4% or 0.5%";
/// Parts of a whole. A share of fifteen decimals is exact, which binary fractions only approach.
const PARTS: u64 = 1_000_000_000_000_000;
const EXPECTED_AMOUNT: &str = "an amount such as 512MiB, or a share up to 100%, such as 4%";

/// Share of a whole, 0 to 1. Printed in percent; a ratio in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(transparent))]
pub struct Share(
    /// Parts of [`PARTS`].
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    u64,
);

impl Share {
    /// The whole.
    pub const ALL: Self = Self(PARTS);

    /// Makes a share from a percentage, clamped to 0–100.
    pub fn percent(percent: f64) -> Self {
        Self::ratio(percent / 100.0)
    }
    /// Makes the share next to a ratio: a decimal number of at most 15 places, clamped to 0–1.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn ratio(ratio: f64) -> Self {
        Self((ratio.clamp(0.0, 1.0) * PARTS as f64).round() as u64)
    }
    /// Makes the share of `part` in `whole`, at most 1.
    #[allow(clippy::cast_possible_truncation)]
    pub const fn fraction(part: u64, whole: u64) -> Self {
        let (part, whole) = (part as u128, if whole == 0 { 1 } else { whole as u128 });
        let part = if part < whole { part } else { whole };
        Self((part * PARTS as u128 / whole) as u64)
    }
    /// Returns the ratio, 0 to 1.
    pub const fn get(self) -> f64 {
        self.0 as f64 / PARTS as f64
    }
    /// Returns this share of `whole`, rounded down: 58 % of 50 are 29, although no binary fraction
    /// is 0.58.
    #[allow(clippy::cast_possible_truncation)]
    pub fn of(self, whole: Bytes) -> Bytes {
        let of = u128::from(whole.get()) * u128::from(self.0) / u128::from(PARTS);
        Bytes::new(of as u64)
    }
    /// Returns how many of `whole` pieces a turn has, if each turn has this share of them: 0 and 1,
    /// by turns, of a share of half a piece. Turns are numbered from 1.
    pub fn turn_of(self, whole: u64, turn: u64) -> u64 {
        let until = |turn: u64| {
            let parts = u128::from(self.0) * u128::from(whole);
            parts.saturating_mul(u128::from(turn)) / u128::from(PARTS)
        };
        u64::try_from(until(turn) - until(turn.saturating_sub(1))).unwrap_or(u64::MAX)
    }
}

impl Serialize for Share {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.get())
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        f64::deserialize(deserializer).map(Self::ratio)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:.2}", self.get() * 100.0);
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
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against integers, for shares with up to four decimals of a percent.
        #[test]
        fn a_share_is_exact(
            parts in 0u64..=1_000_000,
            step in prop::sample::select(vec![1u64, 100, 10_000]),
            bits in 0u32..64,
            whole in any::<u64>(),
        ) {
            let (parts, whole) = (parts / step * step, whole >> bits);
            let text = format!("{}.{:04}%", parts / 10_000, parts % 10_000);
            let expected = u128::from(whole) * u128::from(parts) / 1_000_000;
            let found = text.parse::<Share>().unwrap().of(Bytes::new(whole));
            prop_assert_eq!(u128::from(found.get()), expected, "{} of {}", text, whole);
        }
    }

    #[test]
    fn a_share_of_few_is_not_one_less() {
        let wrong: Vec<_> = (0..=100u64)
            .flat_map(|percent| (0..=1000u64).map(move |whole| (percent, whole)))
            .filter(|&(percent, whole)| {
                let share = Share::percent(percent as f64);
                share.of(Bytes::new(whole)) != Bytes::new(whole * percent / 100)
            })
            .collect();
        assert_eq!(wrong, []);
    }

    #[test]
    fn a_share_out_of_json_has_no_overflow() {
        let of = |json| serde_json::from_str::<Share>(json).unwrap().of(Bytes::MAX);
        assert_eq!([of("1"), of("7.5"), of("-1.0")], [Bytes::MAX, Bytes::MAX, Bytes::ZERO]);
    }

    /// A third is none: its share is that of the decimals which text and JSON have.
    #[test]
    fn a_share_is_a_decimal() {
        let third = Share::ratio(1.0 / 3.0);
        assert_eq!("33.3333333333333%".parse(), Ok(third));
        let json = serde_json::to_string(&[third, Share::percent(58.0), Share::ALL]).unwrap();
        assert_eq!(json, "[0.333333333333333,0.58,1.0]");
        assert_eq!(serde_json::from_str::<[Share; 3]>(&json).unwrap()[0], third);
        assert_eq!(third.of(Bytes::new(3 * PARTS)), Bytes::new(PARTS - 1));
    }

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

    #[test]
    fn turns_have_a_share_of_all_pieces_together() {
        let half = Share::percent(12.5);
        let turns: Vec<u64> = (1..=8).map(|turn| half.turn_of(4, turn)).collect();
        assert_eq!(turns, [0, 1, 0, 1, 0, 1, 0, 1]);
        assert_eq!((Share::ALL.turn_of(7, 3), half.turn_of(0, 9)), (7, 0));
        assert_eq!(
            (Share::fraction(8, 5120).get(), Share::fraction(3, 0)),
            (0.001_562_5, Share::ALL)
        );
    }
}
