//! `hugepilot report`: recordings and results as a report.

mod format;
mod input;

use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, ValueHint};
use hugepilot_kernel::proc::printable_path;
use hugepilot_record::Pid;
use hugepilot_recording::{
    Timeline, Window, comparison_report, profile, recording_report, signatures_section,
};
use hugepilot_render::model::Report;
use hugepilot_render::{back_end, json};
use hugepilot_reports::result_report;

use self::format::Format;
use self::input::Input;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::new_file::Output;
use crate::output::{finish_bytes, is_stdout, note, width};
use crate::target::parse_pid;

/// Show recordings and results as text, HTML and other formats
///
/// FILE is a recording, a journal, or the JSON of `compare`, `debloat`, `graph`, `sim` or `tune`.
/// The HTML file has the heat of each address over time, memory by page kind, distributions, and
/// the code that stalls on memory. It needs no network.
#[derive(Debug, Args)]
#[command(after_help = "\
Formats:
  text, html, svg, json, csv, markdown, openmetrics   the whole report
  pprof        stalls, for `go tool pprof FILE`
  folded       stalls as stacks, for flamegraph.pl and similar tools

Examples:
  hugepilot report solve.rec                     summary on the terminal
  hugepilot report solve.rec -o solve.html       the report for a browser
  hugepilot report tune.rec -o tune.html         rounds and result of tune --record
  hugepilot report before.rec after.rec --compare
                                                 what differs between two runs
  hugepilot report a.rec b.rec c.rec -o all.html --from-phase solve
                                                 several runs side by side, from a phase on
  hugepilot report solve.rec --from 10 --to 20 --format csv
                                                 values of ten seconds
  hugepilot report solve.rec -o solve.pprof      stalls, for go tool pprof

Exit status: 0 reported, 2 error")]
pub(crate) struct ReportArgs {
    /// Recordings, journals and results
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    files: Vec<PathBuf>,
    /// File of the report [default: `-`, the standard output]
    #[arg(short, long, value_name = "OUT", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Replace OUT if it exists
    #[arg(long)]
    force: bool,
    /// Format of the report, from the list below [default: by the extension of OUT, else text]
    #[arg(long, value_name = "NAME", conflicts_with = "json")]
    format: Option<Format>,
    /// Title of the report
    #[arg(long, value_name = "TEXT", conflicts_with = "compare")]
    title: Option<String>,
    /// Only the process with this pid
    #[arg(long, value_name = "PID", value_parser = parse_pid, allow_negative_numbers = true)]
    process: Option<i32>,
    /// Only slices from the first phase with this name on
    #[arg(long, value_name = "NAME", conflicts_with = "from")]
    from_phase: Option<String>,
    /// Only slices that end after this number of seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    from: Option<f64>,
    /// Only slices that end at or before this number of seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    to: Option<f64>,
    /// Compare two recordings
    #[arg(long)]
    compare: bool,
    /// JSON (schema hugepilot.report/1), as --format json
    #[arg(long)]
    json: bool,
}

impl ReportArgs {
    /// The file of the report; `None` for stdout.
    fn output(&self) -> Option<&Path> {
        self.output.as_deref().filter(|path| !is_stdout(path))
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds.is_finite() && seconds >= 0.0 => Ok(seconds),
        _ => Err("not a number of seconds".to_owned()),
    }
}

pub(crate) fn run(args: &ReportArgs) -> anyhow::Result<Exit> {
    let format = format(args)?;
    let window = Window { from: args.from, to: args.to, pid: args.process.map(Pid) };
    if let (Some(from), Some(to)) = (args.from, args.to)
        && from >= to
    {
        let failure = Failure::new("--from is not before --to", Exit::Error);
        return Err(failure.with_help(["exchange the two times".to_owned()]).into());
    }
    let inputs: Vec<(String, Input)> = input::names(&args.files)
        .into_iter()
        .zip(&args.files)
        .map(|(name, file)| Ok((name, input::read(file, window, args.from_phase.as_deref())?)))
        .collect::<anyhow::Result<_>>()?;
    let output = args.output();
    let bytes = if format.is_profile() {
        stalls(&inputs, format)?
    } else {
        let mut report = document(args, &inputs)?;
        if output.is_none() && format == Format::Text && io::stdout().is_terminal() {
            // Hundreds of lines follow.
            report.summary.splice(0..0, html_hint(args));
        }
        written(&report, format, output.is_none()).into_bytes()
    };
    match output {
        Some(path) => write(path, args.force, &bytes)?,
        None => finish_bytes(&bytes)?,
    }
    Ok(Exit::Yes)
}

