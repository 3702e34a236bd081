//! Inspection of a process with 100,000 mappings in bounded time and memory.

use std::time::Duration;
use std::{fs, thread};

use hugepilot_reports::status::StatusReport;
use hugepilot_testkit::{Victim, need, requires};
use hugepilot_units::Bytes;

use crate::tool::{hugepilot, tune};
use crate::workload::SOON;

const LIMIT_FILE: &str = "/proc/sys/vm/max_map_count";
const WANTED: u64 = 100_000;

/// Limit of mappings per process, raised until dropped.
struct MoreMappings(String);

impl MoreMappings {
    fn allowed() -> Option<Self> {
        let before = fs::read_to_string(LIMIT_FILE).ok()?;
        let enough = before.trim().parse::<u64>().ok()? > WANTED + 1000;
        if !enough {
            fs::write(LIMIT_FILE, (WANTED + 10_000).to_string()).ok()?;
        }
        Some(Self(before))
    }
}

impl Drop for MoreMappings {
    fn drop(&mut self) {
        if let Err(error) = fs::write(LIMIT_FILE, self.0.trim()) {
            eprintln!("{LIMIT_FILE} could not be restored to {}: {error}", self.0);
        }
    }
}

#[test]
fn a_hundred_thousand_mappings_take_bounded_time_and_memory() {
    requires!(need::live());
    requires!(need::c_compiler());
    requires!(need::cap_perfmon());
    let more = MoreMappings::allowed().ok_or(format!("{LIMIT_FILE} cannot be raised"));
    requires!(more.as_ref());
    let victim = Victim::c("manymaps.c", &[&WANTED.to_string()]);
    let mapped: u64 = victim.ready(SOON).rest[0].parse().unwrap();
    assert_eq!(mapped, WANTED);

    let number = victim.pid();
    let pid = &number.to_string();
    // Together they take half the time.
    let (status, text, dry) = thread::scope(|scope| {
        let status = scope.spawn(|| hugepilot(["status", "-p", pid, "--json"]));
        let dry = scope.spawn(|| tune(number, "--dry-run"));
        let text = hugepilot(["status", "-p", pid]);
        (status.join().unwrap(), text, dry.join().unwrap())
    });
    // Checking it against the schema takes longer than all the rest.
    let report: StatusReport = serde_json::from_str(&status.exits(0).out()).unwrap();
    assert!(report.mappings.len() as u64 >= mapped);
    assert!(text.exits(0).out().lines().count() < 100, "a page of text, not 100,000 lines");
    // The victim sleeps, so its stalls are unknown.
    dry.exits(3).says(&["no verdict"]).report();
    let runs = [("status --json", &status), ("status", &text), ("tune --dry-run", &dry)];
    for (command, done) in runs {
        eprintln!("{command}: {:?}, {}", done.took, done.peak);
        assert!(done.took < Duration::from_secs(30), "{command}: {:?}", done.took);
        assert!(done.peak < Bytes::mib(150), "{command}: {}", done.peak);
        assert!(done.peak > Bytes::mib(1), "{command}: its peak memory is unknown");
    }
}
