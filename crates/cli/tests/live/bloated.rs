//! Lab workloads with bloat: amount and place of the bloat, and correct results.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use hugepilot_kernel::Target;
use hugepilot_reports::status::StatusReport;
use hugepilot_testkit::{Need, Victim, need, requires};
use hugepilot_units::{Bytes, VirtAddr};
use rustix::process::Signal;

use crate::look::{stat, total};
use crate::tool::{HUGEPILOT, hugepilot};
use crate::workload::{SOON, Workload, open, sizes};

/// A workload that waits for `go`, and the pid of the process with its memory.
fn waiting(line: &str) -> (Victim, u32) {
    let mut command = Command::new(HUGEPILOT);
    command.args(["lab", "workload"]).args(line.split_whitespace()).arg("--wait");
    let victim = Victim::spawn(command);
    let ready = victim.says("ready", SOON);
    let pid = ready[0].parse().expect("ready PID");
    (victim, pid)
}

fn status(pid: u32) -> StatusReport {
    hugepilot(["status", "-p", &pid.to_string(), "--json"]).exits(0).json()
}

/// Zero-filled and huge bytes of the largest mapping.
#[track_caller]
fn zero_and_huge(pid: u32) -> (Bytes, Bytes) {
    let report = status(pid);
    let sizes =
        report.mappings.iter().map(|mapping| &mapping.sizes).max_by_key(|sizes| sizes.size_bytes);
    let sizes = sizes.expect("a process has mappings");
    (sizes.zero_filled_bytes.expect("our own process"), sizes.huge_bytes)
}

/// Whether the first touch of advised memory allocates enough huge pages for a test.
fn huge_pages() -> Need {
    let workload = Workload::start("gups --footprint 256MiB --pages huge");
    let huge = total(workload.pid(), "AnonHugePages");
    if huge >= Bytes::mib(256) {
        Need::Ok
    } else {
        Need::Err(format!("only {huge} of 256MiB came as huge pages"))
    }
}

fn memcached() -> Need {
    match need::program("memcached") {
        Need::Ok => need::program("setpriv"),
        missing => missing,
    }
}

/// Returns `part` of `whole` in percent.
fn percent(part: Bytes, whole: Bytes) -> f64 {
    part.as_f64() / whole.as_f64() * 100.0
}

#[test]
fn random_access_is_half_bloat_on_either_side_and_in_either_layout() {
    requires!(need::live());
    requires!(huge_pages());
    let whole = Bytes::mib(256);
    for more in ["", "--bloat-side right", "--layout scattered --hot bloated"] {
        let (mut victim, pid) = waiting(&format!("random-access --size 256MiB --seconds 1 {more}"));
        let look = || {
            let (zero, huge) = zero_and_huge(pid);
            assert_eq!(huge, whole, "{more}");
            assert!((percent(zero, whole) - 50.0).abs() < 1.0, "{more}: {zero}");
        };
        look();
        victim.send("go");
        thread::sleep(Duration::from_millis(300));
        look(); // work does not change it
        assert!(victim.wait(SOON).success(), "{more}");
    }
}

#[test]
fn shares_of_bloat_are_as_asked_part_by_part() {
    requires!(need::live());
    requires!(huge_pages());
    let (_victim, pid) = waiting("random-access --size 192MiB --bloat 90,50,0");
    let (zero, huge) = zero_and_huge(pid);
    assert_eq!(huge, Bytes::mib(192));
    assert!((percent(zero, huge) - 140.0 / 3.0).abs() < 0.5, "{zero}");
}

#[test]
fn on_base_pages_there_is_no_bloat() {
    requires!(need::live());
    for (line, used) in [("random-access", 50.0), ("btree", 22.0)] {
        let (_victim, pid) = waiting(&format!("{line} --size 256MiB --pages base"));
        assert_eq!(total(pid, "AnonHugePages"), Bytes::ZERO);
        // The pages of the program and of its libraries are those of files.
        let resident = percent(total(pid, "Anonymous"), Bytes::mib(256));
        assert!((resident - used).abs() < 3.0, "{line}: {resident} %");
    }
}

#[test]
fn the_btree_is_bloated_as_documented() {
    requires!(need::live());
    requires!(huge_pages());
    let (mut victim, pid) = waiting("btree --size 256MiB --ops 200000 --threads 2");
    let (zero, huge) = zero_and_huge(pid);
    assert_eq!(huge, Bytes::mib(256));
    assert!((percent(zero, huge) - 78.0).abs() < 1.5, "{zero}");
    victim.send("go");
    assert!(victim.wait(SOON).success());
}

