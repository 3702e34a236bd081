//! `hugepilot tune --undo`.

use std::path::Path;
use std::rc::Rc;

use hugepilot_kernel::{Process, Root, Target};
use hugepilot_manager::undo::Promotions;
use hugepilot_policy::journal::JournalRound;
use hugepilot_record::undo::{UndoReport, UndoState};
use hugepilot_record::{ProcessId, Stop};
use hugepilot_report::{json, undo_text};

use super::TuneArgs;
use crate::exit::Exit;
use crate::failure::{Failure, refused};
use crate::interrupt::Interrupt;
use crate::journal::{JournalFile, JournalUser};
use crate::journals::SavedJournals;
use crate::output::finish;

/// Undoes the promotions of the tune or daemon that wrote `file`, or of all saved tunes of the
/// target.
pub(super) fn run(args: &TuneArgs, file: Option<&Path>) -> anyhow::Result<Exit> {
    let mut read = Read::default();
    match (file, args.selection.is_empty()) {
        (Some(path), true) => read.add(path, &|_| true)?,
        (None, false) => read.add_saved(args)?,
        (file, _) => return Err(not_one(file).into()),
    }
    if read.rounds == 0 && read.splits > 0 {
        let failure = Failure::new("cannot undo a debloat", Exit::Error)
            .because("a split frees memory, and makes no huge page that could be returned")
            .with_help(["promote the memory again: sudo hugepilot tune -p PID".to_owned()]);
        return Err(failure.into());
    }
    // Until here a signal ends us at once: there is nothing to report.
    let interrupt = Interrupt::listen()?;
    let interrupted = || interrupt.is_asked();
    let report = all(&read.promotions, args.dry_run, read.cut_bytes, &interrupted);
    finish(&if args.json { json(&report) } else { undo_text(&report) })?;
    Ok(exit_of(&report))
}

/// Returns all promoted regions to base pages.
pub(super) fn all(
    promotions: &Promotions,
    dry_run: bool,
    cut_bytes: u64,
    interrupted: &dyn Fn() -> bool,
) -> UndoReport {
    let open = |pid| Process::open(&Root::live(), pid).map(|one| Rc::new(one) as Rc<dyn Target>);
    promotions.undo(dry_run, cut_bytes, &open, interrupted)
}

/// Journals that were read.
#[derive(Default)]
struct Read {
    promotions: Promotions,
    rounds: u64,
    splits: u64,
    cut_bytes: u64,
}

impl Read {
    fn add(&mut self, path: &Path, is_wanted: &dyn Fn(&ProcessId) -> bool) -> anyhow::Result<()> {
        let mut file = JournalFile::open(path, JournalUser::UNDO)?;
        file.read(|_, round| match round {
            JournalRound::Tune(round) => {
                self.rounds += 1;
                self.promotions.add(round, is_wanted);
            }
            JournalRound::Debloat(_) => self.splits += 1,
            JournalRound::Daemon(_) => {}
        })?;
        self.cut_bytes += file.reader.cut_bytes();
        Ok(())
    }

    /// Adds the saved journals of the target.
    fn add_saved(&mut self, args: &TuneArgs) -> anyhow::Result<()> {
        let (selected, _) = args.selection.open("return to base pages")?;
        let targets: Vec<ProcessId> = selected.iter().map(|one| one.process.id().clone()).collect();
        let saved = SavedJournals::of_user();
        let is_target = |id: &ProcessId| {
            targets.iter().any(|one| (one.pid, one.start_ticks) == (id.pid, id.start_ticks))
        };
        for (path, is_of_one) in saved.of(&targets) {
            // The processes that a single target started are in its journal.
            self.add(&path, &|id| is_of_one || is_target(id))?;
        }
        if self.rounds > 0 {
            return Ok(());
        }
        let pids: Vec<String> = targets.iter().map(|one| one.pid.to_string()).collect();
        let failed = format!("no journal of process {}", pids.join(", "));
        let cause = format!("{} has none; journals are kept for 7 days", saved.shown());
        let help = "name the file of --journal or --record: sudo hugepilot tune --undo FILE";
        let failure = Failure::new(failed, Exit::Error).because(cause);
        Err(failure.with_help([help.to_owned()]).into())
    }
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
