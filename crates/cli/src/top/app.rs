//! Interactive `top`: keys, and the state of the screen.

use std::io;
use std::time::Duration;

use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use hugepilot_kernel::{Target as _, clock, terminal};
use hugepilot_record::Pid;
use hugepilot_render::Width;
use hugepilot_reports::top::{TopProcess, TopReport};
use hugepilot_reports::{
    MappingStalls, TopColumn, TopScreen, draw_lines, draw_top, mapping_stalls_text, sort_top,
    status_text,
};
use hugepilot_top::bloat::BloatCount;
use hugepilot_top::machine::{RunningSystem, by_mapping};
use hugepilot_top::status::status;
use hugepilot_top::{ProcessTable as _, Top};
use hugepilot_units::Nanos;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT};

use super::screen::Screen;
use super::{DRAIN_EVERY, FIRST_LOOK, MAX_INTERVAL, MIN_INTERVAL, TopArgs};
use crate::exit::Exit;
use crate::interrupt::{Interrupt, ended_by};
use crate::target::open;

/// Longest wait for a key, so that signals take effect.
const TICK: Nanos = Nanos::millis(250);

/// A process whose zero-filled pages are counted.
struct Counting {
    pid: Pid,
    count: BloatCount,
}

/// Text of one process, instead of the table.
struct Detail {
    title: String,
    lines: Vec<String>,
    offset: usize,
}

struct App<'a> {
    top: Top<RunningSystem<'a>>,
    report: TopReport,
    column: TopColumn,
    reverse: bool,
    /// The selected process; the first row if it ended.
    selected: Option<Pid>,
    offset: usize,
    paused: bool,
    message: Option<String>,
    counting: Option<Counting>,
    detail: Option<Detail>,
    color: bool,
    next_look: Nanos,
    end: Option<Exit>,
}

pub(super) fn run(mut top: Top<RunningSystem<'_>>, args: &TopArgs) -> anyhow::Result<Exit> {
    let interrupt = Interrupt::only_ask()?;
    let (report, _) = top.look()?;
    let mut app = App {
        report,
        column: args.sort,
        reverse: args.reverse,
        selected: None,
        offset: 0,
        paused: false,
        message: None,
        counting: None,
        detail: None,
        color: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        next_look: top.table().now() + FIRST_LOOK,
        end: None,
        top,
    };
    app.sort();
    let mut screen = Screen::new()?;
    let (mut drained, mut redraw) = (Nanos::ZERO, true);
    while app.end.is_none() {
        if interrupt.is_asked() {
            return Ok(Exit::Interrupted);
        }
        redraw |= screen.obey_job_control()?;
        let now = clock::monotonic();
        if now > drained + DRAIN_EVERY {
            app.top.table_mut().drain();
            drained = now;
        }
        redraw |= app.look_if_due(now)? | app.count_a_step();
        if redraw {
            let height = crossterm::terminal::size().map_or(24, |(_, height)| height);
            app.scroll_to_selected(height);
            screen.draw(|buffer| app.draw(buffer))?;
        }
        redraw = app.wait_for_key(now, &screen)?;
    }
    Ok(app.end.unwrap_or(Exit::Yes))
}