/// The format that the flags or the extension of the output name.
fn format(args: &ReportArgs) -> anyhow::Result<Format> {
    if args.json {
        return Ok(Format::Json);
    }
    let Some(path) = args.output() else { return Ok(args.format.unwrap_or(Format::Text)) };
    args.format.or_else(|| Format::of(path)).ok_or_else(|| {
        let error = format!("cannot choose a format for {}", path.display());
        let failure = Failure::new(error, Exit::Error).because("its name has no known extension");
        failure.with_help(["name the format: --format html".to_owned()]).into()
    })
}

/// The command that writes the same report for a browser. `None` if that takes more than the file
/// names: other flags, the standard input, which cannot be read again, a name that a shell changes,
/// or a page that exists.
fn html_hint(args: &ReportArgs) -> Option<String> {
    let ReportArgs { files, title, process, from_phase, from, to, compare, .. } = args;
    let page = match &files[..] {
        [one] => one.with_extension("html"),
        _ => "report.html".into(),
    };
    let is_part = process.is_some() || from_phase.is_some() || from.is_some() || to.is_some();
    let has_stdin = files.iter().any(|path| is_stdout(path));
    if is_part || title.is_some() || has_stdin || page.symlink_metadata().is_ok() {
        return None;
    }
    let page = plain(&page)?;
    let names = files.iter().map(|path| plain(path)).collect::<Option<Vec<_>>>()?.join(" ");
    let compare = if *compare { " --compare" } else { "" };
    Some(format!("With plots, for a browser: hugepilot report {names}{compare} -o {page}"))
}

/// A file name that is the same word in a shell, and no flag.
fn plain(path: &Path) -> Option<&str> {
    let is_plain = |one: char| one.is_ascii_alphanumeric() || "/._-+,:@%".contains(one);
    path.to_str().filter(|name| !name.starts_with('-') && name.chars().all(is_plain))
}

/// The report of all files.
fn document(args: &ReportArgs, inputs: &[(String, Input)]) -> anyhow::Result<Report> {
    if args.compare {
        let [(first, Input::Recording(a)), (second, Input::Recording(b))] = inputs else {
            let failure = Failure::new("--compare requires two recordings", Exit::Error);
            let help = "name two: hugepilot report FIRST SECOND --compare".to_owned();
            return Err(failure.with_help([help]).into());
        };
        require_part(args, &[a, b])?;
        return Ok(comparison_report(a, b, [first, second]));
    }
    let mut reports = Vec::new();
    for ((name, input), path) in inputs.iter().zip(&args.files) {
        let report = match input {
            Input::Recording(timeline) => {
                require_part(args, &[timeline])?;
                recording_report(timeline, name)
            }
            Input::Result(text) => result_report(text, name).map_err(|cause| {
                let shown = printable_path(path);
                let failure = Failure::new(format!("cannot report {shown}"), Exit::Error);
                let help =
                    "name a recording, a journal, or JSON of compare, debloat, graph, sim or tune";
                failure.because(cause).with_help([help.to_owned()])
            })?,
        };
        reports.push((name.clone(), report));
    }
    let mut report = Report::joined(reports);
    let recordings = inputs.iter().filter_map(|(name, input)| match input {
        Input::Recording(timeline) => Some((name.as_str(), &**timeline)),
        Input::Result(_) => None,
    });
    report.title = args.title.clone().unwrap_or(report.title);
    report.begin_with(signatures_section(&recordings.collect::<Vec<_>>()));
    Ok(report)
}

/// Fails if the recordings do not have the process or the part that is named.
fn require_part(args: &ReportArgs, timelines: &[&Timeline]) -> anyhow::Result<()> {
    if let Some(pid) = args.process
        && timelines.iter().any(|timeline| timeline.processes.is_empty())
    {
        let failure = Failure::new(format!("the recording has no process {pid}"), Exit::Error);
        return Err(failure.with_help(["list its processes: omit --process".to_owned()]).into());
    }
    let shortest = timelines.iter().map(|timeline| timeline.duration).fold(f64::MAX, f64::min);
    if let Some(from) = args.from
        && from > 0.0
        && from >= shortest
    {
        let failure = Failure::new("no slice ends after --from", Exit::Error);
        let cause = format!("the recording ends after {shortest:.2} s");
        return Err(failure.because(cause).with_help(["name an earlier time".to_owned()]).into());
    }
    Ok(())
}

