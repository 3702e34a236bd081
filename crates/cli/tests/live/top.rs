//! `top --json` of a process with known memory, against the kernel's files.

use hugepilot_reports::top::{TopNote, TopProcess, TopReport};
use hugepilot_testkit::{need, requires};
use hugepilot_units::Bytes;

use crate::look::{smaps, total};
use crate::tool::hugepilot;
use crate::workload::Workload;

fn of(report: &TopReport, pid: u32) -> &TopProcess {
    let found = report.processes.iter().find(|process| process.pid.0.unsigned_abs() == pid);
    found.unwrap_or_else(|| panic!("no process {pid} in {report:?}"))
}

#[test]
fn a_busy_process_has_the_memory_of_smaps_and_a_share_of_stalls() {
    requires!(need::root());
    let workload = Workload::start("gups --footprint 256MiB");
    let pid = workload.pid().to_string();
    let line = format!("top --json --bloat --interval 1s --pid {pid}");
    let report: TopReport = hugepilot(line.split(' ')).exits(0).json();
    let process = of(&report, workload.pid());
    let areas = smaps(workload.pid());
    let (resident, huge) =
        (total(workload.pid(), "Rss"), areas.iter().map(|area| area.huge()).sum());
    assert_eq!(process.thp_bytes, Some(huge));
    // The kernel sums the counters of threads late.
    assert!(process.resident_bytes.get().abs_diff(resident.get()) < Bytes::mib(2).get());
    assert!(process.cpu_ratio.is_some_and(|ratio| ratio > 0.05), "{process:?}");
    assert!(process.stall_ratio.is_some_and(|ratio| ratio > 0.2), "{process:?}");
    assert_eq!(process.command, "hugepilot");
}

#[test]
fn status_without_a_target_prints_the_same() {
    let mut sleep = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let report: TopReport = hugepilot(["status", "--json"]).exits(0).json();
    assert_eq!(of(&report, sleep.id()).note, Some(TopNote::TooSmall));
    sleep.kill().unwrap();
    sleep.wait().unwrap();
    assert!(hugepilot(["status", "--all"]).exits(2).err().contains("--pid"));
}
