//! CSV: a row for each value, in one table (RFC 4180).

use crate::back_end::printable;
use crate::model::{Block, Cell, Chart, Report, Table, Unit};

/// The report as rows of `section,block,row,column,value,unit`. Values of plots have their first
/// coordinate as the row. Text that a spreadsheet would take for a formula begins with `'`.
pub fn csv(report: &Report) -> String {
    let mut csv = Csv { text: "section,block,row,column,value,unit\n".to_owned() };
    for section in &report.sections {
        for block in &section.blocks {
            match block {
                Block::Table(table) => csv.table(&section.title, table),
                Block::Plot(plot) => csv.chart(&section.title, &plot.title, &plot.chart),
                Block::Notice(notice) => {
                    let level = notice.level.word();
                    csv.row(&section.title, level, "", "", &field(&notice.text), "");
                }
                Block::Lines(part) => {
                    for line in &part.lines {
                        csv.row(&section.title, "line", "", "", &field(line), "");
                    }
                }
            }
        }
    }
    csv.text
}

struct Csv {
    text: String,
}

impl Csv {
    /// Adds a row; `value` is a field already.
    fn row(
        &mut self,
        section: &str,
        block: &str,
        row: &str,
        column: &str,
        value: &str,
        unit: &str,
    ) {
        for name in [section, block, row, column] {
            self.text.push_str(&field(name));
            self.text.push(',');
        }
        self.text.push_str(value);
        self.text.push(',');
        self.text.push_str(unit);
        self.text.push('\n');
    }

    fn table(&mut self, section: &str, table: &Table) {
        for (index, cells) in table.rows.iter().enumerate() {
            let row =
                format!("{} {}", index + 1, cells.first().map(Cell::text).unwrap_or_default());
            for (cell, column) in cells.iter().zip(&table.columns) {
                let (value, unit) = match cell {
                    Cell::Text(text) => (field(text), ""),
                    Cell::Quantity(quantity) => (quantity.value.to_string(), name(quantity.unit)),
                    Cell::Missing { .. } => (String::new(), ""),
                };
                self.row(section, &table.title, &row, column, &value, unit);
            }
        }
    }

    fn chart(&mut self, section: &str, block: &str, chart: &Chart) {
        match chart {
            Chart::Time(plot) => {
                for line in &plot.lines {
                    for (time, value) in plot.times_seconds.iter().zip(&line.values) {
                        let value = value.map_or_else(String::new, |value| value.to_string());
                        let unit = name(plot.unit);
                        self.row(section, block, &time.to_string(), &line.name, &value, unit);
                    }
                }
            }
            Chart::Curves(curves) => {
                for curve in &curves.curves {
                    for (x, y) in &curve.points {
                        let (x, y) = (x.to_string(), y.to_string());
                        self.row(section, block, &x, &curve.name, &y, name(curves.y_unit));
                    }
                }
            }
            Chart::Scatter(plot) => {
                for group in &plot.groups {
                    for (x, y, count) in &group.points {
                        let column = format!("{} {y}", group.name);
                        self.row(
                            section,
                            block,
                            &x.to_string(),
                            &column,
                            &count.to_string(),
                            "count",
                        );
                    }
                }
            }
            Chart::Bars(bars) => {
                for bar in &bars.bars {
                    let value = bar.value.map_or_else(String::new, |value| value.to_string());
                    self.row(section, block, &bar.name, &bars.name, &value, name(bars.unit));
                }
            }
            Chart::HeatMap(map) => {
                for cell in &map.cells {
                    let time = map.edges_seconds.get(cell.0 as usize + 1);
                    let row = map.rows.get(cell.1 as usize);
                    let (Some(time), Some(row)) = (time, row) else { continue };
                    let address = format!("{:#x}", row.start);
                    let heat = cell.2.to_string();
                    self.row(section, block, &time.to_string(), &address, &heat, "samples");
                }
            }
            Chart::Flame(flame) => {
                for node in &flame.nodes {
                    let samples = node.samples.to_string();
                    self.row(section, block, &node.name, "samples", &samples, "samples");
                }
            }
        }
    }
}

const fn name(unit: Unit) -> &'static str {
    match unit {
        Unit::Count => "count",
        Unit::Number => "",
        other => other.suffix(),
    }
}

/// A text as a field: harmless in a spreadsheet, and quoted if it needs to be.
fn field(text: &str) -> String {
    let text = printable(text);
    let is_formula =
        text.starts_with(['=', '+', '-', '@', '|', '%']) && text.parse::<f64>().is_err();
    let text = if is_formula { format!("'{text}") } else { text };
    if text.contains([',', '"', ';']) || text.starts_with(' ') || text.ends_with(' ') {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_neither_a_formula_nor_a_row() {
        assert_eq!(field("=HYPERLINK(1)"), "'=HYPERLINK(1)");
        assert_eq!(field("@x,y"), "\"'@x,y\"");
        assert_eq!(field("-0.5"), "-0.5");
        assert_eq!(field("a \"b\"\nc"), "\"a \"\"b\"\"\\u{a}c\"");
    }
}