#[test]
fn splits_free_the_bloat_and_the_work_is_right_all_the_same() {
    requires!(need::live());
    requires!(need::cap_sys_nice());
    requires!(huge_pages());
    let mut command = Command::new(HUGEPILOT);
    command.args(
        "lab workload random-access --size 64MiB --ops 2000000 --threads 2 --announce --wait"
            .split(' '),
    );
    let mut victim = Victim::spawn(command);
    let range = victim.says("hot", SOON);
    let start = range[0].split_once('-').expect("start-end").0;
    let start = VirtAddr::new(u64::from_str_radix(start, 16).expect("hex"));
    victim.says("ready", SOON);
    let process = open(victim.pid());
    let before = total(victim.pid(), "Rss");
    for number in 0..32 {
        process.split(start.plus(sizes().huge.times(number)).plus(sizes().base)).unwrap();
    }
    let freed = before - total(victim.pid(), "Rss");
    requires!(if freed > Bytes::ZERO {
        Ok(())
    } else {
        Err("splits free no zero pages before Linux 6.12")
    });
    assert!((percent(freed, Bytes::mib(64)) - 50.0).abs() < 1.0, "{freed}");
    victim.send("go");
    assert!(victim.wait(SOON).success(), "it verifies what it computed");
}

#[test]
fn work_waits_for_go_and_steps_are_timed() {
    requires!(need::live());
    let (mut victim, _) =
        waiting("gups --footprint 16MiB --ops 100000 --steps 100 --interval 50ms");
    thread::sleep(Duration::from_millis(300));
    assert_eq!(victim.line_now(), None, "no work before go");
    victim.send("go");
    let latency = victim.says("latency", SOON);
    assert_eq!((&*latency[0], &*latency[2], &*latency[4]), ("p50_ns", "p99_ns", "max_ns"));
    assert!(victim.wait(SOON).success());
    let (mut untold, _) = waiting("gups --footprint 16MiB --ops 1");
    assert_eq!(untold.finish(SOON).code(), Some(2), "the process that sends go is gone");
}

#[test]
fn memcached_is_bloated_as_documented_and_answers_right() {
    requires!(need::live());
    requires!(memcached());
    requires!(huge_pages());
    let (mut victim, pid) = waiting("memcached --size 256MiB --ops 100000 --threads 2");
    assert_ne!(pid, victim.pid(), "the memory is the server's");
    let totals = status(pid).totals;
    assert!((percent(totals.huge_bytes, Bytes::mib(256)) - 100.0).abs() < 2.0, "{totals:?}");
    let zero = totals.zero_filled_bytes.expect("the tests run as the same user");
    assert!((percent(zero, Bytes::mib(256)) - 62.5).abs() < 1.5, "{zero}");
    victim.send("go");
    assert!(victim.wait(SOON).success());
    assert!(is_gone(pid));
}

#[test]
fn the_server_ends_with_its_workload_however_that_ends() {
    requires!(need::live());
    requires!(memcached());
    let mut folders = Vec::new();
    for signal in [Signal::KILL, Signal::INT, Signal::TERM] {
        let (mut victim, pid) = waiting("memcached --size 64MiB");
        assert!(!is_gone(pid));
        folders.push(format!("hugepilot-memcached-{}-", victim.pid()));
        victim.signal(signal);
        victim.wait(SOON);
        let until = Instant::now() + SOON;
        while !is_gone(pid) {
            assert!(Instant::now() < until, "the server outlives {signal:?}");
            thread::sleep(Duration::from_millis(10));
        }
    }
    let left = std::fs::read_dir(std::env::temp_dir()).expect("the folder for temporary files");
    let names = left.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let left: Vec<String> =
        names.filter(|name| folders.iter().any(|folder| name.starts_with(folder))).collect();
    assert_eq!(left, [""; 0], "files left behind");
}

#[test]
fn a_server_that_dies_ends_the_run_with_an_error() {
    requires!(need::live());
    requires!(memcached());
    let (mut victim, pid) = waiting("memcached --size 64MiB --seconds 0");
    victim.send("go");
    thread::sleep(Duration::from_millis(100));
    let server = rustix::process::Pid::from_raw(pid.cast_signed()).expect("a pid");
    rustix::process::kill_process(server, Signal::KILL).expect("a child of our child");
    assert_eq!(victim.wait(SOON).code(), Some(2));
}

/// Whether no process has this pid, or only a zombie.
fn is_gone(pid: u32) -> bool {
    stat(pid).is_none_or(|fields| fields[0] == "Z")
}
