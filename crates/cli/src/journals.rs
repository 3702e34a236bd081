//! Journals of tunes of running processes for which the user names no file, for `tune --undo -p
//! PID`: in the state directory, for 7 days.
//!
//! The name of a journal has the pid and the start time of its target, so that a search opens no
//! journal of another process. Several targets share a journal.

use std::ffi::OsString;
use std::fs::DirEntry;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hugepilot_kernel::file::OwnDirectory;
use hugepilot_kernel::{Process, Root, Target};
use hugepilot_record::{Pid, ProcessId};
use hugepilot_units::Bytes;

/// Time for which a journal is kept, and longer if its process runs.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// Time for which a journal is kept whatever its size: its tune may still run.
const YOUNG: Duration = Duration::from_secs(3600);
/// Size of all journals in a directory, beyond which the oldest are removed.
const MAX_SIZE: Bytes = Bytes::gib(1);

/// Directories of journals, best first.
pub(crate) struct SavedJournals {
    directories: Vec<PathBuf>,
}

impl SavedJournals {
    /// Those of this user.
    pub(crate) fn of_user() -> Self {
        Self { directories: directories_by(&|name| std::env::var_os(name)) }
    }

    /// Creates a journal for a tune of these processes, after it has removed old ones. `None` if
    /// no directory may be written to: the tune works without it.
    pub(crate) fn create(&self, targets: &[Process]) -> Option<PathBuf> {
        let target = match targets {
            [one] => prefix(one.id()),
            _ => SEVERAL.to_owned(),
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let name = format!("{target}{now}-{}{SUFFIX}", std::process::id());
        self.directories.iter().find_map(|path| {
            let directory = OwnDirectory::make(path).ok()?;
            remove_old(&directory, &found(path));
            directory.lock(&name).ok()?;
            Some(directory.join(&name))
        })
    }

    /// Journals that may have promotions of one of these processes, oldest first, and whether each
    /// has a single target.
    pub(crate) fn of(&self, targets: &[ProcessId]) -> Vec<(PathBuf, bool)> {
        let own: Vec<String> = targets.iter().map(prefix).collect();
        let is_wanted = |file: &&SavedFile| {
            let mut prefixes = own.iter().map(String::as_str).chain([SEVERAL]);
            file.size > Bytes::ZERO && prefixes.any(|prefix| file.name.starts_with(prefix))
        };
        let opened = self.directories.iter().filter(|path| OwnDirectory::open(path).is_ok());
        let mut files: Vec<(SystemTime, PathBuf)> = opened
            .flat_map(|path| {
                let files = found(path);
                let wanted = files.iter().filter(is_wanted);
                wanted.map(|file| (file.changed, path.join(&file.name))).collect::<Vec<_>>()
            })
            .collect();
        files.sort();
        let is_of_one = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            !name.starts_with(SEVERAL)
        };
        files.into_iter().map(|(_, path)| (path.clone(), is_of_one(&path))).collect()
    }

    /// The directories, for messages.
    pub(crate) fn shown(&self) -> String {
        let shown: Vec<_> =
            self.directories.iter().map(|path| path.display().to_string()).collect();
        shown.join(" or ")
    }
}

const SEVERAL: &str = "tune-several-";
const SUFFIX: &str = ".ndjson";

/// How the names of journals of a single target begin.
fn prefix(id: &ProcessId) -> String {
    format!("tune-{}-{}-", id.pid, id.start_ticks)
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
    all.into_iter().flatten().map(|path| path.join("journals")).collect()
}

/// A journal in a directory.
struct SavedFile {
    name: String,
    size: Bytes,
    changed: SystemTime,
}

impl SavedFile {
    fn of(entry: &DirEntry) -> Option<Self> {
        let name = entry.file_name().into_string().ok()?;
        let about = entry.metadata().ok().filter(|about| about.is_file())?;
        let is_journal = name.starts_with("tune-") && name.ends_with(SUFFIX);
        let (size, changed) = (Bytes::new(about.len()), about.modified().ok()?);
        is_journal.then_some(Self { name, size, changed })
    }

    /// Whether its target runs; unknown of several.
    fn is_of_running(&self) -> bool {
        let pid = self.name.split('-').nth(1).and_then(|pid| pid.parse().ok().map(Pid));
        let process = pid.and_then(|pid| Process::open(&Root::live(), pid).ok());
        process.is_some_and(|process| self.name.starts_with(&prefix(process.id())))
    }
}

