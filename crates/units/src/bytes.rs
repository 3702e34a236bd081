//! Numbers of bytes.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ParseError;

const EXPECTED: &str = "a size below 16EiB, such as 512MiB, 1.5GiB or 4096";

/// Number of bytes. Sums and differences saturate, so that no value from the kernel can panic.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Bytes(u64);

impl Bytes {
    /// Zero bytes.
    pub const ZERO: Self = Self(0);
    /// Largest number; stands for "no limit".
    pub const MAX: Self = Self(u64::MAX);

    /// Makes a number of bytes.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }
    /// Makes a number of KiB.
    pub const fn kib(kib: u64) -> Self {
        Self(kib.saturating_mul(1 << 10))
    }
    /// Makes a number of MiB.
    pub const fn mib(mib: u64) -> Self {
        Self(mib.saturating_mul(1 << 20))
    }
    /// Makes a number of GiB.
    pub const fn gib(gib: u64) -> Self {
        Self(gib.saturating_mul(1 << 30))
    }
    /// Whether there are none. Takes a reference, for `skip_serializing_if` of serde.
    #[allow(clippy::trivially_copy_pass_by_ref)]
    pub const fn is_zero(&self) -> bool {
        self.0 == 0
    }
    /// Returns the number.
    pub const fn get(self) -> u64 {
        self.0
    }
    /// Returns the number as an index or a length.
    ///
    /// # Panics
    /// If the number exceeds the address space, on a 32-bit machine.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).expect("sizes fit the address space")
    }
    /// Converts to floating point, for ratios; exact below 2^53.
    #[allow(clippy::cast_precision_loss)]
    pub const fn as_f64(self) -> f64 {
        self.0 as f64
    }
    /// Multiplies by `count`.
    #[must_use]
    pub const fn times(self, count: u64) -> Self {
        Self(self.0.saturating_mul(count))
    }
    /// Returns the ratio to `whole`; 0 if that is 0.
    pub fn ratio_of(self, whole: Self) -> f64 {
        if whole.0 == 0 { 0.0 } else { self.as_f64() / whole.as_f64() }
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}
impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}
impl Sub for Bytes {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}
impl SubAssign for Bytes {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}
impl Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
        items.fold(Self::ZERO, Self::add)
    }
}

const UNITS: [(&str, u64); 7] = [
    ("EiB", 1 << 60),
    ("PiB", 1 << 50),
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];

/// Prints the largest unit that leaves at least 1, with at most two decimals.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, unit) = UNITS.into_iter().find(|&(_, unit)| self.0 >= unit).unwrap_or(("B", 1));
        let value = self.as_f64() / Self(unit).as_f64();
        let digits = format!("{value:.2}");
        let digits = digits.trim_end_matches('0').trim_end_matches('.');
        f.pad(&format!("{digits}{name}"))
    }
}

/// Parses a number with an optional unit: `B`, `K`, `KB`, `KiB`, `M` … `E`, in any case. All are
/// powers of 1024, because page sizes are.
impl FromStr for Bytes {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let fail = || ParseError::new(EXPECTED, text);
        let trimmed = text.trim();
        let split =
            trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, suffix) = trimmed.split_at(split);
        let unit = match suffix.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1_u64,
            "k" | "kb" | "kib" => 1 << 10,
            "m" | "mb" | "mib" => 1 << 20,
            "g" | "gb" | "gib" => 1 << 30,
            "t" | "tb" | "tib" => 1 << 40,
            "p" | "pb" | "pib" => 1 << 50,
            "e" | "eb" | "eib" => 1 << 60,
            _ => return Err(fail()),
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(unit).map(Self).ok_or_else(fail);
        }
        let value = number.parse::<f64>().map_err(|_| fail())? * Self(unit).as_f64();
        // 2^64 is exact in f64; everything below it fits after rounding.
        if !(0.0..18_446_744_073_709_551_616.0).contains(&value) {
            return Err(fail());
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        Ok(Self(value.round() as u64))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn prints_as_users_write() {
        let table = [
            (Bytes::ZERO, "0B"),
            (Bytes::new(1023), "1023B"),
            (Bytes::kib(1), "1KiB"),
            (Bytes::new(1536), "1.5KiB"),
            (Bytes::mib(2), "2MiB"),
            (Bytes::gib(1) + Bytes::mib(256), "1.25GiB"),
            (Bytes::gib(4096), "4TiB"),
            (Bytes::new(5 << 60), "5EiB"),
        ];
        for (bytes, text) in table {
            assert_eq!(bytes.to_string(), text);
            assert_eq!(text.parse::<Bytes>().unwrap(), bytes);
        }
    }

    #[test]
    fn parses_usual_units() {
        for text in ["2097152", "2048k", "2048 KiB", "2m", "2MB", "0.001953125g"] {
            assert_eq!(text.parse::<Bytes>().unwrap(), Bytes::mib(2), "{text}");
        }
    }

    #[test]
    fn refuses_other_text() {
        for text in ["", "GiB", "-1", "1.2.3", "4%", "1e3", "99999999T", "16E", "nan", "1 0"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in ".{0,24}") {
            let _ = text.parse::<Bytes>();
        }

        #[test]
        fn printing_keeps_three_digits(n in any::<u64>()) {
            let back: Bytes = Bytes::new(n).to_string().parse().unwrap_or(Bytes::MAX);
            let error = (back.as_f64() - Bytes::new(n).as_f64()).abs();
            prop_assert!(error <= Bytes::new(n).as_f64() * 0.01);
        }
    }
}
