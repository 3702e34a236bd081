//! Times and durations in nanoseconds.

use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ParseError;

const EXPECTED: &str = "a time such as 30ms, 5s, 2min or 1h";

/// Number of nanoseconds: a duration, or a time on a clock that its user states.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Nanos(u64);

impl Nanos {
    /// Zero.
    pub const ZERO: Self = Self(0);

    /// Makes a number of nanoseconds.
    pub const fn new(nanos: u64) -> Self {
        Self(nanos)
    }
    /// Makes a number of milliseconds.
    pub const fn millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }
    /// Makes a number of seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000_000_000))
    }
    /// Returns the number.
    pub const fn get(self) -> u64 {
        self.0
    }
    /// Converts to seconds, for ratios and printing.
    #[allow(clippy::cast_precision_loss)]
    pub const fn as_seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }
    /// Returns the ratio to `whole`; 0 if that is 0.
    pub fn ratio_of(self, whole: Self) -> f64 {
        if whole.0 == 0 { 0.0 } else { self.as_seconds() / whole.as_seconds() }
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}
impl Sub for Nanos {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}
impl From<Duration> for Nanos {
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}
impl From<Nanos> for Duration {
    fn from(nanos: Nanos) -> Self {
        Self::from_nanos(nanos.0)
    }
}

/// Nanoseconds of 0.01 hours, the smallest printed step of hours.
const HOUR_STEP: u64 = 36_000_000_000;

const UNITS: [(&str, u64); 6] = [
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // 61 minutes are not a round number of hours, and stay minutes.
        let fits = |name: &str| name != "h" || self.0.is_multiple_of(HOUR_STEP);
        let (name, unit) = UNITS
            .into_iter()
            .find(|&(name, unit)| self.0 >= unit && fits(name))
            .unwrap_or(("s", 1));
        let digits = format!("{:.2}", self.as_seconds() / Self(unit).as_seconds());
        f.pad(&format!("{}{name}", digits.trim_end_matches('0').trim_end_matches('.')))
    }
}

/// Parses a number with a unit: `ns`, `us`, `ms`, `s`, `min` or `m`, `h`. Without one: seconds.
impl FromStr for Nanos {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let fail = || ParseError::new(EXPECTED, text);
        let trimmed = text.trim();
        let split =
            trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, suffix) = trimmed.split_at(split);
        let unit = match suffix.trim() {
            "" => 1_000_000_000,
            "m" => 60_000_000_000,
            suffix => UNITS.into_iter().find(|&(name, _)| name == suffix).ok_or_else(fail)?.1,
        };
        let value: f64 = number.parse().map_err(|_| fail())?;
        Duration::try_from_secs_f64(value * Self(unit).as_seconds())
            .map(Self::from)
            .map_err(|_| fail())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_what_it_reads() {
        for text in ["30ms", "5s", "1.5s", "2min", "59min", "61min", "2h", "1.5h", "14us", "7ns"] {
            assert_eq!(text.parse::<Nanos>().unwrap().to_string(), text);
        }
        assert_eq!("5".parse::<Nanos>().unwrap(), Nanos::seconds(5));
        assert_eq!("90m".parse::<Nanos>().unwrap(), "1.5h".parse().unwrap());
        assert_eq!("2 h".parse::<Nanos>().unwrap(), Nanos::seconds(7200));
        assert_eq!(Nanos::ZERO.to_string(), "0s");
    }

    #[test]
    fn refuses_other_text() {
        for text in ["", "s", "-1s", "5 parsecs", "1e99s", "999999999999999999999s"] {
            assert!(text.parse::<Nanos>().is_err(), "{text}");
        }
    }
}
