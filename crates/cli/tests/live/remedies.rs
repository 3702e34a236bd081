//! Help lines: the reason is there, the command or setting of the help is applied, and the reason
//! is gone.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use hugepilot_record::SkipReason;
use hugepilot_reports::status::StatusReport;
use hugepilot_testkit::{Need, Ready, Victim, compiled, make_room, need, requires};
use hugepilot_units::Bytes;
use serde_json::Value;

use crate::cgroup::Cgroup;
use crate::look::{huge_map, tunable};
use crate::reasons::{CASES, OWN_SHMEM, Parts, Settings, run, usual};
use crate::tool::{HUGEPILOT, hugepilot};
use crate::workload::SOON;

const KSM: &str = "/sys/kernel/mm/ksm";

pub(crate) fn possible() -> Need {
    need::all([need::live(), need::c_compiler(), need::root(), tunable()])
}

/// Share of the memory of a victim that is on huge pages.
#[allow(clippy::cast_precision_loss)]
fn huge_share(ready: &Ready) -> f64 {
    let pid = ready.rest[0].parse().expect("a process number");
    let huge = huge_map(pid, ready.memory);
    huge.iter().filter(|&&huge| huge).count() as f64 / huge.len() as f64
}

/// Waits until `happened`, at most a while.
fn comes(mut happened: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + SOON;
    while !happened() {
        if Instant::now() > until {
            return false;
        }
        sleep(Duration::from_millis(100));
    }
    true
}

#[track_caller]
fn skips(pid: u32) -> Vec<SkipReason> {
    let pid = pid.to_string();
    let status: StatusReport =
        hugepilot(["status", "--json", "--no-contents", "-p", &pid]).exits(0).json();
    status.skips.iter().map(|share| share.code).collect()
}

/// `run --pages thp`: for missing advice.
#[test]
fn a_program_that_run_starts_has_huge_pages() {
    requires!(possible());
    let mut command = Command::new(HUGEPILOT);
    command.args(["run", "--pages", "thp", "--"]).arg(compiled(Path::new("blocked.c")));
    command.args(["plain", "64", "huge"]);
    let mut victim = Victim::spawn(command);
    let ready = victim.ready(SOON);
    assert!(comes(|| huge_share(&ready) > 0.9), "{}", huge_share(&ready));
    assert!(victim.finish(SOON).success());
}

/// `enabled=always` and a new start: for locked and pinned memory, and memory that a fork shares.
#[test]
fn the_setting_gives_a_program_huge_pages_from_the_first_touch() {
    requires!(possible());
    let settings = Settings::now();
    settings.set("enabled", "always");
    for kind in ["locked", "forked", "pinned"] {
        make_room();
        let mut victim = Victim::c("blocked.c", &[kind, "64", "huge"]);
        let ready = victim.ready(SOON);
        assert!(huge_share(&ready) > 0.8, "{kind}: {}", huge_share(&ready));
        assert!(victim.finish(SOON).success(), "{kind}");
    }
}

