//! Tables in text: aligned columns, two blanks apart, without lines.

pub use hugepilot_record::sentence::{counted, grouped};
use tabled::builder::Builder;
use tabled::settings::object::Columns;
use tabled::settings::{Alignment, Padding, Style};

/// Blanks between two columns.
const GAP: usize = 2;
/// Columns of text are not shortened below this.
const MIN_TEXT: usize = 20;

/// Width of the terminal that a report is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Width(Option<usize>);

impl Width {
    /// No limit, for output that is not a terminal.
    pub const UNLIMITED: Self = Self(None);

    /// A terminal with this number of columns.
    pub const fn columns(columns: usize) -> Self {
        Self(Some(columns))
    }
    /// Returns the columns of the terminal; `None` without a limit.
    pub const fn limit(self) -> Option<usize> {
        self.0
    }
    /// Whether the terminal has fewer columns.
    pub fn is_below(self, columns: usize) -> bool {
        self.0.is_some_and(|width| width < columns)
    }
}

/// Formats `rows` as a table; `right` lists the columns with numbers. To fit `width`, it shortens
/// the widest columns of text in the middle, except the first. If that is not enough, it puts the
/// remaining columns into further tables below, each again with the first column.
pub fn table(rows: Vec<Vec<String>>, right: &[usize], width: Width) -> String {
    let Width(Some(limit)) = width else { return aligned(rows, right) };
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<usize> = (0..columns).map(|column| width_of(&rows, column)).collect();
    let least = |column: usize| {
        let is_text = column > 0 && !right.contains(&column);
        let header = rows[0][column].chars().count().max(MIN_TEXT);
        if is_text { widths[column].min(header) } else { widths[column] }
    };
    let least: Vec<usize> = (0..columns).map(least).collect();
    let tables = blocks(&least, limit).into_iter().map(|block| {
        let widths = fitted(&block, &widths, &least, limit);
        let fit = |row: &Vec<String>| {
            let cells = block.iter().zip(&widths);
            cells.map(|(&column, &width)| shortened(&row[column], width)).collect()
        };
        let right: Vec<_> =
            (0..block.len()).filter(|&place| right.contains(&block[place])).collect();
        aligned(rows.iter().map(fit).collect(), &right)
    });
    tables.collect::<Vec<_>>().join("\n")
}

/// Columns of each table: as many as fit `limit`, and the first column in all.
fn blocks(least: &[usize], limit: usize) -> Vec<Vec<usize>> {
    let Some(first) = least.first() else { return Vec::new() };
    let mut blocks = vec![vec![0]];
    let mut used = *first;
    for (column, width) in least.iter().enumerate().skip(1) {
        let needed = GAP + width;
        match blocks.last_mut() {
            Some(block) if block.len() == 1 || used + needed <= limit => block.push(column),
            _ => {
                blocks.push(vec![0, column]);
                used = *first;
            }
        }
        used += needed;
    }
    blocks
}

/// Widths of the columns in `block`, the widest reduced to fit `limit`, but none below `least`.
fn fitted(block: &[usize], widths: &[usize], least: &[usize], limit: usize) -> Vec<usize> {
    let mut fitted: Vec<usize> = block.iter().map(|&column| widths[column]).collect();
    while fitted.iter().sum::<usize>() + GAP * (block.len() - 1) > limit {
        let can_shrink = |&place: &usize| fitted[place] > least[block[place]];
        let places = (0..block.len()).filter(can_shrink);
        let Some(widest) = places.max_by_key(|&place| fitted[place]) else { break };
        fitted[widest] -= 1;
    }
    fitted
}

fn width_of(rows: &[Vec<String>], column: usize) -> usize {
    rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
}

/// `cell` with `…` in its middle if it is longer than `width`.
fn shortened(cell: &str, width: usize) -> String {
    let length = cell.chars().count();
    if length <= width {
        return cell.to_owned();
    }
    let kept = width.saturating_sub(1);
    let start: String = cell.chars().take(kept - kept / 2).collect();
    let end: String = cell.chars().skip(length - kept / 2).collect();
    format!("{start}…{end}")
}

fn aligned(rows: Vec<Vec<String>>, right: &[usize]) -> String {
    let mut table = Builder::from_iter(rows).build();
    table.with(Style::empty()).with(Padding::new(0, GAP, 0, 0));
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

/// Formats a share with its unit: `3.4 %`.
pub fn percent(ratio: f64) -> String {
    let percent = format!("{:.1}", ratio * 100.0);
    // A small loss rounds to zero.
    format!("{} %", if percent == "-0.0" { "0.0" } else { &percent })
}

/// Number of processes with their noun.
pub fn process_count(number: u64) -> String {
    counted(number, "process", "processes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows<const COLUMNS: usize>(rows: &[[&str; COLUMNS]]) -> Vec<Vec<String>> {
        rows.iter().map(|row| row.map(str::to_owned).to_vec()).collect()
    }

    #[test]
    fn numbers_are_easy_to_read() {
        assert_eq!(grouped(1_234_567.4), "1,234,567");
        assert_eq!(grouped(999.0), "999");
        assert_eq!([0.0345, -0.0004, -0.001].map(percent), ["3.5 %", "0.0 %", "-0.1 %"]);
    }

    #[test]
    fn columns_line_up_without_trailing_blanks() {
        let rows = rows(&[["a", "1"], ["bbb", "100"]]);
        assert_eq!(table(rows, &[1], Width::UNLIMITED), "a      1\nbbb  100\n");
    }

    #[test]
    fn the_widest_text_is_shortened_in_its_middle() {
        let rows = rows(&[["PID", "NAME", "WHY"], ["4711", "/usr/lib/x86_64/libc.so.6", "stack"]]);
        let text = table(rows.clone(), &[0], Width::columns(33));
        assert_eq!(text, " PID  NAME                  WHY\n4711  /usr/lib/x…libc.so.6  stack\n");
        assert_eq!(table(rows.clone(), &[0], Width::columns(80)), aligned(rows, &[0]));
    }

    #[test]
    fn numbers_that_do_not_fit_form_a_table_below() {
        let rows = rows(&[["MODE", "WALL", "USER", "RSS"], ["base", "1.0", "0.5", "12MiB"]]);
        let text = table(rows, &[1, 2, 3], Width::columns(17));
        assert_eq!(text, "MODE  WALL  USER\nbase   1.0   0.5\n\nMODE    RSS\nbase  12MiB\n");
    }

    #[test]
    fn no_width_is_too_small() {
        for width in 0..40 {
            let rows = rows(&[["a", "äöü…äöü…äöü…", "1"], ["b", "", "1000"]]);
            assert!(!table(rows, &[2], Width::columns(width)).is_empty());
        }
        assert_eq!(table(Vec::new(), &[], Width::columns(9)), "");
    }
}
