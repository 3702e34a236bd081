//! Journal of open trials in the state directory, which outlives hugepilot and its guard.
//!
//! Each running hugepilot locks a file of its own, and the kernel drops the lock with it. So a file
//! with lines and without a lock is of a hugepilot that was killed in a trial. Its first line has
//! the boot of the machine: after another one, no process is the same. No file is removed, because
//! another process may have opened it already.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, ErrorKind, Seek as _, Write as _};
use std::path::PathBuf;

use hugepilot_kernel::Root;
use hugepilot_kernel::file::OwnDirectory;
use hugepilot_manager::trial_guard::open_trials;
use hugepilot_record::Stop;
use hugepilot_render::counted;
use hugepilot_reports::undo::{UndoReport, UndoState};

use crate::tune::undo;

/// Files that are tried, in a directory: processes with an open trial at a time.
const MAX_FILES: usize = 64;

/// Directories for the journal, best first: that of a service, that of root, that of a user.
fn directories() -> impl Iterator<Item = PathBuf> {
    let service = std::env::var_os("STATE_DIRECTORY").into_iter();
    // systemd separates several by a colon.
    let service = service.flat_map(|list| std::env::split_paths(&list).take(1).collect::<Vec<_>>());
    let user =
        std::env::var_os("XDG_RUNTIME_DIR").map(|path| PathBuf::from(path).join("hugepilot"));
    let all = service.chain(["/run/hugepilot".into()]).chain(user);
    all.filter(|path: &PathBuf| path.is_absolute())
}

fn name(number: usize) -> String {
    format!("trials-{number}.ndjson")
}

/// Line that begins a journal.
fn head() -> io::Result<String> {
    let boot =
        Root::live().read_text("proc/sys/kernel/random/boot_id").map_err(io::Error::other)?;
    Ok(format!("{{\"schema\":\"hugepilot.trials/1\",\"boot_id\":\"{}\"}}\n", boot.trim()))
}

/// The journal of this process. Made at its first line.
#[derive(Debug, Default)]
pub(super) struct StateJournal {
    file: Option<File>,
}

impl StateJournal {
    /// Adds a line.
    pub(super) fn add(&mut self, line: &[u8]) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(directories().find_map(free_file).ok_or(ErrorKind::NotFound)?),
        };
        if file.stream_position()? == 0 {
            file.write_all(head()?.as_bytes())?;
        }
        file.write_all(line)
    }

    /// Removes all lines: no trial is open.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), emptied)
    }
}

fn emptied(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()
}

/// Locks an empty file in a directory.
fn free_file(directory: PathBuf) -> Option<File> {
    let directory = OwnDirectory::make(directory).ok()?;
    let locked = (0..MAX_FILES).filter_map(|number| directory.lock(&name(number)).ok());
    locked.into_iter().find(|file| file.metadata().is_ok_and(|data| data.len() == 0))
}

/// Returns the regions of trials whose hugepilot was killed to base pages, and reports that on
/// stderr. Failures do not stop the command: the next start tries again.
pub(crate) fn recover() {
    for directory in directories().filter_map(|path| OwnDirectory::open(path).ok()) {
        for number in 0..MAX_FILES {
            // Files are used from the first on.
            if !directory.join(&name(number)).exists() {
                break;
            }
            let Ok(mut file) = directory.lock(&name(number)) else { continue };
            let Ok(lines) = lines_of_this_boot(&file) else { continue };
            let report = undo::all(&open_trials(lines), false, 0, &|| false);
            report_returned(&report);
            if report.processes.iter().all(|one| !matches!(one.state, UndoState::Stopped { .. })) {
                let _ = emptied(&mut file);
            }
        }
    }
}

/// Lines of a journal after its head; none of another boot.
fn lines_of_this_boot(file: &File) -> io::Result<Box<dyn io::BufRead>> {
    let mut lines = BufReader::new(file.try_clone()?);
    let mut first = String::new();
    lines.read_line(&mut first)?;
    Ok(if first == head()? { Box::new(lines) } else { Box::new(io::empty()) })
}

/// Reports the regions that returned to base pages, and those that did not.
pub(super) fn report_returned(report: &UndoReport) {
    for process in &report.processes {
        let name = format!("{} (pid {})", process.command, process.pid);
        let text = match (process.returned_regions, process.state) {
            // The guard returns them, or the next start does.
            (0, UndoState::Stopped { cause: Stop::InUse }) => continue,
            (0, UndoState::Stopped { cause }) => {
                format!("its promotions in {name} were not returned: {cause}")
            }
            (0, _) => continue,
            (returned, _) => {
                let regions = counted(returned, "region", "regions");
                let are = if returned == 1 { "is" } else { "are" };
                format!("{regions} of {name} {are} on base pages again")
            }
        };
        let _ = writeln!(io::stderr(), "hugepilot: killed in a trial; {text}");
    }
}
