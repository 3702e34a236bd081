//! Tests of the shrinker on a simulated machine.

use std::fs;

use hugepilot_reports::settings::Restored;
use hugepilot_reports::shrink::ShrinkWarning;

use super::*;

const THP: &str = "sys/kernel/mm/transparent_hugepage";
const GROUP: &str = "sys/fs/cgroup/memory/db";

/// A machine with a cgroup of version 1 and a kernel that ignores requests.
struct Machine {
    root: Root,
    dir: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let machine = Self { root: Root::at(dir.path()), dir };
        for (path, text) in [
            (format!("{THP}/khugepaged/max_ptes_none"), "511"),
            (format!("{THP}/shrink_underused"), "0"),
            (format!("{THP}/hpage_pmd_size"), "2097152"),
            ("proc/meminfo".into(), "SwapTotal: 0 kB"),
            ("proc/vmstat".into(), "thp_underused_split_page 7"),
            ("sys/fs/cgroup/memory/cgroup.procs".into(), ""),
            (format!("{GROUP}/cgroup.procs"), ""),
            (format!("{GROUP}/memory.limit_in_bytes"), "9"),
            (format!("{GROUP}/memory.usage_in_bytes"), "5000000"),
            (format!("{GROUP}/memory.stat"), "total_cache 4096\ntotal_rss_huge 4194304"),
            (format!("{GROUP}/memory.force_empty"), ""),
        ] {
            machine.set(&path, text);
        }
        machine
    }
    fn set(&self, path: &str, text: &str) {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }
    fn gone(&self, path: &str) {
        fs::remove_file(self.dir.path().join(path)).unwrap();
    }
    fn settings(&self) -> [String; 2] {
        ["khugepaged/max_ptes_none", "shrink_underused"]
            .map(|name| self.root.read_text(thp::file(name)).unwrap())
    }
    fn run(&self, dry_run: bool, amount: Option<Bytes>) -> Result<ShrinkReport, SettingsError> {
        let cgroup = "/sys/fs/cgroup/memory/db".into();
        let options = ShrinkOptions { cgroup, min_bloat: Share::percent(80.0), amount, dry_run };
        shrink(&self.root, options, &|| false, &mut |recovery| panic!("{recovery:?}"))
    }
    #[track_caller]
    fn is_refused(&self, expected: &Unsupported) {
        for dry_run in [true, false] {
            match self.run(dry_run, None) {
                Err(SettingsError::Refused(error)) => assert_eq!(error, *expected),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn a_share_of_bloat_is_a_count_of_base_pages() {
    let max = |percent| max_ptes_none(Share::percent(percent), PageSizes::X86_64).ok();
    // More than that many of 512 must be zero-filled.
    assert_eq!(
        [0.0, 0.1, 50.0, 80.0, 99.8].map(max),
        [Some(0), Some(0), Some(255), Some(409), Some(510)]
    );
    assert_eq!(max(100.0), None, "511 means never");
}

#[test]
fn a_dry_run_reports_settings_and_changes_nothing() {
    let machine = Machine::new();
    let report = machine.run(true, None).unwrap();
    let settings: Vec<_> = report.shrinker.settings.iter().map(|one| one.setting.clone()).collect();
    let names: Vec<_> =
        settings.iter().map(|one| (&*one.name, &*one.before, &*one.set_to)).collect();
    assert_eq!(names, [("khugepaged/max_ptes_none", "511", "409"), ("shrink_underused", "0", "1")]);
    assert_eq!((report.freed_bytes, report.huge_pages_before), (None, Some(2)));
    assert_eq!(report.shrinker.asked_by, "memory.force_empty");
    assert_eq!(machine.settings(), ["511", "0"]);
    assert_eq!(machine.root.read_text(format!("{GROUP}/memory.force_empty")).unwrap(), "");
    let cache = ShrinkWarning::CacheAtRisk { cache_bytes: Bytes::kib(4) };
    assert!(report.warnings.contains(&cache), "{:?}", report.warnings);
    assert!(!machine.root.join("run").exists());
}

#[test]
fn a_kernel_that_ignores_the_request_frees_nothing() {
    let machine = Machine::new();
    let report = machine.run(false, None).unwrap();
    assert_eq!((report.freed_bytes, report.huge_pages_split), (Some(Bytes::ZERO), Some(0)));
    assert_eq!(report.huge_pages_after, Some(2));
    assert!(report.shrinker.settings.iter().all(|one| one.restored == Some(Restored::Yes)));
    let nothing = ShrinkWarning::NothingFound { max_ptes_none: 409, was_off: true };
    assert!(report.warnings.contains(&nothing), "{:?}", report.warnings);
    assert_eq!(machine.settings(), ["511", "0"]);
    assert_eq!(machine.root.read_text(format!("{GROUP}/memory.force_empty")).unwrap(), "0");
}

#[test]
fn an_unreadable_process_is_excluded_with_a_warning() {
    let machine = Machine::new();
    machine.set(&format!("{GROUP}/cgroup.procs"), "7\n8");
    for pid in [7, 8] {
        machine.set(&format!("proc/{pid}/stat"), &format!("{pid} (db) S {}", "1 ".repeat(49)));
    }
    // Reading a directory fails.
    fs::create_dir(machine.root.join("proc/8/status")).unwrap();
    let alone = machine.run(true, None);
    assert!(alone.is_err(), "7 has no status and counts as gone: {alone:?}");
    machine.set("proc/7/status", "RssAnon: 4 kB");
    let report = machine.run(true, None).unwrap();
    assert_eq!(report.processes.len(), 1);
    let count = report.warnings.iter().find_map(|warning| match warning {
        ShrinkWarning::Excluded(count) => Some(count),
        _ => None,
    });
    let count = count.expect("a warning");
    assert_eq!((count.excluded, count.processes), (1, 2));
    assert!(count.first.error.contains("proc/8/status"), "{count:?}");
}

#[test]
fn an_unsupported_request_has_a_cause() {
    let machine = Machine::new();
    machine.gone(&format!("{GROUP}/memory.force_empty"));
    let (cgroup, file) = ("/db".to_owned(), "memory.force_empty".to_owned());
    machine.is_refused(&Unsupported::NoReclaimFile { cgroup, file });
    machine.gone(&format!("{GROUP}/memory.limit_in_bytes"));
    let cgroup = "/sys/fs/cgroup/memory/db".to_owned();
    machine.is_refused(&ShrinkUnsupported::NoMemoryController { cgroup }.into());
    machine.gone(&format!("{THP}/shrink_underused"));
    machine.is_refused(&ShrinkUnsupported::NoShrinker.into());

    let amount = Machine::new().run(false, Some(Bytes::mib(1))).unwrap_err();
    assert!(matches!(amount, SettingsError::Refused(Unsupported::ReclaimAmount)), "{amount}");
}

#[test]
fn an_error_of_the_reclaim_leaves_the_settings_as_before() {
    let machine = Machine::new();
    let file = format!("{GROUP}/memory.force_empty");
    machine.gone(&file);
    // Writing there fails with ENOSPC.
    std::os::unix::fs::symlink("/dev/full", machine.root.join(&file)).unwrap();
    let error = machine.run(false, None).unwrap_err();
    assert!(error.to_string().contains("force_empty"), "{error}");
    assert_eq!(machine.settings(), ["511", "0"]);
    assert!(!crate::is_pending(&machine.root));
}

#[test]
fn an_interrupt_before_it_changes_nothing() {
    let machine = Machine::new();
    let options = ShrinkOptions {
        cgroup: "/sys/fs/cgroup/memory/db".into(),
        min_bloat: Share::percent(80.0),
        amount: None,
        dry_run: false,
    };
    let report = shrink(&machine.root, options, &|| true, &mut |_| {}).unwrap();
    assert!(report.stopped.is_some() && report.split_seconds.is_none());
    assert_eq!(machine.root.read_text(format!("{GROUP}/memory.force_empty")).unwrap(), "");
}
