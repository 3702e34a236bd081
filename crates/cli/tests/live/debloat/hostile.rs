//! Targets that end, execute another program, have hostile names, or have nothing to free.

use std::time::Duration;

use hugepilot_record::Stop;
use hugepilot_reports::debloat::DebloatWarning;
use hugepilot_testkit::{Need, Victim, need, requires};
use hugepilot_units::{AddrRange, Bytes, VirtAddr};

use super::{Bloat, args, debloat, injectable, possible, report};
use crate::hostile::is_plain;
use crate::injected::{Injected, under_strace};
use crate::look::{huge_map, huge_now};
use crate::tool::{HUGEPILOT, Running, hugepilot};
use crate::workload::{SOON, sizes};

/// Delay of each split, so that a target can end in between.
const SLOWLY: &str = "delay_enter=50000";

/// Bytes that a split of a huge page with 16 used pages frees.
const FREED: Bytes = Bytes::kib(496 * 4);

fn is_excluded(warning: &DebloatWarning, by: Stop) -> bool {
    matches!(warning, DebloatWarning::ProcessExcluded { stop, .. } if *stop == by)
}

/// A run on 80 huge pages, at least two of which are split.
#[track_caller]
fn half_way(victim: &Bloat) -> Running {
    let before = victim.total("AnonHugePages");
    let Injected { mut tool, log: _log } = under_strace(&args(&[victim.pid()], ""), SLOWLY);
    tool.until("the second split", || huge_now(victim.pid()) + sizes().huge < before);
    tool
}

#[test]
fn a_target_that_ends_half_way_leaves_a_complete_report() {
    requires!(injectable());
    let victim = Bloat::start(&["16x80"]);
    let tool = half_way(&victim);
    drop(victim);
    let done = tool.wait(Duration::from_secs(10));
    let report = report(done.exits(0));
    // It may have ended before the tool saw its second split.
    assert!((1..80).contains(&report.huge_pages_split), "{done:?}");
    assert!(
        report.warnings.iter().any(|warning| is_excluded(warning, Stop::TargetGone)),
        "{done:?}"
    );
    assert_eq!(
        report.freed_bytes,
        FREED.times(report.huge_pages_split),
        "its own end frees nothing: {done:?}"
    );
}

#[test]
fn a_target_that_executes_another_program_half_way_is_excluded() {
    requires!(injectable());
    let mut victim = Bloat::start(&["16x80"]);
    let tool = half_way(&victim);
    let now = victim.asked("exec", "execed");
    let done = tool.wait(Duration::from_secs(10));
    let report = report(done.exits(0));
    let split = report.huge_pages_split;
    assert!((1..80).contains(&split), "{done:?}");
    assert!(
        report.warnings.iter().any(|warning| is_excluded(warning, Stop::TargetExeced)),
        "{done:?}"
    );
    assert_eq!(
        report.huge_pages_before - report.huge_pages_after,
        split,
        "new memory is not counted: {done:?}"
    );
    assert_eq!(
        report.freed_bytes,
        FREED.times(split),
        "memory that it freed itself is not counted: {done:?}"
    );
    assert!(report.rss_drop_bytes.unsigned_abs() < sizes().huge.get() * (split + 1), "{done:?}");
    let start = u64::from_str_radix(now[0].trim_start_matches("0x"), 16).unwrap();
    let memory = AddrRange::at(VirtAddr::new(start), victim.memory.len());
    assert_eq!(huge_map(victim.pid(), memory), vec![true; 80], "the new program was touched");
    victim.ends_intact();
}

#[test]
fn others_are_split_when_one_target_ends() {
    requires!(injectable());
    let (victim, other) = (Bloat::start(&["16x40"]), Bloat::start(&["100x10"]));
    let before = victim.total("AnonHugePages");
    let targets = [victim.pid(), other.pid()];
    let Injected { mut tool, log: _log } = under_strace(&args(&targets, ""), SLOWLY);
    tool.until("the first split", || huge_now(victim.pid()) < before);
    drop(victim);
    let done = tool.wait(Duration::from_secs(10));
    report(done.exits(0));
    assert_eq!(other.split_regions(), 10, "{done:?}");
    other.ends_intact();
}

