//! Targets that end, start another program, have malicious names, or are not processes.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hugepilot_kernel::{Process, Root};
use hugepilot_manager::act::promote;
use hugepilot_policy::Guard;
use hugepilot_record::{Pid, Stop};
use hugepilot_reports::status::StatusReport;
use hugepilot_testkit::{Need, Victim, need, requires};
use hugepilot_units::{AddrRange, Bytes, VirtAddr};

use crate::injected::{injected, strace};
use crate::look::{huge_now, total, tunable};
use crate::tool::{ANYWHERE, Done, HUGEPILOT, LIMIT, Running, hugepilot, tune, tune_args};
use crate::workload::{HOT_SET, SOON, Workload, open, picks, sizes};

#[test]
fn the_end_of_a_target_during_sampling_is_reported() {
    requires!(need::live());
    requires!(need::c_compiler());
    requires!(need::cap_perfmon());
    let victim = Victim::c("bloated.c", &["1", "5", "busy"]);
    victim.ready(SOON);
    let pid = victim.pid();
    let mut command = Command::new(HUGEPILOT);
    command.args(tune_args(pid, "--observe 60s --for 60s"));
    let mut tool = Running::start(command);
    tool.until_it_says("sampling ");
    drop(victim);
    let done = tool.wait(LIMIT);
    done.exits(2).says(&["ended", &pid.to_string()]);
    assert!(done.took < Duration::from_secs(5), "{:?}", done.took);
}

#[test]
fn the_end_of_a_target_during_promotion_leaves_a_complete_report() {
    requires!(strace());
    let workload = Workload::start(HOT_SET);
    let mut slow = injected(workload.pid(), "60s", "delay_enter=100000");
    slow.tool.until("the second promotion", || huge_now(workload.pid()) > sizes().huge);
    drop(workload);
    let done = slow.tool.wait(Duration::from_secs(10));
    let report = done.exits(2).says(&["ended before the tune did"]).report();
    assert_eq!((report.stopped, report.target_ended), (Some(Stop::TargetGone), true), "{done:?}");
    assert!((1..30).contains(&report.acts.verified_regions), "{done:?}");
}

#[test]
fn a_target_that_started_another_program_is_not_changed() {
    requires!(need::live());
    requires!(need::c_compiler());
    requires!(need::cap_sys_nice());
    let mut victim = Victim::c("shapeshift.c", &["exec", "300"]);
    let memory = victim.ready(SOON).memory;
    let process = open(victim.pid());
    let second = victim.says("execed", SOON);
    let start = u64::from_str_radix(second[0].trim_start_matches("0x"), 16).expect("an address");
    let now = AddrRange::at(VirtAddr::new(start), memory.len());
    for memory in [memory, now] {
        let journal = promote(&process, &picks(memory), &Guard::default(), &|| false, &mut |_| {});
        assert_eq!((journal.stopped, journal.attempted()), (Some(Stop::TargetExeced), 0));
    }
    assert_eq!(total(victim.pid(), "AnonHugePages"), Bytes::ZERO);
    assert!(victim.finish(SOON).success());
}

#[test]
fn tune_continues_when_its_target_starts_another_program() {
    requires!(tunable());
    // A busy shell that becomes a workload while it is sampled.
    let folder = tempfile::tempdir().unwrap();
    let go = folder.path().join("go");
    let mut command = Command::new("sh");
    let script = format!("while ! test -e $GO; do :; done; exec {HUGEPILOT} \"$@\"");
    command.args(["-c", &script, "sh", "lab", "workload"]).args(HOT_SET.split(' '));
    command.args(["--seconds", "0"]).env("GO", &go);
    let victim = Victim::spawn(command);
    let mut command = Command::new(HUGEPILOT);
    command.args(tune_args(victim.pid(), &format!("{ANYWHERE} --for 5s")));
    let mut tool = Running::start(command);
    tool.until_it_says("sampling ");
    std::fs::write(&go, b"").unwrap();
    let done = tool.wait(LIMIT);
    let report = done.exits(0).report();
    assert!(report.acts.verified_regions > 10, "{done:?}");
    assert_eq!(report.acts.huge_bytes_after, Some(huge_now(victim.pid())));
}

