//! `hugepilot tune`.

mod args;
mod compare;
mod journal;
mod narrator;
mod undo;

use std::ffi::OsString;

use hugepilot_kernel::Target;
use hugepilot_launch::demo::demo;
use hugepilot_launch::program;
use hugepilot_manager::progress::ProgressReader;
use hugepilot_manager::tune::{Event, TuneOptions, check_permissions, tune_attached};
use hugepilot_record::Stop;
use hugepilot_record::tune::TuneReport;
use hugepilot_report::{Sentence, json, tune_text};
use hugepilot_units::Nanos;

pub(crate) use args::TuneArgs;
use journal::Journal;
use narrator::Narrator;

use crate::calibration::{Keep, Machine};
use crate::exit::Exit;
use crate::failure::{Failure, refused};
use crate::interrupt::Interrupt;
use crate::output::{Progress, finish, width};
use crate::target::open;

pub(crate) fn run(args: &TuneArgs) -> anyhow::Result<Exit> {
    if let Some(path) = &args.undo {
        return undo::run(path, args.dry_run, args.json);
    }
    args.check()?;
    let progress = Progress::new();
    // A wrong pid, file or program, or a missing permission, is an error at once, not after seconds
    // of calibration.
    let process = args.pid.map(open).transpose()?;
    if let Some(process) = &process {
        check_permissions(process, args.dry_run)?;
    }
    let reader =
        process.as_ref().map(|process| args.progress_reader(process.now())).transpose()?.flatten();
    args.command.first().map_or(Ok(()), |program| program::check(program))?;
    let options =
        args.options(Machine::get(args.calibration, Keep::unless(args.dry_run), &progress));
    // Until here a signal ends us at once: there is nothing to report, and a file may be slow.
    let interrupt = Interrupt::listen()?;
    let interrupted = || interrupt.is_asked();
    let goal = options.round_goal(!args.command.is_empty());
    let journal = args.journal.as_deref().map(|path| Journal::create(path, &goal));
    let mut journal = journal.transpose()?;
    let mut narrator = Narrator::default();
    let mut show = |event: Event<'_>| {
        if let (Event::Round { round, .. }, Some(journal)) = (&event, &mut journal) {
            journal.add(round);
        }
        narrator.show(&progress, &event);
    };
    let report = if let Some(process) = process {
        tune_attached(process, options, reader, &interrupted, &mut show)?
    } else if args.command.is_empty() {
        run_demo(args, options, &progress, &interrupted, &mut show)?
    } else {
        compare::run(args, &options, &interrupted, &mut show)?
    };
    drop(progress);
    journal.map_or(Ok(()), Journal::finish)?;
    finish(&if args.json { json(&report) } else { tune_text(&report, width(), args.verbose) })?;
    Ok(exit_of(&report))
}

fn exit_of(report: &TuneReport) -> Exit {
    let (pid, command) = (report.target.pid, &report.target.command);
    if report.stopped == Some(Stop::NotPermitted) {
        return refused("promoting another process's memory", &report.failed, false);
    }
    if report.target_ended {
        let ended = format!("process {pid} ({command}) ended before the tune did");
        return Failure::new(ended, Exit::Error).note();
    }
    if let Some(cause) = &report.no_verdict {
        let failure = Failure::new(format!("no verdict on process {pid}"), Exit::Unsupported);
        return failure.because(cause.text()).with_help(cause.help()).note();
    }
    let planned = report.dry_run && !report.selected.is_empty();
    let kept = report.verified_regions > report.demoted_regions;
    if planned || kept { Exit::Yes } else { Exit::No }
}

fn run_demo(
    args: &TuneArgs,
    options: TuneOptions,
    progress: &Progress,
    interrupted: &dyn Fn() -> bool,
    show: &mut dyn FnMut(Event<'_>),
) -> anyhow::Result<TuneReport> {
    let arguments = args.demo.workload_arguments(args.dry_run)?;
    let executable = std::env::current_exe()?.into_os_string();
    let command: Vec<OsString> =
        std::iter::once(executable).chain(arguments.iter().map(OsString::from)).collect();
    let copies = if args.dry_run { "one copy" } else { "three copies" };
    progress.keep(&format!(
        "no target: running {copies} of `hugepilot {}`, tuning one",
        arguments.join(" ")
    ));
    Ok(demo(&command, options, interrupted, show)?)
}

impl TuneArgs {
    /// Opens the file with the progress metric, if the user named one.
    fn progress_reader(&self, now: Nanos) -> anyhow::Result<Option<ProgressReader>> {
        let (Some(pattern), Some(path)) = (&self.progress_regex, &self.progress_file) else {
            return Ok(None);
        };
        Ok(Some(ProgressReader::follow(path, pattern.clone(), now)?))
    }
}
