//! Regions that tunes promoted in running processes, for `tune --undo -p PID`: a file for each
//! process in the state directory. It is rewritten after each round that changes it, and removed
//! when its regions are returned, or when a later tune finds that its process has ended.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;

use hugepilot_kernel::file::OwnDirectory;
use hugepilot_kernel::{Process, Root, Target};
use hugepilot_manager::undo::Promotions;
use hugepilot_policy::round::Round;
use hugepilot_record::{Pid, ProcessId};
use hugepilot_reports::undo::UndoReport;
use hugepilot_units::Bytes;

/// Size limit of a file: 4 TiB on huge pages have 40 MiB.
const MAX_FILE: Bytes = Bytes::mib(64);

/// Promotions of this and of earlier tunes, and their files.
pub(crate) struct SavedPromotions {
    directory: Option<OwnDirectory>,
    promotions: Promotions,
    /// Processes whose file was read.
    known: BTreeSet<(Pid, u64)>,
    /// First error of writing a file.
    failed: Option<String>,
}

impl SavedPromotions {
    /// Opens the best directory that may be written to, and removes files of processes that ended.
    pub(crate) fn open() -> Self {
        let directories = directories();
        let directory = directories.iter().find_map(|path| OwnDirectory::make(path).ok());
        let failed =
            directory.is_none().then(|| format!("cannot write to {}", shown(&directories)));
        directory.iter().for_each(remove_ended);
        Self { directory, promotions: Promotions::default(), known: BTreeSet::new(), failed }
    }

    /// Adds a round, and saves the promotions of its processes.
    pub(crate) fn add(&mut self, round: &Round) {
        round.ids().for_each(|id| self.read(id));
        self.promotions.add(round);
        let changed = round.rows.iter().filter(|row| row.changes().next().is_some());
        changed.for_each(|row| self.write(&row.seen.id));
    }

    /// Drops the regions of `own` in the processes in which all of these returned, or that have
    /// ended. Earlier tunes may have promoted others.
    pub(crate) fn note_returned(&mut self, own: &Promotions, undone: &UndoReport) {
        for process in undone.processes.iter().filter(|one| one.left_regions() == 0) {
            let ids: Vec<ProcessId> =
                own.processes().filter(|id| id.pid == process.pid).cloned().collect();
            for id in ids {
                self.promotions.drop_regions(&id, own);
                self.write(&id);
            }
        }
    }

    /// Cause why a file could not be written.
    pub(crate) fn failed(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    /// The saved promotions of these processes, of all directories that this user may read.
    pub(crate) fn of(ids: &[ProcessId]) -> Vec<Self> {
        let open = |path: &PathBuf| {
            let directory = Some(OwnDirectory::open(path).ok()?);
            let (promotions, known) = (Promotions::default(), BTreeSet::new());
            let mut saved = Self { directory, promotions, known, failed: None };
            ids.iter().for_each(|id| saved.read(id));
            let is_any = saved.promotions.processes().next().is_some();
            is_any.then_some(saved)
        };
        directories().iter().filter_map(open).collect()
    }

    pub(crate) const fn promotions(&self) -> &Promotions {
        &self.promotions
    }

    /// Reads the file of a process, once. A damaged one has nothing.
    fn read(&mut self, id: &ProcessId) {
        if !self.known.insert((id.pid, id.start_ticks)) {
            return;
        }
        let text = self.directory.as_ref().and_then(|one| one.read(&name(id), MAX_FILE).ok());
        if let Some(text) = text {
            let _ = self.promotions.restore(&text);
        }
    }

    /// Writes the file of a process, or removes it if no region is left.
    fn write(&mut self, id: &ProcessId) {
        let Some(directory) = &self.directory else { return };
        let written = match self.promotions.saved(id) {
            Some(text) => directory.replace(&name(id), text.as_bytes()),
            None => directory.remove(&name(id)).or(Ok(())),
        };
        if let Err(error) = written {
            let path = directory.join(&name(id));
            self.failed.get_or_insert_with(|| format!("cannot write {}: {error}", path.display()));
        }
    }
}

/// The directories, for messages.
pub(crate) fn directories_shown() -> String {
    shown(&directories())
}

fn shown(directories: &[PathBuf]) -> String {
    let shown: Vec<_> = directories.iter().map(|path| path.display().to_string()).collect();
    shown.join(" or ")
}

fn name(id: &ProcessId) -> String {
    format!("promoted-{}-{}.json", id.pid, id.start_ticks)
}

fn directories() -> Vec<PathBuf> {
    directories_by(&|name| std::env::var_os(name))
}

/// The directory of a service, that of root, and that of a user.
fn directories_by(variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    // systemd lists the directories of a unit, separated by colons.
    let service = variable("STATE_DIRECTORY")
        .and_then(|list| std::env::split_paths(&list).find(|path| path.is_absolute()));
    let user = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    let root = PathBuf::from("/var/lib/hugepilot");
    let all = [service, Some(root), user.map(|path| path.join("hugepilot"))];
    all.into_iter().flatten().map(|path| path.join("promoted")).collect()
}

/// Removes the files of processes that ended.
fn remove_ended(directory: &OwnDirectory) {
    let entries = std::fs::read_dir(directory.join("")).into_iter().flatten().flatten();
    for file in entries.filter_map(|entry| entry.file_name().into_string().ok()) {
        let pid = file.strip_prefix("promoted-").and_then(|rest| rest.split('-').next());
        let Some(Ok(pid)) = pid.map(str::parse) else { continue };
        let runs = Process::open(&Root::live(), Pid(pid)).is_ok_and(|one| name(one.id()) == file);
        if !runs {
            // The next tune tries again.
            let _ = directory.remove(&file);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_service_has_its_own_directory_and_a_user_that_of_the_home() {
        let of = |variables: &[(&str, &str)]| {
            let get = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| OsString::from(value))
            };
            shown(&directories_by(&get))
        };
        let root = "/var/lib/hugepilot/promoted";
        let service = of(&[("STATE_DIRECTORY", "/state:/b")]);
        assert_eq!(service, format!("/state/promoted or {root}"));
        let user = of(&[("HOME", "/home/a")]);
        assert_eq!(user, format!("{root} or /home/a/.local/state/hugepilot/promoted"));
        let user = of(&[("HOME", "/home/a"), ("XDG_STATE_HOME", "/state")]);
        assert_eq!(user, format!("{root} or /state/hugepilot/promoted"));
    }

    #[test]
    fn files_of_processes_that_ended_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let directory = OwnDirectory::make(folder.path().join("promoted")).unwrap();
        let own = Process::open(&Root::live(), Pid(std::process::id().cast_signed())).unwrap();
        let earlier = ProcessId { start_ticks: own.id().start_ticks + 1, ..own.id().clone() };
        let files = [name(own.id()), name(&earlier), "notes.txt".to_owned()];
        for file in &files {
            fs::write(directory.join(file), "{}").unwrap();
        }
        remove_ended(&directory);
        let left = files.map(|file| directory.join(&file).exists());
        assert_eq!(left, [true, false, true], "its pid had another process before");
    }
}
