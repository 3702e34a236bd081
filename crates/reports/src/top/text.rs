//! Text, JSON and screen of `top`.

mod note;
mod screen;

use note::{answered, short};
pub use screen::{TopScreen, draw_lines, draw_top};

use std::cmp::Ordering;
use std::fmt::Write as _;

use hugepilot_render::json::JsonReport;
use hugepilot_render::sentence::{explain, explain_all, warning_lines};
use hugepilot_render::table::{Width, percent, process_count, table};
use hugepilot_units::{AddrRange, Bytes};
use serde_json::Value;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::top::{TopProcess, TopReport};

/// Columns of a terminal below which the notes are not a column.
const WITH_NOTES: usize = 100;
/// Width of names in a table with notes.
const COMMAND: usize = 16;
/// Gap between two columns.
const GAP: usize = 1;

/// Column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopColumn {
    /// Process.
    Pid,
    /// User.
    User,
    /// CPU time per elapsed time.
    Cpu,
    /// Resident memory.
    Rss,
    /// Memory on transparent huge pages.
    Thp,
    /// Share of that.
    ThpShare,
    /// Zero-filled bytes of huge pages.
    Bloat,
    /// Share of samples that stall.
    Stall,
    /// Gain that the model predicts.
    Gain,
    /// Name.
    Command,
    /// Whether huge pages would help, or why something is unknown.
    Note,
}

impl TopColumn {
    /// Columns from left to right.
    pub const ALL: [Self; 11] = [
        Self::Pid,
        Self::User,
        Self::Cpu,
        Self::Rss,
        Self::Thp,
        Self::ThpShare,
        Self::Bloat,
        Self::Stall,
        Self::Gain,
        Self::Command,
        Self::Note,
    ];

    /// Returns the title in the table.
    pub const fn title(self) -> &'static str {
        self.layout().0
    }

    /// Returns the name by which users select it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pid => "pid",
            Self::User => "user",
            Self::Cpu => "cpu",
            Self::Rss => "rss",
            Self::Thp => "thp",
            Self::ThpShare => "coverage",
            Self::Bloat => "bloat",
            Self::Stall => "stall",
            Self::Gain => "gain",
            Self::Command => "command",
            Self::Note => "note",
        }
    }

    /// Title, width, and whether it is aligned to the right.
    const fn layout(self) -> (&'static str, usize, bool) {
        match self {
            Self::Pid => ("PID", 7, true),
            Self::User => ("USER", 8, false),
            Self::Cpu => ("CPU_%", 5, true),
            Self::Rss => ("RSS", 7, true),
            Self::Thp => ("THP", 7, true),
            Self::ThpShare => ("THP_%", 6, true),
            Self::Bloat => ("BLOAT", 7, true),
            Self::Stall => ("STALL_%", 7, true),
            Self::Gain => ("GAIN_%", 6, true),
            Self::Command => ("COMMAND", 7, false),
            Self::Note => ("NOTE", 4, false),
        }
    }

    /// Returns the column `steps` to the right, or to the left if negative, around the ends.
    pub fn moved(self, steps: isize) -> Self {
        let at = Self::ALL.iter().position(|column| *column == self).unwrap_or(0);
        let count = Self::ALL.len().cast_signed();
        let to = (at.cast_signed() + steps).rem_euclid(count);
        Self::ALL[to.cast_unsigned()]
    }

    /// Whether the first row has the smallest value.
    const fn is_ascending(self) -> bool {
        matches!(self, Self::Pid | Self::User | Self::Command | Self::Note)
    }

    fn cell(self, process: &TopProcess) -> String {
        let bytes = |bytes: Option<Bytes>| bytes.map_or_else(unknown, size);
        let share = |ratio: Option<f64>| ratio.map_or_else(unknown, hundredths);
        match self {
            Self::Pid => process.pid.to_string(),
            Self::User => user(process),
            Self::Cpu => share(process.cpu_ratio),
            Self::Rss => size(process.resident_bytes),
            Self::Thp => bytes(process.thp_bytes),
            Self::ThpShare => share(process.thp_ratio),
            Self::Bloat => bytes(process.zero_filled_bytes),
            Self::Stall => share(process.stall_ratio),
            Self::Gain => gain(process).map_or_else(unknown, hundredths),
            Self::Command => safe(&process.command),
            Self::Note => match (&process.note, process.answer) {
                (Some(note), _) => safe(&short(note)),
                (None, Some(answer)) => answered(answer, process.blocked_by),
                (None, None) => String::new(),
            },
        }
    }

    /// Orders two processes; unknown values come last in either direction.
    fn compare(self, a: &TopProcess, b: &TopProcess, reverse: bool) -> Ordering {
        let ordered = match self {
            Self::User => user(a).cmp(&user(b)),
            Self::Command => a.command.cmp(&b.command),
            Self::Note => self.cell(a).cmp(&self.cell(b)),
            Self::Pid => a.pid.cmp(&b.pid),
            _ => {
                return match (self.number(a), self.number(b)) {
                    (Some(a), Some(b)) if reverse => a.total_cmp(&b),
                    (Some(a), Some(b)) => b.total_cmp(&a),
                    (a, b) => b.is_some().cmp(&a.is_some()),
                };
            }
        };
        if reverse == self.is_ascending() { ordered.reverse() } else { ordered }
    }

    fn number(self, process: &TopProcess) -> Option<f64> {
        let bytes = |bytes: Bytes| bytes.as_f64();
        match self {
            Self::Cpu => process.cpu_ratio,
            Self::Rss => Some(process.resident_bytes.as_f64()),
            Self::Thp => process.thp_bytes.map(bytes),
            Self::ThpShare => process.thp_ratio,
            Self::Bloat => process.zero_filled_bytes.map(bytes),
            Self::Stall => process.stall_ratio,
            Self::Gain => gain(process),
            _ => None,
        }
    }
}

