//! `hugepilot record`: a program, or running processes, over time.

mod times;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IsTerminal as _, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueHint};
use hugepilot_events as event;
use hugepilot_events::{Resolved, events_text};
use hugepilot_kernel::perf::groups::events_here;
use hugepilot_kernel::proc::printable;
use hugepilot_kernel::{Process, Root, Target, cpu, descriptors, file};
use hugepilot_launch::program;
use hugepilot_launch::record::{
    LinePatterns, RecordOptions, RecordProgress, RecordTarget, Recorded, RepeatedInput, event_sets,
    record, record_sets,
};
use hugepilot_record::Pid;
use hugepilot_recording::{REPORT_SCHEMA, RecordReport, record_text};
use hugepilot_render::table::process_count;
use hugepilot_render::{counted, json};
use hugepilot_units::{Bytes, Nanos};
use regex::bytes::Regex;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::interrupt::{self, Interrupt};
use crate::journal::not_writable;
use crate::new_file::require_free;
use crate::output::{Progress, is_stdout, print, stdout_refused, width};
use crate::recording::command_line;
use crate::target::TargetArgs;

/// Flags of running processes, which a program and its flags exclude.
const TARGETS: [&str; 3] = ["pid", "name", "cgroup"];

/// Record how a program or running processes use memory over time
///
/// The file has metrics of the system, of each process and thread, stall samples by region and by
/// code, and phases. `hugepilot report` shows it. A program runs as without hugepilot: its standard
/// streams are untouched. Requires no permission for your own processes.
#[derive(Debug, Args)]
#[command(after_help = "\
Phases: a program can also begin one by itself, by hugepilot_begin_phase(\"solve\") of hugepilot.h,
or by a line with the name in the file that the environment variable HUGEPILOT_MARKERS names.

Examples:
  hugepilot record -- ./solve input.txt                      to hugepilot-solve.rec
  hugepilot report hugepilot-solve.rec -o solve.html         then see it in a browser
  hugepilot record -p 4711 --duration 60s -o db.rec          a running process
  hugepilot record -p 4711 --duration 10s -o - | hugepilot report -
                                                             without a file
  hugepilot record --every 10ms -o fine.rec -- ./solve       a hundred slices a second
  hugepilot record --events paper --events r01b6 -- ./solve  other hardware events
  hugepilot record --list-events                             those of this processor
  hugepilot record --from-regex '^loaded' --phase-regex '^phase (\\w+)' -- ./solve
                                                             phases by its output
  hugepilot record --from-regex '^loaded' --to-regex '^solved' -- ./solve
                                                             a part of its run

Exit status: with CMD, that of the program; otherwise 0 the recording is written; 2 error")]
pub(crate) struct RecordArgs {
    #[command(flatten)]
    selection: TargetArgs,
    /// File of the recording; `-` is stdout, without CMD and --json [default:
    /// hugepilot-PROGRAM.rec]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Replace FILE if it exists
    #[arg(long)]
    force: bool,
    /// Time between two readings, 10ms to 10s: a slice of the recording
    #[arg(long, value_name = "TIME", default_value = "100ms")]
    every: Nanos,
    /// Samples per second of CPU time, which show the code and memory that stall
    #[arg(long, value_name = "HZ", default_value_t = 199,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: u32,
    /// No stall samples
    #[arg(long, conflicts_with = "rate")]
    no_stalls: bool,
    /// Record the callers of each stall sample, for a flame graph; requires frame pointers
    #[arg(long, conflicts_with = "no_stalls")]
    callers: bool,
    /// Events to count: a set or a metric (see --list-events), an event of perf or of the maker's
    /// list, or a raw code. Repeatable [default: ipc, tlb]
    #[arg(long, value_name = "EVENT")]
    events: Vec<String>,
    /// Run CMD once for each set of events that the counters hold at once, and join the runs
    #[arg(long, requires = "command", conflicts_with_all = TARGETS)]
    repeat: bool,
    /// Events of a run at most, instead of the counters of the processor
    #[arg(long, hide = true, requires = "repeat",
          value_parser = clap::value_parser!(u16).range(1..))]
    events_per_run: Option<u16>,
    /// List the sets and metrics, and whether they can be counted here
    #[arg(long)]
    list_events: bool,
    /// Time after which the recording ends; a program runs on [default: unlimited]
    #[arg(long, value_name = "TIME")]
    duration: Option<Nanos>,
    /// Line of the program's stdout at which the recording begins [default: its start]
    #[arg(long, value_name = "REGEX", requires = "command", conflicts_with_all = TARGETS)]
    from_regex: Option<Regex>,
    /// Line of the program's stdout, after that begin, at which the recording ends; the program
    /// runs on [default: its end]
    #[arg(long, value_name = "REGEX", requires = "command", conflicts_with_all = TARGETS)]
    to_regex: Option<Regex>,
    /// Record only the first phase with this name, up to the begin of the next; the program runs on
    #[arg(long, value_name = "NAME", requires = "command", conflicts_with_all = TARGETS,
          conflicts_with_all = ["from_regex", "to_regex"])]
    only_phase: Option<String>,
    /// Line of the program's stdout that begins a phase; the first group in parentheses is its name
    #[arg(long, value_name = "REGEX", requires = "command", conflicts_with_all = TARGETS)]
    phase_regex: Option<Regex>,
    /// JSON on stdout (schema hugepilot.record/1); stdout of the program goes to stderr
    #[arg(long)]
    json: bool,
    /// Program and arguments
    #[arg(last = true, conflicts_with_all = TARGETS, value_name = "CMD", num_args = 1..,
          value_hint = ValueHint::ExecutablePath)]
    command: Vec<OsString>,
}

