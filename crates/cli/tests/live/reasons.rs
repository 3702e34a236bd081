//! Reasons of the kernel under every setting, and whether they come true: memory of the same kind
//! is touched for the first time, and khugepaged is given time for the old.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use KernelCode as Code;
use hugepilot_record::{KernelCode, Outlook};
use hugepilot_reports::status::{MappingStatus, StatusReport, StatusSummary};
use hugepilot_testkit::{Need, Victim, make_room, need, requires};
use hugepilot_units::Bytes;

use crate::look::{Area, smaps, thp_settings};
use crate::status::layout;
use crate::tool::HUGEPILOT;
use crate::validation::validate;
use crate::workload::SOON;

const THP: &str = "/sys/kernel/mm/transparent_hugepage";
/// Time for khugepaged, which scans without pauses.
const FULL_SCANS: Duration = Duration::from_secs(20);

/// All THP settings before a test, restored on drop.
pub(crate) struct Settings(Vec<(String, String)>);

impl Settings {
    pub(crate) fn now() -> Self {
        Self(thp_settings())
    }

    #[track_caller]
    pub(crate) fn set(&self, name: &str, word: &str) {
        fs::write(format!("{THP}/{name}"), word).unwrap_or_else(|error| panic!("{name}: {error}"));
    }

    /// Whether the kernel has a setting.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(path, _)| path.ends_with(name))
    }

    fn restore(&self) {
        for (path, text) in &self.0 {
            let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
            if fs::read_to_string(path).is_ok_and(|now| now != *text) {
                let _ = fs::write(path, chosen.map_or(text.trim(), |(word, _)| word));
            }
        }
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        // A word of one setting may exclude one of another.
        self.restore();
        self.restore();
    }
}

fn possible() -> Need {
    need::all([need::live(), need::root(), need::c_compiler()])
}

/// Runs `hugepilot status` under changed settings, which it must not change.
pub(crate) fn run(pid: u32, more: &str) -> Vec<u8> {
    let before = thp_settings();
    let mut command = Command::new(HUGEPILOT);
    command.args(["status", "-p", &pid.to_string()]).args(more.split_whitespace());
    let output = command.output().expect("the program starts");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(thp_settings(), before, "a setting of the kernel is not as before");
    output.stdout
}

fn status(pid: u32) -> StatusReport {
    let json = run(pid, "--json --no-contents");
    assert_eq!(validate(&json).as_deref(), Ok("status"));
    serde_json::from_slice(&json).expect("a report")
}

/// Reasons of the parts of a victim, by name.
type Codes = BTreeMap<String, Code>;

fn codes<const N: usize>(codes: [(&str, Code); N]) -> Codes {
    codes.into_iter().map(|(name, code)| (name.to_owned(), code)).collect()
}

/// Names of the parts that the kernel may still promote.
fn pending(codes: &Codes) -> Vec<String> {
    let pending = codes.iter().filter(|&(_, &code)| code == PENDING);
    pending.map(|(name, _)| name.clone()).collect()
}

/// A victim, and the addresses of its parts on base pages and of those that it has not touched.
pub(crate) struct Parts {
    pub(crate) victim: Victim,
    addresses: BTreeMap<String, (u64, u64)>,
}