#[test]
fn a_signal_half_way_leaves_a_complete_report() {
    requires!(injectable());
    let victim = Bloat::start(&["16x80"]);
    let tool = half_way(&victim);
    tool.signal(rustix::process::Signal::INT);
    let done = tool.wait(Duration::from_secs(5));
    let report = report(done.exits(0));
    assert_eq!(report.stopped, Some(Stop::Interrupted), "{done:?}");
    assert_eq!(report.huge_pages_split, victim.split_regions() as u64, "{done:?}");
    assert!(report.huge_pages_split < 80, "it went on: {done:?}");
    victim.ends_intact();
}

#[test]
fn a_process_without_huge_pages_has_nothing_to_free() {
    requires!(possible());
    let mut victim = Victim::c("shapeshift.c", &["exit", "60000"]);
    victim.ready(SOON);
    let done = debloat(&[victim.pid()], "");
    let none = report(done.exits(1));
    assert_eq!(
        (none.huge_pages_before, none.bloat_bytes.get(), none.huge_pages_split),
        (0, 0, 0),
        "{done:?}"
    );
    let text = hugepilot(["debloat", "--order", "exact", "-p", &victim.pid().to_string()]);
    assert!(
        text.exits(1).out().starts_with("0B of bloat in 0 huge pages; nothing was split.\n"),
        "{text:?}"
    );
    victim.signal(rustix::process::Signal::KILL);
    victim.wait(SOON);
}

#[test]
fn a_process_without_memory_is_not_a_target() {
    requires!(need::live());
    requires!(need::c_compiler());
    let victim = Victim::c("shapeshift.c", &["zombie", "0"]);
    let zombie: u32 = victim.says("zombie", SOON)[0].parse().unwrap();
    debloat(&[zombie], "").exits(2).says(&["zombie"]);
    debloat(&[zombie], "--dry-run").exits(2).says(&["zombie"]);
    let gone = i32::MAX.unsigned_abs();
    debloat(&[gone], "").exits(2).says(&["no process"]);
    debloat(&[0], "").exits(2).says(&["--pid"]);
}

#[test]
fn a_kernel_thread_is_not_a_target() {
    requires!(need::live());
    let is_kthreadd = std::fs::read("/proc/2/comm").is_ok_and(|name| name == b"kthreadd\n");
    requires!(if is_kthreadd {
        Need::Ok
    } else {
        Need::Err("a PID namespace: no kernel threads".into())
    });
    debloat(&[2], "").exits(2).says(&["kernel thread"]);
}

#[test]
fn hostile_names_are_printed_as_text() {
    requires!(possible());
    let victim = Bloat::start(&["16x8", "0", "a) R 1\n\u{1b}[31mé"]);
    let pid = victim.pid().to_string();
    let line = "debloat --order exact --observe 100ms --calibration off --amount 20% -p";
    for more in ["--json", "", "--dry-run", "--sample 50%"] {
        let words = line.split(' ').chain([pid.as_str()]).chain(more.split_whitespace());
        let done = hugepilot(words);
        is_plain(done.exits(0));
        assert!(done.out().contains("a) R 1"), "{done:?}");
    }
    let done = hugepilot(["debloat", "-p", &pid, "--protect", "x\n\u{1b}[31m"]);
    is_plain(done.exits(2));
    victim.ends_intact();
}

#[test]
fn the_command_itself_is_a_target_like_any() {
    requires!(need::all([need::live(), need::root()]));
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &format!("exec {HUGEPILOT} debloat --order exact --json -p $$")]);
    let done = Running::start(command).wait(SOON);
    assert!(matches!(done.sane().status.code(), Some(0 | 1)), "{done:?}");
    report(&done);
}
