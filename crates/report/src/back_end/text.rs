//! Text for a terminal.

use std::fmt::Write;

use super::printable;
use super::spark::sketch;
use crate::model::{Block, Notice, Report, Section, Table};
use crate::table::{Width, counted, table};

/// The report as text that fits `width`: the summary, then the sections. Plots are sketched in
/// lines.
pub fn text(report: &Report, width: Width) -> String {
    let mut text = format!("{}\n", printable(&report.title));
    for sentence in &report.summary {
        let _ = writeln!(text, "{}", printable(sentence));
    }
    // They may be hundreds of lines below.
    let warnings = report.warnings();
    if warnings > 0 {
        let _ = writeln!(text, "{} below.", counted(warnings as u64, "warning", "warnings"));
    }
    for part in &report.sections {
        section(&mut text, part, width);
    }
    text
}

fn section(text: &mut String, section: &Section, width: Width) {
    let title = printable(&section.title);
    let _ = writeln!(text, "\n{title}\n{}", "=".repeat(title.chars().count()));
    if !section.text.is_empty() {
        let _ = writeln!(text, "{}", wrapped(&printable(&section.text)));
    }
    for block in &section.blocks {
        match block {
            Block::Table(part) => {
                let _ = write!(text, "\n{}\n{}", printable(&part.title), rows(part, width));
            }
            Block::Plot(plot) => {
                if let Some(absence) = plot.absence() {
                    let title = printable(&plot.title);
                    let _ = writeln!(text, "\n{title}\n{}", printable(absence));
                }
                let sketch = sketch(&plot.chart);
                if !sketch.is_empty() {
                    let rows = sketch.into_iter();
                    let rows =
                        rows.map(|row| row.iter().map(|cell| printable(cell)).collect()).collect();
                    let _ =
                        write!(text, "\n{}\n{}", printable(&plot.title), table(rows, &[], width));
                }
            }
            Block::Notice(part) => text.push_str(&notice(part)),
        }
    }
}

/// The notice, and its suggestion on a line of its own.
pub(crate) fn notice(notice: &Notice) -> String {
    let mut text = format!("{}: {}\n", notice.level.word(), printable(&notice.text));
    if let Some(help) = &notice.help {
        let _ = writeln!(text, "help: {}", printable(help));
    }
    text
}

/// The table, with the causes of missing cells below.
fn rows(part: &Table, width: Width) -> String {
    let head = part.columns.iter().map(|column| printable(column)).collect();
    let cells = part.rows.iter();
    let cells = cells.map(|row| row.iter().map(|cell| printable(&cell.text())).collect());
    let right: Vec<usize> = (0..part.columns.len()).filter(|&at| part.is_number(at)).collect();
    table(std::iter::once(head).chain(cells).collect(), &right, width)
}

/// `text` in lines of at most 80 characters.
fn wrapped(text: &str) -> String {
    let (mut lines, mut length) = (String::new(), 0);
    for word in text.split_whitespace() {
        let added = word.chars().count() + 1;
        if length > 0 && length + added > 80 {
            lines.push('\n');
            length = 0;
        } else if length > 0 {
            lines.push(' ');
        }
        lines.push_str(word);
        length += added;
    }
    lines
}
