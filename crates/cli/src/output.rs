//! Output: reports on stdout, progress on stderr.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::Path;

use hugepilot_kernel::proc::printable;
use hugepilot_kernel::{file, terminal};
use hugepilot_render::model::Document;
use hugepilot_render::{Width, command_text, json};
use indicatif::{ProgressBar, ProgressStyle};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::{interrupt, locale};

/// Writes a report to stdout. A closed pipe is not an error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    // JSON is UTF-8 in every locale.
    let text = if text.starts_with('{') { text.into() } else { locale::shown(text) };
    print_bytes(text.as_bytes())
}

fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    printed(write_stdout(bytes))
}

/// Prints requested help, or the version. A closed pipe is not an error.
pub(crate) fn print_help(help: &clap::Error) -> Result<(), Failure> {
    printed(unless_closed(help.print()))
}

fn printed(done: io::Result<()>) -> Result<(), Failure> {
    done.map_err(|error| {
        Failure::new("cannot write to stdout", Exit::Error)
            .because(error.to_string())
            .with_help([file::STDOUT_HELP.to_owned()])
    })
}

/// Writes to stdout. A closed pipe is not an error.
pub(crate) fn write_stdout(bytes: &[u8]) -> io::Result<()> {
    unless_closed(io::stdout().lock().write_all(bytes))
}

fn unless_closed(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

/// Width of the terminal that stdout is; unlimited for files and pipes.
pub(crate) fn width() -> Width {
    terminal::columns(io::stdout()).map_or(Width::UNLIMITED, Width::columns)
}

/// Writes the report of finished work. From here on a signal ends the process at once.
pub(crate) fn finish(text: &str) -> Result<(), Failure> {
    interrupt::over();
    print(text)
}

/// Writes the report of finished work, as JSON or for people.
pub(crate) fn finish_report(report: &impl Document, is_json: bool) -> Result<(), Failure> {
    finish(&if is_json { json(report) } else { command_text(report, width()) })
}

/// Writes the report of finished work, which may not be text.
pub(crate) fn finish_bytes(bytes: &[u8]) -> Result<(), Failure> {
    interrupt::over();
    print_bytes(bytes)
}

/// Whether a user names stdout, by `-`. A file with this name is `./-`.
pub(crate) fn is_stdout(path: &Path) -> bool {
    path == Path::new(file::STDIN)
}

/// Fails if a file that a command writes beside its own output is stdout. `flag`: names the file.
pub(crate) fn not_stdout(path: &Path, kind: &str, flag: &str) -> Result<(), Failure> {
    if !is_stdout(path) {
        return Ok(());
    }
    let cause = format!("`{flag} -` would mix it with the output of the command");
    Err(stdout_refused(kind, &cause, flag))
}

/// The failure that a file of this kind may not be written to stdout.
pub(crate) fn stdout_refused(kind: &str, cause: &str, flag: &str) -> Failure {
    Failure::new(format!("cannot write {kind} to stdout"), Exit::Error)
        .because(cause)
        .with_help([format!("name a file: {flag} FILE")])
}

/// Text for stderr: all control characters but the ends of lines are escaped.
pub(crate) fn escaped(text: &str) -> String {
    let text = locale::shown(text);
    let lines: Vec<String> = text.split('\n').map(|line| printable(line.as_bytes())).collect();
    lines.join("\n")
}

/// Prints a line on stderr. A closed stderr loses it, which is not an error.
pub(crate) fn note(line: &str) {
    let _ = writeln!(io::stderr(), "{}", escaped(line));
}

/// Line of progress on stderr, rewritten in place; nothing if stderr is not a terminal.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    pub(crate) fn new() -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            bar.enable_steady_tick(std::time::Duration::from_millis(120));
            bar
        });
        Self { bar }
    }
    /// Shows the current step.
    pub(crate) fn now(&self, message: String) {
        if let Some(bar) = &self.bar {
            bar.set_style(ProgressStyle::default_spinner());
            bar.unset_length();
            bar.set_message(escaped(&message));
        }
    }
    /// Prints a line that stays, with the prefix `hugepilot: ` if stderr is not a terminal.
    pub(crate) fn round(&self, message: &str) {
        let message = escaped(message);
        match &self.bar {
            Some(bar) => bar.println(message),
            None => _ = writeln!(io::stderr(), "hugepilot: {message}"),
        }
    }
    /// Shows the bytes done of the current step.
    pub(crate) fn of(&self, done: u64, all: u64) {
        if let Some(bar) = &self.bar {
            if bar.length() != Some(all) {
                let style = ProgressStyle::with_template(
                    "{spinner} {msg} [{bar:30}] {bytes} of {total_bytes}",
                );
                bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
                bar.set_length(all);
            }
            bar.set_position(done);
        }
    }
    /// Prints a line that stays. A closed stderr loses it, which is not an error.
    pub(crate) fn keep(&self, message: &str) {
        let message = escaped(message);
        match &self.bar {
            Some(bar) => bar.println(message),
            None => _ = writeln!(io::stderr(), "{message}"),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
