//! Conditions for experiments: they reach their level, and nothing of them stays, also after
//! SIGKILL of the command or of its parent.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use hugepilot_reports::lab::weather::{FragmentReport, PageCacheReport, PressureReport};
use hugepilot_testkit::{need, requires};
use hugepilot_units::Bytes;
use rustix::process::{Pid, Signal, kill_process};
use serde::de::DeserializeOwned;

use crate::look;
use crate::tool::{Done, HUGEPILOT, LIMIT, Running, hugepilot};
use crate::validation::validate;

fn start(line: &str) -> Running {
    let mut command = Command::new(HUGEPILOT);
    command.arg("lab").args(line.split_whitespace());
    Running::start(command)
}

/// Starts a condition and waits for its report.
#[track_caller]
fn held<T: DeserializeOwned>(line: &str) -> (Running, T) {
    let mut running = start(&format!("{line} --json"));
    let report = running.first_line();
    validate(report.as_bytes()).unwrap_or_else(|error| panic!("{error}: {report}"));
    (running, serde_json::from_str(&report).expect("a report"))
}

/// The process that holds the memory of a condition.
#[track_caller]
fn holder(command: u32) -> u32 {
    let children = look::children(command);
    assert_eq!(children.len(), 1, "{children:?}");
    children[0]
}

