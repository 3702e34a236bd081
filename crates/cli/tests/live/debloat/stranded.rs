//! Memory that large pages hold and the program does not map: seen by `status`, freed by `debloat`.

use hugepilot_reports::status::StatusReport;
use hugepilot_testkit::{Victim, compiled, need, requires};
use hugepilot_units::Bytes;

use super::{debloat, possible, report};
use crate::cgroup::Cgroup;
use crate::look::total;
use crate::record::Recording;
use crate::tool::hugepilot;
use crate::workload::{SOON, sizes};

#[track_caller]
fn stranded(pid: u32) -> Option<Bytes> {
    let report: StatusReport =
        hugepilot(["status", "--json", "-p", &pid.to_string()]).exits(0).json();
    report.stranded_bytes
}

/// Stranded memory at the end of a recording.
fn recorded(pid: u32) -> Option<f64> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.rec");
    let name = file.display().to_string();
    let pid = pid.to_string();
    let flags = ["--no-stalls", "--duration", "1s", "-o", &name];
    hugepilot(["record", "-p", &pid].into_iter().chain(flags)).exits(0);
    Recording::read(&file).values("stranded").pop()
}

#[test]
fn the_cgroup_gets_memory_back_that_is_held_and_not_mapped() {
    requires!(possible());
    requires!(need::cgroup_memory());
    let group = Cgroup::new(Bytes::gib(1));
    let mut command = group.command(&compiled(std::path::Path::new("held.c")));
    command.args(["64", "16"]);
    let mut victim = Victim::spawn(command);
    victim.ready(SOON);
    let held = sizes().base.times(64 * (512 - 16));
    let before = group.usage();
    // The kernel has freed a part already if it found no huge page for some.
    requires!((before > held).then_some(()).ok_or("no huge pages"));
    assert!(total(victim.pid(), "Rss") < Bytes::mib(8), "it is not mapped");
    assert_eq!(stranded(victim.pid()), Some(held));
    assert_eq!(recorded(victim.pid()), Some(held.as_f64()));

    let planned = report(debloat(&[victim.pid()], "--dry-run").exits(0));
    assert_eq!((planned.stranded_bytes, planned.freed_bytes), (Some(held), held));
    assert_eq!(stranded(victim.pid()), Some(held), "a dry run changes nothing");

    let half = report(debloat(&[victim.pid()], "--amount 62MiB").exits(0));
    assert_eq!(half.huge_pages_split, 32, "{half:?}");
    let done = debloat(&[victim.pid()], "");
    let rest = report(done.exits(0));
    assert_eq!(half.freed_bytes + rest.freed_bytes, held, "{done:?}");
    assert_eq!(stranded(victim.pid()), Some(Bytes::ZERO));
    let returned = before - group.usage();
    // The kernel accounts in batches.
    assert!(returned + Bytes::mib(2) > held, "{returned} of {held}: {done:?}");
    assert_eq!(total(victim.pid(), "AnonHugePages"), Bytes::ZERO);
    assert!(victim.finish(SOON).success());
}

/// Pages that a child shares stay: a split would be one of the child's memory, too.
#[test]
fn memory_that_a_child_shares_is_not_touched() {
    requires!(possible());
    let mut victim = Victim::c("churn.c", &["fork", "16"]);
    victim.ready(SOON);
    for _ in 0..5 {
        debloat(&[victim.pid()], "").sane();
    }
    assert!(victim.finish(SOON).success());
}
