//! Text for a terminal.

use std::fmt::Write;

use super::printable;
use super::spark::sketch;
use crate::model::{Block, Cell, Document, Notice, Report, Section, Table};
use crate::table::{Width, counted, table};

/// The report as text that fits `width`: the summary, then the sections. Plots are sketched in
/// lines.
pub fn text(report: &Report, width: Width) -> String {
    let mut text = format!("{}\n{}", printable(&report.title), summary(report));
    // They may be hundreds of lines below.
    let warnings = report.warnings();
    if warnings > 0 {
        let _ = writeln!(text, "{} below.", counted(warnings as u64, "warning", "warnings"));
    }
    for section in &report.sections {
        let title = printable(&section.title);
        let _ = writeln!(text, "\n{title}\n{}", "=".repeat(title.chars().count()));
        if !section.text.is_empty() {
            let _ = writeln!(text, "{}", wrapped(&printable(&section.text)));
        }
        for block in &section.blocks {
            text.push_str(&part(section, block, "\n", &rows, width));
        }
    }
    text
}

/// The text that a command prints on its terminal: as [`text`], but without the title, which is the
/// command that the user gave, and with a line for the head of a section. It leaves out details.
pub fn command_text(report: &impl Document, width: Width) -> String {
    document_text(&report.document(), width)
}

/// The text of [`command_text`] of a document that exists.
pub fn document_text(report: &Report, width: Width) -> String {
    let mut text = summary(report);
    for section in report.sections.iter().filter(|section| !section.is_detail) {
        let are_notices = section.blocks.iter().all(|one| matches!(one, Block::Notice(_)));
        if !are_notices || !section.text.is_empty() {
            let head = [&section.title, &section.text].map(|one| printable(one));
            let head = head.into_iter().filter(|one| !one.is_empty()).collect::<Vec<_>>();
            let _ = writeln!(text, "\n{}", wrapped(&head.join(". ")));
        }
        for block in &section.blocks {
            text.push_str(&part(section, block, "", &command_rows, width));
        }
    }
    text
}

fn summary(report: &Report) -> String {
    report.summary.iter().map(|sentence| printable(sentence) + "\n").collect()
}

/// Rows of a table, the heads first.
type Rows<'a> = &'a dyn Fn(&Table) -> Vec<Vec<String>>;

/// A block of a section; `untitled` stands in place of the title of the section.
fn part(section: &Section, block: &Block, untitled: &str, rows: Rows, width: Width) -> String {
    let titled = |title: &str, body: String| match title {
        _ if title == section.name() => format!("{untitled}{body}"),
        title => format!("\n{}\n{body}", printable(title)),
    };
    match block {
        Block::Table(part) => {
            let right: Vec<usize> =
                (0..part.columns.len()).filter(|&at| part.is_number(at)).collect();
            titled(&part.title, table(rows(part), &right, width))
        }
        Block::Plot(plot) => match (plot.absence(), sketch(&plot.chart)) {
            (Some(absence), _) => titled(&plot.title, printable(absence) + "\n"),
            (None, rows) if rows.is_empty() => String::new(),
            (None, rows) => titled(&plot.title, table(rows, &[], width)),
        },
        Block::Notice(part) => notice(part),
        Block::Lines(part) => part.lines.iter().map(|line| printable(line) + "\n").collect(),
    }
}

/// The notice, and each suggestion on a line of its own.
pub(crate) fn notice(notice: &Notice) -> String {
    let mut text = format!("{}: {}\n", notice.level.word(), printable(&notice.text));
    for help in notice.help.iter().flat_map(|help| help.lines()) {
        let _ = writeln!(text, "help: {}", printable(help));
    }
    text
}

fn rows(part: &Table) -> Vec<Vec<String>> {
    rows_by(part, Cell::beside)
}

/// Rows with the text that `shown` gives a cell of a table with this longest time.
fn rows_by(part: &Table, shown: fn(&Cell, f64) -> String) -> Vec<Vec<String>> {
    let head = part.columns.iter().map(|column| printable(column)).collect();
    let longest = part.longest();
    let row = |row: &Vec<Cell>| row.iter().map(|cell| printable(&shown(cell, longest))).collect();
    std::iter::once(head).chain(part.rows.iter().map(row)).collect()
}

/// Rows as in tables of other commands: heads in capitals without blanks, and `-` if not measured.
fn command_rows(part: &Table) -> Vec<Vec<String>> {
    let mut rows = rows_by(part, Cell::precise);
    rows[0].iter_mut().for_each(|head| *head = head.to_uppercase().replace(' ', "_"));
    for (shown, row) in rows[1..].iter_mut().zip(&part.rows) {
        for (shown, cell) in shown.iter_mut().zip(row) {
            if matches!(cell, Cell::Missing { .. }) {
                "-".clone_into(shown);
            }
        }
    }
    rows
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
