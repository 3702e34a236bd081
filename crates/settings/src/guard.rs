//! Settings of the kernel that are changed for a while: put back at the end, after an error, a panic, and a crash.
//!
//! What they were is kept in a file under `/run`, which a reboot empties as it resets the settings themselves. The file is
//! there from before the first change until after the last was undone. Whoever changes settings holds a lock as long, and
//! the kernel lets go of that when its owner dies: so a file that nobody holds the lock for was left by a crash.

use std::fs::File;
use std::io::{self, ErrorKind};

use hugepilot_kernel::file::OwnDirectory;
use hugepilot_kernel::{KernelError, Root, hugetlb, thp};
use hugepilot_record::Pid;
use hugepilot_record::settings::{ChangedSetting, Restored, SCHEMA, SCHEMA_1, SettingsJournal};
use hugepilot_units::Bytes;

use crate::SettingsError;

type Result<T> = std::result::Result<T, SettingsError>;

/// Below a [`Root`].
const DIRECTORY: &str = "run/hugepilot";
const LOCK: &str = "settings.lock";
const JOURNAL: &str = "settings.json";
/// A journal is far shorter.
const MAX_JOURNAL: Bytes = Bytes::mib(1);
/// What a journal may name, besides the counts of pools: it is read by root, and nothing else is ever written for it.
const OURS: [&str; 2] = [thp::MAX_PTES_NONE, thp::SHRINK_UNDERUSED];

/// A setting that we may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known<'a> {
    /// A file of `/sys/kernel/mm/transparent_hugepage`, by its name there.
    Thp(&'a str),
    /// How many pages of that size the pool has.
    Pool(Bytes),
}

/// The name of the count of a pool among the settings.
pub fn pool_setting(size: Bytes) -> String {
    format!("hugepages-{}kB/nr_hugepages", size.get() >> 10)
}

impl<'a> Known<'a> {
    fn named(name: &'a str) -> Option<Self> {
        if OURS.contains(&name) {
            return Some(Self::Thp(name));
        }
        let kib = name.strip_prefix("hugepages-")?.strip_suffix("kB/nr_hugepages")?.parse().ok()?;
        // Only what we write ourselves: no sign, no leading zero.
        (pool_setting(Bytes::kib(kib)) == name).then_some(Self::Pool(Bytes::kib(kib)))
    }
    fn file(self) -> String {
        match self {
            Self::Thp(name) => thp::file(name),
            Self::Pool(size) => hugetlb::count_file(size, None),
        }
    }
    fn read(self, root: &Root) -> Result<String> {
        Ok(match self {
            Self::Thp(_) => root.read_text(self.file())?,
            // Pages that go by themselves are in the file's count, and nobody set them.
            Self::Pool(size) => hugetlb::pages(root, size, None)?.persistent().to_string(),
        })
    }
}

/// The file of a setting, below a [`Root`].
fn file(name: &str) -> String {
    Known::named(name).map_or_else(|| thp::file(name), Known::file)
}

fn read(root: &Root, name: &str) -> Result<String> {
    Known::named(name).unwrap_or(Known::Thp(name)).read(root)
}

/// The right to change settings, one run at a time. What was changed is put back when it is dropped.
#[derive(Debug)]
pub struct SettingsGuard {
    root: Root,
    directory: OwnDirectory,
    /// Held for as long as the file is open.
    _lock: File,
    changed: Vec<ChangedSetting>,
}

/// One setting, and what came of putting it back.
pub type Outcome = (ChangedSetting, Restored);

/// What an earlier run left changed, found and put back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// The number of the process that it was.
    pub pid: Pid,
    /// Each setting it had changed.
    pub outcomes: Vec<Outcome>,
}

impl SettingsGuard {
    /// Takes the lock, and puts back first what a run that was killed left changed.
    ///
    /// # Errors
    /// [`SettingsError::Busy`]; [`KernelError::Write`] where only root may; [`SettingsError::Journal`].
    pub fn take(root: &Root) -> Result<(Self, Option<Recovery>)> {
        let path = root.join(DIRECTORY);
        let own = OwnDirectory::make(&path).and_then(|own| own.close_to_others().map(|()| own));
        let directory = own.map_err(|source| KernelError::write(&path, source))?;
        let lock = lock(&directory)?;
        let recovery = put_back_journal(root, &directory)?;
        Ok((Self { root: root.clone(), directory, _lock: lock, changed: Vec::new() }, recovery))
    }