/// A setting of KSM, restored on drop; merged memory is taken apart.
struct Ksm(Vec<(&'static str, String)>);

impl Ksm {
    fn start() -> Option<Self> {
        let names = ["pages_to_scan", "sleep_millisecs", "run"];
        let read = |name| fs::read_to_string(format!("{KSM}/{name}")).ok().map(|text| (name, text));
        let before = names.map(read).into_iter().collect::<Option<Vec<_>>>()?;
        let own = Self(before);
        for (name, value) in [("pages_to_scan", "20000"), ("sleep_millisecs", "10"), ("run", "1")] {
            fs::write(format!("{KSM}/{name}"), value).ok()?;
        }
        Some(own)
    }
}

impl Drop for Ksm {
    fn drop(&mut self) {
        let _ = fs::write(format!("{KSM}/run"), "2");
        for (name, value) in &self.0 {
            let _ = fs::write(format!("{KSM}/{name}"), value.trim());
        }
    }
}

/// `ksm/run` 2 takes merged memory apart.
#[test]
fn memory_that_ksm_merged_is_named_and_eligible_afterwards() {
    requires!(possible());
    let ksm = Ksm::start();
    requires!(ksm.is_some().then_some(()).ok_or("no KSM"));
    let mut victim = Victim::c("blocked.c", &["merged", "64"]);
    let line = victim.line(SOON).expect("a first line");
    requires!(line.starts_with("ready").then_some(()).ok_or("no PR_SET_MEMORY_MERGE"));
    let merged = comes(|| skips(victim.pid()).first() == Some(&SkipReason::Merged));
    assert!(merged, "{:?}", skips(victim.pid()));
    fs::write(format!("{KSM}/run"), "2").expect("root may set it");
    let gone = comes(|| !skips(victim.pid()).contains(&SkipReason::Merged));
    assert!(gone, "{:?}", skips(victim.pid()));
    assert!(victim.finish(SOON).success());
}

/// `run --pages thp` clears `PR_SET_THP_DISABLE`.
#[test]
fn a_flag_of_an_ancestor_does_not_reach_a_program_that_run_starts() {
    requires!(possible());
    let program = compiled(Path::new("blocked.c"));
    let mut command = Command::new(compiled(Path::new("blocked.c")));
    command.args(["launcher", HUGEPILOT, "run", "--pages", "thp", "--"]).arg(program);
    command.args(["plain", "64", "huge"]);
    let mut victim = Victim::spawn(command);
    let ready = victim.ready(SOON);
    assert!(comes(|| huge_share(&ready) > 0.9), "{}", huge_share(&ready));
    assert!(victim.finish(SOON).success());
}

/// Reasons of the kernel for memory of a process, each with its help.
fn advised(pid: u32) -> Vec<(String, Vec<String>)> {
    let report: Value = serde_json::from_slice(&run(pid, "--json --no-contents")).expect("JSON");
    let reasons = report["kernel_reasons"].as_array().expect("a list").iter();
    let reason = |share: &Value| {
        let help = share["reason"]["help"].clone();
        let code = share["reason"]["code"].as_str().expect("a code").to_owned();
        (code, serde_json::from_value(help).unwrap_or_default())
    };
    reasons.map(reason).collect()
}

/// Runs the command of a help line, if it has one that needs no other start of the program.
pub(crate) fn run_command(help: &str) -> bool {
    let commands = ["echo ", "sudo mount ", "sudo nsenter "];
    let Some(at) = commands.iter().find_map(|begin| help.find(begin)) else { return false };
    let line = help[at..].replace("sudo ", "");
    let ran = Command::new("sh").args(["-c", &line]).output().expect("sh starts");
    assert!(ran.status.success(), "{line}: {ran:?}");
    true
}

/// Each command of a reason of the kernel, under each setting.
#[test]
fn each_setting_of_a_help_line_ends_its_reason() {
    requires!(possible());
    let settings = Settings::now();
    let holes: &[_] = &[("enabled", "always"), ("khugepaged/max_ptes_none", "64")];
    let cases = CASES.iter().map(|(changes, _)| ("thp.c", "", *changes));
    let force: &[_] = &[("shmem_enabled", "force"), (OWN_SHMEM, "never")];
    let cases = cases.chain([("layout.c", "", holes), ("thp.c", "", force)]);
    let cases = cases.chain(["never", "advise"].map(|word| ("tmpfs.c", word, &[][..])));
    let mut tried = BTreeSet::new();
    for (source, word, changes) in cases {
        let begin = || {
            usual(&settings);
            changes.iter().for_each(|(name, word)| settings.set(name, word));
        };
        if !changes.iter().all(|(name, _)| settings.has(name)) {
            continue;
        }
        begin();
        let args: Vec<&str> = [word].into_iter().filter(|word| !word.is_empty()).collect();
        let Parts { victim, .. } = Parts::of(source, &args).expect("no need");
        for (code, help) in advised(victim.pid()) {
            for line in help {
                if run_command(&line) {
                    let left = advised(victim.pid());
                    let is_gone = left.iter().all(|(other, _)| *other != code);
                    assert!(is_gone, "{changes:?}, {line}: {left:?}");
                    tried.insert(line);
                    begin();
                }
            }
        }
    }
    let table = include_str!("../remedies.txt");
    let own =
        table.split("## live::remedies::each_setting_of_a_help_line_ends_its_reason\n").nth(1);
    let rows = own.expect("a section").lines().take_while(|line| !line.is_empty());
    for row in rows {
        let pattern = regex::escape(row).replace("NAME", r"\S+").replace('N', r"\d+");
        let pattern = regex::Regex::new(&format!("^{pattern}$")).expect("a pattern");
        assert!(tried.iter().any(|line| pattern.is_match(line)), "{row} was not tried: {tried:#?}");
    }
}

#[test]
fn a_larger_limit_of_its_cgroup_makes_memory_eligible() {
    requires!(need::all([possible(), need::cgroup_memory()]));
    let group = Cgroup::new(Bytes::mib(132));
    let mut command = group.command(&compiled(Path::new("blocked.c")));
    command.args(["plain", "128"]);
    let mut victim = Victim::spawn(command);
    victim.ready(SOON);
    assert!(skips(victim.pid()).contains(&SkipReason::CgroupHeadroom), "{:?}", skips(victim.pid()));
    let files = ["memory.limit_in_bytes", "memory.max"].map(|name| group.path().join(name));
    let file = files.iter().find(|file| file.exists()).expect("a limit");
    fs::write(file, Bytes::gib(1).get().to_string()).expect("a larger limit");
    assert!(!skips(victim.pid()).contains(&SkipReason::CgroupHeadroom));
    assert!(victim.finish(SOON).success());
}

/// khugepaged would refill what `debloat` freed.
#[test]
fn freed_memory_stays_free_with_the_setting_of_the_help() {
    requires!(possible());
    let settings = Settings::now();
    usual(&settings);
    settings.set("enabled", "always");
    let mut victim = Victim::c("bloated.c", &["64", "5", "advised"]);
    victim.ready(SOON);
    let risk = || -> Value {
        let pid = victim.pid().to_string();
        let mut command = Command::new(HUGEPILOT);
        command.args(["debloat", "--dry-run", "--json", "-p", &pid]);
        let report: Value =
            serde_json::from_slice(&command.output().expect("it starts").stdout).expect("JSON");
        let warnings = report["warnings"].as_array().expect("a list").iter();
        let risk = warnings.into_iter().find(|warning| warning["code"] == "recollapse_risk");
        risk.cloned().unwrap_or_default()
    };
    let help: Vec<String> = serde_json::from_value(risk()["help"].clone()).expect("a risk");
    assert!(help.iter().any(|line| run_command(line)), "{help:?}");
    assert_eq!(risk(), Value::Null);
    assert!(victim.finish(SOON).success());
}