impl App<'_> {
    fn sort(&mut self) {
        sort_top(&mut self.report.processes, self.column, self.reverse);
    }

    fn selected_row(&self) -> usize {
        let row = |pid| self.report.processes.iter().position(|process| process.pid == pid);
        self.selected.and_then(row).unwrap_or(0)
    }

    fn selected_process(&self) -> Option<&TopProcess> {
        self.report.processes.get(self.selected_row())
    }

    fn scroll_to_selected(&mut self, height: u16) {
        let (row, rows) = (self.selected_row(), TopScreen::rows(height).max(1));
        self.offset = self.offset.clamp(row.saturating_sub(rows - 1), row);
    }

    fn draw(&self, buffer: &mut ratatui_core::buffer::Buffer) {
        if let Some(Detail { title, lines, offset }) = &self.detail {
            return draw_lines(title, lines, *offset, self.color, buffer);
        }
        let counting = self.counting.as_ref().map(|counting| {
            let done = counting.count.progress() * 100.0;
            format!("counting the bloat of process {}: {done:.0} %", counting.pid)
        });
        draw_top(
            &TopScreen {
                report: &self.report,
                column: self.column,
                reverse: self.reverse,
                selected: self.selected_row(),
                offset: self.offset,
                paused: self.paused,
                interval: &self.top.interval().to_string(),
                message: counting.as_deref().or(self.message.as_deref()),
                color: self.color,
            },
            buffer,
        );
    }

    fn look_if_due(&mut self, now: Nanos) -> anyhow::Result<bool> {
        if self.paused || now < self.next_look {
            return Ok(false);
        }
        let (report, pause) = self.top.look()?;
        self.report = report;
        self.sort();
        self.next_look = clock::monotonic() + pause;
        Ok(true)
    }

    /// Reads a few huge pages for the user. Returns whether the screen changed.
    fn count_a_step(&mut self) -> bool {
        let Some(Counting { pid, count }) = &mut self.counting else { return false };
        let (pid, before) = (*pid, count.progress());
        let found = match count.step() {
            Ok(false) => return (count.progress() * 100.0).floor() > (before * 100.0).floor(),
            Ok(true) => Some(count.zero_filled),
            Err(error) => {
                self.message = Some(error.to_string());
                None
            }
        };
        self.counting = None;
        self.top.set_zero_filled(pid, found);
        self.top.forgive();
        for process in self.report.processes.iter_mut().filter(|process| process.pid == pid) {
            process.zero_filled_bytes = found;
        }
        true
    }

    /// Waits for a key until there is other work. Returns whether the screen changed.
    fn wait_for_key(&mut self, now: Nanos, screen: &Screen) -> io::Result<bool> {
        let until_look = if self.paused { TICK } else { self.next_look - now };
        let wait = if self.counting.is_some() { Nanos::ZERO } else { until_look.min(TICK) };
        // crossterm reads the end of a terminal for ever, and then no signal takes effect.
        if terminal::is_gone(io::stdin(), wait.into()) {
            self.end_by(SIGHUP);
            return Ok(false);
        }
        let mut redraw = false;
        while event::poll(Duration::ZERO)? {
            redraw = true;
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => self.key(key, screen),
                _ => {}
            }
            if self.end.is_some() {
                break;
            }
        }
        Ok(redraw)
    }

    fn key(&mut self, key: KeyEvent, screen: &Screen) {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            match key.code {
                KeyCode::Char('c') => self.end_by(SIGINT),
                KeyCode::Char('\\' | '4') => self.end_by(SIGQUIT),
                KeyCode::Char('z') => screen.ask_to_stop(),
                _ => {}
            }
        } else if self.detail.is_some() {
            self.key_of_detail(key.code);
        } else {
            self.message = None;
            self.key_of_table(key.code);
        }
    }

    fn end_by(&mut self, signal: i32) {
        ended_by(signal);
        self.end = Some(Exit::Interrupted);
    }

    fn key_of_detail(&mut self, code: KeyCode) {
        let Some(Detail { lines, offset, .. }) = &mut self.detail else { return };
        let last = lines.len().saturating_sub(1);
        match code {
            KeyCode::Char('q') | KeyCode::Esc | KeyCode::Enter => self.detail = None,
            KeyCode::Down | KeyCode::Char('j') => *offset = (*offset + 1).min(last),
            KeyCode::Up | KeyCode::Char('k') => *offset = offset.saturating_sub(1),
            KeyCode::PageDown | KeyCode::Char(' ') => *offset = (*offset + 20).min(last),
            KeyCode::PageUp => *offset = offset.saturating_sub(20),
            KeyCode::Home => *offset = 0,
            KeyCode::End => *offset = last,
            _ => {}
        }
    }

    fn key_of_table(&mut self, code: KeyCode) {
        match code {
            KeyCode::Char('q') | KeyCode::Esc => self.end = Some(Exit::Yes),
            KeyCode::Down | KeyCode::Char('j') => self.select(1),
            KeyCode::Up | KeyCode::Char('k') => self.select(-1),
            KeyCode::PageDown => self.select(20),
            KeyCode::PageUp => self.select(-20),
            KeyCode::Home => self.select(isize::MIN),
            KeyCode::End => self.select(isize::MAX),
            KeyCode::Char('<') | KeyCode::Left => self.order_by(self.column.moved(-1)),
            KeyCode::Char('>') | KeyCode::Right => self.order_by(self.column.moved(1)),
            KeyCode::Char('r') => {
                self.reverse = !self.reverse;
                self.sort();
            }
            KeyCode::Char('p') => self.paused = !self.paused,
            KeyCode::Char('+') => self.set_interval(|interval| interval + interval),
            KeyCode::Char('-') => self.set_interval(|interval| Nanos::new(interval.get() / 2)),
            KeyCode::Char('b') => self.count_bloat(),
            KeyCode::Enter => self.show_detail(),
            _ => {}
        }
    }

    fn select(&mut self, rows: isize) {
        let last = self.report.processes.len().saturating_sub(1);
        let row = self.selected_row().saturating_add_signed(rows).min(last);
        self.selected = self.report.processes.get(row).map(|process| process.pid);
    }

    fn order_by(&mut self, column: TopColumn) {
        self.column = column;
        self.sort();
    }

    fn set_interval(&mut self, change: impl FnOnce(Nanos) -> Nanos) {
        let interval = change(self.top.interval()).clamp(MIN_INTERVAL, MAX_INTERVAL);
        self.top.set_interval(interval);
    }

    fn count_bloat(&mut self) {
        let Some(pid) = self.selected_process().map(|process| process.pid) else { return };
        match open(pid.0).and_then(BloatCount::new) {
            Ok(count) => self.counting = Some(Counting { pid, count }),
            Err(error) => self.message = Some(error.to_string()),
        }
    }

    fn show_detail(&mut self) {
        let Some(process) = self.selected_process() else { return };
        let (pid, title) = (process.pid, format!("{} (pid {})", process.command, process.pid));
        match self.detail_lines(pid) {
            Ok(lines) => self.detail = Some(Detail { title, lines, offset: 0 }),
            Err(error) => self.message = Some(error.to_string()),
        }
        self.top.forgive();
    }

    /// The stalls of a process by mapping, and its status.
    fn detail_lines(&self, pid: Pid) -> Result<Vec<String>, hugepilot_kernel::KernelError> {
        let process = open(pid.0)?;
        let report = status(&process, false)?;
        let columns = crossterm::terminal::size().map_or(80, |(columns, _)| columns);
        let width = Width::columns(columns.into());
        let mut text = String::new();
        if let Some(stalls) = self.top.table().stalls(pid) {
            let ranges: Vec<_> = report.mappings.iter().map(|mapping| mapping.range).collect();
            let sums = by_mapping(stalls, &ranges, process.sizes());
            let mappings =
                report.mappings.iter().zip(sums).map(|(mapping, stalls)| MappingStalls {
                    range: mapping.range,
                    name: mapping.name.clone(),
                    rss: mapping.sizes.resident_bytes - mapping.hugetlb_bytes(),
                    thp: mapping.sizes.huge_bytes - mapping.hugetlb_bytes(),
                    stalls,
                });
            let mappings: Vec<_> = mappings.collect();
            text = mapping_stalls_text(&mappings, width) + "\n";
        }
        text += &status_text(&report, width, false);
        Ok(text.lines().map(str::to_owned).collect())
    }
}
