//! Help lines about memory of a program: it ends the obstacle, and the line is about half as much
//! memory or less.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use hugepilot_record::Obstacle;
use hugepilot_reports::tune::NoVerdict;
use hugepilot_testkit::{Victim, compiled, make_room, need, requires};
use serde_json::Value;

use crate::options::{is_help, section};
use crate::reasons::{Settings, run, usual};
use crate::remedies::{possible, run_command};
use crate::tool::tune;
use crate::workload::SOON;

/// Obstacle of `undone.c`, and the help about it.
const UNDONE: &[(&str, &str)] = &[
    ("forbidden", "remove MADV_NOHUGEPAGE from the program, unless the memory is a stack"),
    (
        "guards",
        "place the guards of the program NMiB or more apart, so that whole huge pages fit between \
         them",
    ),
    ("watched", "unregister the memory in the program (UFFDIO_UNREGISTER), if its handler is done"),
    ("sparse", "tune when the program uses more of its memory"),
    ("forked", "if the other process ends soon, as for a snapshot, tune afterwards"),
];

/// Starts `undone.c`; says what the kernel lacks for the obstacle.
fn start(kind: &str) -> Result<Victim, String> {
    make_room();
    let victim = Victim::c("undone.c", &[kind]);
    let line = victim.line(SOON).expect("a first line");
    if line.starts_with("ready") { Ok(victim) } else { Err(line) }
}

/// `GODEBUG=madvdontneed=1`, which is the default.
#[test]
fn a_go_program_that_frees_at_once_has_no_lazily_freed_memory() {
    requires!(need::all([possible(), need::program("go")]));
    let bytes = |lazily: &str| {
        let mut command = Command::new(compiled(Path::new("freeing.go")));
        command.env("GODEBUG", lazily);
        let mut victim = Victim::spawn(command);
        victim.ready(SOON);
        let row = "let the program free memory at once: GODEBUG=madvdontneed=N for Go, \
                   MALLOC_CONF=muzzy_decay_ms:N for jemalloc";
        let found = find(victim.pid(), row);
        assert!(victim.finish(SOON).success());
        found.1
    };
    let (lazily, at_once) = (bytes("madvdontneed=0"), bytes("madvdontneed=1"));
    assert!(lazily > 1 << 20 && at_once * 2 <= lazily, "{lazily} {at_once}");
}

/// Opens a virtual machine, and works.
const KVM: &str = "\
import fcntl, os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
kvm = open('/dev/kvm', 'r+b', buffering=0)
try:
    vm = fcntl.ioctl(kvm.fileno(), 0xAE01, 0)
except OSError as error:
    print(error, flush=True)
    sys.exit()
memory = bytearray(16 << 20)
print('ready', flush=True)
while True: pass
";

/// `--policy all`, which needs no samples.
#[test]
fn the_memory_of_a_virtual_machine_is_promoted_without_samples() {
    requires!(need::all([possible(), need::program("python3")]));
    let opens = std::fs::OpenOptions::new().read(true).write(true).open("/dev/kvm");
    requires!(opens.map(|_| ()).map_err(|error| format!("/dev/kvm: {error}")));
    let mut command = Command::new("python3");
    command.args(["-c", KVM]);
    let victim = Victim::spawn(command);
    let line = victim.line(SOON).expect("a line");
    requires!((line == "ready").then_some(()).ok_or(format!("/dev/kvm: {line}")));
    let sampled = tune(victim.pid(), "--dry-run").says(&["no verdict"]).report();
    assert_eq!(sampled.no_verdict, Some(NoVerdict::KvmGuest), "{sampled:?}");
    assert_eq!(sampled.obstacles, [Obstacle::KvmGuest]);
    let report = tune(victim.pid(), "--policy all --for 300ms --observe 300ms").report();
    assert!(report.no_verdict.is_none() && report.acts.verified_regions > 4, "{report:?}");
}

/// Lets the program end its obstacle.
fn undo(victim: &mut Victim) {
    victim.send("undo");
    victim.says("undone", SOON);
}

/// Memory by help line, of both lists of reasons.
fn advised(pid: u32) -> BTreeMap<String, u64> {
    let report: Value = serde_json::from_slice(&run(pid, "--json --no-contents")).expect("JSON");
    let lines = |share: &Value, help: &Value| -> Vec<(String, u64)> {
        let bytes = share["bytes"].as_u64().expect("bytes");
        let help: Vec<String> = serde_json::from_value(help.clone()).unwrap_or_default();
        help.into_iter().map(|line| (line, bytes)).collect()
    };
    let list = |name: &str| report[name].as_array().expect("a list").clone();
    let skips = list("skips").into_iter().flat_map(|share| lines(&share, &share["help"]));
    let kernel = list("kernel_reasons");
    let kernel = kernel.into_iter().flat_map(|share| lines(&share, &share["reason"]["help"]));
    let mut all = BTreeMap::new();
    for (line, bytes) in skips.chain(kernel) {
        let most = all.entry(line).or_insert(0);
        *most = bytes.max(*most);
    }
    all
}

