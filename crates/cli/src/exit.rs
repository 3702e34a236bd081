//! Exit status, and the table of signal effects for `--help` and docs/cli.md.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Command;

/// Exit status of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Success with a positive answer.
    Yes = 0,
    /// Success with a negative answer, such as nothing to gain.
    No = 1,
    /// Bad usage, bad input, or an I/O error.
    Error = 2,
    /// This kernel or this user cannot do it; `doctor` has the cause.
    Unsupported = 3,
    /// A signal ended it before there was anything to report: 128 plus the signal number.
    Interrupted = 128,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Effect of a signal on a running command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// The signal ends it.
    Ends,
    /// The command ends with a complete report and its exit status. If there is nothing to report
    /// yet, the signal ends it.
    Reports,
    /// The command restores kernel settings and reports; then the signal ends it.
    Restores,
    /// The command ends with 0.
    Stops,
    /// The command reloads its configuration.
    Reloads,
    /// The program gets the signal, and its exit status counts.
    Passes,
}

/// Signal effects on the commands whose names start with `command`.
struct Row {
    command: &'static str,
    /// Effect of SIGINT and SIGTERM.
    asks: Effect,
    /// Effect of SIGHUP.
    hangs_up: Effect,
    /// Effect of all others that end a process by default, except SIGKILL and SIGPIPE.
    others: Effect,
}

const fn row(command: &'static str, [asks, hangs_up, others]: [Effect; 3]) -> Row {
    Row { command, asks, hangs_up, others }
}

const AT_ONCE: [Effect; 3] = [Effect::Ends; 3];
const REPORTING: [Effect; 3] = [Effect::Reports, Effect::Reports, Effect::Ends];
const RESTORING: [Effect; 3] = [Effect::Reports, Effect::Reports, Effect::Restores];

/// Back end of `debloat`, not a command.
const SHRINKER: &str = "debloat --backend shrinker";

const TABLE: [Row; 44] = [
    row("compare", RESTORING),
    row("completions", AT_ONCE),
    row("daemon", [Effect::Stops, Effect::Reloads, Effect::Ends]),
    row("debloat", REPORTING),
    row(SHRINKER, RESTORING),
    row("doctor", AT_ONCE),
    row("explain", AT_ONCE),
    row("graph", AT_ONCE),
    row("knobs prefetch set", [Effect::Passes; 3]),
    row("knobs prefetch show", AT_ONCE),
    row("lab collapse", REPORTING),
    row("lab fragment", REPORTING),
    row("lab gups", AT_ONCE),
    row("lab list", AT_ONCE),
    row("lab merge", AT_ONCE),
    row("lab page-cache", REPORTING),
    row("lab pchase", AT_ONCE),
    row("lab pressure", REPORTING),
    row("lab quiet", REPORTING),
    row("lab report", AT_ONCE),
    row("lab run", REPORTING),
    row("lab stream", AT_ONCE),
    row("lab tlb-sweep", AT_ONCE),
    row("lab warm", REPORTING),
    row("lab workload", AT_ONCE),
    row("pool explain", AT_ONCE),
    row("pool set", RESTORING),
    row("pool show", AT_ONCE),
    row("record", REPORTING),
    row("report", AT_ONCE),
    row("run", [Effect::Passes; 3]),
    row("schema", AT_ONCE),
    row("sim hawkeye", REPORTING),
    row("sim heat", REPORTING),
    row("sim pcc", REPORTING),
    row("sim prefix", REPORTING),
    row("sim presets", AT_ONCE),
    row("sim reuse", REPORTING),
    row("sim tlb", REPORTING),
    row("sim utility", REPORTING),
    row("status", AT_ONCE),
    row("top", AT_ONCE),
    row("trace", REPORTING),
    row("tune", REPORTING),
];

