//! Values with units.

use std::fmt;

use hugepilot_units::Bytes;
use schemars::JsonSchema;
use serde::Serialize;

use crate::table::{grouped, percent};

/// Unit of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Events or things.
    Count,
    /// Events per second.
    PerSecond,
    /// Bytes.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
    /// Seconds.
    Seconds,
    /// A time, in seconds since 1970, UTC. Shown as date and time.
    UnixSeconds,
    /// A share, 1 for the whole.
    Ratio,
    /// A number without a unit, such as instructions per cycle or a speedup.
    Number,
    /// The binary logarithm of a count, for axes of powers of two. Shown as the count.
    Log2,
}

impl Unit {
    /// End of the names of columns and metrics with this unit.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Count | Self::Number => "",
            Self::Log2 => "log2",
            Self::PerSecond => "per_second",
            Self::Bytes => "bytes",
            Self::BytesPerSecond => "bytes_per_second",
            Self::Seconds => "seconds",
            Self::UnixSeconds => "unix_seconds",
            Self::Ratio => "ratio",
        }
    }
}

/// A value with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Quantity {
    /// Value.
    pub value: f64,
    /// Unit.
    pub unit: Unit,
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.value;
        let sign = if value < 0.0 { "-" } else { "" };
        let text = match self.unit {
            Unit::Count => return f.pad(&format!("{sign}{}", count(value.abs()))),
            Unit::PerSecond => format!("{sign}{}/s", count(value.abs())),
            Unit::Bytes => format!("{sign}{}", bytes(value.abs())),
            Unit::BytesPerSecond => format!("{sign}{}/s", bytes(value.abs())),
            Unit::Seconds => format!("{sign}{}", seconds(value.abs())),
            Unit::UnixSeconds => date_time(value),
            Unit::Ratio => share(value),
            Unit::Number => significant(value),
            Unit::Log2 => count(value.exp2().round()),
        };
        f.pad(&text)
    }
}

fn count(value: f64) -> String {
    if value >= 1e6 {
        let (scaled, unit) = if value >= 1e9 { (value / 1e9, "G") } else { (value / 1e6, "M") };
        return format!("{}{unit}", significant(scaled));
    }
    if value >= 100.0 || value.fract() == 0.0 { grouped(value) } else { significant(value) }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn bytes(value: f64) -> String {
    Bytes::new(value as u64).to_string()
}

/// A share with one decimal, or with two digits between 0.001 % and 1 %.
fn share(value: f64) -> String {
    let percent_value = value * 100.0;
    if !(1e-3..1.0).contains(&percent_value.abs()) {
        return percent(value);
    }
    let last_digit = 10_f64.powf(percent_value.abs().log10().floor() - 1.0);
    format!("{} %", significant((percent_value / last_digit).round() * last_digit))
}

fn seconds(value: f64) -> String {
    seconds_beside(value, value)
}

/// A time in the unit of a longer one, unless it is a thousandth of that or less.
pub fn seconds_beside(value: f64, longest: f64) -> String {
    if value == 0.0 {
        return "0s".to_owned();
    }
    let scale = if value * 1e3 > longest { longest } else { value };
    let (factor, unit) = match scale {
        _ if scale < 1e-6 => (1e9, "ns"),
        _ if scale < 1e-3 => (1e6, "us"),
        _ if scale < 1.0 => (1e3, "ms"),
        _ => (1.0, "s"),
    };
    format!("{}{unit}", significant(value * factor))
}

/// Date and time in UTC (ISO 8601), to the second.
#[allow(clippy::cast_possible_truncation)]
fn date_time(unix_seconds: f64) -> String {
    let seconds = unix_seconds.floor() as i64;
    let (year, month, day) = date(seconds.div_euclid(86_400));
    let [hour, minute, second] = [(3600, 24), (60, 60), (1, 60)]
        .map(|(unit, count)| seconds.div_euclid(unit).rem_euclid(count));
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day in the Gregorian calendar of a day since 1970-01-01 (Hinnant,
/// *chrono-compatible low-level date algorithms*: an era has 400 years, which start in March).
fn date(day: i64) -> (i64, i64, i64) {
    let day = day.saturating_add(719_468);
    let (era, day) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year + era * 400 + i64::from(month < 3), month, of_year - (153 * from_march + 2) / 5 + 1)
}

/// Three significant digits, without trailing zeros.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(crate) fn significant(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 { "0".to_owned() } else { "–".to_owned() };
    }
    let before = value.abs().log10().floor() as i32;
    let digits = (2 - before).clamp(0, 9) as usize;
    let text = format!("{value:.digits$}");
    if digits == 0 { text } else { text.trim_end_matches('0').trim_end_matches('.').to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_three_digits_and_their_unit() {
        let text = |value, unit| Quantity { value, unit }.to_string();
        assert_eq!(text(12_345.0, Unit::Count), "12,345");
        assert_eq!(text(1_234_567.0, Unit::PerSecond), "1.23M/s");
        let shares =
            [0.000_001, 0.031_49, 0.006_49, -0.000_041_9].map(|share| text(share, Unit::Ratio));
        assert_eq!(shares, ["0.0 %", "3.1 %", "0.65 %", "-0.0042 %"]);
        assert_eq!(text(1.5 * 1024.0 * 1024.0, Unit::Bytes), "1.5MiB");
        assert_eq!(text(-2048.0, Unit::Bytes), "-2KiB");
        assert_eq!(text(0.000_25, Unit::Seconds), "250us");
        assert_eq!(text(61.26, Unit::Seconds), "61.3s");
        let beside = [0.987, 0.000_021].map(|value| seconds_beside(value, 1.02));
        assert_eq!(beside, ["0.987s", "21us"], "a column has one unit, if that is legible");
        assert_eq!(text(0.043_21, Unit::Number), "0.0432");
        assert_eq!(text(1.0, Unit::Number), "1");
        assert_eq!(text(100.0, Unit::Number), "100");
    }

    #[test]
    fn times_are_dates_in_utc() {
        let text = |value| Quantity { value, unit: Unit::UnixSeconds }.to_string();
        // As `date -u -d @SECONDS +%FT%TZ` prints them.
        for (seconds, expected) in [
            (0.0, "1970-01-01T00:00:00Z"),
            (951_782_399.9, "2000-02-28T23:59:59Z"),
            (951_782_400.0, "2000-02-29T00:00:00Z"),
            (1_798_761_600.0, "2027-01-01T00:00:00Z"),
            (4_107_542_400.0, "2100-03-01T00:00:00Z"),
            (-1.0, "1969-12-31T23:59:59Z"),
        ] {
            assert_eq!(text(seconds), expected);
        }
        // Hostile recordings.
        for seconds in [f64::MAX, f64::MIN, f64::NAN] {
            assert!(text(seconds).ends_with('Z'));
        }
    }
}
