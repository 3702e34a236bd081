//! Small memory limits: every command in a cgroup of each limit, beside a small program in the same
//! cgroup. The kernel kills no process, and the daemon stays small. Prints a table in Markdown.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hugepilot_testkit::cgroup::Cgroup;
use hugepilot_testkit::{Victim, compiled};
use hugepilot_units::Bytes;
use rustix::process::{Pid, Signal, kill_process};

use super::Run;
use super::tool::contents;
use crate::status::resident;

const LIMITS: [Bytes; 4] = [Bytes::mib(64), Bytes::mib(128), Bytes::mib(256), Bytes::mib(512)];
/// Memory of the program in MiB.
const PROGRAM: &str = "16";
/// Most that the daemon may take.
const DAEMON: Bytes = Bytes::mib(16);
/// Time limit of a command.
const LONGEST: Duration = Duration::from_secs(90);
/// Time for which the daemon runs after it is calibrated.
const WATCHING: Duration = Duration::from_secs(5);

/// Commands. `PID` is the program, `DIR` a directory, `HUGEPILOT` the command itself. Those that
/// calibrate find no stored calibration.
const COMMANDS: [&str; 32] = [
    "doctor",
    "status -p PID",
    "top --once --interval 500ms",
    "tune -p PID --dry-run --observe 1s",
    "tune -p PID --observe 1s --for 8s --journal DIR/tune",
    "tune --undo DIR/tune",
    "explain DIR/tune",
    "tune",
    "tune --footprint 32MiB --hot 32MiB --for 5s",
    "debloat -p PID --dry-run",
    "debloat -p PID",
    "daemon --config DIR/daemon.toml",
    "run --pages thp -- DIR/small 4",
    "compare --modes thp --rounds 1 -- DIR/small 4",
    "record -p PID --duration 1s -o DIR/recording",
    "report DIR/recording",
    // A program with much debug information: hugepilot itself.
    RECORD_OWN,
    "pool show",
    "knobs prefetch show",
    "schema error",
    "completions bash",
    "graph run pr uniform:14",
    "graph run pr uniform:24",
    "sim tlb --pattern random:64MiB --max-accesses 1000000",
    "trace -o DIR/trace -- DIR/small 4",
    "lab workload hot-set --footprint 32MiB --hot 16MiB --seconds 1",
    "lab workload hot-set --seconds 1",
    "lab pchase",
    "lab stream",
    "lab gups",
    "lab tlb-sweep --pages base",
    "lab collapse -p PID",
];

const RECORD_OWN: &str = "record --duration 2s -o DIR/names -- HUGEPILOT lab workload hot-set \
                          --footprint 32MiB --hot 16MiB --seconds 1";

/// Row of the table: a command, and what became of it below each limit.
struct Row {
    line: &'static str,
    ends: Vec<End>,
}

/// End of a command.
struct End {
    status: ExitStatus,
    peak: Bytes,
    message: String,
}

pub(super) fn run(run: &Run<'_>) -> Result<String> {
    let mut rows: Vec<Row> =
        COMMANDS.into_iter().map(|line| Row { line, ends: Vec::new() }).collect();
    for limit in LIMITS {
        let group = Cgroup::new(limit);
        let mut program = program(&group);
        let folder = folder(program.pid())?;
        for row in &mut rows {
            if run.is_interrupted() {
                break;
            }
            row.ends.push(end(run, row.line, &group, program.pid(), folder.path())?);
            ensure!(group.oom_kills() == 0, "{} below {limit}: an OOM kill", row.line);
            ensure!(program.ended().is_none(), "{} below {limit}: the program ended", row.line);
            run.progress(|| format!("{} below {limit}", row.line));
        }
        ensure!(program.finish(LONGEST).success(), "below {limit}: the program is damaged");
    }
    println!("{}", table(&rows));
    let daemon = rows.iter().find(|row| row.line.starts_with("daemon")).map(Row::peak);
    let daemon = daemon.unwrap_or_default();
    ensure!(daemon <= DAEMON, "the daemon took {daemon}");
    Ok(format!("{} commands at {} limits, no OOM kill", rows.len(), LIMITS.len()))
}

/// Starts the program, which checks its memory.
fn program(group: &Cgroup) -> Victim {
    let mut command = group.command(&compiled(Path::new("pattern.c")));
    command.args([PROGRAM, "1", "random"]);
    let program = Victim::spawn(command);
    program.ready(LONGEST);
    program
}

/// Makes a directory with the files that the commands name. The daemon may promote the program.
fn folder(program: u32) -> Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    fs::copy(compiled(Path::new("late.c")), folder.path().join("small"))?;
    let name = fs::read_to_string(format!("/proc/{program}/comm"))?;
    let name = name.trim_end();
    let rules = format!("min_huge = \"4MiB\"\n[[rule]]\ncommand = {name:?}\npromote = \"allow\"\n");
    fs::write(folder.path().join("daemon.toml"), rules)?;
    Ok(folder)
}

