//! `hugepilot tune --undo`.

use std::path::Path;
use std::rc::Rc;

use hugepilot_kernel::{Process, Root, Target};
use hugepilot_manager::undo::Promotions;
use hugepilot_policy::journal::JournalRound;
use hugepilot_record::{ProcessId, Stop};
use hugepilot_render::json;
use hugepilot_reports::undo::{UndoReport, UndoState};
use hugepilot_reports::undo_text;

use super::TuneArgs;
use crate::exit::Exit;
use crate::failure::{Failure, refused};
use crate::interrupt::Interrupt;
use crate::journal::{JournalFile, JournalUser};
use crate::output::finish;
use crate::saved::{SavedPromotions, directories_shown};

/// Undoes the promotions of the tune or daemon that wrote `file`, or the saved ones of the target.
pub(super) fn run(args: &TuneArgs, file: Option<&Path>) -> anyhow::Result<Exit> {
    let (dry_run, is_target) = (args.dry_run, !args.selection.is_empty());
    let report = match file {
        Some(path) if !is_target => of_file(path, dry_run)?,
        None if is_target => of_target(args)?,
        file => return Err(not_one(file).into()),
    };
    finish(&if args.json { json(&report) } else { undo_text(&report) })?;
    Ok(exit_of(&report))
}

/// Returns all promoted regions of running processes to base pages.
pub(crate) fn all(
    promotions: &Promotions,
    dry_run: bool,
    cut_bytes: u64,
    interrupted: &dyn Fn() -> bool,
) -> UndoReport {
    let open = |pid| Process::open(&Root::live(), pid).map(|one| Rc::new(one) as Rc<dyn Target>);
    promotions.undo(dry_run, cut_bytes, &open, interrupted)
}

fn of_file(path: &Path, dry_run: bool) -> anyhow::Result<UndoReport> {
    let mut file = JournalFile::open(path, JournalUser::UNDO)?;
    let (mut promotions, mut rounds, mut splits) = (Promotions::default(), 0, 0);
    file.read(|_, round| match round {
        JournalRound::Tune(round) => {
            rounds += 1;
            promotions.add(round);
        }
        JournalRound::Debloat(_) => splits += 1,
        JournalRound::Daemon(_) => {}
    })?;
    if rounds == 0 && splits > 0 {
        let failure = Failure::new("cannot undo a debloat", Exit::Error)
            .because("a split frees memory, and makes no huge page that could be returned")
            .with_help(["promote the memory again: sudo hugepilot tune -p PID".to_owned()]);
        return Err(failure.into());
    }
    // Until here a signal ends us at once: there is nothing to report.
    let interrupt = Interrupt::listen()?;
    Ok(all(&promotions, dry_run, file.reader.cut_bytes(), &|| interrupt.is_asked()))
}

fn of_target(args: &TuneArgs) -> anyhow::Result<UndoReport> {
    let (selected, _) = args.selection.open("return to base pages")?;
    let targets: Vec<ProcessId> = selected.iter().map(|one| one.process.id().clone()).collect();
    drop(selected);
    let mut saved = SavedPromotions::of(&targets);
    let interrupt = Interrupt::listen()?;
    let reports = saved.iter_mut().map(|saved| {
        let report = all(saved.promotions(), args.dry_run, 0, &|| interrupt.is_asked());
        if !args.dry_run {
            let own = saved.promotions().clone();
            saved.note_returned(&own, &report);
        }
        report
    });
    let whole = reports.reduce(|mut whole, next| {
        whole.processes.extend(next.processes);
        whole
    });
    Ok(whole.ok_or_else(|| none_saved(&targets))?)
}

/// The failure that no promotions of these processes are saved.
fn none_saved(targets: &[ProcessId]) -> Failure {
    let pids: Vec<String> = targets.iter().map(|one| one.pid.to_string()).collect();
    let failed = format!("no promotions of process {} are saved", pids.join(", "));
    let cause = format!("{} has none, or is of another user", directories_shown());
    let help = "name the file of --journal or --record: sudo hugepilot tune --undo FILE";
    Failure::new(failed, Exit::Error).because(cause).with_help([help.to_owned()])
}

/// The failure that `--undo` has neither a file nor a target, or both.
fn not_one(file: Option<&Path>) -> Failure {
    let failed = match file {
        Some(_) => "--undo has a file and a target",
        None => "--undo requires a target or a file",
    };
    Failure::new(failed, Exit::Error).with_help([
        "return all that was promoted in a process: sudo hugepilot tune --undo -p PID".to_owned(),
        "return the promotions of a journal: sudo hugepilot tune --undo FILE".to_owned(),
    ])
}

fn exit_of(report: &UndoReport) -> Exit {
    if report.returned() > 0 {
        return Exit::Yes;
    }
    for process in &report.processes {
        match process.state {
            UndoState::Stopped { cause: Stop::NotPermitted } => {
                return refused("returning regions to base pages", &process.failed, false);
            }
            UndoState::Stopped { cause: Stop::InUse | Stop::Unreadable } => {
                let failed = format!("process {} could not be changed", process.pid);
                return Failure::new(failed, Exit::Error).note();
            }
            _ => {}
        }
    }
    Exit::No
}