/// Sets that are counted by default.
const DEFAULT_EVENTS: [&str; 2] = ["ipc", "tlb"];

/// Returns the events that the user named.
fn events(names: &[String]) -> anyhow::Result<Resolved> {
    let cpu = cpu::read(&Root::live())?;
    let names: Vec<&str> = match names {
        [] => DEFAULT_EVENTS.to_vec(),
        names => names.iter().map(String::as_str).collect(),
    };
    let named = names.into_iter().map(|name| {
        event::parse(&cpu, name).map_err(|error| {
            let failure = Failure::new(format!("cannot count {name:?}"), Exit::Error);
            let list = "list the events of this processor: hugepilot record --list-events";
            failure.because(error.to_string()).with_help([list.to_owned()])
        })
    });
    Ok(event::resolve(&cpu, &named.collect::<Result<Vec<_>, _>>()?))
}

/// Prints the events that this processor can count.
fn list_events(as_json: bool) -> anyhow::Result<ExitCode> {
    let root = Root::live();
    let own = Process::open(&root, Pid(i32::try_from(std::process::id())?))?;
    let list = events_here(&root, &cpu::read(&root)?, &own);
    print(&if as_json { json(&list) } else { events_text(&list, width()) })?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn run(args: &RecordArgs) -> anyhow::Result<ExitCode> {
    if args.list_events {
        return list_events(args.json);
    }
    times::check(args.every, args.duration)?;
    require_free_stdout(args, io::stdout().is_terminal())?;
    descriptors::raise_limit();
    let input = repeated_input(args)?;
    let progress = Progress::new();
    let (target, name) = target(args, &progress)?;
    let options = RecordOptions {
        every: args.every,
        rate_hz: (!args.no_stalls).then_some(args.rate),
        callers: args.callers,
        duration: args.duration,
        events: events(&args.events)?,
        command_line: command_line(),
    };
    let path = args.output.clone().unwrap_or_else(|| default_path(&name));
    let file = create(&path, args.force)?;
    let interrupt = Interrupt::listen()?;
    let interrupted = || interrupt.is_asked();
    let mut show = |now: RecordProgress| progress.now(progress_text(&now, args));
    let (recorded, times) = match input {
        Some(input) => {
            let sets = event_sets(&options.events, args.events_per_run.map(usize::from));
            let plan = (&options, sets, &input);
            let start = || program_target(args);
            let runs = record_sets(&start, plan, (&path, &file), &interrupted, &mut show)?;
            (runs.recorded, runs.times)
        }
        None => {
            let recorded = record(target, &options, file, &interrupted, &mut show)?;
            let elapsed = recorded.elapsed;
            (recorded, vec![elapsed])
        }
    };
    drop(progress);
    interrupt::over();
    let report = report(args, &path, &recorded, &times);
    // The data is the file, so the summary goes to stderr: stdout belongs to the program.
    let text = record_text(&report);
    if args.json {
        print(&json(&report))?;
    } else {
        let _ = io::stderr().write_all(text.as_bytes());
    }
    if let Some(error) = recorded.write_error {
        let failure = Failure::new(format!("cannot write {}", path.display()), Exit::Error);
        let exit = failure.because(error.to_string()).note();
        if args.command.is_empty() {
            return Ok(exit.into());
        }
    }
    let code = recorded.ending.map_or(0, |ending| ending.code());
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)))
}