/// The command and the memory of the help line that `row` stands for; no memory without it.
fn find(pid: u32, row: &str) -> (String, u64) {
    let found = advised(pid).into_iter().find(|(line, _)| is_help(row, line));
    found.unwrap_or_default()
}

/// Starts a program whose obstacle the kernel has under a setting, and asserts that its help ends
/// it: a command, or what the program does.
#[track_caller]
fn ends(kind: &str, changes: &[(&str, &str)], row: &str) {
    let settings = Settings::now();
    usual(&settings);
    changes.iter().for_each(|(setting, word)| settings.set(setting, word));
    help_ends(start(kind).expect("the kernel has it"), kind, row);
}

/// Asserts that the help ends the obstacle of a program.
#[track_caller]
fn help_ends(mut victim: Victim, kind: &str, row: &str) {
    let (help, before) = find(victim.pid(), row);
    assert!(before >= 1 << 20, "{kind}: {:?}", advised(victim.pid()));
    if !run_command(&help) {
        undo(&mut victim);
    }
    let after = find(victim.pid(), row).1;
    assert!(after * 2 <= before, "{kind}: {before} {:?}", advised(victim.pid()));
    assert!(victim.finish(SOON).success(), "{kind}");
}

#[test]
fn a_file_of_whole_huge_pages_may_have_them() {
    requires!(possible());
    let help = "make the file a multiple of the size of a huge page";
    ends("cut", &[("shmem_enabled", "within_size")], help);
}

#[test]
fn memory_that_is_shared_in_part_may_be_copied() {
    requires!(possible());
    let help = "allow up to N of N, which copies pages: echo N | sudo tee \
                /sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_shared";
    ends("parted", &[("enabled", "always")], help);
}

#[test]
fn later_page_faults_may_compact_memory() {
    requires!(possible());
    let to = "echo always | sudo tee /sys/kernel/mm/transparent_hugepage/defrag";
    for (word, help) in [
        ("never", "let later page faults compact memory, which can delay them"),
        ("madvise", "or let all later page faults compact memory, which can delay them"),
    ] {
        ends("plain", &[("enabled", "always"), ("defrag", word)], &format!("{help}: {to}"));
    }
}

/// A file that is the swap of the machine until it is dropped.
struct Swap(tempfile::NamedTempFile);

impl Swap {
    fn start() -> Result<Self, String> {
        let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR"));
        let swap = Self(file.map_err(|error| error.to_string())?);
        let line = "chmod 600 \"$0\" && dd if=/dev/zero of=\"$0\" bs=1M count=128 2>&1 &&
                    mkswap \"$0\" && swapon \"$0\"";
        let made = Command::new("sh").args(["-c", line]).arg(swap.0.path()).output();
        let made = made.map_err(|error| error.to_string())?;
        let error = String::from_utf8_lossy(&made.stderr).trim().to_owned();
        if made.status.success() { Ok(swap) } else { Err(format!("no swap: {error}")) }
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        let ended = Command::new("swapoff").arg(self.0.path()).status();
        if !ended.is_ok_and(|status| status.success()) {
            eprintln!("{} is still swap", self.0.path().display());
            self.0.disable_cleanup(true);
        }
    }
}

#[test]
fn swapped_memory_may_be_huge_once_it_is_read_back() {
    requires!(possible());
    let swap = Swap::start();
    requires!(swap.as_ref().map(|_| ()).map_err(Clone::clone));
    let mut victim = start("swapped").expect("the kernel has it");
    let status = fs::read_to_string(format!("/proc/{}/status", victim.pid())).expect("a process");
    assert!(victim.finish(SOON).success());
    let is_swapped = status.lines().any(|line| {
        let kibibytes = line.strip_prefix("VmSwap:").and_then(|rest| rest.trim().split(' ').next());
        kibibytes.and_then(|number| number.parse::<u64>().ok()).is_some_and(|number| number > 1024)
    });
    requires!(is_swapped.then_some(()).ok_or("no swap: nothing was swapped"));
    let help = "free memory, so that the program reads its pages back";
    ends("swapped", &[("enabled", "always")], help);
    let help = "allow up to N of N, which reads swap: echo N | sudo tee \
                /sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_swap";
    ends("swapped", &[("enabled", "always")], help);
}

#[test]
fn an_obstacle_that_the_program_ends_is_no_longer_named() {
    requires!(possible());
    let lines = UNDONE.iter().map(|(_, line)| *line).collect();
    assert_eq!(section("obstacles::an_obstacle_that_the_program_ends_is_no_longer_named"), lines);
    for (kind, line) in UNDONE {
        match start(kind) {
            Ok(victim) => help_ends(victim, kind, line),
            Err(missing) => {
                let test = "obstacles::an_obstacle_that_the_program_ends_is_no_longer_named";
                hugepilot_testkit::skip(test, &format!("the kernel lacks {missing}"));
            }
        }
    }
}