/// Sorts processes by `column`; equal ones by stalls, CPU time and memory.
pub fn sort_top(processes: &mut [TopProcess], column: TopColumn, reverse: bool) {
    processes.sort_by(|a, b| {
        let by = |column: TopColumn| column.compare(a, b, false);
        column
            .compare(a, b, reverse)
            .then_with(|| by(TopColumn::Stall))
            .then_with(|| by(TopColumn::Cpu))
            .then_with(|| by(TopColumn::Rss))
            .then_with(|| by(TopColumn::Pid))
    });
}

/// A size in at most seven characters.
fn size(bytes: Bytes) -> String {
    let text = bytes.to_string();
    let Some(unit) = text.find(char::is_alphabetic).filter(|_| text.len() > 7) else { return text };
    let value: f64 = text[..unit].parse().unwrap_or(0.0);
    let digits = usize::from(value < 99.95);
    format!("{value:.digits$}{}", &text[unit..])
}

fn unknown() -> String {
    "-".to_owned()
}

/// A share in percent without the sign, in at most five characters.
fn hundredths(ratio: f64) -> String {
    let percent = ratio * 100.0;
    if percent.abs() < 999.0 { format!("{percent:.1}") } else { format!("{percent:.0}") }
}

fn user(process: &TopProcess) -> String {
    match (&process.user, process.user_id) {
        (Some(name), _) => safe(name),
        (None, Some(id)) => id.to_string(),
        (None, None) => unknown(),
    }
}

fn gain(process: &TopProcess) -> Option<f64> {
    process.predicted_speedup.map(|speedup| speedup.median - 1.0)
}

/// Escapes characters that no terminal shows as they are: controls, those without a width, and
/// those that change the direction of text.
fn safe(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        let is_format = matches!(c, '\u{ad}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}');
        match c.width() {
            Some(1..) if !is_format => safe.push(c),
            _ => safe.extend(c.escape_unicode()),
        }
    }
    safe
}

/// Cuts `text` to `width` columns, with `…` at the end if anything is missing, and fills it up.
fn fit(text: &str, width: usize, right: bool) -> String {
    let mut text = text.to_owned();
    if text.width() > width {
        let mut kept = String::new();
        for c in text.chars() {
            if kept.width() + c.width().unwrap_or(0) + 1 > width {
                break;
            }
            kept.push(c);
        }
        text = if width > 0 { kept + "…" } else { kept };
    }
    let blanks = " ".repeat(width.saturating_sub(text.width()));
    if right { blanks + &text } else { text + &blanks }
}

/// Columns with their widths, which fill `width`.
fn columns(processes: &[TopProcess], width: Option<usize>) -> Vec<(TopColumn, usize)> {
    let widest = |column: TopColumn| {
        let cells = processes.iter().map(|process| column.cell(process).width());
        cells.max().unwrap_or(0).max(column.layout().1)
    };
    let fixed = TopColumn::ALL.into_iter().take(TopColumn::ALL.len() - 2);
    let mut columns: Vec<_> = fixed.map(|column| (column, column.layout().1)).collect();
    let used: usize = columns.iter().map(|(_, width)| width + GAP).sum();
    match width {
        None => {
            for (column, width) in &mut columns {
                *width = widest(*column);
            }
            columns.push((TopColumn::Command, widest(TopColumn::Command)));
            columns.push((TopColumn::Note, widest(TopColumn::Note)));
        }
        Some(width) if width >= WITH_NOTES => {
            columns.push((TopColumn::Command, COMMAND));
            columns.push((TopColumn::Note, width.saturating_sub(used + COMMAND + GAP)));
        }
        Some(width) => {
            columns.push((
                TopColumn::Command,
                width.saturating_sub(used).max(TopColumn::Command.layout().1),
            ));
        }
    }
    columns
}