    /// Sets each of `wanted`, by name and value, and looks whether it took. What has its value already is not touched.
    ///
    /// # Errors
    /// [`KernelError`] of the first one that cannot be read or written, or [`SettingsError::NotTaken`]; then drop this, to have
    /// the others as before. [`SettingsError::Journal`] where what an earlier run left could not be put back.
    pub fn change(&mut self, wanted: &[(&str, String)]) -> Result<()> {
        let changes = changes(&self.root, wanted)?;
        if changes.is_empty() {
            return Ok(());
        }
        self.note(changes)?;
        self.changed.iter().try_for_each(|setting| set(&self.root, &setting.name, &setting.set_to))
    }

    /// Has `raise` bring the pool of `size` from its count to `count`, or as near as the kernel does.
    ///
    /// # Errors
    /// What `raise` says, or what [`SettingsGuard::change`] does of its journal; then drop this.
    pub fn raise_pool<T>(
        &mut self,
        size: Bytes,
        count: u64,
        raise: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let name = pool_setting(size);
        let before = read(&self.root, &name)?;
        let setting = ChangedSetting { name, before, set_to: count.to_string(), in_progress: true };
        self.note(vec![setting.clone()])?;
        let raised = raise();
        // Now that nothing is under way any more, only what we got is ours.
        let got = read(&self.root, &setting.name)?;
        self.changed = vec![ChangedSetting { set_to: got, in_progress: false, ..setting }];
        save(&self.directory, &journal(&self.changed))?;
        raised
    }

    /// Writes down what is going to be changed.
    fn note(&mut self, changes: Vec<ChangedSetting>) -> Result<()> {
        if is_pending(&self.root) {
            // It says what they were before that run, which must not be lost.
            let path = self.directory.join(JOURNAL).display().to_string();
            return Err(SettingsError::Journal {
                path,
                what: "they could not be put back".to_owned(),
            });
        }
        save(&self.directory, &journal(&changes))?;
        self.changed = changes;
        Ok(())
    }

    /// Puts everything back, the last first. What somebody else set since stays as it is.
    pub fn put_back(mut self) -> Vec<Outcome> {
        self.undo()
    }

    fn undo(&mut self) -> Vec<Outcome> {
        let changed = std::mem::take(&mut self.changed);
        if changed.is_empty() {
            return Vec::new();
        }
        let outcomes = put_back_all(&self.root, changed);
        // Where something failed, the next run shall try again.
        if all_settled(&outcomes) {
            let _ = self.directory.remove(JOURNAL);
        }
        outcomes
    }
}

fn journal(changed: &[ChangedSetting]) -> SettingsJournal {
    let pid = Pid(std::process::id().cast_signed());
    SettingsJournal { schema: SCHEMA.to_owned(), pid, settings: changed.to_vec() }
}

impl Drop for SettingsGuard {
    fn drop(&mut self) {
        self.undo();
    }
}

/// What would have to change for `wanted`: those that have another value now.
///
/// # Errors
/// [`KernelError::Read`] where the kernel has no such setting.
pub fn changes(root: &Root, wanted: &[(&str, String)]) -> Result<Vec<ChangedSetting>> {
    let mut changes = Vec::new();
    for (name, ours) in wanted {
        let before = read(root, name)?;
        if before != *ours {
            let (name, ours) = ((*name).to_owned(), ours.clone());
            changes.push(ChangedSetting { name, before, set_to: ours, in_progress: false });
        }
    }
    Ok(changes)
}

impl Recovery {
    /// What was found and done, in sentences.
    pub fn told(&self) -> Vec<String> {
        let mut told = Vec::new();
        for (setting, outcome) in &self.outcomes {
            let ChangedSetting { name, before, set_to, .. } = setting;
            told.push(match outcome {
                Restored::Yes => format!(
                    "a run of hugepilot (pid {}) was killed while it had {name} changed to {set_to}: it is {before} again",
                    self.pid
                ),
                other => not_restored(setting, other).unwrap_or_default(),
            });
        }
        told
    }
}

/// What the user must know of a setting that is not as it was; `None` when it is.
pub fn not_restored(setting: &ChangedSetting, outcome: &Restored) -> Option<String> {
    let ChangedSetting { name, before, set_to, .. } = setting;
    match outcome {
        Restored::Yes => None,
        Restored::ChangedSince(now) => Some(format!(
            "{name} was left at {now}: somebody changed it since we had set it to {set_to}; before us it was {before}"
        )),
        Restored::Failed(why) => Some(format!(
            "{name} could not be put back to {before}: {why}; do it by hand: echo {before} | sudo tee /{}",
            file(name)
        )),
    }
}

/// Whether a run has changed settings, or left them changed. Only root sees that: for others, no run ever has.
pub fn is_pending(root: &Root) -> bool {
    root.join(DIRECTORY).join(JOURNAL).exists()
}

/// A pool that another run of ours has raised, and sets as it was when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LentPool {
    /// Its process.
    pub pid: Pid,
    /// How many pages the pool had.
    pub before: u64,
    /// How many it was raised to.
    pub raised: u64,
}

