//! Markdown with tables, as GitHub and GitLab show it.

use std::fmt::Write;

use super::escape::markdown as escaped;
use super::printable;
use super::spark::sketch;
use crate::model::{Block, Plot, Report, Table};

/// The report as Markdown. Plots are sketched in code blocks.
pub fn markdown(report: &Report) -> String {
    let mut text = format!("# {}\n", escaped(&report.title));
    for sentence in &report.summary {
        let _ = write!(text, "\n- {}", escaped(sentence));
    }
    text.push('\n');
    for section in &report.sections {
        let _ = writeln!(text, "\n## {}", escaped(&section.title));
        if !section.text.is_empty() {
            let _ = writeln!(text, "\n{}", escaped(&section.text));
        }
        for block in &section.blocks {
            match block {
                Block::Table(part) => table(&mut text, part),
                Block::Plot(part) => plot(&mut text, part),
                Block::Notice(notice) => {
                    let (word, sentence) = (notice.level.word(), escaped(&notice.text));
                    let _ = writeln!(text, "\n> **{word}:** {sentence}");
                    if let Some(help) = &notice.help {
                        let _ = writeln!(text, ">\n> help: {}", escaped(help));
                    }
                }
            }
        }
    }
    text
}

fn table(text: &mut String, part: &Table) {
    let _ = writeln!(text, "\n**{}**\n", escaped(&part.title));
    let mut row = |cells: &mut dyn Iterator<Item = String>| {
        let cells: Vec<String> = cells.collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    };
    row(&mut part.columns.iter().map(|column| escaped(column)));
    let line = |at| if part.is_number(at) { "---:".to_owned() } else { "---".to_owned() };
    row(&mut (0..part.columns.len()).map(line));
    for cells in &part.rows {
        row(&mut cells.iter().map(|cell| escaped(&cell.text())));
    }
}

fn plot(text: &mut String, part: &Plot) {
    if let Some(absence) = part.absence() {
        let _ = writeln!(text, "\n**{}**\n\n{}", escaped(&part.title), escaped(absence));
        return;
    }
    let rows = sketch(&part.chart);
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n**{}**\n\n```text", escaped(&part.title));
    let width = |at: usize| {
        let lengths = rows.iter().filter_map(|row| row.get(at)).map(|cell| printable(cell));
        lengths.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let (name, line) = (width(0), width(1));
    for row in &rows {
        let cells: Vec<String> = row.iter().map(|cell| printable(cell).replace('`', "'")).collect();
        let _ = writeln!(text, "{:name$}  {:line$}  {}", cells[0], cells[1], cells[2]);
    }
    text.push_str("```\n");
}