impl Parts {
    /// `None` if the kernel lacks what `args` ask for.
    pub(crate) fn of(source: &str, args: &[&str]) -> Option<Self> {
        let victim = Victim::c(source, args);
        let mut addresses = BTreeMap::new();
        let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
        loop {
            let line = victim.line(SOON).expect("it gets ready");
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["part", name, old, fresh] => {
                    addresses.insert(name.to_owned(), (hex(old), hex(fresh)));
                }
                ["ready", ..] => return Some(Self { victim, addresses }),
                _ => return None,
            }
        }
    }

    /// The reasons of the parts on base pages; the others have none.
    fn codes(&self) -> Codes {
        let report = status(self.victim.pid());
        let at = |address: u64| {
            let found = report.mappings.iter().find(|m| m.range.start.get() == address).unwrap();
            &found.sizes.kernel_reason_bytes
        };
        let of_part = |(name, &(old, fresh)): (&String, &(u64, u64))| {
            assert!(at(fresh).is_empty(), "{name} is untouched: {:?}", at(fresh));
            let codes: Vec<_> = at(old).iter().collect();
            assert_eq!(codes.len(), 1, "{name}: {codes:?}");
            (name.clone(), *codes[0].0)
        };
        self.addresses.iter().map(of_part).collect()
    }

    fn touch(&mut self) {
        self.victim.send("touch");
        self.victim.says("touched", SOON);
    }

    /// Names of the parts, old or fresh, of which `is_huge` holds by size and bytes on huge pages.
    fn huge(&self, fresh: bool, is_huge: fn(Bytes, Bytes) -> bool) -> Vec<String> {
        let areas = smaps(self.victim.pid());
        let is_huge = |&(old, new): &(u64, u64)| {
            let start = if fresh { new } else { old };
            let area = areas.iter().find(|area| area.start == start).unwrap();
            is_huge(area.get("Size"), area.huge())
        };
        let huge = self.addresses.iter().filter(|(_, part)| is_huge(part));
        huge.map(|(name, _)| name.clone()).collect()
    }

    /// The same of the parts that are on huge pages as a whole.
    fn all_huge(&self, fresh: bool) -> Vec<String> {
        self.huge(fresh, |size, huge| huge == size)
    }

    /// Checks that exactly the parts for which khugepaged is pending become huge: at their first
    /// touch, and by khugepaged.
    #[track_caller]
    fn come_true(&mut self, settings: &Settings, codes: &Codes, case: &str) {
        let pending = pending(codes);
        self.touch();
        assert_eq!(self.all_huge(true), pending, "first touch, {case}");
        settings.set("khugepaged/pages_to_scan", "1000000");
        settings.set("khugepaged/scan_sleep_millisecs", "10");
        let until = Instant::now() + FULL_SCANS;
        while self.all_huge(false) != pending && Instant::now() < until {
            self.touch();
            sleep(Duration::from_millis(50));
        }
        // Time for khugepaged to refute the others.
        for _ in 0..4 {
            sleep(Duration::from_millis(50));
            self.touch();
        }
        assert_eq!(self.all_huge(false), pending, "khugepaged, {case}");
        for fresh in [false, true] {
            assert_eq!(self.huge(fresh, |_, huge| huge > Bytes::ZERO), pending, "{case}");
        }
    }
}

