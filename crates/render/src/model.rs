//! Report model, schema `hugepilot.report/1`: sections with tables, plots and notices.
//!
//! Every back end prints this model, so that text, JSON and HTML have the same content. Texts may
//! come from another process; each back end escapes them for its own format.

mod plot;
mod quantity;

use hugepilot_units::Bytes;
use schemars::JsonSchema;
use serde::Serialize;

pub use plot::{
    Area, Bar, Bars, Chart, Curve, Curves, Flame, FlameNode, HeatCell, HeatMap, HeatRow, Mark,
    Plot, Scatter, ScatterGroup, TimeLine, TimePlot,
};
pub use quantity::seconds_beside;
pub use quantity::{Quantity, Unit};

use crate::json::JsonReport;
use crate::sentence::Sentence;
use crate::table::{counted, grouped};

/// Facts of a command, which make one document for all back ends.
pub trait Document: JsonReport {
    /// The document. Its title names no file.
    fn document(&self) -> Report;
}

/// The value of `schema` of [`Report`].
pub const SCHEMA: &str = "hugepilot.report/1";

/// A report.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Report {
    /// Name and version of this format.
    pub schema: String,
    /// Title.
    pub title: String,
    /// The most important results, a sentence each.
    pub summary: Vec<String>,
    /// Sections, the most important first.
    pub sections: Vec<Section>,
}

impl JsonReport for Report {}

impl Report {
    /// A report without sections.
    pub fn new(title: impl Into<String>) -> Self {
        let (summary, sections) = (Vec::new(), Vec::new());
        Self { schema: SCHEMA.to_owned(), title: title.into(), summary, sections }
    }

    /// Several reports as one, each with the name of its file, with which sentences and the titles
    /// of sections begin. What is alike in all is there once. Beyond three reports, the sentences
    /// are a section of their file.
    pub fn joined(mut reports: Vec<(String, Self)>) -> Self {
        let title = match &reports[..] {
            [_] => return reports.swap_remove(0).1,
            [(first, _), (second, _)] => format!("{first} and {second}"),
            _ => format!("{} reports", reports.len()),
        };
        let mut all = Self::new(title);
        let (sentences, sections) = common(&reports);
        // Beyond that, the sentences would hide the sections below them.
        let is_long = reports.len() > 3;
        for (name, report) in reports {
            let mut own = report.summary;
            own.retain(|sentence| !sentences.contains(sentence));
            let mut first = None;
            match own.join(" ") {
                own if own.is_empty() => {}
                own if is_long => first = Some(Section::new("Summary", own)),
                own => all.summary.push(format!("{name}: {own}")),
            }
            let own = report.sections.into_iter().filter(|section| !sections.contains(section));
            all.sections.extend(first.into_iter().chain(own).map(|section| Section {
                title: format!("{name}: {}", section.title),
                group: name.clone(),
                ..section
            }));
        }
        all.summary.extend(sentences.into_iter().map(|sentence| format!("{ALL}: {sentence}")));
        all.sections.extend(sections.into_iter().map(|section| Section {
            title: format!("{ALL}: {}", section.title),
            group: ALL.to_owned(),
            ..section
        }));
        all
    }

    /// Number of warnings in all sections.
    pub fn warnings(&self) -> usize {
        let blocks = self.sections.iter().flat_map(|section| &section.blocks);
        let is_warning = |block: &&Block| match block {
            Block::Notice(notice) => notice.level == NoticeLevel::Warning,
            _ => false,
        };
        blocks.filter(is_warning).count()
    }

    /// Puts a section before the others, unless it is empty.
    pub fn begin_with(&mut self, section: Section) {
        if !section.blocks.is_empty() {
            self.sections.insert(0, section);
        }
    }

    /// Adds a section, unless it is empty.
    pub fn add(&mut self, section: Section) {
        if !section.blocks.is_empty() || !section.text.is_empty() {
            self.sections.push(section);
        }
    }
}

/// Name of what several reports have in common.
const ALL: &str = "all files";

/// Sentences and sections that all reports have.
fn common(reports: &[(String, Report)]) -> (Vec<String>, Vec<Section>) {
    let Some(((_, first), others)) = reports.split_first() else { return Default::default() };
    let is_in_all = |is_in: &dyn Fn(&Report) -> bool| others.iter().all(|(_, one)| is_in(one));
    let sentences = first.summary.iter().filter(|&one| is_in_all(&|r| r.summary.contains(one)));
    let sections = first.sections.iter().filter(|&one| is_in_all(&|r| r.sections.contains(one)));
    (sentences.cloned().collect(), sections.cloned().collect())
}

/// Section of a report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Section {
    /// Heading.
    pub title: String,
    /// File or process that the section is about, with which the heading begins; empty if the
    /// report has one only.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Whether the terminal of the command omits it: its tables have the same facts.
    #[serde(skip)]
    pub is_detail: bool,
    /// Explanation; may be empty.
    pub text: String,
    /// Its content, in order.
    pub blocks: Vec<Block>,
}

