//! Unknown values are reported as unknown, and not as zero, gone, or nothing to gain.

use std::process::Command;

use hugepilot_record::Stop;
use hugepilot_reports::status::{StatusReport, StatusWarning};
use hugepilot_reports::tune::{NoVerdict, TuneWarning};
use hugepilot_testkit::{Need, Victim, need, requires};
use hugepilot_units::Bytes;
use rustix::process::{Pid, Signal, kill_process};

use crate::injected::strace;
use crate::look::{huge_now, tunable};
use crate::tool::{ANYWHERE, Done, HUGEPILOT, LIMIT, Running, hugepilot, tune, tune_args};
use crate::unprivileged::{Nobody, can_be_nobody};
use crate::workload::{HOT_SET, SOON, Workload};

/// Workload without regions to promote.
const SMALL: &str = "gups --footprint 64MiB --pages default";

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}

#[test]
fn a_stopped_target_has_memory_and_no_verdict() {
    requires!(need::all([need::live(), need::cap_perfmon()]));
    let workload = Workload::start(SMALL);
    signal(workload.pid(), Signal::STOP);
    let done = tune(workload.pid(), "--observe 300ms --for 300ms");
    let continues = format!("kill -CONT {}", workload.pid());
    let report = done.exits(3).says(&["no verdict", "stopped", &continues]).report();
    let (plan, acts, forecast) = (&report.plan, &report.acts, &report.forecast);
    assert!(plan.footprint_bytes > Some(Bytes::mib(64)), "{done:?}");
    assert!(plan.budget_bytes.is_none() && acts.huge_bytes_after.is_some(), "{done:?}");
    assert!(matches!(report.no_verdict, Some(NoVerdict::TargetStopped { .. })), "{done:?}");
    let unknown = (plan.eligible_regions, forecast.coverage_ratio, acts.last_promotion_seconds);
    assert_eq!(unknown, (None, None, None), "{done:?}");
    let stall_ratio = forecast.before.stall_ratio;
    assert_eq!((report.sampler.exact_ratio, stall_ratio), (None, None), "{done:?}");

    let words = format!("tune --calibration off --observe 300ms --for 300ms -p {}", workload.pid());
    let text = hugepilot(words.split(' '));
    let out = text.exits(3).out();
    assert!(out.contains("cannot tell") && !out.contains("0B resident"), "{out}");
    assert!(!out.contains("no gain"), "{out}");
    Command::new("sh").args(["-c", &continues]).status().unwrap();
    let report = tune(workload.pid(), "--observe 300ms --for 300ms").report();
    assert!(!matches!(report.no_verdict, Some(NoVerdict::TargetStopped { .. })), "{report:?}");
}

#[test]
fn a_target_that_hardly_runs_has_no_verdict() {
    requires!(need::all([need::live(), need::cap_perfmon(), need::program("python3")]));
    // 10 ms of CPU time, and 200 ms of sleep.
    let work = "\
import time
print('ready', flush=True)
while True:
    until = time.process_time() + 0.01
    while time.process_time() < until: pass
    time.sleep(0.2)
";
    let mut command = Command::new("python3");
    command.args(["-c", work]);
    let victim = Victim::spawn(command);
    victim.says("ready", SOON);
    let done = tune(victim.pid(), "--observe 300ms --for 300ms");
    let report = done.exits(3).says(&["no verdict", "a decision requires 50"]).report();
    assert!(matches!(report.no_verdict, Some(NoVerdict::FewSamples { samples: 1..50, .. })));
}

#[test]
fn a_time_too_short_for_a_decision_is_no_verdict_on_the_target() {
    requires!(need::all([need::live(), need::cap_perfmon()]));
    let workload = Workload::start(SMALL);
    // At 100 Hz a decision requires a second. On a busy machine, the attachment alone takes 0.1 s.
    let done = tune(workload.pid(), "--dry-run --for 1ms --observe 1ms --rate 100");
    let report = done.exits(3).says(&["too short", "help: give it more time: --for 15s"]).report();
    assert!(matches!(report.no_verdict, Some(NoVerdict::TooShort { .. })), "{done:?}");
    // The first observation fits into this time.
    tune(workload.pid(), "--dry-run --observe 1s --for 1s --rate 4000").exits(0);
}