#[test]
fn unmapped_memory_is_skipped() {
    requires!(need::live());
    requires!(need::c_compiler());
    requires!(need::cap_sys_nice());
    let mut victim = Victim::c("shapeshift.c", &["unmap", "0"]);
    let memory = victim.ready(SOON).memory;
    victim.says("unmapped", SOON);
    let picks = picks(memory);
    let journal = promote(&open(victim.pid()), &picks, &Guard::default(), &|| false, &mut |_| {});
    let half = picks.len() as u64 / 2;
    assert_eq!((journal.verified(), journal.attempted()), (half, half), "{journal:?}");
    assert_eq!(total(victim.pid(), "AnonHugePages").get(), memory.len().get() / 2);
    assert!(victim.finish(SOON).success());
}

#[test]
fn a_zombie_is_rejected() {
    requires!(need::live());
    requires!(need::c_compiler());
    let victim = Victim::c("shapeshift.c", &["zombie", "0"]);
    let zombie = victim.says("zombie", SOON)[0].clone();
    hugepilot(["status", "-p", &zombie]).exits(2).says(&["zombie"]);
    hugepilot(tune_args(zombie.parse().unwrap(), "")).exits(2).says(&["zombie"]);
}

#[test]
fn a_kernel_thread_is_rejected() {
    requires!(need::live());
    let has_memory = std::fs::read_link("/proc/2/exe").is_ok();
    let is_kthreadd =
        std::fs::read("/proc/2/comm").is_ok_and(|name| name == b"kthreadd\n") && !has_memory;
    requires!(if is_kthreadd {
        Need::Ok
    } else {
        Need::Err("a PID namespace: no kernel threads".into())
    });
    hugepilot(["status", "-p", "2"]).exits(2).says(&["kernel thread"]);
    tune(2, "").exits(2).says(&["kernel thread"]);
}

#[test]
fn an_invalid_pid_is_an_error_with_its_cause() {
    requires!(need::live());
    let gone = {
        let mut child = Command::new("true").stdin(Stdio::null()).spawn().unwrap();
        child.wait().unwrap();
        child.id().to_string()
    };
    for command in ["status", "tune"] {
        hugepilot([command, "-p", &gone]).exits(2).says(&[&gone]);
        for nonsense in ["0", "-1", "x", "", "99999999999", "1 2"] {
            let done = hugepilot([command, &format!("--pid={nonsense}")]);
            assert!(done.exits(2).err().contains("--pid"), "{done:?}");
        }
    }
    hugepilot(["status", "-p", &i32::MAX.to_string()]).exits(2).says(&["no process"]);
}

#[test]
fn the_command_itself_can_be_a_target() {
    requires!(need::live());
    requires!(need::cap_perfmon());
    for line in ["status", "tune --calibration off --observe 500ms --for 1s"] {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("exec {HUGEPILOT} {line} --json -p $$")]);
        let running = Running::start(command);
        let pid = running.pid();
        let done = running.wait(LIMIT);
        let report: serde_json::Value = done.sane().json();
        assert_eq!(report["target"]["pid"], pid, "{done:?}");
    }
}

/// Fails if the output has control characters other than line breaks.
#[track_caller]
pub(crate) fn is_plain(done: &Done) {
    for bytes in [&done.stdout, &done.stderr] {
        let text = std::str::from_utf8(bytes).unwrap_or_else(|error| panic!("{error}: {done:?}"));
        let bad = text.chars().find(|c| c.is_control() && *c != '\n');
        assert_eq!(bad, None, "{:?}", text.escape_debug().to_string());
    }
}

