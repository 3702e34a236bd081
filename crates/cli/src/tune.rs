//! `hugepilot tune`.

mod args;
mod compare;

use std::ffi::OsString;

use hugepilot_kernel::Target;
use hugepilot_launch::demo::demo;
use hugepilot_launch::program;
use hugepilot_manager::progress::ProgressReader;
use hugepilot_manager::tune::{Event, TuneOptions, check_permissions, tune_attached};
use hugepilot_record::Stop;
use hugepilot_record::tune::TuneReport;
use hugepilot_report::{Sentence, json, tune_text};
use hugepilot_units::{Nanos, Share};

pub(crate) use args::TuneArgs;

use crate::calibration::{Keep, Machine};
use crate::exit::Exit;
use crate::failure::{Failure, refused};
use crate::interrupt::Interrupt;
use crate::output::{Progress, finish, width};
use crate::target::open;

pub(crate) fn run(args: &TuneArgs) -> anyhow::Result<Exit> {
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
    let mut is_exhausted = false;
    let mut show = |event: Event<'_>| {
        if !repeats_exhaustion(&event, &mut is_exhausted) {
            show(&progress, &event);
        }
    };
    let report = if let Some(process) = process {
        tune_attached(process, options, reader, &interrupted, &mut show)?
    } else if args.command.is_empty() {
        run_demo(args, options, &progress, &interrupted, &mut show)?
    } else {
        compare::run(args, &options, &interrupted, &mut show)?
    };
    drop(progress);
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
    if planned || report.verified_regions > 0 { Exit::Yes } else { Exit::No }
}

fn run_demo(
    args: &TuneArgs,
    options: TuneOptions,
    progress: &Progress,
    interrupted: &dyn Fn() -> bool,
    show: &mut dyn FnMut(Event<'_>),
) -> anyhow::Result<TuneReport> {
    let arguments = args.demo.workload_arguments()?;
    let executable = std::env::current_exe()?.into_os_string();
    let command: Vec<OsString> =
        std::iter::once(executable).chain(arguments.iter().map(OsString::from)).collect();
    progress.keep(&format!(
        "no target: running two copies of `hugepilot {}`, tuning one",
        arguments.join(" ")
    ));
    Ok(demo(&command, options, interrupted, show)?)
}

/// Whether `event` is a plan without regions that follows another one. `is_exhausted`: whether the
/// last plan had no regions.
fn repeats_exhaustion(event: &Event<'_>, is_exhausted: &mut bool) -> bool {
    let Event::Planned { plan, .. } = event else { return false };
    let was_exhausted = std::mem::replace(is_exhausted, plan.picks.is_empty());
    was_exhausted && *is_exhausted
}

/// Shows an event of the session as progress.
fn show(progress: &Progress, event: &Event<'_>) {
    match event {
        Event::Attached { source, pid, command, rate_hz } => {
            let rate = rate_hz.map_or_else(String::new, |hz| format!(" at {hz} Hz"));
            progress.keep(&format!("sampling {command} (pid {pid}) with {source}{rate}"));
        }
        Event::Observing { samples } => progress.now(format!("sampling: {samples} samples")),
        Event::Planned { plan, .. } if plan.picks.is_empty() => {
            progress.keep("plan: no more regions to promote");
        }
        Event::Planned { plan, prediction } => {
            let predicted = prediction
                .map_or_else(String::new, |p| format!(", predicted speedup {:.2}x", p.median));
            progress.keep(&format!(
                "plan: {} regions, coverage {} of stalls{predicted}",
                plan.picks.len(),
                Share::ratio(plan.heat_ratio())
            ));
        }
        Event::Acted { done, all } => progress.now(format!("promoting {done}/{all} regions")),
        Event::AwaitingMetric { found, after } => {
            let when = if *after { "after" } else { "before" };
            progress.now(format!("waiting for the progress metric {when} tuning: {found} values"));
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_without_regions_in_a_row_are_shown_once() {
        let plan = hugepilot_record::Plan::default();
        let mut is_exhausted = false;
        let mut repeats = |event: Event<'_>| repeats_exhaustion(&event, &mut is_exhausted);
        assert!(!repeats(Event::Planned { plan: &plan, prediction: None }));
        assert!(!repeats(Event::Observing { samples: 7 }));
        assert!(repeats(Event::Planned { plan: &plan, prediction: None }));
    }
}