#[test]
fn an_unreadable_target_is_an_error_before_sampling() {
    requires!(can_be_nobody());
    // It sleeps, so no samples would show that it may not be read.
    let victim = Victim::spawn(Command::new("cat"));
    let nobody = Nobody::new();
    for more in ["", "--dry-run"] {
        let done = nobody.runs_with("+perfmon", tune_args(victim.pid(), more));
        done.exits(3).says(&[&format!("/proc/{}/", victim.pid()), "ermission denied", "help:"]);
        assert!(
            done.out().contains("hugepilot.error") && !done.err().contains("sampling"),
            "{done:?}"
        );
    }
}

/// Runs `hugepilot` with `words` and a limit on descriptors, of which it already has three.
fn with_descriptors(limit: u32, words: &str) -> Done {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {limit}; exec {HUGEPILOT} {words}")]);
    Running::start(command).wait(LIMIT)
}

#[test]
fn out_of_descriptors_a_live_target_is_not_gone() {
    requires!(need::all([need::live(), need::cap_perfmon(), need::c_compiler()]));
    let workload = Workload::start(SMALL);
    let bloated = Victim::c("bloated.c", &["16", "5"]);
    bloated.ready(SOON);
    let (pid, other) = (workload.pid(), bloated.pid());
    let tune = format!("tune --dry-run --calibration off --observe 100ms --for 100ms -p {pid}");
    let commands = [
        tune.as_str(),
        &format!("status -p {pid}"),
        &format!("debloat --dry-run --order exact --observe 0s -p {other}"),
    ];
    let mut short = 0;
    for words in commands {
        for limit in (4..16).chain([100, 128, 130, 132, 133, 134, 140]) {
            let done = with_descriptors(limit, words);
            let output = format!("{}{}", done.out(), done.err());
            let gone = [format!("no process {pid}"), format!("no process {other}")];
            let is_gone = gone.iter().any(|words| output.contains(words));
            let wrong = is_gone || ["ended", "a zombie"].iter().any(|word| output.contains(word));
            assert!(!wrong, "{limit}: {done:?}");
            if done.status.code() == Some(2) {
                assert!(output.contains("ulimit -n"), "{limit}: {done:?}");
                short += 1;
            }
        }
    }
    assert!(short > 6, "only {short} of these were short of descriptors");
}

#[test]
fn the_end_of_a_tuned_target_is_reported() {
    requires!(tunable());
    let workload = Workload::start(HOT_SET);
    let pid = workload.pid();
    let mut command = Command::new(HUGEPILOT);
    // Without a trial, which might return all.
    command.args(tune_args(pid, &format!("{ANYWHERE} --for 60s")));
    let mut tool = Running::start(command);
    tool.until_it_says("promoting ");
    drop(workload);
    let done = tool.wait(LIMIT);
    let report = done.exits(2).says(&["ended before the tune did"]).report();
    assert!(report.acts.verified_regions > 10 && report.target_ended, "{done:?}");
    assert_eq!(report.stopped, Some(Stop::TargetGone), "{done:?}");
    assert!(
        report.warnings.iter().any(|warning| matches!(warning, TuneWarning::TargetEnded { .. })),
        "{done:?}"
    );
}

#[test]
fn a_second_tune_of_a_process_fails_and_names_the_first() {
    requires!(tunable());
    requires!(need::c_compiler());
    let bloated = Victim::c("bloated.c", &["16", "5"]);
    bloated.ready(SOON);
    let mut command = Command::new(HUGEPILOT);
    command.args(tune_args(bloated.pid(), "--observe 120s --for 120s"));
    let mut first = Running::start(command);
    let holder = format!(" {} ", first.pid());
    first.until("its lock", || std::fs::read_to_string("/proc/locks").unwrap().contains(&holder));

    let pid = bloated.pid().to_string();
    let named = format!("process {}", first.pid());
    let end = format!("kill -INT {}", first.pid());
    let second = tune(bloated.pid(), "");
    second.exits(2).says(&[&pid, "another run of hugepilot", &named, &end]);
    assert!(
        second.out().contains("hugepilot.error") && !second.err().contains("sampling"),
        "{second:?}"
    );
    let line = format!("debloat --calibration off --order exact --observe 100ms -p {pid}");
    let debloat = || line.split(' ');
    hugepilot(debloat()).exits(2).says(&["another run of hugepilot", &named]);
    // Commands that change nothing are not excluded.
    let dry_run = tune(bloated.pid(), "--dry-run --observe 100ms --for 100ms");
    assert!(!dry_run.err().contains("another run"), "{dry_run:?}");
    hugepilot(debloat().chain(["--dry-run"])).exits(0);

    // The claim ends with its holder, however that ends.
    first.signal(Signal::KILL);
    first.wait(LIMIT);
    hugepilot(debloat()).exits(0);
}

