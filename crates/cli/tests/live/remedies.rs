//! Help lines: the reason is there, the command or setting of the help is applied, and the reason
//! is gone.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use hugepilot_record::SkipReason;
use hugepilot_record::status::StatusReport;
use hugepilot_testkit::{Need, Ready, Victim, compiled, make_room, need, requires};

use crate::look::{huge_map, tunable};
use crate::reasons::Settings;
use crate::tool::{HUGEPILOT, hugepilot};
use crate::workload::SOON;

const KSM: &str = "/sys/kernel/mm/ksm";

fn possible() -> Need {
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
