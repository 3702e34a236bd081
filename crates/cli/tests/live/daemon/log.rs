//! Log of the daemon, and its errors.

use std::fs::{self, File, OpenOptions};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use hugepilot_kernel::{ForkWatch, Target};
use hugepilot_record::{Pid, RecollapseCause, RecollapseRisk, ThpScope};
use hugepilot_reports::daemon::{DaemonLine, Event, ExclusionCause};
use hugepilot_testkit::{Victim, need, requires};
use hugepilot_units::Bytes;
use rustix::process::Signal;

use super::{Daemon, LIMIT, bloated, in_group};
use crate::cgroup::Cgroup;
use crate::look::{huge_now, tunable};
use crate::tool::{self, HUGEPILOT, Running, hugepilot};
use crate::workload::{SOON, open, picks};

#[test]
fn a_dry_run_and_a_protected_process_change_nothing() {
    requires!(need::live());
    requires!(need::c_compiler());
    requires!(need::cgroup_memory());
    let group = Cgroup::new(LIMIT);
    let mut victim = bloated(&group, "busy");
    let pid = victim.pid();
    let mut dry = Daemon::start(&group, "--high 50% --low 40% --dry-run");
    dry.until("a plan", |event| matches!(event, Event::WouldFree(_)));
    let (lines, totals) = dry.stop(Signal::TERM);
    assert!(totals.freed_bytes > Bytes::mib(150), "{lines:#?}");
    let mut other = Daemon::start(&group, &format!("--high 50% --low 40% --protect {pid}"));
    other.until("the protected one", |event| {
        matches!(event, Event::Skipped { pid: Pid(skipped), cause: ExclusionCause::Protected, .. }
            if skipped.unsigned_abs() == pid)
    });
    other.until("exhaustion", |event| matches!(event, Event::Exhausted { .. }));
    let (_, totals) = other.stop(Signal::TERM);
    assert_eq!(totals.huge_pages_split, 0);
    assert_eq!(huge_now(pid), Bytes::mib(400));
    assert!(victim.finish(SOON).success());
}

#[test]
fn recollapsed_regions_rest_and_are_logged() {
    requires!(need::live());
    requires!(need::c_compiler());
    requires!(need::cap_sys_nice());
    requires!(need::cgroup_memory());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = folder.path().join("daemon.toml");
    fs::write(
        &config,
        "cool_down = \"1s\"\nmax_recollapses = 2\norder = \"exact\"\ncpu = \"100%\"",
    )
    .expect("our own file");
    let group = Cgroup::new(LIMIT);
    let mut victim = bloated(&group, "advised");
    let process = open(victim.pid());
    let memory = process
        .mappings()
        .expect("mappings")
        .iter()
        .map(|m| m.range)
        .max_by_key(|range| range.len());
    let picks = picks(memory.expect("it has memory"));
    let is_huge = |region| process.region_pages(region).is_ok_and(|pages| pages.huge);
    let more = format!("--high 50% --low 40% --config {}", config.display());
    let mut daemon = Daemon::start(&group, &more);
    let is_excluded = |event: &Event| matches!(event, Event::Recollapsed { excluded: 1.., .. });
    let recollapsed = |line: &DaemonLine| is_excluded(&line.event);
    let until = Instant::now() + tool::LIMIT;
    while !daemon.lines().iter().any(recollapsed) {
        assert!(Instant::now() < until, "{:#?}", daemon.lines());
        // Re-collapse split regions, and leave the daemon time to split them.
        for pick in picks.iter().filter(|pick| !is_huge(pick.region)) {
            let _ = process.collapse(pick.region);
        }
        thread::sleep(Duration::from_millis(50));
    }
    daemon.until("exhaustion", |event| matches!(event, Event::Exhausted { .. } | Event::Idle(_)));
    let (lines, totals) = daemon.stop(Signal::TERM);
    assert!(totals.recollapses > 0 && totals.huge_pages_split <= 2 * 200, "{totals:?}");
    let cause = lines.iter().find_map(|line| match &line.event {
        Event::Recollapsed { cause, .. } => Some(*cause),
        _ => None,
    });
    let cause = cause.expect("a cause");
    let is_advised = matches!(
        cause,
        RecollapseCause::KhugepagedOrProgram(RecollapseRisk { thp_enabled: ThpScope::Madvise, .. })
    );
    assert!(is_advised, "{cause:?}");
    assert!(victim.finish(SOON).success());
}