impl Section {
    /// A section without blocks.
    pub fn new(title: impl Into<String>, text: impl Into<String>) -> Self {
        Self { title: title.into(), text: text.into(), ..Self::default() }
    }

    /// A section that the terminal of the command omits.
    pub fn detail(title: impl Into<String>, text: impl Into<String>) -> Self {
        Self { is_detail: true, ..Self::new(title, text) }
    }

    /// The heading without the group.
    pub fn name(&self) -> &str {
        let rest = self.title.strip_prefix(&self.group).filter(|_| !self.group.is_empty());
        rest.and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&self.title)
    }

    /// Adds a block. A table or plot without a title gets that of the section, which text, Markdown
    /// and HTML do not repeat.
    #[must_use]
    pub fn with(mut self, block: impl Into<Block>) -> Self {
        let mut block = block.into();
        match &mut block {
            Block::Table(Table { title, .. }) | Block::Plot(Plot { title, .. })
                if title.is_empty() =>
            {
                title.clone_from(&self.title);
            }
            _ => {}
        }
        self.blocks.push(block);
        self
    }

    /// Adds a plot, if it has values.
    #[must_use]
    pub fn with_plot(self, plot: Plot) -> Self {
        if plot.absence().is_none() { self.with(plot) } else { self }
    }

    /// Adds blocks.
    #[must_use]
    pub fn with_all(self, blocks: impl IntoIterator<Item: Into<Block>>) -> Self {
        blocks.into_iter().fold(self, |section, block| section.with(block))
    }
}

/// Part of a section.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Block {
    /// A table.
    Table(Table),
    /// A plot.
    Plot(Plot),
    /// A notice.
    Notice(Notice),
    /// Facts in sentences.
    Lines(Lines),
}

/// Facts in lines, most of which begin with their subject and a colon.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Lines {
    /// The lines.
    pub lines: Vec<String>,
}

impl Lines {
    /// The lines of `text`; `None` if it is empty.
    pub fn of(text: &str) -> Option<Self> {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        (!lines.is_empty()).then_some(Self { lines })
    }
}

impl From<Lines> for Block {
    fn from(lines: Lines) -> Self {
        Self::Lines(lines)
    }
}

impl From<Table> for Block {
    fn from(table: Table) -> Self {
        Self::Table(table)
    }
}

impl From<Plot> for Block {
    fn from(plot: Plot) -> Self {
        Self::Plot(plot)
    }
}

impl From<Notice> for Block {
    fn from(notice: Notice) -> Self {
        Self::Notice(notice)
    }
}

/// A table.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Table {
    /// Title.
    pub title: String,
    /// Heads of the columns.
    pub columns: Vec<String>,
    /// Rows, each with a cell for each column.
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table without rows.
    pub fn new<const COLUMNS: usize>(title: impl Into<String>, columns: [&str; COLUMNS]) -> Self {
        let columns = columns.map(str::to_owned).to_vec();
        Self { title: title.into(), columns, rows: Vec::new() }
    }

    /// A table with rows.
    pub fn of<const COLUMNS: usize>(
        title: impl Into<String>,
        columns: [&str; COLUMNS],
        rows: impl IntoIterator<Item = [Cell; COLUMNS]>,
    ) -> Self {
        Self { rows: rows.into_iter().map(Into::into).collect(), ..Self::new(title, columns) }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<Cell>) {
        debug_assert_eq!(cells.len(), self.columns.len(), "{}", self.title);
        self.rows.push(cells);
    }

    /// The longest time in a cell, in seconds.
    pub fn longest(&self) -> f64 {
        let seconds = |cell: &Cell| match cell {
            Cell::Quantity(Quantity { value, unit: Unit::Seconds }) => Some(value.abs()),
            _ => None,
        };
        self.rows.iter().flatten().filter_map(seconds).fold(0.0, f64::max)
    }

    /// Whether a column holds quantities, also missing ones, which are aligned to the right.
    pub fn is_number(&self, column: usize) -> bool {
        let mut cells = self.rows.iter().filter_map(|row| row.get(column));
        cells.clone().any(|cell| matches!(cell, Cell::Quantity(_)))
            || cells.all(|cell| matches!(cell, Cell::Missing { .. }))
    }
}

/// Cell of a table.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Cell {
    /// A text.
    Text(String),
    /// A value with its unit.
    Quantity(Quantity),
    /// A value that is not available.
    Missing {
        /// The cause.
        missing: String,
    },
}

impl Cell {
    /// A cell with a value that may be missing.
    pub fn of(value: Option<f64>, unit: Unit, missing: &str) -> Self {
        match value.filter(|value| value.is_finite()) {
            Some(value) => Self::Quantity(Quantity { value, unit }),
            None => Self::Missing { missing: missing.to_owned() },
        }
    }

