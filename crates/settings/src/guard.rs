//! Guard: temporarily changed kernel settings, restored at the end, after an error, a panic or a
//! crash.
//!
//! A journal under `/run` holds the former values. A reboot empties `/run` and resets the settings.
//! The journal exists from before the first change until the last setting is restored. A lock is
//! held for the same time, and the kernel releases it when its owner dies. So a journal without a
//! lock is from a crash.

use std::fs::File;
use std::io::{self, ErrorKind};

use hugepilot_kernel::file::OwnDirectory;
use hugepilot_kernel::{KernelError, Root, hugetlb, msr, thp};
use hugepilot_record::Pid;
use hugepilot_reports::settings::{
    ChangedSetting, Restored, SCHEMA, SCHEMA_1, SettingWarning, SettingsJournal,
};
use hugepilot_units::Bytes;

use crate::{SettingsError, prefetch};

type Result<T> = std::result::Result<T, SettingsError>;

/// Below a [`Root`].
const DIRECTORY: &str = "run/hugepilot";
const LOCK: &str = "settings.lock";
const JOURNAL: &str = "settings.json";
/// Limit on the size of a journal, which is far shorter.
const MAX_JOURNAL: Bytes = Bytes::mib(1);
/// THP settings that a journal may name. Root reads it, so it must not restore any other file.
const THP_SETTINGS: [&str; 2] = [thp::MAX_PTES_NONE, thp::SHRINK_UNDERUSED];

/// A setting that the guard may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GuardedSetting<'a> {
    /// File of `/sys/kernel/mm/transparent_hugepage`, by name.
    Thp(&'a str),
    /// Page count of the pool of this page size.
    Pool(Bytes),
    /// Register of a processor that controls its prefetchers.
    Prefetch {
        /// Processor.
        cpu: u32,
        /// Number of the register.
        register: u32,
    },
}

/// Returns the name of the page count of a pool among the settings.
pub fn pool_setting(size: Bytes) -> String {
    format!("hugepages-{}kB/nr_hugepages", size.get() >> 10)
}

impl<'a> GuardedSetting<'a> {
    fn named(name: &'a str) -> Option<Self> {
        if THP_SETTINGS.contains(&name) {
            return Some(Self::Thp(name));
        }
        if let Some((cpu, register)) = prefetch::parse(name) {
            return Some(Self::Prefetch { cpu, register });
        }
        let kib = name.strip_prefix("hugepages-")?.strip_suffix("kB/nr_hugepages")?.parse().ok()?;
        // No sign and no leading zero, as `pool_setting` writes it.
        (pool_setting(Bytes::kib(kib)) == name).then_some(Self::Pool(Bytes::kib(kib)))
    }
    fn file(self) -> String {
        match self {
            Self::Thp(name) => thp::file(name),
            Self::Pool(size) => hugetlb::count_file(size, None),
            Self::Prefetch { cpu, .. } => msr::file(cpu),
        }
    }
    fn read(self, root: &Root) -> Result<String> {
        Ok(match self {
            Self::Thp(_) => root.read_text(self.file())?,
            // The file's count includes surplus pages, which are not part of the setting.
            Self::Pool(size) => hugetlb::pages(root, size, None)?.persistent().to_string(),
            Self::Prefetch { cpu, register } => prefetch::text(msr::read(root, cpu, register)?),
        })
    }
    fn write(self, root: &Root, value: &str) -> Result<()> {
        match self {
            Self::Thp(_) | Self::Pool(_) => Ok(root.write(self.file(), value)?),
            Self::Prefetch { cpu, register } => prefetch::write(root, cpu, register, value),
        }
    }
}

/// Returns the path of a setting, below a [`Root`].
fn file(name: &str) -> String {
    GuardedSetting::named(name).map_or_else(|| thp::file(name), GuardedSetting::file)
}

fn read(root: &Root, name: &str) -> Result<String> {
    GuardedSetting::named(name).unwrap_or(GuardedSetting::Thp(name)).read(root)
}