fn header(columns: &[(TopColumn, usize)]) -> String {
    let cell = |&(column, width): &(TopColumn, usize)| {
        let (title, _, right) = column.layout();
        fit(title, width, right)
    };
    columns.iter().map(cell).collect::<Vec<_>>().join(" ")
}

fn row(columns: &[(TopColumn, usize)], process: &TopProcess) -> String {
    let cell = |&(column, width): &(TopColumn, usize)| {
        fit(&column.cell(process), width, column.layout().2)
    };
    columns.iter().map(cell).collect::<Vec<_>>().join(" ")
}

/// First line: processes, their memory, and the cost of looking.
fn summary(report: &TopReport) -> String {
    let resident: Bytes = report.processes.iter().map(|process| process.resident_bytes).sum();
    let huge: Bytes = report.processes.iter().filter_map(|process| process.thp_bytes).sum();
    // The CPU time of the start is a large part of a short time. Later pauses make up for it.
    let own = if report.own_cpu_ratio <= report.cpu_budget_ratio {
        percent(report.own_cpu_ratio)
    } else {
        format!("{:.2} s", report.own_cpu_seconds)
    };
    let (processes, sampled) = (report.processes.len(), report.sampled_processes);
    // The sum counts shared memory for each process.
    let what = if processes > 1 { "RSS summed" } else { "resident" };
    format!(
        "{}, {resident} {what}, {huge} THP; own CPU {own}; {sampled} sampled",
        process_count(processes as u64)
    )
}

/// The report as text: a summary, a row for each process, and the warnings.
pub fn top_text(report: &TopReport, width: Width, column: TopColumn, reverse: bool) -> String {
    let mut processes = report.processes.clone();
    sort_top(&mut processes, column, reverse);
    let columns = columns(&processes, width.limit());
    let mut text = summary(report) + "\n\n";
    let _ = writeln!(text, "{}", header(&columns).trim_end());
    for process in &processes {
        let _ = writeln!(text, "{}", row(&columns, process).trim_end());
    }
    let is_predicted = processes.iter().any(|process| process.predicted_speedup.is_some());
    if is_predicted {
        text.push_str("\nnote: GAIN_% is predicted by a model; `hugepilot tune -p PID` measures\n");
    } else {
        text.push('\n');
    }
    text.push_str(&warning_lines(&report.warnings));
    text
}

/// Stalls of the mappings of one process.
#[derive(Clone, Debug)]
pub struct MappingStalls {
    /// Addresses.
    pub range: AddrRange,
    /// Name, control characters escaped.
    pub name: String,
    /// Resident memory.
    pub rss: Bytes,
    /// Memory on transparent huge pages.
    pub thp: Bytes,
    /// Samples that stall on it.
    pub stalls: u64,
}

/// Table of the mappings with stalls, the most first; empty if there are none.
pub fn mapping_stalls_text(mappings: &[MappingStalls], width: Width) -> String {
    let mut stalling: Vec<_> = mappings.iter().filter(|mapping| mapping.stalls > 0).collect();
    if stalling.is_empty() {
        return String::new();
    }
    stalling.sort_by_key(|mapping| std::cmp::Reverse(mapping.stalls));
    let all: u64 = stalling.iter().map(|mapping| mapping.stalls).sum();
    let titles = ["START", "RSS", "THP", "STALLS", "SHARE", "NAME"];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    #[allow(clippy::cast_precision_loss)]
    rows.extend(stalling.iter().take(20).map(|mapping| {
        vec![
            format!("{:x}", mapping.range.start.get()),
            mapping.rss.to_string(),
            mapping.thp.to_string(),
            mapping.stalls.to_string(),
            percent(mapping.stalls as f64 / all as f64),
            safe(&mapping.name),
        ]
    }));
    table(rows, &[1, 2, 3, 4], width)
}

impl JsonReport for TopReport {
    const EXPLAINS: bool = true;
    fn explain(&self, json: &mut Value) {
        explain_all(json, "/warnings", &self.warnings);
        for (index, process) in self.processes.iter().enumerate() {
            if let Some(note) = &process.note {
                explain(json, &format!("/processes/{index}/note"), note);
            }
        }
    }
}

#[cfg(test)]
mod tests;
