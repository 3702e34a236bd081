//! Values with units.

use std::fmt;

use hugepilot_units::Bytes;
use schemars::JsonSchema;
use serde::Serialize;

use crate::table::grouped;

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
    /// A share, 1 for the whole.
    Ratio,
    /// A number without a unit, such as instructions per cycle or a speedup.
    Number,
}

impl Unit {
    /// End of the names of columns and metrics with this unit.
    pub(crate) const fn suffix(self) -> &'static str {
        match self {
            Self::Count | Self::Number => "",
            Self::PerSecond => "per_second",
            Self::Bytes => "bytes",
            Self::BytesPerSecond => "bytes_per_second",
            Self::Seconds => "seconds",
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
            Unit::Ratio => format!("{:.1} %", value * 100.0),
            Unit::Number => significant(value),
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

fn seconds(value: f64) -> String {
    match value {
        0.0 => "0s".to_owned(),
        _ if value < 1e-6 => format!("{}ns", significant(value * 1e9)),
        _ if value < 1e-3 => format!("{}us", significant(value * 1e6)),
        _ if value < 1.0 => format!("{}ms", significant(value * 1e3)),
        _ => format!("{}s", significant(value)),
    }
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
        assert_eq!(text(0.031_49, Unit::Ratio), "3.1 %");
        assert_eq!(text(1.5 * 1024.0 * 1024.0, Unit::Bytes), "1.5MiB");
        assert_eq!(text(-2048.0, Unit::Bytes), "-2KiB");
        assert_eq!(text(0.000_25, Unit::Seconds), "250us");
        assert_eq!(text(61.26, Unit::Seconds), "61.3s");
        assert_eq!(text(0.043_21, Unit::Number), "0.0432");
        assert_eq!(text(1.0, Unit::Number), "1");
        assert_eq!(text(100.0, Unit::Number), "100");
    }
}