#[test]
fn malicious_names_are_escaped() {
    requires!(need::live());
    requires!(need::c_compiler());
    requires!(need::cap_perfmon());
    let victim = Victim::c("hostile_name.c", &[]);
    let ready = victim.ready(SOON);
    let pid = victim.pid().to_string();
    let text = hugepilot(["status", "--all", "-p", &pid]);
    is_plain(text.exits(0));
    // A line break in a name would make more lines than there are mappings.
    assert!(
        text.out().lines().any(|line| line.contains("</script>") && line.contains("memfd")),
        "{text:?}"
    );
    let json = hugepilot(["status", "-p", &pid, "--json"]);
    is_plain(json.exits(0));
    let report: StatusReport = json.json();
    let named =
        report.mappings.iter().find(|mapping| mapping.range.start == ready.memory.start).unwrap();
    assert!(named.name.contains("red") && !named.name.contains('\u{1b}'), "{}", named.name);

    let timing = "--calibration off --observe 300ms --for 300ms".split(' ');
    for more in [&[][..], &["--json"], &["--dry-run"]] {
        let words =
            ["tune", "-p", &pid].into_iter().chain(timing.clone()).chain(more.iter().copied());
        let done = hugepilot(words);
        // The victim sleeps, so there are no samples.
        is_plain(done.exits(3));
    }
    hugepilot(tune_args(victim.pid(), "--observe 300ms --for 300ms")).exits(3).report();
}

#[test]
fn a_malicious_command_line_is_escaped() {
    requires!(need::live());
    requires!(need::cap_perfmon());
    let bad = "/no/such\n\u{1b}[31mred\u{7}";
    let done = hugepilot(["tune", "--calibration", "off", "--", bad]);
    is_plain(done.exits(2));

    // The kernel's name is that of the file, not argv[0].
    let mut command = Command::new("sleep");
    let mut child = command.arg0(bad).arg("60").spawn().unwrap();
    let until = Instant::now() + SOON;
    while Process::open(&Root::live(), Pid(child.id().cast_signed())).is_err()
        && Instant::now() < until
    {}
    is_plain(hugepilot(["status", "-p", &child.id().to_string()]).exits(0));
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Asserts that stderr has the name escaped, and no line that the name forges.
#[track_caller]
fn is_escaped(done: &Done) {
    let text = done.err();
    assert!(text.contains(r"\u{1b}]0;x\u{7}\u{9b}31m"), "{done:?}");
    assert!(!text.chars().any(|c| hugepilot_record::is_unsafe(c) && c != '\n'), "{done:?}");
    assert!(!text.lines().any(|line| line.starts_with("help: rm")), "{done:?}");
}

#[test]
fn the_name_of_a_file_reaches_no_terminal_raw() {
    let folder = tempfile::tempdir().unwrap();
    let hostile = "\u{1b}]0;x\u{7}\u{9b}31m";
    let name = folder.path().join(format!("{hostile}\nhelp: rm")).display().to_string();
    let absent = format!("{name}/file");
    for line in [
        &["report", &name][..],
        &["explain", &name],
        &["tune", "--undo", &name],
        &["sim", "tlb", &name],
        &["record", "-o", &absent, "--", "true"],
        &["record", "--", &name],
    ] {
        is_escaped(hugepilot(line).exits(2));
    }
    let unknown = hugepilot(["report", &format!("--{hostile}\nhelp: rm"), "x"]);
    let text = unknown.exits(2).says(&[r"'--\u{1b}]0;x\u{7}\u{9b}31m\nhelp: rm'"]).err();
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{unknown:?}");
    is_escaped(hugepilot(["record", "--no-stalls", "-o", &name, "--", "true"]).exits(0));
    is_escaped(hugepilot(["record", "-o", &name, "--", "true"]).exits(2));
    is_escaped(hugepilot(["report", &name, "-o", &format!("{absent}.html")]).exits(2));
    let pid = std::process::id().to_string();
    is_escaped(hugepilot(["tune", "--journal", &absent, "-p", &pid]).exits(2));
}
