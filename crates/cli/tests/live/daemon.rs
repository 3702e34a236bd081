//! `daemon`: memory use stays between the watermarks, and no program is harmed.

mod log; // what it logs, and errors

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, thread};

use hugepilot_reports::daemon::{DaemonLine, Event, Promoted, ReloadError, Totals};
use hugepilot_reports::tune::TrialVerdict;
use hugepilot_testkit::{Victim, compiled, need, requires};
use hugepilot_units::{Bytes, Share};
use rustix::process::Signal;

use crate::cgroup::Cgroup;
use crate::look::{huge_now, ticks, total, tunable};
use crate::quality::GAIN;
use crate::tool::{HUGEPILOT, Running, hugepilot};
use crate::workload::{SOON, Workload};

/// Memory limit of the cgroups of these tests.
const LIMIT: Bytes = Bytes::mib(600);

/// A running daemon and its log.
struct Daemon {
    running: Running,
    log: tempfile::TempDir,
}

impl Daemon {
    /// Watches `group` at a short interval, with the words of `more`.
    #[track_caller]
    fn start(group: &Cgroup, more: &str) -> Self {
        Self::with(
            &["--cgroup", group.path().to_str().expect("a path of ours"), "--interval", "200ms"],
            more,
        )
    }

    #[track_caller]
    fn with(args: &[&str], more: &str) -> Self {
        let log = tempfile::tempdir().expect("a temporary folder");
        let mut command = Command::new("sh");
        command
            .args(["-c", r#"log="$1" && shift && exec "$@" > "$log""#, "sh"])
            .arg(log.path().join("log"));
        command.args([HUGEPILOT, "daemon"]).args(args).args(more.split_whitespace());
        let mut daemon = Self { running: Running::start(command), log };
        daemon.until("the start", |event| matches!(event, Event::Started { .. }));
        daemon
    }

    /// Returns all complete lines.
    fn lines(&self) -> Vec<DaemonLine> {
        lines(&self.log.path().join("log"))
    }

    #[track_caller]
    fn until(&mut self, what: &str, happened: impl Fn(&Event) -> bool) {
        let log = self.log.path().join("log");
        self.running.until(what, || lines(&log).iter().any(|line| happened(&line.event)));
    }

    /// Stops it, and returns its log and totals.
    #[track_caller]
    fn stop(self, signal: Signal) -> (Vec<DaemonLine>, Totals) {
        self.running.signal(signal);
        let asked = Instant::now();
        self.running.wait(Duration::from_secs(5)).exits(0);
        assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
        let lines = lines(&self.log.path().join("log"));
        match lines.last().expect("a log").event {
            Event::Stopped(totals) => (lines, totals),
            ref other => panic!("{other:?}"),
        }
    }
}

fn lines(log: &Path) -> Vec<DaemonLine> {
    let text = fs::read_to_string(log).unwrap_or_default();
    let complete = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    complete
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

fn in_group(group: &Cgroup, victim: &str, args: &[&str]) -> Victim {
    let mut command = group.command(&compiled(Path::new(victim)));
    command.args(args);
    Victim::spawn(command)
}

/// Program with 200 huge pages, four fifths of them zero-filled: 400 MiB, of which 80 are used.
fn bloated(group: &Cgroup, how: &str) -> Victim {
    let victim = in_group(group, "bloated.c", &["200", "5", how]);
    victim.ready(SOON);
    assert_eq!(huge_now(victim.pid()), Bytes::mib(400), "huge pages are available");
    victim
}

/// Runs a program that allocates 350 MiB, `rate` MiB a second, beside a bloated one: both need
/// 430 MiB of 600, and would allocate 750. Returns whether each succeeded.
fn grow_beside(group: &Cgroup, rate: &str) -> [bool; 2] {
    let mut victim = bloated(group, "busy");
    let mut grower = in_group(group, "grower.c", &["350", rate]);
    grower.ready(SOON);
    grower.send("go");
    let grown = grower.wait(Duration::from_secs(60)).success();
    let fine = victim.finish(SOON).success();
    for (fine, victim) in [(grown, &grower), (fine, &victim)] {
        // Its checks succeeded.
        assert!(
            !fine || std::iter::from_fn(|| victim.line(SOON)).any(|line| line.starts_with("ok"))
        );
    }
    [grown, fine]
}

#[test]
fn a_program_that_grows_beside_a_bloated_one_needs_the_daemon() {
    requires!(need::live());
    requires!(need::c_compiler());
    requires!(need::cap_sys_nice());
    requires!(need::cgroup_memory());
    requires!(need::memory(Bytes::gib(2)));
    let group = Cgroup::new(LIMIT);
    // No rate is slow enough without it.
    let without = grow_beside(&group, "500");
    assert!(without.contains(&false), "memory is sufficient without the daemon");

    let group = Cgroup::new(LIMIT);
    let daemon = Daemon::start(&group, "--cpu 50%");
    let ends = grow_beside(&group, "100");
    let (lines, totals) = daemon.stop(Signal::TERM);
    assert_eq!(ends, [true, true], "{lines:#?}");
    let most = lines.iter().map(|line| line.memory.use_ratio).fold(0.0, f64::max);
    eprintln!(
        "complete without it: {without:?}, with it: {ends:?}; most in use {most:.3}, {totals:?}"
    );
    assert!(totals.freed_bytes >= Bytes::mib(150), "{lines:#?}");
    assert!(lines.iter().any(|line| matches!(line.event, Event::Idle(_))), "{lines:#?}");
}

#[test]
fn use_falls_below_the_low_watermark_and_no_further() {
    requires!(need::live());
    requires!(need::c_compiler());
    requires!(need::cap_sys_nice());
    requires!(need::cgroup_memory());
    let group = Cgroup::new(LIMIT);
    let mut victim = bloated(&group, "busy");
    let mut daemon = Daemon::start(&group, "--high 50% --low 40% --order exact");
    daemon.until("the low watermark", |event| matches!(event, Event::Idle(_)));
    let (lines, totals) = daemon.stop(Signal::INT);
    let idle = lines
        .iter()
        .find(|line| matches!(line.event, Event::Idle(_)))
        .expect("the daemon reached it");
    // The kernel accounts in batches of some hundred KiB.
    assert!((0.39..0.40).contains(&idle.memory.use_ratio), "{lines:#?}");
    let freed = Bytes::mib(400) - total(victim.pid(), "Rss");
    assert!(
        totals.freed_bytes.ratio_of(freed) > 0.95 && totals.freed_bytes.ratio_of(freed) < 1.1,
        "{totals:?} {freed}"
    );
    assert_eq!(
        huge_now(victim.pid()),
        Bytes::mib(400) - Bytes::mib(2).times(totals.huge_pages_split)
    );
    // 10 % of a core, one second saved, and the start itself.
    assert!(totals.cpu_seconds < 1.0 + 0.1 * totals.seconds + 0.1, "{totals:?}");
    assert!(victim.finish(SOON).success());
}

#[test]
fn a_cgroup_near_its_limit_is_relieved_though_the_machine_has_memory() {
    requires!(need::live());
    requires!(need::c_compiler());
    requires!(need::cap_sys_nice());
    requires!(need::cgroup_memory());
    requires!(need::memory(Bytes::gib(8)));
    let group = Cgroup::new(Bytes::mib(450));
    let mut victim = bloated(&group, "busy");
    let mut daemon = Daemon::with(&["--interval", "200ms", "--order", "exact"], "");
    daemon.until("the low watermark", |event| matches!(event, Event::Idle(_)));
    let (lines, _) = daemon.stop(Signal::TERM);
    let idle = lines.iter().find(|line| matches!(line.event, Event::Idle(_))).expect("it came");
    assert_eq!(idle.cgroup.as_deref(), group.path().to_str(), "{lines:#?}");
    assert_eq!(idle.memory.limit_bytes, Bytes::mib(450), "{lines:#?}");
    assert!(huge_now(victim.pid()) < Bytes::mib(300), "{lines:#?}");
    assert!(victim.finish(SOON).success());
}

#[test]
fn an_idle_daemon_costs_next_to_nothing_and_reads_its_configuration_again() {
    requires!(need::live());
    requires!(need::cgroup_memory());
    requires!(need::cap_sys_nice());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = folder.path().join("daemon.toml");
    fs::write(&config, "high = \"98%\"\nlow = \"97%\"\ncritical = \"99%\"\n")
        .expect("our own file");
    let mut daemon = Daemon::with(&["--config", config.to_str().expect("a path of ours")], "");
    let in_a_second = |_| {
        let (before, begun) = (ticks(daemon.running.pid()), Instant::now());
        thread::sleep(Duration::from_secs(1));
        (ticks(daemon.running.pid()) - before) as f64 / 100.0 / begun.elapsed().as_secs_f64()
    };
    // One of three seconds: the start and other work on the machine can cost ticks of the clock.
    let spent = (0..3).map(in_a_second).fold(f64::INFINITY, f64::min);
    assert!(spent < 0.01, "{spent} of a core while idle");

    fs::write(&config, "high = \"99%\"\nlow = \"97%\"\ncritical = \"100%\"\n")
        .expect("our own file");
    daemon.running.signal(Signal::HUP);
    daemon.until("the new configuration", |event| matches!(event, Event::Reloaded { error: None }));
    fs::write(&config, "high = \"99%\"\nlow = 5\n").expect("our own file");
    daemon.running.signal(Signal::HUP);
    daemon.until("the error", |event| matches!(event, Event::Reloaded { error: Some(_) }));
    let (lines, totals) = daemon.stop(Signal::TERM);
    assert!(
        lines.iter().skip(1).all(|line| line.memory.high_ratio == Share::percent(99.0)),
        "{lines:#?}"
    );
    assert!(lines.iter().any(|line| {
        matches!(&line.event, Event::Reloaded { error: Some(ReloadError::Config { error }) }
            if error.contains("daemon.toml:2: low: found 5"))
    }));
    assert_eq!(totals.huge_pages_split, 0);
}

/// Runs one pass of the daemon with `flags` on a busy program of this size. Returns the program and
/// the event of its promotion.
fn promoted_in_a_pass(size: Bytes, flags: &[&str]) -> (Workload, Option<Promoted>) {
    let hot_set = format!("hot-set --footprint {size} --hot {size} --pattern gather");
    let workload = Workload::start(&hot_set);
    let marks =
        ["daemon", "--once", "--cpu", "100%", "--high", "97%", "--low", "95%", "--critical", "98%"];
    let done = hugepilot(marks.iter().chain(flags));
    let text = done.exits(0).out();
    let lines = text.lines().map(|line| serde_json::from_str::<DaemonLine>(line).unwrap());
    let promoted = lines.into_iter().find_map(|line| match line.event {
        Event::Promoted(promoted) if promoted.pid.0.unsigned_abs() == workload.pid() => {
            Some(promoted)
        }
        _ => None,
    });
    eprintln!("{promoted:?}");
    let huge = promoted.as_ref().map_or(Bytes::ZERO, |promoted| promoted.promoted_bytes);
    assert_eq!(huge_now(workload.pid()), huge, "{text}");
    (workload, promoted)
}

/// The journal explains and undoes the promotions, and the recording reports them.
#[test]
fn a_program_is_promoted_by_a_rule() {
    requires!(tunable());
    requires!(need::memory(Bytes::gib(2)));
    let uncalibrated = ["--calibration", "off"];
    let folder = tempfile::tempdir().unwrap();
    let [config, journal, recording] = ["daemon.toml", "daemon.ndjson", "daemon.rec"]
        .map(|name| folder.path().join(name).display().to_string());
    // A policy without a trial promotes whatever the CPU gains.
    let rule = "[[rule]]\ncommand = \"hugepilot\"\npromote = \"allow\"\npolicy = \"all\"\n";
    fs::write(&config, rule).unwrap();
    let flags = ["--config", &config, "--journal", &journal, "--record", &recording];
    let (workload, promoted) =
        promoted_in_a_pass(Bytes::mib(256), &[&uncalibrated, &flags[..]].concat());
    let promoted = promoted.expect("a rule permits it");
    assert!(promoted.trial.is_none(), "{promoted:?}");
    assert!(promoted.promoted_bytes >= Bytes::mib(200), "{promoted:?}");
    let explained = hugepilot(["explain", &journal]).exits(0).out();
    assert!(explained.contains("decisions reproduced"), "{explained}");
    let report = hugepilot(["report", &recording]);
    let shown = [
        "Rounds, a row for each process",
        "Log of the daemon",
        "Heat by address and time",
        "Phases between rounds that changed pages",
    ];
    report.exits(0).shows(&shown);
    let csv = hugepilot(["report", &recording, "--format", "csv"]).exits(0).out();
    let cells = csv.lines().filter_map(|line| line.split_once(",promoted,")?.1.split_once(','));
    let regions: f64 = cells.filter_map(|(count, _)| count.parse::<f64>().ok()).sum();
    assert!(regions * 2097152.0 >= promoted.promoted_bytes.as_f64(), "{csv}");
    hugepilot(["tune", "--undo", &journal]).exits(0);
    assert_eq!(huge_now(workload.pid()), Bytes::ZERO);
}

#[test]
fn a_program_with_a_gain_in_its_trial_is_promoted() {
    requires!(tunable());
    requires!(need::memory(Bytes::gib(2)));
    requires!(need::gain(GAIN));
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("daemon.ndjson").display().to_string();
    let (_workload, promoted) =
        promoted_in_a_pass(Bytes::mib(768), &["--promote", "hugepilot", "--journal", &journal]);
    let promoted = promoted.expect("a rule permits it");
    assert_eq!(promoted.trial.map(|trial| trial.verdict), Some(TrialVerdict::Gain));
    assert!(promoted.promoted_bytes >= Bytes::mib(600), "{promoted:?}");
    let explained = hugepilot(["explain", &journal]).exits(0).out();
    assert!(explained.contains("trial → spread"), "{explained}");
}
