//! `hugepilot tune --undo`.

use std::path::Path;
use std::rc::Rc;

use hugepilot_kernel::{Process, Root, Target};
use hugepilot_manager::undo::Promotions;
use hugepilot_policy::journal::JournalRound;
use hugepilot_record::Stop;
use hugepilot_record::undo::{UndoReport, UndoState};
use hugepilot_report::{json, undo_text};

use crate::exit::Exit;
use crate::failure::{Failure, refused};
use crate::interrupt::Interrupt;
use crate::journal::{JournalFile, JournalUser};
use crate::output::finish;

/// Undoes the promotions of the tune or daemon that wrote a journal.
pub(super) fn run(path: &Path, dry_run: bool, as_json: bool) -> anyhow::Result<Exit> {
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
    let open = |pid| Process::open(&Root::live(), pid).map(|one| Rc::new(one) as Rc<dyn Target>);
    let cut_bytes = file.reader.cut_bytes();
    let report = promotions.undo(dry_run, cut_bytes, &open, &|| interrupt.is_asked());
    finish(&if as_json { json(&report) } else { undo_text(&report) })?;
    Ok(exit_of(&report))
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
