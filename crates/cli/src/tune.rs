//! `hugepilot tune`.

mod args;
mod compare;
mod narrator;
pub(crate) mod undo;

use std::ffi::OsString;
use std::io::{self, IsTerminal as _};

use anyhow::ensure;
use hugepilot_kernel::proc::printable_path;
use hugepilot_kernel::{Process, Target, descriptors, privilege};
use hugepilot_launch::demo::demo;
use hugepilot_launch::program;
use hugepilot_manager::tune::{Event, TuneOptions, check_permissions, read_as_time, tune_all};
use hugepilot_manager::undo::Promotions;
use hugepilot_policy::round::Goal;
use hugepilot_profiler::ProgressReader;
use hugepilot_record::{Answer, Stop};
use hugepilot_render::{Sentence, json, json_lines};
use hugepilot_reports::tune::{TuneReport, TuneVerdict, TuneWarning};
use hugepilot_reports::undo::UndoReport;
use hugepilot_reports::{tune_text, tune_texts};
use hugepilot_units::Nanos;

pub(crate) use args::TuneArgs;
use narrator::Narrator;

use crate::calibration::{self, Keep, Machine};
use crate::exit::Exit;
use crate::failure::{Failure, refused};
use crate::interrupt::Interrupt;
use crate::journal::require_new;
use crate::output::{Progress, finish, note, width};
use crate::recording::{RunFiles, metrics};
use crate::saved::SavedPromotions;
use crate::target::require_any;
use crate::trial_guard;

pub(crate) fn run(args: &TuneArgs) -> anyhow::Result<Exit> {
    if let Some(file) = &args.undo {
        return undo::run(args, file.as_deref());
    }
    args.check()?;
    let rules = args.policy.rules()?;
    if !args.dry_run {
        trial_guard::recover();
    }
    descriptors::raise_limit();
    let progress = Progress::new();
    // A wrong pid, file or program, or a missing permission, is an error at once, not after seconds
    // of calibration.
    let processes = running(args, &progress)?;
    let begun = processes.first().map(Target::now);
    let reader = begun.map(|now| args.progress_reader(now)).transpose()?.flatten();
    args.journal.as_deref().map_or(Ok(()), require_new)?;
    let mut files = RunFiles::open(args.journal.as_deref(), args.record.path())?;
    let mut saved = (!args.dry_run && !processes.is_empty()).then(SavedPromotions::open);
    let machine = Machine::get(args.calibration, Keep::unless(args.dry_run), &progress);
    let options = args.options(machine, rules);
    // Until here a signal ends us at once: there is nothing to report, and a file may be slow.
    let interrupt = Interrupt::listen()?;
    let interrupted = || interrupt.is_asked();
    let goal = options.round_goal(!args.command.is_empty(), args.progress_regex.is_some());
    let pids = processes.iter().map(|process| process.id().pid).collect();
    files.begin_with(Goal::Tune(Box::new(goal)), metrics(pids, Ok("rounds of the tune")))?;
    let mut narrator = Narrator::new(args.dry_run);
    let mut promotions = args.is_try.then(Promotions::default);
    let mut show = |event: Event<'_>| {
        match &event {
            Event::Round { round, .. } => {
                files.add(round);
                promotions.iter_mut().for_each(|all| all.add(round));
                saved.iter_mut().for_each(|saved| saved.add(round));
            }
            Event::Attached { pid, .. } => files.watch([*pid]),
            _ => {}
        }
        narrator.show(&progress, &event);
    };
    let reports = if !processes.is_empty() {
        tune_all(processes, options, reader, &interrupted, &mut show)?
    } else if args.command.is_empty() {
        vec![run_demo(args, options, &progress, &interrupted, &mut show)?]
    } else {
        compare::run(args, &options, &interrupted, &mut show)?
    };
    let undone = promotions.as_ref().map(|promotions| {
        progress.now("returning the regions to base pages".to_owned());
        let undone = undo::all(promotions, false, 0, &|| false);
        saved.iter_mut().for_each(|saved| saved.note_returned(promotions, &undone));
        undone
    });
    drop(progress);
    let reports = completed(reports, undone.as_ref(), args.metric_of_time());
    reports.iter().for_each(|report| files.add_report(report));
    note_contradiction(&reports);
    finish(&args.print(&reports, saved.as_ref().and_then(SavedPromotions::failed)))?;
    files.finish()?;
    Ok(exit_of_all(&reports, !args.json && io::stdout().is_terminal()))
}

/// The reports with what followed the tune: the regions that were returned, and a doubt about the
/// `pattern` of a metric that is read as a time.
fn completed(
    reports: Vec<TuneReport>,
    undone: Option<&UndoReport>,
    mut pattern: Option<&str>,
) -> Vec<TuneReport> {
    let is_single = reports.len() == 1;
    let complete = |mut report: TuneReport| {
        if let Some(undone) = undone {
            report = report.with_tried(undone, is_single);
        }
        // The first report has the metric.
        let doubt = pattern.take().and_then(|pattern| read_as_time(pattern, &report));
        report.with_doubts(doubt)
    };
    reports.into_iter().map(complete).collect()
}

