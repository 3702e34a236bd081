//! Screen of `top`: cells of a terminal, without a terminal.

use hugepilot_render::sentence::Sentence as _;
use ratatui_core::buffer::Buffer;
use ratatui_core::style::{Color, Modifier, Style};
use unicode_width::UnicodeWidthStr as _;

use super::{TopColumn, columns, fit, gain, header, row, safe, summary};
use crate::top::{TopProcess, TopReport, TopWarning};

/// Rows above the processes: summary, state, titles.
const ABOVE: u16 = 3;
/// Rows below them: the note of the selected process, and the keys.
const BELOW: u16 = 2;
/// Share of stalls that is highlighted.
const MUCH_STALL: f64 = 0.2;
/// Gain that is highlighted.
const MUCH_GAIN: f64 = 0.05;
const KEYS: &str =
    "q quit  ↑↓ select  Enter detail  b bloat  < > sort  r reverse  p pause  + - time";

/// State of the screen.
#[derive(Clone, Copy, Debug)]
pub struct TopScreen<'a> {
    /// Last report, with its processes in the order of the rows.
    pub report: &'a TopReport,
    /// Column that gives the order.
    pub column: TopColumn,
    /// Whether that order is reversed.
    pub reverse: bool,
    /// Index of the selected row.
    pub selected: usize,
    /// First row that is shown.
    pub offset: usize,
    /// Whether looks are paused.
    pub paused: bool,
    /// Time between two looks, as text.
    pub interval: &'a str,
    /// Message instead of the note of the selected process.
    pub message: Option<&'a str>,
    /// Whether colours are permitted.
    pub color: bool,
}

impl TopScreen<'_> {
    /// Returns the number of rows for processes on a screen of this height.
    pub fn rows(height: u16) -> usize {
        usize::from(height.saturating_sub(ABOVE + BELOW))
    }

    fn styled(&self, color: Color, modifier: Modifier) -> Style {
        let style = Style::new().add_modifier(modifier);
        if self.color { style.fg(color) } else { style }
    }

    /// Settings, and a warning after a bar; without its help if that does not fit.
    fn state(&self, width: usize) -> String {
        let order = if self.reverse { "reversed " } else { "" };
        let paused = if self.paused { "PAUSED  " } else { "" };
        let (title, interval) = (self.column.title(), self.interval);
        let settings = format!("{paused}every {interval}  {order}by {title}");
        let Some(warning) = self.report.warnings.first() else { return settings };
        let short = format!("{settings}  |  warning: {}", brief(warning));
        let whole = match warning {
            TopWarning::NoneLeft => return short,
            _ => format!("{short}, help: hugepilot top --once"),
        };
        if whole.width() > width { short } else { whole }
    }

    /// Line about the selected process.
    fn note(&self) -> String {
        if let Some(message) = self.message {
            return message.to_owned();
        }
        let Some(process) = self.report.processes.get(self.selected) else { return String::new() };
        let name = format!("{} (pid {})", process.command, process.pid);
        match (&process.note, process.predicted_speedup) {
            (Some(note), _) => format!("{name}: {}", note.text()),
            (None, Some(speedup)) => format!(
                "{name}: a model predicts {:.2}x to {:.2}x; tune -p {} measures",
                speedup.low, speedup.high, process.pid
            ),
            (None, None) => name,
        }
    }

    fn style_of(&self, process: &TopProcess) -> Style {
        if gain(process).is_some_and(|gain| gain >= MUCH_GAIN) {
            self.styled(Color::Green, Modifier::BOLD)
        } else if process.stall_ratio.is_some_and(|ratio| ratio >= MUCH_STALL) {
            self.styled(Color::Yellow, Modifier::BOLD)
        } else if process.stall_ratio.is_none() {
            Style::new().add_modifier(Modifier::DIM)
        } else {
            Style::new()
        }
    }
}

/// A warning in few words. The whole text, with its help, has no place.
fn brief(warning: &TopWarning) -> String {
    match warning {
        TopWarning::NoPermission { processes, .. } => format!("{processes} may not be read"),
        TopWarning::NoCalibration => "no gain is predicted".to_owned(),
        TopWarning::NoneLeft => "no selected process runs".to_owned(),
        TopWarning::MappedInPart { bytes } => format!("{bytes} mapped in part"),
    }
}

/// Draws the table of processes.
pub fn draw_top(screen: &TopScreen<'_>, buffer: &mut Buffer) {
    let (width, height) = (buffer.area.width, buffer.area.height);
    let mut line = |y: u16, text: &str, style: Style| {
        if y < height {
            buffer.set_stringn(0, y, fit(text, width.into(), false), width.into(), style);
        }
    };
    let strong = screen.styled(Color::Cyan, Modifier::BOLD);
    line(0, &summary(screen.report), strong);
    line(1, &safe(&screen.state(width.into())), Style::new());
    let columns = columns(&screen.report.processes, Some(width.into()));
    line(2, &header(&columns), Style::new().add_modifier(Modifier::REVERSED));
    let rows = TopScreen::rows(height);
    let shown = screen.report.processes.iter().enumerate().skip(screen.offset).take(rows);
    for ((index, process), y) in shown.zip(ABOVE..) {
        let style = screen.style_of(process);
        let selected = index == screen.selected;
        let style = if selected { style.add_modifier(Modifier::REVERSED) } else { style };
        line(y, &row(&columns, process), style);
    }
    if height >= ABOVE + BELOW {
        line(height - 2, &safe(&screen.note()), Style::new());
        line(height - 1, KEYS, strong);
    }
    underline_order(screen, &columns, buffer);
}

/// Marks the title of the column that gives the order.
fn underline_order(screen: &TopScreen<'_>, columns: &[(TopColumn, usize)], buffer: &mut Buffer) {
    let mut x = 0;
    for &(column, width) in columns {
        if column == screen.column && buffer.area.height > 2 {
            for at in x..(x + width).min(buffer.area.width.into()) {
                let at = u16::try_from(at).unwrap_or(u16::MAX);
                let marked = Modifier::REVERSED | Modifier::BOLD | Modifier::UNDERLINED;
                buffer[(at, 2)].set_style(Style::new().add_modifier(marked));
            }
        }
        x += width + super::GAP;
    }
}

/// Draws text from line `offset` on, under a title and over the keys that work there.
pub fn draw_lines(title: &str, lines: &[String], offset: usize, color: bool, buffer: &mut Buffer) {
    let (width, height) = (buffer.area.width, buffer.area.height);
    let style = Style::new().add_modifier(Modifier::BOLD);
    let strong = if color { style.fg(Color::Cyan) } else { style };
    let mut line = |y: u16, text: &str, style: Style| {
        if y < height {
            let text = fit(&safe(text), width.into(), false);
            buffer.set_stringn(0, y, text, width.into(), style);
        }
    };
    line(0, title, strong);
    let rows = height.saturating_sub(2);
    for (text, y) in lines.iter().skip(offset).take(rows.into()).zip(1..) {
        line(y, text, Style::new());
    }
    if height > 1 {
        line(height - 1, "q Esc back  ↑↓ PgUp PgDn scroll", strong);
    }
}