/// Journals in a directory, newest first.
fn found(directory: &PathBuf) -> Vec<SavedFile> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut files: Vec<SavedFile> = entries.filter_map(|entry| SavedFile::of(&entry)).collect();
    files.sort_by_key(|file| std::cmp::Reverse(file.changed));
    files
}

/// Removes journals that are old, or too large together. `files`: newest first.
fn remove_old(directory: &OwnDirectory, files: &[SavedFile]) {
    let mut size = Bytes::ZERO;
    for file in files {
        size += file.size;
        let age = file.changed.elapsed().unwrap_or_default();
        let is_old = age > KEPT && !file.is_of_running();
        if is_old || size > MAX_SIZE && age > YOUNG {
            // The next tune tries again.
            let _ = directory.remove(&file.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    #[test]
    fn a_service_has_its_own_directory_and_a_user_that_of_the_home() {
        let of = |variables: &[(&str, &str)]| {
            let get = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| OsString::from(value))
            };
            let paths = directories_by(&get);
            paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
        };
        let root = "/var/lib/hugepilot/journals";
        let service = of(&[("STATE_DIRECTORY", "/state:/b")]);
        assert_eq!(service, ["/state/journals", root]);
        let user = of(&[("HOME", "/home/a")]);
        assert_eq!(user, [root, "/home/a/.local/state/hugepilot/journals"]);
        let user = of(&[("HOME", "/home/a"), ("XDG_STATE_HOME", "/state")]);
        assert_eq!(user, [root, "/state/hugepilot/journals"]);
    }

    /// A directory of journals, and this process.
    fn saved() -> (tempfile::TempDir, SavedJournals, Process) {
        let folder = tempfile::tempdir().unwrap();
        let directories = vec![folder.path().join("journals")];
        let own = Process::open(&Root::live(), Pid(std::process::id().cast_signed())).unwrap();
        (folder, SavedJournals { directories }, own)
    }

    fn set_age(path: &PathBuf, age: Duration) {
        let file = File::options().append(true).open(path).unwrap();
        file.set_modified(SystemTime::now().checked_sub(age).unwrap()).unwrap();
    }

    #[test]
    fn the_journals_of_a_process_are_those_with_its_pid_and_start() {
        let (_folder, saved, own) = saved();
        let id = own.id().clone();
        assert!(saved.of(std::slice::from_ref(&id)).is_empty());
        let first = saved.create(std::slice::from_ref(&own)).unwrap();
        let second = first.with_extension("2.ndjson");
        fs::write(&second, "").unwrap();
        assert!(saved.of(std::slice::from_ref(&id)).is_empty(), "both are empty");
        for path in [&first, &second] {
            fs::write(path, "x").unwrap();
        }
        let several = saved.create(&[]).unwrap();
        fs::write(&several, "x").unwrap();
        set_age(&second, 3 * YOUNG);
        set_age(&first, 2 * YOUNG);
        let all = [(second, true), (first, true), (several.clone(), false)];
        assert_eq!(saved.of(std::slice::from_ref(&id)), all);
        let other = ProcessId { start_ticks: id.start_ticks + 1, ..id };
        assert_eq!(saved.of(&[other]), [(several, false)]);
    }

    #[test]
    fn old_journals_are_removed_unless_their_process_runs() {
        let (_folder, saved, own) = saved();
        let running = saved.create(std::slice::from_ref(&own)).unwrap();
        let directory = running.parent().unwrap();
        let ended = directory.join("tune-4194305-7-1-1.ndjson");
        let young = directory.join("tune-4194305-7-2-1.ndjson");
        let foreign = directory.join("notes.txt");
        for path in [&ended, &young, &foreign] {
            fs::write(path, "x").unwrap();
        }
        for path in [&running, &ended, &foreign] {
            set_age(path, KEPT + YOUNG);
        }
        saved.create(&[]).unwrap();
        let left = [&running, &ended, &young, &foreign].map(|path| path.exists());
        assert_eq!(left, [true, false, true, true]);
        let large = File::options().write(true).open(&young).unwrap();
        large.set_len(MAX_SIZE.get() + 1).unwrap();
        saved.create(&[]).unwrap();
        assert!(young.exists(), "its tune may still run");
        set_age(&young, YOUNG + YOUNG);
        saved.create(&[]).unwrap();
        assert!(!young.exists(), "too large");
    }
}