#[test]
fn huge_pages_that_may_not_be_read_are_not_without_bloat() {
    requires!(need::all([need::live(), need::root(), need::c_compiler()]));
    let mut hidden = Victim::c("bloated.c", &["16", "5", "hidden"]);
    let memory = hidden.ready(SOON).memory;
    let pid = hidden.pid().to_string();
    let huge = huge_now(hidden.pid());
    requires!(if huge == memory.len() {
        Need::Ok
    } else {
        Need::Err(format!("only {huge} came as huge pages"))
    });

    let done = hugepilot(["status", "-p", &pid, "--json"]);
    let status: StatusReport = done.exits(0).json();
    let mapping =
        status.mappings.iter().find(|mapping| mapping.range.contains(memory.start)).unwrap();
    assert_eq!(mapping.sizes.zero_filled_bytes, None, "{done:?}");
    assert_eq!(status.totals.zero_filled_bytes, None, "{done:?}");
    let unread = StatusWarning::HugePagesUnreadable { huge_pages: 16 };
    assert!(status.warnings.contains(&unread), "{done:?}");

    for more in [&["--dry-run"][..], &[]] {
        let line = format!("debloat --calibration off --order exact --observe 100ms -p {pid}");
        let text = hugepilot(line.split(' ').chain(more.iter().copied()));
        text.exits(3).says(&["cannot determine", "16 huge pages could not be read"]);
        assert!(text.out().starts_with("at least 0B of bloat"), "{text:?}");
    }
    assert!(hidden.finish(SOON).success());
}

#[test]
fn every_failure_of_sampling_names_process_cause_and_help() {
    requires!(strace());
    requires!(need::c_compiler());
    // One thread, so that ENABLE is the first ioctl.
    let victim = Victim::c("bloated.c", &["1", "5"]);
    victim.ready(SOON);
    let pid = victim.pid();
    let perf = "perf_event_open";
    let (enable, map) = ("ioctl(PERF_EVENT_IOC_ENABLE)", "mmap of a perf event");
    let cases = [
        (perf, "ENOSPC", perf, 2, "breakpoints"),
        (perf, "EBUSY", perf, 2, "nmi_watchdog"),
        (perf, "ENOSYS", perf, 3, "CONFIG_PERF_EVENTS"),
        (perf, "EMFILE", perf, 2, "ulimit -n"),
        (perf, "ENFILE", perf, 2, "fs.file-max"),
        (perf, "EOPNOTSUPP", perf, 3, "doctor"),
        (perf, "ENODEV", perf, 3, "doctor"),
        ("ioctl", "ENOTTY", enable, 3, "sandbox"),
        ("mmap", "EPERM", map, 3, "perf_event_mlock_kb"),
    ];
    for (call, errno, named, exit, fix) in cases {
        let mut command = Command::new("strace");
        command.args(["-D", "-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}")]);
        command.args(["-e", &format!("inject={call}:error={errno}")]);
        if call != perf {
            // Other files get the same calls.
            command.args(["-P", "anon_inode:[perf_event]"]);
        }
        command.arg(HUGEPILOT).args(tune_args(pid, "--observe 100ms --for 100ms"));
        let done = Running::start(command).wait(LIMIT);
        let process = format!("on process {pid} failed: {errno}");
        done.exits(exit).says(&[named, &process, fix, "help: "]);
    }
}
