//! `pool`: pages are allocated, their users are shown, and all are returned.

use std::fs;
use std::process::Command;
use std::time::Duration;

use hugepilot_reports::pool::{PoolChange, PoolReport, PoolShortfall};
use hugepilot_testkit::{Need, Victim, need, requires};
use hugepilot_units::Bytes;
use rustix::process::Signal;

use crate::tool::{Done, HUGEPILOT, Running, hugepilot};
use crate::unprivileged::{Nobody, can_be_nobody};
use crate::workload::SOON;

const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";
const EIGHT: u64 = 8;

/// Root, a pool of 2 MiB pages that is the default size, and memory for some.
fn possible() -> Need {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let default =
        meminfo.lines().any(|line| line.starts_with("Hugepagesize:") && line.ends_with(" 2048 kB"));
    let pool =
        if default { Need::Ok } else { Need::Err("no hugetlb pool of 2 MiB pages".to_owned()) };
    need::all([need::live(), need::root(), need::memory(Bytes::gib(1)), pool])
}

/// Count of the kernel.
fn count(file: &str) -> u64 {
    let text = fs::read_to_string(format!("{POOL}/{file}_hugepages")).expect("a file of the pool");
    text.trim().parse().expect("a count")
}

fn persistent() -> u64 {
    count("nr") - count("surplus")
}

/// The count as a test found it, put back when it fails half-way.
struct Before(u64);

impl Before {
    fn now() -> Self {
        Self(persistent())
    }
}

impl Drop for Before {
    fn drop(&mut self) {
        let _ = fs::write(format!("{POOL}/nr_hugepages"), self.0.to_string());
    }
}

#[track_caller]
fn set(count: u64, more: &str) -> Done {
    let line = format!("pool set --size 2MiB --count {count} --json {more}");
    hugepilot(line.split_whitespace())
}

#[track_caller]
fn show() -> PoolReport {
    hugepilot(["pool", "show", "--json"]).exits(0).json()
}

/// Runs the command that a report names to undo it.
#[track_caller]
fn undo(change: &PoolChange) {
    let command = change.undo.as_ref().expect("it changed something");
    let args = command.strip_prefix("sudo hugepilot ").expect("our own command");
    hugepilot(args.split(' ')).exits(0);
}

#[test]
fn pages_are_allocated_shown_and_returned() {
    requires!(possible());
    let before = Before::now();
    let change: PoolChange = set(before.0 + EIGHT, "").exits(0).json();
    assert_eq!(
        (change.before.persistent(), change.after.unwrap().persistent()),
        (before.0, before.0 + EIGHT)
    );
    assert_eq!(persistent(), before.0 + EIGHT);
    let report = show();
    let pool = report.pools.iter().find(|pool| pool.page_bytes == Bytes::mib(2)).unwrap();
    assert!(
        pool.is_default && pool.pages.total == count("nr") && pool.pages.free >= EIGHT,
        "{pool:?}"
    );
    assert_eq!(pool.nodes.iter().map(|node| node.pages.total).sum::<u64>(), pool.pages.total);
    hugepilot(["pool", "explain"]).exits(0);
    undo(&change);
    assert_eq!(persistent(), before.0);
}

#[test]
fn pages_in_use_are_shown_and_stay_as_surplus_until_they_are_freed() {
    requires!(possible());
    requires!(need::c_compiler());
    let before = Before::now();
    set(before.0 + EIGHT, "").exits(0);
    // Two pages touched, two only reserved.
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../testkit/victims/hugetlb.c");
    let mut victim = Victim::c(source, &["8", "4"]);
    victim.ready(SOON);
    let report = show();
    let pid = victim.pid().cast_signed();
    let user = report.processes.iter().find(|user| user.pid.0 == pid).expect("it has pages");
    assert_eq!((user.hugetlb_bytes, user.private_bytes), (Bytes::mib(4), Some(Bytes::mib(4))));
    let surplus = count("surplus");

    let change: PoolChange = set(before.0, "").exits(1).json();
    let after = change.after.unwrap();
    assert_eq!(after.persistent(), before.0);
    let kept = count("surplus") - surplus;
    // Free pages of another user of the pool may serve them.
    assert!(kept <= 4 && (kept == 4 || before.0 > 0), "{kept} kept: {change:?}");
    assert!(matches!(change.causes[0], PoolShortfall::PagesHeld { .. }), "{change:?}");
    assert!(victim.finish(Duration::from_secs(10)).success());
    assert_eq!(
        (persistent(), count("surplus")),
        (before.0, surplus),
        "they went back by themselves"
    );
}

#[test]
fn a_signal_while_the_kernel_allocates_is_reported_and_can_be_undone() {
    requires!(possible());
    requires!(need::program("strace"));
    for signal in [Signal::INT, Signal::TERM] {
        let before = Before::now();
        let mut command = Command::new("strace");
        // The first write is the one to the pool.
        command.args(["-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=write", "-e"]);
        command.arg("inject=write:delay_enter=2000000:when=1").arg(HUGEPILOT);
        let line = format!("pool set --size 2MiB --count {} --json", before.0 + EIGHT);
        command.args(line.split(' '));
        let mut tool = Running::start(command);
        let descriptors = format!("/proc/{}/fd", tool.pid());
        let is_pool = |path: std::path::PathBuf| {
            fs::read_link(path).is_ok_and(|to| to.ends_with("nr_hugepages"))
        };
        tool.until("the pool is open", || {
            fs::read_dir(&descriptors)
                .into_iter()
                .flatten()
                .flatten()
                .any(|entry| is_pool(entry.path()))
        });
        // It was opened once before, to see whether it may be.
        std::thread::sleep(Duration::from_millis(500));
        tool.signal(signal);
        let done = tool.wait(Duration::from_secs(20));
        let change: PoolChange = done.exits(1).json();
        assert!(change.interrupted, "{done:?}");
        let got = change.after.unwrap().persistent();
        assert!(got < before.0 + EIGHT && got == persistent(), "{done:?}");
        if got > before.0 {
            undo(&change);
        }
        assert_eq!(persistent(), before.0);
    }
}

#[test]
fn a_dry_run_and_an_error_change_nothing() {
    requires!(possible());
    let before = Before::now();
    hugepilot(["pool", "set", "--size", "2MiB", "--count", "8", "--dry-run"]).exits(0);
    // More than there is, and less than the floor leaves.
    let done = set(1 << 40, "--force");
    let change: PoolChange = done.exits(1).json();
    assert!(change.after.is_none() && change.undo.is_none(), "{change:?}");
    set(before.0 + EIGHT, "--floor 100%").exits(1);
    hugepilot(["pool", "set", "--size", "3MiB", "--count", "1"])
        .exits(3)
        .says(&["3MiB", "help: one of --size"]);
    hugepilot(["pool", "set", "--size", "2MiB", "--count", "1", "--node", "999"])
        .exits(3)
        .says(&["node 999"]);
    assert_eq!(persistent(), before.0);
}

#[test]
fn without_root_pools_are_shown_and_not_set() {
    requires!(need::all([possible(), can_be_nobody()]));
    let before = persistent();
    let nobody = Nobody::new();
    nobody.runs(["pool", "show"]).exits(0);
    nobody.runs(["pool", "set", "--size", "2MiB", "--count", "9", "--dry-run"]).exits(0);
    let refused = nobody.runs(["pool", "set", "--size", "2MiB", "--count", "9"]);
    refused.exits(3).says(&["only root", "help: sudo hugepilot pool set --size 2MiB --count 9"]);
    assert_eq!(persistent(), before);
}