    /// Events or things.
    pub fn count(value: u64) -> Self {
        Self::of(Some(value as f64), Unit::Count, "")
    }

    /// A share, 1 for the whole.
    pub fn ratio(value: f64) -> Self {
        Self::of(Some(value), Unit::Ratio, "")
    }

    /// A number without a unit.
    pub fn number(value: f64) -> Self {
        Self::of(Some(value), Unit::Number, "")
    }

    /// A time.
    pub fn seconds(value: f64) -> Self {
        Self::of(Some(value), Unit::Seconds, "")
    }

    /// Text for people; control characters are not escaped yet.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Quantity(quantity) => quantity.to_string(),
            Self::Missing { .. } => "–".to_owned(),
        }
    }

    /// Text beside other cells: times in the unit of the longest, which has `longest` seconds, and
    /// numbers with two decimals.
    pub fn beside(&self, longest: f64) -> String {
        match self {
            Self::Quantity(Quantity { value, unit: Unit::Seconds }) if *value >= 0.0 => {
                seconds_beside(*value, longest)
            }
            Self::Quantity(Quantity { value, unit: Unit::Number })
                if (0.1..100.0).contains(value) =>
            {
                format!("{value:.2}")
            }
            _ => self.text(),
        }
    }

    /// The same to compare runs by: counts in full, and seconds to the millisecond if the longest
    /// time of the table is a second or more.
    pub fn precise(&self, longest: f64) -> String {
        match self {
            Self::Quantity(Quantity { value, unit: Unit::Count }) => grouped(*value),
            Self::Quantity(Quantity { value, unit: Unit::Seconds })
                if longest >= 1.0 && value * 1e3 > longest =>
            {
                format!("{value:.3}s")
            }
            _ => self.beside(longest),
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Bytes> for Cell {
    fn from(bytes: Bytes) -> Self {
        Self::of(Some(bytes.as_f64()), Unit::Bytes, "")
    }
}

/// A sentence that limits the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Notice {
    /// Importance.
    pub level: NoticeLevel,
    /// The sentence.
    pub text: String,
    /// Suggested actions, a line each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

impl Notice {
    /// A warning.
    pub fn warning(text: impl Into<String>) -> Self {
        Self { level: NoticeLevel::Warning, text: text.into(), help: None }
    }

    /// A note.
    pub fn note(text: impl Into<String>) -> Self {
        Self { level: NoticeLevel::Note, text: text.into(), help: None }
    }

    /// A sentence of this importance, with its help.
    pub fn of(level: NoticeLevel, sentence: &impl Sentence) -> Self {
        let help = sentence.help();
        let help = (!help.is_empty()).then(|| help.join("\n"));
        Self { level, text: sentence.text(), help }
    }

    /// Warnings, each with its help.
    pub fn warnings(sentences: &[impl Sentence]) -> impl Iterator<Item = Self> {
        sentences.iter().map(|sentence| Self::of(NoticeLevel::Warning, sentence))
    }

    /// A note of the things beyond a limit, if there are any.
    pub fn of_omitted(all: usize, limit: usize, one: &str, several: &str) -> Option<Self> {
        let more = all.saturating_sub(limit);
        let are = if more == 1 { "is" } else { "are" };
        let more = (more > 0).then(|| counted(more as u64, one, several))?;
        Some(Self::note(format!("{more} {are} not shown: --json of the command has all")))
    }

    /// Adds a suggestion.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// Importance of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NoticeLevel {
    /// Background.
    Note,
    /// An observation that limits the results.
    Warning,
}

impl NoticeLevel {
    /// Word before the sentence.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_files_have_is_there_once() {
        let report = |own: &str| {
            let mut report = Report::new(own);
            report.summary = vec![format!("own {own}"), "alike".to_owned()];
            report.add(Section::new("Metrics", "alike"));
            report.add(Section::new("Heat", own));
            report
        };
        let joined =
            Report::joined(["a", "b", "c"].map(|one| (one.to_owned(), report(one))).into());
        assert_eq!(joined.summary, ["a: own a", "b: own b", "c: own c", "all files: alike"]);
        let titles: Vec<&str> = joined.sections.iter().map(|one| &*one.title).collect();
        assert_eq!(titles, ["a: Heat", "b: Heat", "c: Heat", "all files: Metrics"]);
        assert_eq!(joined.sections[3].name(), "Metrics");
        let four = ["a", "b", "c", "d"].map(|one| (one.to_owned(), report(one)));
        let joined = Report::joined(four.into());
        assert_eq!(joined.summary, ["all files: alike"]);
        let first = &joined.sections[0];
        assert_eq!((&*first.title, &*first.text), ("a: Summary", "own a"));
    }
}