/// Fails if the recording goes to stdout, which has other contents.
fn require_free_stdout(args: &RecordArgs, is_terminal: bool) -> Result<(), Failure> {
    let cause = match () {
        () if !args.output.as_deref().is_some_and(is_stdout) => return Ok(()),
        () if args.json => "`-o -` would mix it with the JSON of --json",
        () if !args.command.is_empty() => "`-o -` would mix it with the output of the program",
        () if is_terminal => "stdout is a terminal, and a recording is compressed",
        () => return Ok(()),
    };
    Err(stdout_refused("the recording", cause, "-o"))
}

/// Returns the target, and its name for the file.
fn target(args: &RecordArgs, progress: &Progress) -> anyhow::Result<(RecordTarget, String)> {
    let Some(program) = args.command.first() else {
        if args.selection.is_empty() {
            return Err(no_target().into());
        }
        let (selected, excluded) = args.selection.open("record")?;
        let processes: Vec<Process> = selected.into_iter().map(|one| one.process).collect();
        if let Some(excluded) = excluded.count(processes.len())? {
            progress.keep(&format!("warning: {}", hugepilot_render::Sentence::text(&excluded)));
        }
        let name = processes.first().map(|one| one.id().command.clone()).unwrap_or_default();
        return Ok((RecordTarget::Running(processes), name));
    };
    // An error before the file is created.
    program::check(program)?;
    let name = Path::new(program).file_name().unwrap_or_default();
    let name = name.to_string_lossy().into_owned();
    Ok((program_target(args)?, name))
}

fn no_target() -> Failure {
    Failure::new("nothing to record", Exit::Error).because("no target is named").with_help([
        "record a running process: hugepilot record -p PID".to_owned(),
        "record a program from its start: hugepilot record -- CMD".to_owned(),
    ])
}

fn program_target(args: &RecordArgs) -> io::Result<RecordTarget> {
    let patterns = LinePatterns {
        from: args.from_regex.clone(),
        to: args.to_regex.clone(),
        phase: args.phase_regex.clone(),
        only: args.only_phase.clone(),
    };
    let command = args.command.clone();
    Ok(RecordTarget::Program { command, stdout: stdout(args.json)?, patterns })
}

/// Returns the input of several runs; `None` if there is one run.
fn repeated_input(args: &RecordArgs) -> anyhow::Result<Option<RepeatedInput>> {
    if !args.repeat {
        return Ok(None);
    }
    match RepeatedInput::of_stdin() {
        Some(input) => Ok(Some(input)),
        None => {
            let failure = Failure::new("cannot repeat the program".to_owned(), Exit::Error);
            let cause = "its stdin is a pipe, which only the first run could read";
            let help = "redirect stdin from a file, or from /dev/null: < /dev/null";
            Err(failure.because(cause.to_owned()).with_help([help.to_owned()]).into())
        }
    }
}

/// Returns the stream for the program's stdout.
fn stdout(is_report: bool) -> io::Result<OwnedFd> {
    if is_report {
        io::stderr().as_fd().try_clone_to_owned()
    } else {
        io::stdout().as_fd().try_clone_to_owned()
    }
}

/// Returns the name of the file for a program: without characters that a shell or a terminal
/// interprets.
fn default_path(program: &str) -> PathBuf {
    const LONGEST: usize = 64;
    let safe = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let name: String = program.chars().map(safe).take(LONGEST).collect();
    PathBuf::from(format!("hugepilot-{name}.rec"))
}

