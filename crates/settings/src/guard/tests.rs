//! Tests of the guard on a simulated machine.

use std::fs;
use std::path::PathBuf;

use super::*;

const MAX: &str = "sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none";
const SHRINK: &str = "sys/kernel/mm/transparent_hugepage/shrink_underused";

/// A machine with the two settings.
struct Machine {
    root: Root,
    _dir: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let machine = Self { root: Root::at(dir.path()), _dir: dir };
        machine.set(MAX, "511");
        machine.set(SHRINK, "0");
        machine
    }
    fn set(&self, path: &str, value: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{value}\n")).unwrap();
    }
    fn now(&self) -> [String; 2] {
        [MAX, SHRINK].map(|path| self.root.read_text(path).unwrap())
    }
    fn take(&self) -> SettingsGuard {
        let (guard, recovery) = SettingsGuard::take(&self.root).unwrap();
        assert_eq!(recovery, None);
        guard
    }
    fn changed(&self) -> SettingsGuard {
        let mut guard = self.take();
        guard.change(&wanted()).unwrap();
        assert_eq!(self.now(), ["409", "1"]);
        guard
    }
    /// Ends like SIGKILL: nothing is restored, and the kernel closes the files.
    fn crash(&self, mut guard: SettingsGuard) {
        guard.changed.clear();
        drop(guard);
        assert!(is_pending(&self.root));
    }
}

fn journal_of(root: &Root) -> PathBuf {
    root.join(DIRECTORY).join(JOURNAL)
}

fn wanted() -> [(&'static str, String); 2] {
    [(thp::MAX_PTES_NONE, "409".to_owned()), (thp::SHRINK_UNDERUSED, "1".to_owned())]
}

#[test]
fn changed_settings_are_restored_at_the_end_and_the_journal_is_removed() {
    let machine = Machine::new();
    let guard = machine.changed();
    assert!(is_pending(&machine.root));
    let outcomes = guard.put_back();
    assert!(outcomes.len() == 2 && outcomes.iter().all(|(_, outcome)| *outcome == Restored::Yes));
    assert_eq!(machine.now(), ["511", "0"]);
    assert!(!is_pending(&machine.root));
}

#[test]
fn a_panic_restores_them() {
    let machine = Machine::new();
    let panicked = std::panic::catch_unwind(|| {
        let _guard = machine.changed();
        panic!("on purpose");
    });
    assert!(panicked.is_err());
    assert_eq!(machine.now(), ["511", "0"]);
    assert!(!is_pending(&machine.root));
}

#[test]
fn a_setting_that_cannot_be_changed_leaves_the_others_as_they_were() {
    let machine = Machine::new();
    fs::remove_file(machine.root.join(SHRINK)).unwrap();
    // It is read, and takes nothing.
    std::os::unix::fs::symlink("/dev/null", machine.root.join(SHRINK)).unwrap();
    let mut guard = machine.take();
    let error = guard.change(&wanted()).unwrap_err();
    assert!(matches!(error, SettingsError::NotTaken { .. }), "{error}");
    assert_eq!(machine.root.read_text(MAX).unwrap(), "409");
    drop(guard);
    assert_eq!(machine.root.read_text(MAX).unwrap(), "511");
}

#[test]
fn a_setting_with_the_wanted_value_is_not_written() {
    let machine = Machine::new();
    machine.set(MAX, "409");
    machine.set(SHRINK, "1");
    let guard = machine.changed();
    assert!(!is_pending(&machine.root), "nothing was changed, so there is nothing to put back");
    machine.set(MAX, "7");
    drop(guard);
    assert_eq!(machine.now(), ["7", "1"]);
}

#[test]
fn after_a_crash_the_next_command_restores_them() {
    let machine = Machine::new();
    machine.crash(machine.changed());
    assert_eq!(machine.now(), ["409", "1"]);
    let (guard, recovery) = SettingsGuard::take(&machine.root).unwrap();
    let recovery = recovery.unwrap();
    assert_eq!(recovery.pid.0.unsigned_abs(), std::process::id());
    assert_eq!(recovery.outcomes.len(), 2);
    assert_eq!(machine.now(), ["511", "0"]);
    assert!(!is_pending(&machine.root));
    drop(guard);
    assert_eq!(recover(&machine.root).unwrap(), None, "already restored");
}

#[test]
fn a_crash_before_the_first_change_leaves_nothing_to_do() {
    let machine = Machine::new();
    machine.crash(machine.changed());
    machine.set(MAX, "511");
    machine.set(SHRINK, "0");
    let outcomes = recover(&machine.root).unwrap().unwrap().outcomes;
    assert!(outcomes.iter().all(|(_, outcome)| *outcome == Restored::Yes));
    assert_eq!(machine.now(), ["511", "0"]);
}

#[test]
fn a_setting_that_another_program_changed_is_kept() {
    let machine = Machine::new();
    machine.crash(machine.changed());
    machine.set(MAX, "64");
    let outcomes = recover(&machine.root).unwrap().unwrap().outcomes;
    assert_eq!(outcomes[0].1, Restored::Yes);
    assert_eq!(outcomes[1].1, Restored::ChangedSince("64".to_owned()));
    assert_eq!(machine.now(), ["64", "0"]);
    assert!(!is_pending(&machine.root), "reported once");
    // The same at a normal end.
    let guard = machine.changed();
    machine.set(MAX, "32");
    assert_eq!(guard.put_back()[1].1, Restored::ChangedSince("32".to_owned()));
    assert_eq!(machine.now(), ["32", "0"]);
}

#[test]
fn a_second_guard_is_refused_while_one_is_held() {
    let machine = Machine::new();
    let guard = machine.changed();
    let second = SettingsGuard::take(&machine.root).unwrap_err();
    assert!(matches!(second, SettingsError::Busy { .. }), "{second}");
    assert!(recover(&machine.root).is_err());
    assert_eq!(machine.now(), ["409", "1"], "the journal belongs to the holder of the lock");
    drop(guard);
    assert_eq!(machine.now(), ["511", "0"]);
    machine.take();
}

#[test]
fn the_directory_is_closed_to_others_and_no_link_in_it_is_followed() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    let machine = Machine::new();
    let directory = machine.root.join(DIRECTORY);
    fs::create_dir_all(&directory).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
    let victim = machine.root.join("victim");
    fs::write(&victim, "untouched").unwrap();
    symlink(&victim, directory.join(LOCK)).unwrap();
    assert!(SettingsGuard::take(&machine.root).is_err(), "the lock is a link");
    fs::remove_file(directory.join(LOCK)).unwrap();
    symlink(&victim, journal_of(&machine.root)).unwrap();
    assert!(SettingsGuard::take(&machine.root).is_err(), "the journal is a link");
    fs::remove_file(journal_of(&machine.root)).unwrap();
    // Where a temporary file of a fixed name was once written.
    symlink(&victim, journal_of(&machine.root).with_extension("part")).unwrap();
    let _guard = machine.changed();
    assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(journal_of(&machine.root)).unwrap().mode() & 0o777, 0o600);
    assert_eq!(fs::read_to_string(victim).unwrap(), "untouched");
}