#[test]
fn configuration_errors_have_a_cause() {
    requires!(need::live());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = folder.path().join("d.toml");
    fs::write(&config, "\nhihg = \"80%\"\n").expect("our own file");
    let config = config.to_str().expect("a path of ours");
    let daemon = |more: &[&str]| hugepilot(["daemon"].iter().chain(more));
    daemon(&["--config", config]).exits(2).says(&["d.toml:2: hihg", "allowed: cgroup, high, low"]);
    daemon(&["--config", "/none/d.toml"]).exits(2).says(&["cannot read /none/d.toml"]);
    daemon(&["--high", "50%"]).exits(2).says(&["high: found \"50%\"", "above low"]);
    let none = "cannot watch /none: there is no such cgroup";
    daemon(&["--cgroup", "/none"]).exits(2).says(&[none, "systemd-cgls"]);
    daemon(&["--config", "/none/d.toml"]).exits(2).says(&["--print-config"]);
    let printed = hugepilot(["daemon", "--print-config", "--low", "42%"]);
    assert!(printed.exits(0).out().contains("\nlow = \"42%\"\n"), "{printed:?}");
}

#[test]
fn a_cgroup_without_a_limit_is_refused() {
    requires!(need::live());
    requires!(need::cgroup_memory());
    let root = Path::new("/sys/fs/cgroup/memory");
    requires!(
        root.join("memory.limit_in_bytes")
            .exists()
            .then_some(())
            .ok_or("cgroup version 2 accounts nothing at its root")
    );
    let done = hugepilot(["daemon", "--cgroup", "/sys/fs/cgroup/memory"]);
    done.exits(2).says(&["no memory limit"]);
}

#[test]
fn a_full_disk_does_not_stop_the_daemon() {
    requires!(need::live());
    requires!(need::cap_sys_nice());
    let full: std::io::Result<File> = OpenOptions::new().write(true).open("/dev/full");
    requires!(full.as_ref().map_err(ToString::to_string));
    let mut command = Command::new("sh");
    command.args([
        "-c",
        r#"exec "$@" > /dev/full"#,
        "sh",
        HUGEPILOT,
        "daemon",
        "--high",
        "99%",
        "--critical",
        "100%",
    ]);
    let mut daemon = Running::start(command);
    daemon.until_it_says("cannot write the log");
    // It continues: the signal ends it.
    thread::sleep(Duration::from_millis(300));
    daemon.signal(Signal::TERM);
    daemon.wait(Duration::from_secs(5)).exits(0).says(&["cannot write the log"]);
}

/// The first two scans of the daemon, 3 s apart, would find the processes busy and promote them. No
/// reading finds a child that ends at once; the kernel's process connector reports it.
#[test]
fn processes_that_fork_are_skipped_with_the_cause() {
    requires!(need::all([tunable(), need::c_compiler(), need::cgroup_memory()]));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = folder.path().join("daemon.toml");
    fs::write(&config, "[[rule]]\npromote = \"allow\"\npolicy = \"all\"\n").expect("our own file");
    let group = Cgroup::new(LIMIT);
    let mut kinds = vec!["forking"];
    match ForkWatch::begin() {
        Some(_) => kinds.push("flashing"),
        None => hugepilot_testkit::skip(
            "daemon::log::processes_that_fork_are_skipped_with_the_cause",
            "a PID namespace: no forks are reported",
        ),
    }
    let start = |kind| {
        let victim = in_group(&group, "blocked.c", &[kind, "100"]);
        victim.ready(SOON);
        victim
    };
    let victims: Vec<Victim> = kinds.into_iter().map(start).collect();
    let flags = format!("--calibration off --cpu 100% --config {}", config.display());
    let mut daemon = Daemon::start(&group, &flags);
    for own in victims.iter().map(Victim::pid) {
        daemon.until("the cause", |event| {
            matches!(event, Event::Skipped { pid, cause: ExclusionCause::Forks { seen: true }, .. }
                if pid.0.unsigned_abs() == own)
        });
    }
    thread::sleep(Duration::from_secs(4));
    let (lines, totals) = daemon.stop(Signal::TERM);
    assert_eq!(totals.promoted_bytes, Bytes::ZERO, "{lines:#?}");
    for mut victim in victims {
        assert_eq!(huge_now(victim.pid()), Bytes::ZERO);
        assert!(victim.finish(SOON).success());
    }
}