/// Settings, and the reasons of plain and advised private memory, and of both kinds of shared
/// memory.
pub(crate) type Case = (&'static [(&'static str, &'static str)], [Code; 4]);

const OWN: &str = "hugepages-2048kB/enabled";
pub(crate) const OWN_SHMEM: &str = "hugepages-2048kB/shmem_enabled";
const PENDING: Code = Code::KhugepagedPending;
pub(crate) const CASES: [Case; 10] = [
    (&[("enabled", "always")], [PENDING, PENDING, Code::ShmemNever, Code::ShmemNever]),
    (&[("enabled", "madvise")], [Code::NotAdvised, PENDING, Code::ShmemNever, Code::ShmemNever]),
    (&[("enabled", "never")], [Code::ThpNever, Code::ThpNever, Code::ShmemNever, Code::ShmemNever]),
    (
        &[("enabled", "never"), (OWN, "always")],
        [PENDING, PENDING, Code::ShmemNever, Code::ShmemNever],
    ),
    (
        &[("enabled", "always"), (OWN, "madvise"), ("shmem_enabled", "always")],
        [Code::NotAdvised, PENDING, PENDING, PENDING],
    ),
    (
        &[("enabled", "always"), (OWN, "never")],
        [Code::ThpNever, Code::ThpNever, Code::ShmemNever, Code::ShmemNever],
    ),
    (
        &[("enabled", "always"), ("shmem_enabled", "advise")],
        [PENDING, PENDING, Code::ShmemNotAdvised, PENDING],
    ),
    (
        &[("enabled", "madvise"), ("shmem_enabled", "always"), (OWN_SHMEM, "never")],
        [Code::NotAdvised, PENDING, Code::ShmemNever, Code::ShmemNever],
    ),
    (
        &[("enabled", "madvise"), (OWN_SHMEM, "within_size")],
        [Code::NotAdvised, PENDING, PENDING, PENDING],
    ),
    (
        &[("enabled", "madvise"), ("shmem_enabled", "deny"), (OWN_SHMEM, "always")],
        [Code::NotAdvised, PENDING, Code::ShmemNever, Code::ShmemNever],
    ),
];

/// Settings from which each case starts: those of a usual kernel, except that the first touch
/// compacts memory, and that khugepaged, which every change of a setting wakes, scans one step.
pub(crate) fn usual(settings: &Settings) {
    make_room();
    for (name, word) in [
        ("enabled", "madvise"),
        ("shmem_enabled", "never"),
        (OWN, "inherit"),
        (OWN_SHMEM, "inherit"),
        ("defrag", "always"),
        ("khugepaged/max_ptes_none", "511"),
        ("khugepaged/pages_to_scan", "1"),
        ("khugepaged/scan_sleep_millisecs", "60000"),
    ] {
        if settings.has(name) {
            settings.set(name, word);
        }
    }
}

#[test]
fn the_reason_under_every_setting_comes_true() {
    requires!(possible());
    let settings = Settings::now();
    for (changes, [plain, advised, shared, shared_advised]) in CASES {
        if !changes.iter().all(|(name, _)| settings.has(name)) {
            eprintln!("omitted, because the kernel lacks a setting: {changes:?}");
            continue;
        }
        usual(&settings);
        for (name, word) in changes {
            settings.set(name, word);
        }
        let mut parts = Parts::of("thp.c", &[]).expect("no need");
        let found = parts.codes();
        let expected = codes([
            ("plain", plain),
            ("advised", advised),
            ("refused", Code::Nohugepage),
            ("locked", plain),
            ("shared", shared),
            ("shared_advised", shared_advised),
            ("small", Code::TooSmall),
        ]);
        assert_eq!(found, expected, "{changes:?}");
        parts.come_true(&settings, &found, &format!("{changes:?}"));
    }
}

#[test]
fn a_process_that_disabled_thp_stays_on_base_pages() {
    requires!(possible());
    let settings = Settings::now();
    usual(&settings);
    settings.set("enabled", "always");
    settings.set("shmem_enabled", "always");
    for (mode, plain, advised) in [
        ("disabled", Code::ThpDisabled, Code::ThpDisabled),
        ("advised_only", Code::NotEligible, PENDING),
    ] {
        let Some(mut parts) = Parts::of("thp.c", &[mode]) else {
            eprintln!("omitted, because the kernel lacks PR_THP_DISABLE_EXCEPT_ADVISED");
            continue;
        };
        let codes = parts.codes();
        for name in ["plain", "locked", "shared"] {
            assert_eq!(codes[name], plain, "{mode} {name}");
        }
        for name in ["advised", "shared_advised"] {
            assert_eq!(codes[name], advised, "{mode} {name}");
        }
        parts.come_true(&settings, &codes, mode);
    }
}

#[test]
fn shared_memory_is_aligned_once_its_setting_allows_huge_pages() {
    requires!(possible());
    let settings = Settings::now();
    usual(&settings);
    for (word, code) in [("never", Some(Code::ShmemNever)), ("always", None)] {
        settings.set("shmem_enabled", word);
        let victim = Victim::c("shared.c", &[]);
        let start = victim.ready(SOON).memory.start.get();
        let report = status(victim.pid());
        let reasons = &at(&report, start).sizes.kernel_reason_bytes;
        assert_eq!(reasons.keys().next(), code.as_ref(), "{word}: {reasons:?}");
        let huge = huge_at(victim.pid(), start);
        assert_eq!(huge > Bytes::ZERO, word == "always", "{word}: {huge}");
    }
}

#[test]
fn a_file_of_a_tmpfs_follows_its_mount() {
    requires!(possible());
    let settings = Settings::now();
    usual(&settings);
    for (word, plain, advised) in [
        ("never", Code::TmpfsNever, Code::TmpfsNever),
        ("advise", Code::TmpfsNotAdvised, PENDING),
        ("always", PENDING, PENDING),
    ] {
        let mut parts = Parts::of("tmpfs.c", &[word]).expect("no need");
        let found = parts.codes();
        assert_eq!(found, codes([("plain", plain), ("advised", advised)]), "{word}");
        parts.touch();
        assert_eq!(parts.all_huge(true), pending(&found), "{word}");
    }
}

/// The mapping of `layout.c` that starts there.
fn at(report: &StatusReport, start: u64) -> &MappingStatus {
    report.mappings.iter().find(|mapping| mapping.range.start.get() == start).unwrap()
}

fn huge_at(pid: u32, start: u64) -> Bytes {
    smaps(pid).iter().find(|area| area.start == start).map(Area::huge).unwrap()
}

#[test]
fn the_first_line_names_the_setting_and_what_tune_can_do() {
    requires!(possible());
    let settings = Settings::now();
    for (word, code, said) in [
        ("always", PENDING, "khugepaged has not collapsed the memory yet; it scans"),
        ("madvise", Code::NotAdvised, "THP is madvise and the program did not ask; tune may"),
        ("never", Code::ThpNever, "THP is never; tune may promote "),
    ] {
        usual(&settings);
        settings.set("enabled", word);
        let (victim, _) = layout();
        let report = status(victim.pid());
        assert_eq!(report.thp.enabled.map(|word| word.to_string()).as_deref(), Some(word));
        let (main, outlook) = match &report.summary {
            StatusSummary::KernelMayPromote { main, .. } => (main, Outlook::MayPromote),
            StatusSummary::KernelWillNotPromote { main, .. } => (main, Outlook::WillNot),
            other => panic!("{word}: {other:?}"),
        };
        assert_eq!((main.reason.code(), main.reason.outlook()), (code, outlook));
        assert_eq!(outlook == Outlook::MayPromote, word == "always");
        let text = String::from_utf8(run(victim.pid(), "")).unwrap();
        let first = text.lines().next().unwrap_or_default().to_owned();
        assert!(first.contains("0B of ") && first.contains(said), "{first}");
    }
}

#[test]
fn doctor_names_the_settings_that_hurt_and_its_help_ends_that() {
    requires!(possible());
    let settings = Settings::now();
    usual(&settings);
    settings.set("defrag", "madvise");
    settings.set("khugepaged/max_ptes_none", "0");
    let risks = || -> Vec<(String, Vec<String>)> {
        let output = Command::new(HUGEPILOT).args(["doctor", "--json"]).output().unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let risks = report["risks"].as_array().expect("a list").iter();
        let words = |help: &serde_json::Value| serde_json::from_value(help.clone()).unwrap();
        risks
            .map(|risk| (risk["code"].as_str().unwrap().to_owned(), words(&risk["help"])))
            .collect()
    };
    assert_eq!(risks(), []);
    for (name, word, code) in [
        ("defrag", "always", "faults_compact"),
        ("khugepaged/max_ptes_none", "511", "freed_memory_refills"),
        ("khugepaged/scan_sleep_millisecs", "0", "scans_without_pause"),
        ("hugepages-64kB/enabled", "always", "smaller_pages"),
    ] {
        if !settings.has(name) {
            continue;
        }
        settings.set(name, word);
        let found = risks();
        let [(found, help)] = &found[..] else { panic!("{name}: {found:?}") };
        assert_eq!(found, code);
        for line in help {
            let ended = Command::new("sh").args(["-c", &line.replace("sudo ", "")]).output();
            assert!(ended.unwrap().status.success(), "{line}");
        }
        assert_eq!(risks(), [], "{help:?}");
    }
}

#[test]
fn a_region_with_more_holes_than_khugepaged_allows_is_not_collapsed() {
    requires!(possible());
    let settings = Settings::now();
    usual(&settings);
    settings.set("enabled", "always");
    settings.set("khugepaged/max_ptes_none", "64");
    // 16 of the 512 pages of `sparse` are resident.
    let (victim, parts) = layout();
    let report = status(victim.pid());
    let code = |name: &str| at(&report, parts[name]).sizes.kernel_reason_bytes.keys().next();
    assert_eq!(code("sparse"), Some(&Code::MaxPtesNone));
    assert_eq!(code("filled"), Some(&PENDING));
    settings.set("khugepaged/pages_to_scan", "1000000");
    settings.set("khugepaged/scan_sleep_millisecs", "10");
    sleep(Duration::from_millis(500));
    assert_eq!(huge_at(victim.pid(), parts["sparse"]), Bytes::ZERO);
}

#[test]
fn memory_on_large_pages_below_a_huge_page_is_counted() {
    const SIZE: &str = "hugepages-64kB";
    requires!(possible());
    let settings = Settings::now();
    usual(&settings);
    let count = || -> Option<u64> {
        fs::read_to_string(format!("{THP}/{SIZE}/stats/nr_anon")).ok()?.trim().parse().ok()
    };
    requires!(count().map(|_| ()).ok_or("no counters of large pages"));
    settings.set(&format!("{SIZE}/enabled"), "always");
    let before = count().unwrap();
    let mut victim = Victim::c("blocked.c", &["plain", "64", "huge"]);
    victim.ready(SOON);
    let made = Bytes::kib(64).times(count().unwrap() - before);
    let found = status(victim.pid()).large_page_bytes.expect("root");
    assert!(made > Bytes::mib(32), "{made}");
    let difference = found.get().abs_diff(made.get());
    assert!(difference < Bytes::mib(4).get(), "{found} by status, {made} by the kernel");
    assert!(victim.finish(SOON).success());
}
