//! Tables in text: columns aligned, two blanks between, nothing drawn.

use tabled::builder::Builder;
use tabled::settings::object::Columns;
use tabled::settings::{Alignment, Padding, Style};

/// Rows as a table; `right` names the columns that hold numbers.
pub(crate) fn table(rows: Vec<Vec<String>>, right: &[usize]) -> String {
    let mut table = Builder::from_iter(rows).build();
    table.with(Style::empty()).with(Padding::new(0, 2, 0, 0));
    for &column in right {
        table.modify(Columns::one(column), Alignment::right());
    }
    let mut text = String::new();
    for line in table.to_string().lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A share as people read it: `3.4 %`.
pub(crate) fn percent(ratio: f64) -> String {
    format!("{:.1} %", ratio * 100.0)
}

/// A count with thousands apart: `12,345`.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(crate) fn grouped(value: f64) -> String {
    let digits = (value.max(0.0).round() as u64).to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_easy_to_read() {
        assert_eq!(grouped(1_234_567.4), "1,234,567");
        assert_eq!(grouped(999.0), "999");
        assert_eq!(percent(0.0345), "3.5 %");
    }

    #[test]
    fn columns_line_up_without_trailing_blanks() {
        let rows = [["a", "1"], ["bbb", "100"]];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec()).to_vec();
        assert_eq!(table(rows, &[1]), "a      1\nbbb  100\n");
    }
}