/// Creates the file under its name, so that the recording of a killed hugepilot is readable.
fn create(path: &Path, force: bool) -> anyhow::Result<File> {
    if is_stdout(path) {
        return Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?));
    }
    require_free(path, force)?;
    let opened = file::open_to_write(path);
    let emptied = opened.and_then(|file| file.set_len(0).map(|()| file));
    Ok(emptied.map_err(|error| not_writable("recording", path, &error))?)
}

fn shown(text: &OsStr) -> String {
    printable(text.as_encoded_bytes())
}

fn progress_text(now: &RecordProgress, args: &RecordArgs) -> String {
    if now.is_waiting {
        let phase = args.only_phase.as_ref().map(|_| "waiting for the phase of --only-phase");
        return phase.unwrap_or("waiting for the first match of --from-regex").to_owned();
    }
    format!(
        "recording: {:.0} s, {}, {}, {}",
        now.elapsed.as_seconds(),
        process_count(now.processes as u64),
        counted(now.samples, "sample", "samples"),
        Bytes::new(now.bytes)
    )
}

fn report(args: &RecordArgs, path: &Path, recorded: &Recorded, times: &[Nanos]) -> RecordReport {
    RecordReport {
        schema: REPORT_SCHEMA.to_owned(),
        command: args.command.iter().map(|word| shown(word)).collect(),
        file: shown(path.as_os_str()),
        file_bytes: Bytes::new(recorded.bytes),
        wall_seconds: recorded.elapsed.as_seconds(),
        run_seconds: times.iter().map(|time| time.as_seconds()).collect(),
        began: recorded.no_begin.is_none(),
        no_begin: recorded.no_begin.clone(),
        slices: recorded.slices,
        processes: recorded.processes,
        phases: recorded.phases,
        too_many_phases: recorded.too_many_phases,
        sampler: recorded.sampler.clone(),
        sampler_missing: recorded.sampler_missing.clone(),
        samples: recorded.samples.0,
        lost_samples: recorded.samples.1,
        callers_ratio: recorded.callers_ratio,
        missing_metrics: recorded.missing.clone(),
        own_cpu_ratio: recorded.own_cpu.ratio_of(recorded.elapsed),
        tree: recorded.tree.clone(),
        span: recorded.span.clone(),
        ending: recorded.ending,
        stop: recorded.stop,
        ended_processes: recorded.ended_processes,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        args: RecordArgs,
    }

    #[test]
    fn a_recording_on_stdout_is_alone_there() {
        let refused = |words: &str, is_terminal| {
            let words = Words::try_parse_from(format!("record -o - {words}").split_whitespace());
            let refused = require_free_stdout(&words.unwrap().args, is_terminal);
            refused.err().map(|failure| failure.to_string())
        };
        assert_eq!(refused("-p 1", false), None);
        for (words, is_terminal, says) in [
            ("-p 1", true, "a terminal"),
            ("-p 1 --json", false, "would mix it with the JSON"),
            ("-- solve", false, "would mix it with the output of the program"),
        ] {
            let error = refused(words, is_terminal).expect(words);
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn flags_of_a_program_exclude_running_processes() {
        for flag in ["--repeat", "--from-regex=x", "--phase-regex=x"] {
            let error = |rest: &[&str]| {
                Words::try_parse_from(["record", flag].iter().chain(rest)).err().map(|e| e.kind())
            };
            assert_eq!(error(&["--", "solve"]), None);
            let target = error(&["--pid", "1"]);
            assert_eq!(target, Some(clap::error::ErrorKind::ArgumentConflict), "{flag}");
        }
    }

    #[test]
    fn the_default_name_is_safe() {
        let name = |program: &str| default_path(program).display().to_string();
        assert_eq!(name("solve"), "hugepilot-solve.rec");
        assert_eq!(name("../a b\u{1b}[1m"), "hugepilot-.._a_b__1m.rec");
        assert_eq!(name(&"x".repeat(300)).len(), "hugepilot-.rec".len() + 64);
    }

    #[test]
    fn an_existing_file_is_kept_unless_forced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.rec");
        std::fs::write(&path, "old").unwrap();
        assert!(create(&path, false).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        create(&path, true).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "");
        assert!(create(folder.path(), true).is_err());
        let absent = create(&folder.path().join("absent/a.rec"), false).unwrap_err();
        assert!(absent.to_string().ends_with("absent does not exist"), "{absent}");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(create(&link, true).is_err());
    }
}
