//! Report model, schema `hugepilot.report/1`: sections with tables, plots and notices.
//!
//! Every back end prints this model, so that text, JSON and HTML have the same content. Texts may
//! come from another process; each back end escapes them for its own format.

mod plot;
mod quantity;

use schemars::JsonSchema;
use serde::Serialize;

pub use plot::{
    Area, Bar, Bars, Chart, Curve, Curves, Flame, FlameNode, HeatCell, HeatMap, HeatRow, Mark,
    Plot, TimeLine, TimePlot,
};
pub use quantity::{Quantity, Unit};

use crate::json::JsonReport;

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
    /// of sections begin.
    pub fn joined(mut reports: Vec<(String, Self)>) -> Self {
        let title = match &reports[..] {
            [_] => return reports.swap_remove(0).1,
            [(first, _), (second, _)] => format!("{first} and {second}"),
            _ => format!("{} reports", reports.len()),
        };
        let mut all = Self::new(title);
        for (name, report) in reports {
            all.summary.push(format!("{name}: {}", report.summary.join(" ")));
            all.sections.extend(report.sections.into_iter().map(|section| Section {
                title: format!("{name}: {}", section.title),
                group: name.clone(),
                ..section
            }));
        }
        all
    }

    /// Adds a section, unless it is empty.
    pub fn add(&mut self, section: Section) {
        if !section.blocks.is_empty() || !section.text.is_empty() {
            self.sections.push(section);
        }
    }
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

    /// The heading without the group.
    pub(crate) fn name(&self) -> &str {
        let rest = self.title.strip_prefix(&self.group).filter(|_| !self.group.is_empty());
        rest.and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&self.title)
    }

    /// Adds a block.
    #[must_use]
    pub fn with(mut self, block: impl Into<Block>) -> Self {
        self.blocks.push(block.into());
        self
    }

    /// Adds blocks.
    #[must_use]
    pub fn with_all(mut self, blocks: impl IntoIterator<Item: Into<Block>>) -> Self {
        self.blocks.extend(blocks.into_iter().map(Into::into));
        self
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

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<Cell>) {
        debug_assert_eq!(cells.len(), self.columns.len(), "{}", self.title);
        self.rows.push(cells);
    }

    /// Whether a column holds quantities, which are aligned to the right.
    pub(crate) fn is_number(&self, column: usize) -> bool {
        self.rows.iter().any(|row| matches!(row.get(column), Some(Cell::Quantity(_))))
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

    /// Text for people; control characters are not escaped yet.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Quantity(quantity) => quantity.to_string(),
            Self::Missing { .. } => "–".to_owned(),
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

/// A sentence that limits the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Notice {
    /// Importance.
    pub level: NoticeLevel,
    /// The sentence.
    pub text: String,
    /// Suggested action.
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
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
        }
    }
}