/// Exclusive right to change settings. Restores changed settings on drop.
#[derive(Debug)]
pub struct SettingsGuard {
    root: Root,
    directory: OwnDirectory,
    /// Lock, held as long as the file is open.
    _lock: File,
    changed: Vec<ChangedSetting>,
}

/// A setting, and the outcome of restoring it.
pub type Outcome = (ChangedSetting, Restored);

/// Settings that a killed command left changed, with the outcomes of restoring them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// The killed command.
    pub pid: Pid,
    /// Each setting that it had changed.
    pub outcomes: Vec<Outcome>,
}

impl SettingsGuard {
    /// Takes the lock, then restores settings that a killed command left changed.
    ///
    /// # Errors
    /// [`SettingsError::Busy`]; [`KernelError::Write`] without root; [`SettingsError::Journal`].
    pub fn take(root: &Root) -> Result<(Self, Option<Recovery>)> {
        let path = root.join(DIRECTORY);
        let own = OwnDirectory::make(&path).and_then(|own| own.close_to_others().map(|()| own));
        let directory = own.map_err(|source| KernelError::write(&path, source))?;
        let lock = lock(&directory)?;
        let recovery = restore_journal(root, &directory)?;
        Ok((Self { root: root.clone(), directory, _lock: lock, changed: Vec::new() }, recovery))
    }

    /// Sets each of `wanted`, by name and value, and reads it back. Settings that have their value
    /// already are not written.
    ///
    /// # Errors
    /// [`KernelError`] of the first setting that cannot be read or written, or
    /// [`SettingsError::NotTaken`]; drop the guard to restore the others.
    /// [`SettingsError::Journal`] if settings of an earlier command could not be restored.
    pub fn change(&mut self, wanted: &[(&str, String)]) -> Result<()> {
        let changes = changes(&self.root, wanted)?;
        if changes.is_empty() {
            return Ok(());
        }
        self.note(changes)?;
        self.changed.iter().try_for_each(|setting| set(&self.root, &setting.name, &setting.set_to))
    }

    /// Calls `raise` to bring the pool of `size` to `count` pages, or as near as the kernel can.
    ///
    /// # Errors
    /// Errors of `raise`, or of the journal as in [`SettingsGuard::change`]; then drop the guard.
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
        // The change is complete, so any value but this one is from another program.
        let got = read(&self.root, &setting.name)?;
        self.changed = vec![ChangedSetting { set_to: got, in_progress: false, ..setting }];
        save(&self.directory, &journal(&self.changed))?;
        raised
    }

    /// Writes the journal of pending changes.
    fn note(&mut self, changes: Vec<ChangedSetting>) -> Result<()> {
        if is_pending(&self.root) {
            // It holds the values before an earlier command, which must not be lost.
            let path = self.directory.join(JOURNAL).display().to_string();
            return Err(SettingsError::Journal {
                path,
                what: "an earlier command could not restore them".to_owned(),
            });
        }
        save(&self.directory, &journal(&changes))?;
        self.changed = changes;
        Ok(())
    }

    /// Restores all settings, the last first. A setting that another program changed since is kept.
    pub fn put_back(mut self) -> Vec<Outcome> {
        self.undo()
    }

    fn undo(&mut self) -> Vec<Outcome> {
        let changed = std::mem::take(&mut self.changed);
        if changed.is_empty() {
            return Vec::new();
        }
        let outcomes = restore_all(&self.root, changed);
        // After a failure, the next command tries again.
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

/// Lists the settings of `wanted` that have another value now.
///
/// # Errors
/// [`KernelError::Read`] if the kernel lacks a setting.
pub fn changes(root: &Root, wanted: &[(&str, String)]) -> Result<Vec<ChangedSetting>> {
    let mut changes = Vec::new();
    for (name, value) in wanted {
        let before = read(root, name)?;
        if before != *value {
            let (name, set_to) = ((*name).to_owned(), value.clone());
            changes.push(ChangedSetting { name, before, set_to, in_progress: false });
        }
    }
    Ok(changes)
}

impl Recovery {
    /// Returns a warning for each setting.
    pub fn warnings(&self) -> Vec<SettingWarning> {
        let warning = |(setting, outcome): &Outcome| {
            let ChangedSetting { name, before, set_to, .. } = setting.clone();
            let recovered =
                SettingWarning::SettingRecovered { pid: self.pid, name, set_to, before };
            setting_warning(setting, outcome).unwrap_or(recovered)
        };
        self.outcomes.iter().map(warning).collect()
    }
}

/// Warns about a setting that does not have its former value; `None` if it has.
pub fn setting_warning(setting: &ChangedSetting, outcome: &Restored) -> Option<SettingWarning> {
    let ChangedSetting { name, before, set_to, .. } = setting.clone();
    match outcome.clone() {
        Restored::Yes => None,
        Restored::ChangedSince(now) => {
            Some(SettingWarning::SettingChangedSince { name, set_to, before, now })
        }
        Restored::Failed(cause) => {
            let path = format!("/{}", file(&name));
            Some(SettingWarning::SettingNotRestored { name, path, before, cause })
        }
    }
}

/// Whether a command has settings changed, or left them changed. Always false without root.
pub fn is_pending(root: &Root) -> bool {
    root.join(DIRECTORY).join(JOURNAL).exists()
}

/// A pool that another run has raised, and restores when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LentPool {
    /// Process of the run.
    pub pid: Pid,
    /// Pages before the run.
    pub before: u64,
    /// Pages during the run.
    pub raised: u64,
}

