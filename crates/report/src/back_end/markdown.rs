//! Markdown with tables, as GitHub and GitLab show it.

use std::fmt::Write;

use super::escape::markdown as escaped;
use super::spark::sketch;
use crate::model::{Block, Plot, Report, Table};
use crate::table::{Width, table as aligned};

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
                    for help in notice.help.iter().flat_map(|help| help.lines()) {
                        let _ = writeln!(text, ">\n> help: {}", escaped(help));
                    }
                }
            }
        }
    }
    text
}

/// The title of a block, or the end of a paragraph.
fn title(text: &mut String, title: &str) {
    let title =
        if title.is_empty() { String::new() } else { format!("\n**{}**\n", escaped(title)) };
    let _ = writeln!(text, "{title}");
}

fn table(text: &mut String, part: &Table) {
    title(text, &part.title);
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
    let rows = sketch(&part.chart);
    match part.absence() {
        None if rows.is_empty() => return,
        _ => title(text, &part.title),
    }
    if let Some(absence) = part.absence() {
        let _ = writeln!(text, "{}", escaped(absence));
        return;
    }
    text.push_str("```text\n");
    text.push_str(&aligned(rows, &[], Width::UNLIMITED).replace('`', "'"));
    text.push_str("```\n");
}