/// Whether the pool of `size` is so. Only root sees that.
pub fn lent_pool(root: &Root, size: Bytes) -> Option<LentPool> {
    let directory = OwnDirectory::open(root.join(DIRECTORY)).ok()?;
    let journal = load(&directory).ok().flatten()?;
    let others = journal.pid.0.unsigned_abs() != std::process::id();
    let setting =
        journal.settings.iter().find(|setting| others && setting.name == pool_setting(size))?;
    Some(LentPool {
        pid: journal.pid,
        before: setting.before.parse().ok()?,
        raised: setting.set_to.parse().ok()?,
    })
}

/// Puts back what a run that was killed left changed; `None` when there is nothing.
///
/// # Errors
/// As [`SettingsGuard::take`].
pub fn recover(root: &Root) -> Result<Option<Recovery>> {
    if !is_pending(root) {
        return Ok(None);
    }
    SettingsGuard::take(root).map(|(_, recovery)| recovery)
}

fn lock(directory: &OwnDirectory) -> Result<File> {
    let path = directory.join(LOCK);
    match directory.lock(LOCK) {
        Ok(file) => Ok(file),
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            Err(SettingsError::Busy { lock: path.display().to_string() })
        }
        Err(error) => Err(KernelError::write(&path, error).into()),
    }
}

/// Only for whoever holds the lock.
fn put_back_journal(root: &Root, directory: &OwnDirectory) -> Result<Option<Recovery>> {
    let Some(SettingsJournal { pid, settings, .. }) = load(directory)? else { return Ok(None) };
    let outcomes = put_back_all(root, settings);
    if all_settled(&outcomes) {
        directory
            .remove(JOURNAL)
            .map_err(|source| KernelError::write(&directory.join(JOURNAL), source))?;
    }
    Ok(Some(Recovery { pid, outcomes }))
}

fn all_settled(outcomes: &[Outcome]) -> bool {
    !outcomes.iter().any(|(_, outcome)| matches!(outcome, Restored::Failed(_)))
}

fn put_back_all(root: &Root, settings: Vec<ChangedSetting>) -> Vec<Outcome> {
    let last_first = settings.into_iter().rev();
    last_first.map(|setting| (setting.clone(), put_back(root, &setting))).collect()
}

fn put_back(root: &Root, setting: &ChangedSetting) -> Restored {
    match read(root, &setting.name) {
        Ok(now) if now == setting.before => Restored::Yes,
        Ok(now) if !is_ours(&now, setting) => Restored::ChangedSince(now),
        Ok(_) => match set(root, &setting.name, &setting.before) {
            Ok(()) => Restored::Yes,
            Err(error) => Restored::Failed(error.to_string()),
        },
        Err(error) => Restored::Failed(error.to_string()),
    }
}

/// Whether a setting still is as we left it; a count that was being raised is anything on the way.
fn is_ours(now: &str, setting: &ChangedSetting) -> bool {
    let between = || {
        let [now, before, ours] =
            [now, &setting.before, &setting.set_to].map(|text| text.parse::<u64>().ok());
        Some((before?..=ours?).contains(&now?))
    };
    now == setting.set_to || (setting.in_progress && between().unwrap_or(false))
}

/// Writes, and looks.
fn set(root: &Root, name: &str, value: &str) -> Result<()> {
    root.write(file(name), value)?;
    let found = read(root, name)?;
    if found == value {
        return Ok(());
    }
    Err(SettingsError::NotTaken { name: name.to_owned(), wanted: value.to_owned(), found })
}

fn load(directory: &OwnDirectory) -> Result<Option<SettingsJournal>> {
    let path = directory.join(JOURNAL).display().to_string();
    let bad = |what: String| SettingsError::Journal { path: path.clone(), what };
    let bytes = match directory.read(JOURNAL, MAX_JOURNAL) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(bad(error.to_string())),
    };
    let journal: SettingsJournal =
        serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))?;
    if ![SCHEMA, SCHEMA_1].contains(&journal.schema.as_str()) {
        return Err(bad(format!("its schema is {:?}", journal.schema)));
    }
    match journal.settings.iter().find(|setting| Known::named(&setting.name).is_none()) {
        Some(setting) => Err(bad(format!("we never change {:?}", setting.name))),
        None => Ok(Some(journal)),
    }
}

/// Whole or not at all: a crash leaves no half of it.
fn save(directory: &OwnDirectory, journal: &SettingsJournal) -> Result<()> {
    let text = serde_json::to_vec_pretty(journal).map_err(io::Error::from);
    text.and_then(|text| directory.replace(JOURNAL, &text))
        .map_err(|source| KernelError::write(&directory.join(JOURNAL), source).into())
}

#[cfg(test)]
mod tests;