/// Lets the next run measure the calibration again, if a trial contradicts the stored one.
fn note_contradiction(reports: &[TuneReport]) {
    let is_contradiction =
        |warning: &TuneWarning| matches!(warning, TuneWarning::CalibrationContradicted { .. });
    let mut warnings = reports.iter().flat_map(|report| &report.warnings);
    if warnings.any(is_contradiction) && calibration::contradict() {
        note("note: the next run measures the calibration of this machine again");
    }
}

/// Opens the running targets, and tests the permissions: for one of them, or for a program to
/// start.
fn running(args: &TuneArgs, progress: &Progress) -> anyhow::Result<Vec<Process>> {
    if args.selection.is_empty() {
        check_startable(args)?;
        return Ok(Vec::new());
    }
    let (selected, excluded) = args.selection.open("tune")?;
    let processes: Vec<Process> = selected.into_iter().map(|one| one.process).collect();
    ensure!(
        processes.len() == 1 || args.progress_regex.is_none(),
        "--progress-regex requires a single target, whose metric it is: the flags select {} \
         processes",
        processes.len()
    );
    if let Some(excluded) = excluded.count(processes.len())? {
        progress.keep(&format!("warning: {}", excluded.text()));
    }
    require_any(&processes, |process| check_permissions(process, args.dry_run))?;
    Ok(processes)
}

/// Tests whether the program, or else the demonstration, can be started and tuned.
fn check_startable(args: &TuneArgs) -> anyhow::Result<()> {
    if !args.command.is_empty() {
        return Ok(program::check_tunable(&args.command, args.dry_run)?);
    }
    args.demo.workload_arguments(args.dry_run)?;
    let own = std::env::current_exe()?.into_os_string();
    Ok(program::check_tunable(&[own], args.dry_run)?)
}

/// Exit status of all targets, that of the best one: yes, then no, then failures. If all failed,
/// one stands for them on stderr. `is_read`: whether a user reads the reports on this terminal.
fn exit_of_all(reports: &[TuneReport], is_read: bool) -> Exit {
    let order = [Exit::Yes, Exit::No, Exit::Error, Exit::Unsupported];
    let rank = |report: &&TuneReport| {
        let exit = exit_of(report);
        order.iter().position(|&one| one == exit)
    };
    let Some(best) = reports.iter().min_by_key(rank) else { return Exit::No };
    note_failure(best, is_read);
    exit_of(best)
}

fn exit_of(report: &TuneReport) -> Exit {
    let planned = report.dry_run && !report.plan.selected.is_empty();
    let replayed = report.schedule.as_ref();
    let replayed = replayed.is_some_and(|one| one.promoted_events + one.demoted_events > 0);
    let replayed = replayed && report.verdict() != TuneVerdict::Lost;
    let kept = report.acts.kept_regions() > 0;
    // The whole run of a program that ended in its trial was measured.
    let measured = report.acts.freed_by.is_some() && report.verdict() == TuneVerdict::Promoted;
    match () {
        () if report.stopped == Some(Stop::NotPermitted) => Exit::Unsupported,
        () if report.target_ended => Exit::Error,
        () if report.no_verdict.is_some() => Exit::Unsupported,
        () if report.is_certainly_slower() => Exit::No,
        // Nothing is left on huge pages, so the answer is the result.
        () if report.tried.is_some() => match report.answer() {
            Answer::Gain => Exit::Yes,
            Answer::NoGain | Answer::Blocked => Exit::No,
            Answer::CannotTell => Exit::Unsupported,
        },
        () if planned || kept || replayed || measured => Exit::Yes,
        () => Exit::No,
    }
}

/// hugepilot as this user calls it: the promotions are saved for the user.
fn own_command() -> &'static str {
    if privilege::own_ids().0 == 0 { "sudo hugepilot" } else { "hugepilot" }
}