impl Effect {
    /// Word in the table of docs/cli.md.
    #[cfg(test)]
    const fn word(self) -> &'static str {
        match self {
            Self::Ends => "128 + n",
            Self::Reports => "report",
            Self::Restores => "report, 128 + n",
            Self::Stops => "0",
            Self::Reloads => "reload",
            Self::Passes => "program",
        }
    }

    /// Sentence of `--help`.
    const fn sentence(self) -> &'static str {
        match self {
            Self::Ends => "end the command with status 128 + n",
            Self::Reports => {
                "end the command with its report and exit status; before a report, status 128 + n"
            }
            Self::Restores => "restore kernel settings, report, then end with status 128 + n",
            Self::Stops => "end the command with status 0, after the current split",
            Self::Reloads => "reloads the configuration",
            Self::Passes => "go to the program, whose exit status counts",
        }
    }
}

impl Row {
    fn is_of(&self, path: &str) -> bool {
        path.strip_prefix(self.command).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    }

    /// Lines of `--help`, one per effect.
    fn help(&self) -> String {
        let all = [("INT, TERM", self.asks), ("HUP", self.hangs_up), ("others", self.others)];
        let mut lines: Vec<(String, Effect)> = Vec::new();
        for (names, effect) in all {
            match lines.last_mut().filter(|(_, last)| *last == effect) {
                Some((last, _)) => *last = format!("{last}, {names}"),
                None => lines.push((names.to_owned(), effect)),
            }
        }
        if let [(_, effect)] = lines[..] {
            return format!("All signals {}", effect.sentence());
        }
        let mut text = "Signals (n is the signal number):".to_owned();
        for (names, effect) in lines {
            let _ = write!(text, "\n  {names}: {}", effect.sentence());
        }
        text
    }
}

/// Row of a command, such as `pool set`.
fn row_of(path: &str) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.is_of(path))
}

/// Table of docs/cli.md.
#[cfg(test)]
fn table() -> String {
    let mut text = "| command | INT, TERM | HUP | others |\n|---|---|---|---|\n".to_owned();
    for Row { command, asks, hangs_up, others } in TABLE {
        let _ = writeln!(
            text,
            "| `{command}` | {} | {} | {} |",
            asks.word(),
            hangs_up.word(),
            others.word()
        );
    }
    text
}

/// Adds the signal effects to the help of each command.
pub(crate) fn explained(command: Command) -> Command {
    explain(command, "")
}

fn explain(command: Command, path: &str) -> Command {
    if command.has_subcommands() {
        return command.mut_subcommands(|below| {
            let path = format!("{path} {}", below.get_name());
            explain(below, path.trim_start())
        });
    }
    let Some(row) = row_of(path) else { return command };
    let before = command.get_after_help().map_or_else(String::new, |help| format!("{help}\n\n"));
    command.after_help(before + &row.help())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leaves;

    #[test]
    fn every_command_has_a_row_and_every_row_a_command() {
        let commands = leaves();
        for (command, _) in &commands {
            assert!(
                row_of(command).is_some(),
                "what do signals do to `{command}`? say so in TABLE"
            );
        }
        for row in TABLE.iter().filter(|row| row.command != SHRINKER) {
            assert!(
                commands.iter().any(|(command, _)| row.is_of(command)),
                "no command {}",
                row.command
            );
        }
    }

    #[test]
    fn the_table_of_the_documentation_is_this_one() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md");
        let page = std::fs::read_to_string(page).unwrap();
        assert!(page.contains(&table()), "docs/cli.md should have\n{}", table());
    }

    #[test]
    fn the_help_of_every_command_lists_signal_effects() {
        // Long lines are wrapped.
        let words = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
        for (name, mut command) in leaves() {
            let help = words(command.render_long_help().to_string());
            assert!(help.contains(&words(row_of(&name).unwrap().help())), "{name}: {help}");
        }
        let reporting = row_of("tune").unwrap().help();
        assert!(
            reporting.contains("\n  INT, TERM, HUP: end the command with its report"),
            "{reporting}"
        );
        assert_eq!(
            row_of("run").unwrap().help(),
            format!("All signals {}", Effect::Passes.sentence())
        );
    }
}
