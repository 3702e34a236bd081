//! Markdown with tables, as GitHub and GitLab show it.

use std::fmt::Write;

use super::escape::markdown as escaped;
use super::spark::sketch;
use crate::model::{Block, Plot, Report, Section, Table};
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
                Block::Table(part) => table(&mut text, section, part),
                Block::Plot(part) => plot(&mut text, section, part),
                Block::Notice(notice) => {
                    let (word, sentence) = (notice.level.word(), escaped(&notice.text));
                    let _ = writeln!(text, "\n> **{word}:** {sentence}");
                    for help in notice.help.iter().flat_map(|help| help.lines()) {
                        let _ = writeln!(text, ">\n> help: {}", escaped(help));
                    }
                }
                Block::Lines(part) => {
                    text.push('\n');
                    for line in &part.lines {
                        let _ = writeln!(text, "- {}", escaped(line));
                    }
                }
            }
        }
    }
    text
}

/// The title of a block, unless it is that of the section, and the end of the paragraph before.
fn title(text: &mut String, section: &Section, title: &str) {
    let repeats = title == section.name();
    let title = if repeats { String::new() } else { format!("\n**{}**\n", escaped(title)) };
    let _ = writeln!(text, "{title}");
}

fn table(text: &mut String, section: &Section, part: &Table) {
    title(text, section, &part.title);
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

fn plot(text: &mut String, section: &Section, part: &Plot) {
    let rows = sketch(&part.chart);
    match part.absence() {
        None if rows.is_empty() => return,
        _ => title(text, section, &part.title),
    }
    if let Some(absence) = part.absence() {
        let _ = writeln!(text, "{}", escaped(absence));
        return;
    }
    text.push_str("```text\n");
    text.push_str(&aligned(rows, &[], Width::UNLIMITED).replace('`', "'"));
    text.push_str("```\n");
}
