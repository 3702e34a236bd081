//! `hugepilot tune`.

mod args;
mod compare;

use std::ffi::OsString;

use hugepilot_kernel::Target;
use hugepilot_launch::demo::demo;
use hugepilot_launch::program;
use hugepilot_manager::progress::ProgressReader;
use hugepilot_manager::tune::{Event, TuneOptions, tune_attached};
use hugepilot_record::Stop;
use hugepilot_record::tune::{TuneReport, Unknown};
use hugepilot_report::{json, tune_text};
use hugepilot_units::Share;

pub(crate) use args::TuneArgs;

use crate::calibration::{Keep, Machine};
use crate::exit::Exit;
use crate::failure::refused;
use crate::interrupt::Interrupt;
use crate::output::{Progress, finish};
use crate::target::open;

pub(crate) fn run(args: &TuneArgs) -> anyhow::Result<Exit> {
    args.check()?;
    let progress = Progress::new();
    // A wrong pid, file or program is an error at once, not after seconds of calibration.
    let process = args.pid.map(open).transpose()?;
    let figures =
        process.as_ref().map(|process| args.progress_reader(process.now())).transpose()?.flatten();
    args.command.first().map_or(Ok(()), |program| program::check(program))?;
    let options =
        args.options(Machine::get(args.calibration, Keep::unless(args.dry_run), &progress));
    // Until here a signal ends us at once: there is nothing to report, and a file may be slow.
    let interrupt = Interrupt::listen()?;
    let interrupted = || interrupt.is_asked();
    let mut say = |event: Event<'_>| tell(&progress, &event);
    let report = if let Some(process) = process {
        tune_attached(process, options, figures, &interrupted, &mut say)?
    } else if args.command.is_empty() {
        run_demo(args, options, &interrupted, &mut say)?
    } else {
        compare::run(args, &options, &interrupted, &mut say)?
    };
    drop(progress);
    finish(&if args.json { json(&report) } else { tune_text(&report) })?;
    Ok(exit_of(&report))
}

fn exit_of(report: &TuneReport) -> Exit {
    match report.stopped {
        Some(Stop::NotPermitted) => {
            refused("promoting another process's memory", &report.failed, false)
        }
        _ if report.target_ended => {
            eprintln!(
                "hugepilot: process {} ({}) ended before the tune did",
                report.target.pid, report.target.command
            );
            Exit::Error
        }
        _ if report.cannot_tell.is_some() => {
            if let Some(Unknown { reason, fix }) = &report.cannot_tell {
                eprintln!("hugepilot: cannot tell whether huge pages help: {reason}\nfix: {fix}");
            }
            Exit::Unsupported
        }
        _ if report.verified_regions > 0 => Exit::Yes,
        _ if report.dry_run && !report.selected.is_empty() => Exit::Yes,
        _ => Exit::No,
    }
}

fn run_demo(
    args: &TuneArgs,
    options: TuneOptions,
    interrupted: &dyn Fn() -> bool,
    say: &mut dyn FnMut(Event<'_>),
) -> anyhow::Result<TuneReport> {
    let arguments = args.demo.workload_arguments()?;
    let executable = std::env::current_exe()?.into_os_string();
    let command: Vec<OsString> =
        std::iter::once(executable).chain(arguments.iter().map(OsString::from)).collect();
    eprintln!(
        "no target given: two copies of our own workload `{}`, one of them tuned",
        arguments[1..].join(" ")
    );
    Ok(demo(&command, options, interrupted, say)?)
}

fn tell(progress: &Progress, event: &Event<'_>) {
    match event {
        Event::Attached { source, pid, command, rate_hz } => {
            let rate = rate_hz.map_or_else(String::new, |hz| format!(" at {hz} Hz"));
            progress.keep(&format!("sampling {command} (pid {pid}) by {source}{rate}"));
        }
        Event::Observing { samples } => progress.now(format!("looking: {samples} samples")),
        Event::Planned { plan, prediction } => {
            if plan.picks.is_empty() {
                return progress.keep("plan: nothing (more) to promote");
            }
            let expected = prediction
                .map_or_else(String::new, |p| format!(", predicted speed-up {:.2}x", p.median));
            progress.keep(&format!(
                "plan: {} regions with {} of the stalls{expected}",
                plan.picks.len(),
                Share::ratio(plan.heat_ratio())
            ));
        }
        Event::Acted { done, all } => progress.now(format!("promoting: {done} of {all}")),
        Event::AwaitingFigures { found, after } => {
            let when = if *after { "after" } else { "before" };
            progress
                .now(format!("waiting for the program's figures {when} tuning: {found} so far"));
        }
    }
}

/// Follows the file of figures, when there is one.
impl TuneArgs {
    fn progress_reader(
        &self,
        now: hugepilot_units::Nanos,
    ) -> anyhow::Result<Option<ProgressReader>> {
        let (Some(pattern), Some(path)) = (&self.progress_regex, &self.progress_file) else {
            return Ok(None);
        };
        Ok(Some(ProgressReader::follow(path, pattern.clone(), now)?))
    }
}