/// Prints why a report has no answer, if so, and if the report does not say so already.
fn note_failure(report: &TuneReport, is_read: bool) {
    let (pid, command) = (report.target.pid, &report.target.command);
    if report.stopped == Some(Stop::NotPermitted) {
        refused("promoting another process's memory", &report.acts.failed, false);
    } else if report.target_ended {
        let ended = format!("process {pid} ({command}) ended before the tune did");
        Failure::new(ended, Exit::Error).note();
    } else if let Some(cause) = report.no_verdict.as_ref().filter(|_| !is_read) {
        let failure = Failure::new(format!("no verdict on process {pid}"), Exit::Unsupported);
        failure.because(cause.text()).with_help(cause.help()).note();
    }
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
    /// The reports as text or JSON: a single one alone, or a list if there are several, or the
    /// flags can select several. `unsaved`: why the promotions are not saved, if they are not.
    fn print(&self, reports: &[TuneReport], unsaved: Option<&str>) -> String {
        match reports {
            [report] if self.json && !self.selection.is_list() => json(report),
            reports if self.json => json_lines(reports),
            [report] => tune_text(report, width(), self.verbose) + &self.way_back(reports, unsaved),
            reports => {
                tune_texts(reports, width(), self.verbose) + &self.way_back(reports, unsaved)
            }
        }
    }

    /// The line about the undo of promotions that are left in running processes.
    fn way_back(&self, reports: &[TuneReport], unsaved: Option<&str>) -> String {
        let is_left = |report: &&TuneReport| !report.target_ended && report.left_regions() > 0;
        let left: Vec<String> =
            reports.iter().filter(is_left).map(|one| format!(" -p {}", one.target.pid)).collect();
        if self.selection.is_empty() || left.is_empty() {
            return String::new();
        }
        match (unsaved, self.journal.as_deref().or(self.record.path())) {
            (None, _) => format!("undo: {} tune --undo{}\n", own_command(), left.concat()),
            (Some(_), Some(path)) => {
                format!("undo: {} tune --undo {}\n", own_command(), printable_path(path))
            }
            (Some(cause), None) => {
                format!("note: these promotions cannot be undone without --journal: {cause}\n")
            }
        }
    }

    /// Opens the file with the progress metric, if the user named one.
    fn progress_reader(&self, now: Nanos) -> anyhow::Result<Option<ProgressReader>> {
        let (Some(pattern), Some(path)) = (&self.progress_regex, &self.progress_file) else {
            return Ok(None);
        };
        let reader = ProgressReader::follow(path, pattern.clone(), now).map_err(|error| {
            let help = "name a regular file to which the program writes its progress metric";
            Failure::new(error.to_string(), Exit::Error).with_help([help.to_owned()])
        });
        Ok(Some(reader?))
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, FromArgMatches as _};
    use hugepilot_record::Pid;
    use hugepilot_reports::tune::{Certainty, NoVerdict, TargetInfo, TuneActs};

    use super::*;

    #[test]
    fn promotions_that_are_left_have_their_undo() {
        let way_back = |line: &str, report: TuneReport, unsaved| {
            let command = TuneArgs::augment_args(clap::Command::new("tune"));
            let matches = command.try_get_matches_from(line.split(' ')).unwrap();
            TuneArgs::from_arg_matches(&matches).unwrap().way_back(&[report], unsaved)
        };
        let saved = |line: &str, report| way_back(line, report, None);
        let left = || report(3, 2);
        let own = own_command();
        assert_eq!(saved("tune -p 7", left()), format!("undo: {own} tune --undo -p 4711\n"));
        let unsaved = |line: &str| way_back(line, left(), Some("no space"));
        let undo = format!("undo: {own} tune --undo a.nd\n");
        assert_eq!(unsaved("tune -p 7 --journal a.nd --record b"), undo);
        assert_eq!(unsaved("tune -p 7 --record a.nd"), undo);
        assert!(unsaved("tune -p 7").ends_with("undone without --journal: no space\n"));
        assert_eq!(saved("tune -- true", left()), "", "the program has ended");
        assert_eq!(saved("tune -p 7", TuneReport { target_ended: true, ..left() }), "");
        assert_eq!(saved("tune -p 7", report(3, 3)), "");
        assert_eq!(saved("tune -p 7", TuneReport { tried: Some(Vec::new()), ..left() }), "");
    }

    /// A report on this process, of whose promoted regions some were returned.
    fn report(verified_regions: u64, demoted_regions: u64) -> TuneReport {
        TuneReport {
            target: TargetInfo { pid: Pid(4711), command: "db".to_owned() },
            acts: TuneActs { verified_regions, demoted_regions, ..TuneActs::default() },
            ..TuneReport::default()
        }
    }

    #[test]
    fn of_several_targets_the_best_result_is_the_exit_status() {
        let (no, yes) = (report(0, 0), report(1, 0));
        let ended = TuneReport { target_ended: true, ..yes.clone() };
        let unknown = TuneReport { no_verdict: Some(NoVerdict::TargetIdle), ..no.clone() };
        let of = |reports: &[&TuneReport]| {
            exit_of_all(&reports.iter().map(|&report| report.clone()).collect::<Vec<_>>(), false)
        };
        assert_eq!(of(&[&ended, &no, &yes]), Exit::Yes);
        assert_eq!(of(&[&unknown, &no, &ended]), Exit::No);
        assert_eq!(of(&[&unknown, &ended]), Exit::Error);
        let slower = |certainty| {
            let mut report = yes.clone();
            let measured = &mut report.measured;
            (measured.speedup, measured.speedup_certainty) = (Some(0.9), Some(certainty));
            report
        };
        assert_eq!(of(&[&slower(Certainty::Certain)]), Exit::No);
        assert_eq!(of(&[&slower(Certainty::Uncertain)]), Exit::Yes);
        assert_eq!(of(&[&unknown]), Exit::Unsupported);
    }
}