fn written(report: &Report, format: Format, is_terminal: bool) -> String {
    match format {
        Format::Json => json(report),
        Format::Csv => back_end::csv(report),
        Format::Markdown => back_end::markdown(report),
        Format::Openmetrics => back_end::openmetrics(report),
        Format::Svg => back_end::svg(report),
        Format::Html => back_end::html(report),
        _ if is_terminal => back_end::text(report, width()),
        _ => back_end::text(report, hugepilot_render::Width::UNLIMITED),
    }
}

/// The stalls of a recording as a profile.
fn stalls(inputs: &[(String, Input)], format: Format) -> anyhow::Result<Vec<u8>> {
    let [(name, Input::Recording(timeline))] = inputs else {
        let failure =
            Failure::new(format!("--format {format} requires one recording"), Exit::Error);
        return Err(failure.with_help(["name one recording".to_owned()]).into());
    };
    if timeline.processes.iter().all(|process| process.code.stacks.is_empty()) {
        let cause = timeline.head.sampler_missing.clone();
        let failure = Failure::new(format!("{name} has no stalls by code"), Exit::Error);
        let help = "record with stall samples: hugepilot record".to_owned();
        return Err(failure.because(cause.unwrap_or_default()).with_help([help]).into());
    }
    Ok(match format {
        Format::Pprof => profile::pprof(timeline)?,
        _ => profile::folded(timeline).into_bytes(),
    })
}

/// Writes a report to a file, in the format that its extension means.
pub(crate) fn write_report(report: &Report, path: &Path, force: bool) -> anyhow::Result<()> {
    let Some(format) = Format::of(path).filter(|format| !format.is_profile()) else {
        let error = format!("cannot choose a format for {}", path.display());
        let failure = Failure::new(error, Exit::Error).because("its name has no known extension");
        let help = "end the name with .html, .svg, .md, .csv, .json, .om or .txt".to_owned();
        return Err(failure.with_help([help]).into());
    };
    write(path, force, written(report, format, false).as_bytes())
}

fn write(path: &Path, force: bool, bytes: &[u8]) -> anyhow::Result<()> {
    let mut file = Output::create(path, "the report", "-o", force)?;
    file.write_all(bytes).with_context(|| format!("cannot write {}", path.display()))?;
    let size = file.finish()?;
    note(&format!("{}: {size}", printable_path(path)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches as _;

    use super::*;

    fn hint(words: &[&str]) -> Option<String> {
        let command = ReportArgs::augment_args(clap::Command::new("report"));
        let matches = command.get_matches_from(["report"].iter().chain(words));
        html_hint(&ReportArgs::from_arg_matches(&matches).unwrap())
    }

    #[test]
    fn the_report_for_a_browser_is_suggested_for_files() {
        let text = "With plots, for a browser: hugepilot report";
        assert_eq!(hint(&["x/a.rec"]), Some(format!("{text} x/a.rec -o x/a.html")));
        assert_eq!(
            hint(&["a.rec", "b.rec", "--compare"]),
            Some(format!("{text} a.rec b.rec --compare -o report.html"))
        );
        assert_eq!(hint(&["a.rec", "-"]), None, "stdin cannot be read again");
    }

    #[test]
    fn a_command_that_would_differ_or_fail_is_not_suggested() {
        let flags = ["--process=7", "--from=1", "--from-phase=solve", "--to=2", "--title=x"];
        assert_eq!(flags.map(|flag| hint(&["a.rec", flag])), [const { None }; 5]);
        assert_eq!(["my a.rec", "$a.rec", "a'.rec"].map(|name| hint(&[name])), [None, None, None]);
        let folder = tempfile::tempdir().unwrap();
        let recording = folder.path().join("a.rec");
        assert!(hint(&[recording.to_str().unwrap()]).is_some());
        std::fs::write(folder.path().join("a.html"), "").unwrap();
        assert_eq!(hint(&[recording.to_str().unwrap()]), None, "the page exists");
    }
}