#[track_caller]
fn ends_soon(pid: u32) {
    let until = Instant::now() + Duration::from_secs(5);
    // A zombie has no memory left.
    while look::status_bytes(pid, "VmSize").is_some() {
        assert!(Instant::now() < until, "process {pid} lives on");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn kill(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.cast_signed()).expect("a pid");
    kill_process(pid, signal).expect("a process of this test");
}

#[track_caller]
fn is_near(found: Bytes, expected: Bytes, tolerance: Bytes) {
    let is_near = found + tolerance >= expected && found <= expected + tolerance;
    assert!(is_near, "{found}, expected {expected} within {tolerance}");
}

/// Waits until the memory that is available is near a level, as other processes' memory permits.
#[track_caller]
fn becomes_near(level: Bytes) {
    let until = Instant::now() + Duration::from_secs(10);
    let is_near = |found: Bytes| found + Bytes::mib(64) >= level && found <= level + Bytes::mib(96);
    while !is_near(look::available()) {
        assert!(Instant::now() < until, "{} available, expected {level}", look::available());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A level of 1.5 GiB less than is available now: checks beside the tests take up to 1 GiB.
fn spare() -> Bytes {
    look::available() - Bytes::mib(1536)
}

#[test]
fn pressure_leaves_what_was_requested_until_a_signal() {
    requires!(need::all([need::live(), need::root(), need::memory(Bytes::gib(3))]));
    let leave = spare();
    let (running, report) = held::<PressureReport>(&format!("pressure --leave {}", leave.get()));
    assert_eq!(report.shortfall, None);
    is_near(report.left_bytes, leave, Bytes::mib(64));
    becomes_near(leave);
    let holder = holder(running.pid());
    let locked = look::status_bytes(holder, "VmLck").expect("a holder");
    assert!(locked >= report.held_bytes && locked >= Bytes::mib(500), "{locked} {report:?}");
    let badness = fs::read_to_string(format!("/proc/{holder}/oom_score_adj")).expect("a holder");
    assert_eq!(badness.trim(), "1000");
    running.signal(Signal::INT);
    running.wait(LIMIT).exits(0);
    ends_soon(holder);
}

#[test]
fn pressure_follows_other_processes() {
    requires!(need::all([
        need::live(),
        need::root(),
        need::memory(Bytes::gib(3)),
        need::program("python3")
    ]));
    let (running, report) = held::<PressureReport>(&format!("pressure --leave {}", spare().get()));
    let user = "import sys; m = b'x' * (320 << 20); print('full', flush=True); sys.stdin.read()";
    let other = hugepilot_testkit::Victim::spawn({
        let mut python = Command::new("python3");
        python.args(["-c", user]);
        python
    });
    assert_eq!(other.line(LIMIT).as_deref(), Some("full"));
    becomes_near(report.requested_bytes);
    drop(other);
    becomes_near(report.requested_bytes);
    drop(running);
}

/// Fills 600 MiB, then prints the KiB that are available, five times, and ends with 7.
const PROGRAM: &str = "\
import time
m = b'x' * (600 << 20)
for _ in range(5):
    time.sleep(0.3)
    print(open('/proc/meminfo').read().split('MemAvailable:')[1].split()[0])
exit(7)
";

#[test]
fn pressure_does_not_yield_to_its_program() {
    requires!(need::all([need::live(), need::root(), need::memory(Bytes::gib(3))]));
    requires!(need::program("python3"));
    let mut command = Command::new(HUGEPILOT);
    command.args(["lab", "pressure", "--json", "--leave", &spare().get().to_string(), "--"]);
    command.args(["python3", "-c", PROGRAM]);
    let done = Running::start(command).wait(LIMIT);
    assert_eq!(done.status.code(), Some(7), "{done:?}");
    let out = done.out();
    let (report, available) = out.split_once('\n').expect("lines");
    let report: PressureReport = serde_json::from_str(report).expect("a report");
    let available = available.lines().map(|line| Bytes::kib(line.parse().expect("a number")));
    // As far as the memory of other processes permits: at one of these moments.
    let left = available.min().expect("five lines") + Bytes::mib(600);
    assert!(left < report.requested_bytes + Bytes::mib(300), "{left}, {report:?}");
}

#[test]
fn nothing_stays_after_a_kill_of_the_command_or_its_parent() {
    requires!(need::all([need::live(), need::root(), need::memory(Bytes::gib(3))]));
    let lines = [format!("pressure --leave {}", spare().get()), "fragment --level 1%".to_owned()];
    for line in lines {
        let (running, _) = held::<serde_json::Value>(&line);
        let holder_of_it = holder(running.pid());
        running.signal(Signal::KILL);
        ends_soon(holder_of_it);
        // A shell that is its parent.
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{HUGEPILOT} lab {line} --json & wait")]);
        let mut shell = Running::start(shell);
        shell.first_line();
        let command = holder(shell.pid());
        let holder_of_it = holder(command);
        kill(shell.pid(), Signal::KILL);
        ends_soon(holder_of_it);
        ends_soon(command);
    }
}

#[test]
fn fragmentation_pins_a_page_in_each_of_its_blocks() {
    requires!(need::all([need::live(), need::root(), need::memory(Bytes::gib(4))]));
    let (running, report) = held::<FragmentReport>("fragment --level 5%");
    assert!(report.shortfall.is_none() && report.reached_ratio >= 0.05, "{report:?}");
    assert!(report.reached_ratio < 0.08, "within 3 points: {report:?}");
    assert!(report.kept_pages >= report.fragmented_blocks, "{report:?}");
    let holder = holder(running.pid());
    let pinned = look::status_bytes(holder, "VmPin").expect("a holder");
    assert_eq!(pinned, Bytes::kib(4).times(report.kept_pages));
    // All but the kept pages are free: the blocks alone would be 1.2 GiB of 24.
    let resident = look::status_bytes(holder, "VmRSS").expect("a holder");
    assert!(resident < Bytes::mib(32), "{resident}");
    let words = "lab fragment --level 1% --kind movable --json -- true";
    let done = hugepilot(words.split(' '));
    let movable: FragmentReport = done.exits(0).json();
    assert!(movable.reached_ratio >= 0.01, "{movable:?}");
    running.signal(Signal::TERM);
    running.wait(LIMIT).exits(0);
    ends_soon(holder);
}

#[test]
fn a_cgroup_limits_the_program_and_is_removed_also_after_a_kill() {
    requires!(need::all([need::live(), need::root(), need::cgroup_memory()]));
    let mut command = Command::new(HUGEPILOT);
    command.args(["lab", "pressure", "--leave", "1GiB", "--kind", "cgroup", "--"]);
    command.args(["sh", "-c", "cat /proc/self/cgroup; sleep 100"]);
    let mut running = Running::start(command);
    running.first_line();
    let name = format!("hugepilot-lab-{}", running.pid());
    let homes = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
    let groups = homes.map(|home| Path::new(home).join(&name));
    let group = groups.iter().find(|group| group.exists()).expect("a cgroup");
    let limits = ["memory.limit_in_bytes", "memory.max"].map(|file| group.join(file));
    let limit = limits.iter().find_map(|file| fs::read_to_string(file).ok());
    assert_eq!(limit.as_deref(), Some("1073741824\n"));
    let members = fs::read_to_string(group.join("cgroup.procs")).expect("a cgroup");
    assert!(members.lines().count() >= 1, "{members}");
    running.signal(Signal::KILL);
    let until = Instant::now() + Duration::from_secs(8);
    while group.exists() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!group.exists(), "the cgroup is still there");
}

#[test]
fn pages_of_a_file_are_cached_until_the_end() {
    requires!(need::live());
    let folder = tempfile::tempdir_in("/var/tmp").expect("a folder");
    let file = folder.path().join("file");
    fs::write(&file, vec![7; 32 << 20]).expect("a file");
    let file = file.to_str().expect("a path");
    let run = |words: &[&str]| -> PageCacheReport {
        hugepilot(["lab", "page-cache", "--json", "--file", file].iter().chain(words))
            .exits(0)
            .json()
    };
    assert_eq!(run(&["--drop"]).cached_bytes, Bytes::ZERO);
    let read = run(&["--", "true"]);
    assert_eq!((read.cached_before_bytes, read.cached_bytes), (Bytes::ZERO, Bytes::mib(32)));
    assert_eq!(run(&["--drop"]).cached_before_bytes, Bytes::ZERO, "dropped at the end");
}

/// Command line, words of its error, and the same with the help followed.
#[test]
fn each_help_line_of_a_condition_ends_its_reason() {
    requires!(need::all([
        need::live(),
        need::root(),
        need::memory(Bytes::gib(3)),
        need::cgroup_memory()
    ]));
    requires!(need::program("setpriv"));
    let spare = spare().get();
    let lab = format!("{HUGEPILOT} lab");
    let nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups";
    let table = [
        (
            format!("{lab} pressure --leave 1000MiB -- true"),
            "1GiB must stay",
            format!("{lab} pressure --leave {spare} -- true"),
        ),
        (
            format!("{lab} pressure --leave 1000GiB -- true"),
            "are available now",
            format!("{lab} pressure --leave {spare} -- true"),
        ),
        (
            format!("{lab} pressure --leave footprint+1MiB -- true"),
            "not known",
            format!("{lab} pressure --leave footprint+1MiB --footprint {spare} -- true"),
        ),
        (
            format!("{lab} pressure --leave 1GiB --kind cgroup"),
            "there is none",
            format!("{lab} pressure --leave 1GiB --kind cgroup -- true"),
        ),
        (format!("{lab} warm --size 1000GiB"), "may use only", format!("{lab} warm --size 1MiB")),
        (
            format!("TMPDIR=/dev/shm {lab} page-cache --size 1MiB -- true"),
            "is in memory",
            format!("TMPDIR=/var/tmp {lab} page-cache --size 1MiB -- true"),
        ),
        (
            format!("sh -c 'while :; do :; done' & {lab} quiet -- true; s=$?; kill $!; exit $s"),
            "is not quiet",
            format!(
                "sh -c 'while :; do :; done' & {lab} quiet --force -- true; s=$?; kill $!; exit $s"
            ),
        ),
        (
            format!("ulimit -l 64; exec {nobody} {lab} warm --size 8MiB"),
            "RLIMIT_MEMLOCK",
            format!("ulimit -l unlimited; exec {nobody} {lab} warm --size 8MiB"),
        ),
    ];
    for (refused, cause, followed) in table {
        let done = in_shell(&refused);
        assert!(done.err().contains(cause) && done.status.code() != Some(0), "{refused}: {done:?}");
        assert!(done.err().contains("help: "), "{refused}: {done:?}");
        assert_eq!(in_shell(&followed).status.code(), Some(0), "{followed}");
    }
}

fn in_shell(line: &str) -> Done {
    let mut shell = Command::new("bash");
    shell.args(["-c", line]);
    Running::start(shell).wait(LIMIT)
}