/// Returns the run that has raised the pool of `size`; always `None` without root.
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

/// Restores settings that a killed command left changed; `None` if there are none.
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

/// Restores the settings of the journal. The caller holds the lock.
fn restore_journal(root: &Root, directory: &OwnDirectory) -> Result<Option<Recovery>> {
    let Some(SettingsJournal { pid, settings, .. }) = load(directory)? else { return Ok(None) };
    let outcomes = restore_all(root, settings);
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

fn restore_all(root: &Root, settings: Vec<ChangedSetting>) -> Vec<Outcome> {
    let last_first = settings.into_iter().rev();
    last_first.map(|setting| (setting.clone(), put_back(root, &setting))).collect()
}

fn put_back(root: &Root, setting: &ChangedSetting) -> Restored {
    match read(root, &setting.name) {
        Ok(now) if now == setting.before => Restored::Yes,
        Ok(now) if !is_guarded(&now, setting) => Restored::ChangedSince(now),
        Ok(_) => match set(root, &setting.name, &setting.before) {
            Ok(()) => Restored::Yes,
            Err(error) => Restored::Failed(error.to_string()),
        },
        Err(error) => Restored::Failed(error.to_string()),
    }
}

/// Whether `now` is the guard's value: of a count that was being raised, any value up to it.
fn is_guarded(now: &str, setting: &ChangedSetting) -> bool {
    let between = || {
        let [now, before, set_to] =
            [now, &setting.before, &setting.set_to].map(|text| text.parse::<u64>().ok());
        Some((before?..=set_to?).contains(&now?))
    };
    now == setting.set_to || (setting.in_progress && between().unwrap_or(false))
}

/// Writes a setting, and reads it back.
fn set(root: &Root, name: &str, value: &str) -> Result<()> {
    GuardedSetting::named(name).unwrap_or(GuardedSetting::Thp(name)).write(root, value)?;
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
    match journal.settings.iter().find(|setting| GuardedSetting::named(&setting.name).is_none()) {
        Some(setting) => Err(bad(format!("hugepilot never changes {:?}", setting.name))),
        None => Ok(Some(journal)),
    }
}

/// Writes the journal atomically.
fn save(directory: &OwnDirectory, journal: &SettingsJournal) -> Result<()> {
    let text = serde_json::to_vec_pretty(journal).map_err(io::Error::from);
    text.and_then(|text| directory.replace(JOURNAL, &text))
        .map_err(|source| KernelError::write(&directory.join(JOURNAL), source).into())
}

#[cfg(test)]
mod tests;
