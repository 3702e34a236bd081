//! OpenMetrics text: a gauge for each number in a table.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::printable;
use crate::model::{Block, Cell, Report, Unit};

/// The numbers of all tables, in a family for each unit. Labels name the place of a number.
pub fn openmetrics(report: &Report) -> String {
    let mut families: BTreeMap<&str, String> = BTreeMap::new();
    for section in &report.sections {
        for block in &section.blocks {
            let Block::Table(table) = block else { continue };
            for (index, row) in table.rows.iter().enumerate() {
                let name = row.first().map(Cell::text).unwrap_or_default();
                for (cell, column) in row.iter().zip(&table.columns) {
                    let Cell::Quantity(quantity) = cell else { continue };
                    let family = family(quantity.unit);
                    let samples = families.entry(family).or_default();
                    let _ = writeln!(
                        samples,
                        "{family}{{section=\"{}\",table=\"{}\",row=\"{}\",index=\"{index}\",\
                         column=\"{}\"}} {}",
                        label(&section.title),
                        label(&table.title),
                        label(&name),
                        label(column),
                        quantity.value
                    );
                }
            }
        }
    }
    let mut text = String::new();
    for (family, samples) in families {
        let _ = writeln!(text, "# TYPE {family} gauge");
        if let Some(unit) = family.strip_prefix("hugepilot_report_").filter(|unit| *unit != "value")
        {
            let _ = writeln!(text, "# UNIT {family} {unit}");
        }
        let _ = writeln!(text, "# HELP {family} A number of a table of the report.");
        text.push_str(&samples);
    }
    text.push_str("# EOF\n");
    text
}

const fn family(unit: Unit) -> &'static str {
    match unit {
        Unit::Count | Unit::Number | Unit::Log2 => "hugepilot_report_value",
        Unit::PerSecond => "hugepilot_report_per_second",
        Unit::Bytes => "hugepilot_report_bytes",
        Unit::BytesPerSecond => "hugepilot_report_bytes_per_second",
        Unit::Seconds => "hugepilot_report_seconds",
        Unit::UnixSeconds => "hugepilot_report_unix_seconds",
        Unit::Ratio => "hugepilot_report_ratio",
    }
}

/// A label value: backslashes, quotes and line feeds are escaped, as the format requires.
fn label(text: &str) -> String {
    printable(text).replace('\\', "\\\\").replace('"', "\\\"")
}