#[test]
fn recovery_reads_the_names_of_the_first_schema() {
    let machine = Machine::new();
    machine.crash(machine.changed());
    let journal = fs::read_to_string(journal_of(&machine.root)).unwrap();
    assert!(journal.contains(SCHEMA) && journal.contains("\"set_to\""), "{journal}");
    let journal = journal.replace(SCHEMA, SCHEMA_1).replace("\"set_to\"", "\"ours\"");
    fs::write(journal_of(&machine.root), journal).unwrap();
    let outcomes = recover(&machine.root).unwrap().unwrap().outcomes;
    assert!(outcomes.iter().all(|(_, outcome)| *outcome == Restored::Yes), "{outcomes:?}");
    assert_eq!(machine.now(), ["511", "0"]);
    let in_progress = r#"{"name":"x","before":"0","ours":"1","under_way":true}"#;
    assert!(serde_json::from_str::<ChangedSetting>(in_progress).unwrap().in_progress);
}

#[test]
fn a_foreign_journal_is_an_error_and_kept() {
    let machine = Machine::new();
    fs::create_dir_all(machine.root.join(DIRECTORY)).unwrap();
    machine.set("etc/passwd", "root");
    let setting = |name: &str| {
        let setting = format!(r#"{{"name":"{name}","before":"0","set_to":"root"}}"#);
        format!(r#"{{"schema":"{SCHEMA}","pid":1,"settings":[{setting}]}}"#)
    };
    let other = r#"{"schema":"x/1","pid":1,"settings":[]}"#.to_owned();
    for text in [
        String::new(),
        "{".to_owned(),
        other,
        setting("../../../../etc/passwd"),
        setting("enabled"),
        setting("hugepages-+2kB/nr_hugepages"),
        setting("hugepages-2kB/../x/nr_hugepages"),
    ] {
        fs::write(journal_of(&machine.root), &text).unwrap();
        let error = recover(&machine.root).unwrap_err();
        assert!(matches!(error, SettingsError::Journal { .. }), "{text}: {error}");
        assert!(is_pending(&machine.root), "{text}");
    }
    assert_eq!(machine.root.read_text("etc/passwd").unwrap(), "root");
    assert_eq!(machine.now(), ["511", "0"]);
}

#[test]
fn a_failed_restore_is_repeated_by_the_next_command() {
    let machine = Machine::new();
    machine.crash(machine.changed());
    let kept = fs::read(machine.root.join(SHRINK)).unwrap();
    fs::remove_file(machine.root.join(SHRINK)).unwrap();
    let outcomes = recover(&machine.root).unwrap().unwrap().outcomes;
    assert!(matches!(outcomes[0].1, Restored::Failed(_)), "{outcomes:?}");
    assert!(is_pending(&machine.root));
    // Its settings do not count as the former values.
    let mut guard = SettingsGuard::take(&machine.root).unwrap().0;
    machine.set(MAX, "100");
    let refused = guard.change(&wanted()[..1]).unwrap_err();
    assert!(matches!(refused, SettingsError::Journal { .. }), "{refused}");
    drop(guard);
    fs::write(machine.root.join(SHRINK), kept).unwrap();
    recover(&machine.root).unwrap().unwrap();
    assert_eq!(machine.now(), ["100", "0"]);
    assert!(!is_pending(&machine.root));
}

const POOL: Bytes = Bytes::mib(2);

/// Machine with a pool of `total` pages, of which `surplus` are surplus pages.
fn with_pool(total: u64, surplus: u64) -> Machine {
    let machine = Machine::new();
    for (file, count) in [("nr", total), ("free", 0), ("resv", 0), ("surplus", surplus)] {
        machine.set(
            &format!("{}/{file}_hugepages", hugetlb::directory(POOL, None)),
            &count.to_string(),
        );
    }
    machine
}

impl Machine {
    fn pool(&self) -> String {
        self.root.read_text(hugetlb::count_file(POOL, None)).unwrap()
    }
    /// Takes the guard, and raises the pool to 500 pages, of which the kernel provides `got`.
    fn raised(&self, got: u64) -> SettingsGuard {
        let mut guard = self.take();
        let raise = || {
            assert!(is_pending(&self.root), "noted before it is changed");
            self.set(&hugetlb::count_file(POOL, None), &got.to_string());
            Ok(())
        };
        guard.raise_pool(POOL, 500, raise).unwrap();
        guard
    }
}

#[test]
fn a_pool_is_restored_even_if_it_got_fewer_pages_than_requested() {
    for got in [500, 300, 7] {
        let machine = with_pool(7, 0);
        let outcomes = machine.raised(got).put_back();
        assert!(matches!(&outcomes[..], [(_, Restored::Yes)]), "{got}: {outcomes:?}");
        assert_eq!(machine.pool(), "7");
        assert!(!is_pending(&machine.root));
    }
}

#[test]
fn surplus_pages_are_not_part_of_the_setting() {
    let machine = with_pool(9, 2);
    let guard = machine.raised(502);
    assert_eq!(guard.changed[0].before, "7");
    assert_eq!(guard.changed[0].set_to, "500");
}

#[test]
fn after_a_crash_a_pool_is_restored_even_while_it_was_raised() {
    let machine = with_pool(7, 0);
    machine.crash(machine.raised(300));
    recover(&machine.root).unwrap().unwrap();
    assert_eq!(machine.pool(), "7");
    // Killed between two requests: the journal has the goal, and the count is below it.
    let mut guard = machine.take();
    let killed = guard.raise_pool(POOL, 500, || -> Result<()> {
        machine.set(&hugetlb::count_file(POOL, None), "123");
        let journal = fs::read(journal_of(&machine.root)).unwrap();
        fs::write(machine.root.join("kept"), journal).unwrap();
        Err(SettingsError::Interrupted)
    });
    assert!(killed.is_err());
    guard.changed.clear();
    drop(guard);
    fs::rename(machine.root.join("kept"), journal_of(&machine.root)).unwrap();
    let outcomes = recover(&machine.root).unwrap().unwrap().outcomes;
    assert!(matches!(&outcomes[..], [(_, Restored::Yes)]), "{outcomes:?}");
    assert_eq!(machine.pool(), "7");
}

#[test]
fn a_pool_that_another_program_changed_is_kept() {
    let machine = with_pool(7, 0);
    let guard = machine.raised(300);
    machine.set(&hugetlb::count_file(POOL, None), "100");
    assert_eq!(guard.put_back()[0].1, Restored::ChangedSince("100".to_owned()));
    assert_eq!(machine.pool(), "100");
}

#[test]
fn a_pool_raised_by_another_process_is_found() {
    let machine = with_pool(7, 0);
    assert_eq!(lent_pool(&machine.root, POOL), None);
    let guard = machine.raised(300);
    assert_eq!(lent_pool(&machine.root, POOL), None, "by ourselves");
    let other = SettingsJournal { pid: Pid(1), ..journal(&guard.changed) };
    save(&OwnDirectory::open(machine.root.join(DIRECTORY)).unwrap(), &other).unwrap();
    let found = LentPool { pid: Pid(1), before: 7, raised: 300 };
    assert_eq!(lent_pool(&machine.root, POOL), Some(found));
    assert_eq!(lent_pool(&machine.root, Bytes::gib(1)), None, "another pool");
}

#[test]
fn only_names_that_the_guard_writes_are_accepted() {
    assert_eq!(
        GuardedSetting::named(&pool_setting(Bytes::gib(1))),
        Some(GuardedSetting::Pool(Bytes::gib(1)))
    );
    for name in [
        "hugepages-02048kB/nr_hugepages",
        "hugepages-2048kB/nr_overcommit_hugepages",
        "enabled",
        "",
    ] {
        assert_eq!(GuardedSetting::named(name), None, "{name}");
    }
}