/// Runs a command to its end; the daemon until it is calibrated, and then for a while.
fn end(run: &Run<'_>, line: &str, group: &Cgroup, pid: u32, folder: &Path) -> Result<End> {
    let cache = tempfile::tempdir()?;
    let mut stderr = tempfile::tempfile()?;
    let mut command = group.command(run.hugepilot);
    let (name, directory) = (run.mark(), folder.display().to_string());
    let own = run.hugepilot.display().to_string();
    let word = |word: &str| match word {
        "PID" => pid.to_string(),
        "HUGEPILOT" => own.clone(),
        word => word.replace("DIR", &directory),
    };
    command.args(line.split(' ').map(word)).env("XDG_CACHE_HOME", cache.path());
    let (variable, mark) = name.variable();
    command.env(variable, mark).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(stderr.try_clone()?);
    let mut running = Running::start(command)?;
    let (begun, mut calibrated) = (Instant::now(), None);
    let status = loop {
        running.note_peak();
        if let Some(status) = running.child.try_wait()? {
            break status;
        }
        if line.starts_with("daemon") {
            let is_calibrated =
                calibrated.is_none() && contents(&mut stderr).contains("calibrated");
            calibrated = calibrated.or_else(|| is_calibrated.then(Instant::now));
        }
        let is_over = calibrated.is_some_and(|at: Instant| at.elapsed() > WATCHING);
        if is_over || run.is_interrupted() {
            let _ = kill_process(Pid::from_child(&running.child), Signal::TERM);
        }
        ensure!(begun.elapsed() < LONGEST, "{line} did not end: {}", contents(&mut stderr));
        thread::sleep(Duration::from_millis(2));
    };
    let said = contents(&mut stderr);
    ensure!(!said.contains("panicked"), "{line}: {said}");
    Ok(End { status, peak: running.peak, message: message(&said) })
}

/// Command under test, killed on drop, and its peak of resident memory.
struct Running {
    child: Child,
    peak: Bytes,
}

impl Running {
    fn start(mut command: Command) -> Result<Self> {
        let child = command.spawn().with_context(|| format!("{command:?}"))?;
        Ok(Self { child, peak: Bytes::ZERO })
    }

    /// Reads the peak, which only grows. That of the shell that enters the cgroup is smaller.
    fn note_peak(&mut self) {
        self.peak = Bytes::new(resident(self.child.id()).1).max(self.peak);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the line about memory or a failure, if there is one.
fn message(said: &str) -> String {
    let starts = ["hugepilot: ", "note: not calibrated", "note: calibrated", "warning: "];
    let line = starts.iter().find_map(|start| said.lines().find(|line| line.starts_with(start)));
    line.unwrap_or_default().replace('|', "\\|")
}

impl Row {
    fn peak(&self) -> Bytes {
        self.ends.iter().map(|end| end.peak).max().unwrap_or_default()
    }
}

/// Peak in MiB; `-` if the command ended before it was read, so that it is that of the shell.
#[allow(clippy::cast_precision_loss)]
fn mebibytes(peak: Bytes) -> String {
    const SHELL: Bytes = Bytes::mib(4);
    if peak < SHELL { "-".to_owned() } else { format!("{:.1}", peak.get() as f64 / 1_048_576.0) }
}

fn table(rows: &[Row]) -> String {
    let mut text = String::from("| command |");
    LIMITS.iter().for_each(|limit| _ = write!(text, " {limit} |"));
    text.push_str(" messages |\n|---|");
    text.push_str(&"---|".repeat(LIMITS.len() + 1));
    for row in rows {
        let _ = write!(text, "\n| `{}` |", row.line);
        let mut messages: Vec<String> = Vec::new();
        for (end, limit) in row.ends.iter().zip(LIMITS) {
            let status = match (end.status.code(), end.status.signal()) {
                (Some(code), _) => code.to_string(),
                (None, signal) => format!("signal {}", signal.unwrap_or_default()),
            };
            let _ = write!(text, " {}, {status} |", mebibytes(end.peak));
            if !end.message.is_empty() {
                messages.push(format!("{limit}: {}", end.message));
            }
        }
        // That of the other limits has other numbers.
        let _ = write!(text, " {} |", messages.first().map_or("", String::as_str));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_row_with_its_peaks_and_messages() {
        let end = |peak, code, message: &str| End {
            status: ExitStatus::from_raw(code << 8),
            peak: Bytes::kib(peak),
            message: message.to_owned(),
        };
        let ends = vec![end(7_680, 2, "hugepilot: no"), end(8_192, 0, ""), end(2_048, 0, "")];
        let row = Row { line: "tune", ends };
        assert_eq!(row.peak(), Bytes::mib(8));
        let expected = "| command | 64MiB | 128MiB | 256MiB | 512MiB | messages |\n\
                        |---|---|---|---|---|---|\n\
                        | `tune` | 7.5, 2 | 8.0, 0 | -, 0 | 64MiB: hugepilot: no |";
        assert_eq!(table(&[row]), expected);
    }

    #[test]
    fn the_message_is_that_of_the_failure() {
        let said = "calibrating\nnote: calibrated without 1GiB: a | b\nhugepilot: no\n";
        assert_eq!(message(said), "hugepilot: no");
        assert_eq!(message(&said[..46]), "note: calibrated without 1GiB: a \\|");
        assert_eq!(message("progress\n"), "");
    }
}
