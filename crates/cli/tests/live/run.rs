//! `run`: the program behaves as without hugepilot, and the report of its pages is true.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hugepilot_record::Mode;
use hugepilot_reports::run::{EffectCause, RunReport, RunWarning};
use hugepilot_testkit::{Need, compiled, need, requires};
use hugepilot_units::Bytes;
use rustix::process::Signal;

use crate::tool::{Done, HUGEPILOT, LIMIT, Running, hugepilot};

const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

/// A file for a report, gone with the test.
struct Report(tempfile::TempDir);

impl Report {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }
    fn path(&self) -> PathBuf {
        self.0.path().join("report.json")
    }
    #[track_caller]
    fn read(&self) -> RunReport {
        serde_json::from_slice(&fs::read(self.path()).expect("it was written")).expect("a report")
    }
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// `hugepilot run FLAGS -- sh -c SCRIPT`.
fn shell(flags: &str, script: &str) -> Command {
    let mut command = Command::new(HUGEPILOT);
    command.arg("run").args(words(flags)).args(["--", "sh", "-c", script]);
    command
}

#[track_caller]
fn run_shell(flags: &str, script: &str) -> Done {
    Running::start(shell(flags, script)).wait(LIMIT)
}

/// The article's benchmark in a mode, with its report: tables of 68 MiB, one after the other, until
/// some samples of the memory saw one.
#[track_caller]
fn hash_insert(flags: &str) -> RunReport {
    workload(flags, "hash-insert --entries 2000000 --seconds 800ms")
}

#[track_caller]
/// A workload in a mode, with its report.
fn workload(flags: &str, line: &str) -> RunReport {
    let file = Report::new();
    let line = format!(
        "run {flags} --report {} -- {HUGEPILOT} lab workload {line}",
        file.path().display()
    );
    let done = hugepilot(words(&line));
    done.exits(0);
    let out = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(
        out.lines().last().is_some_and(|line| line.contains("hugepilot.workload/1")),
        "its own output: {done:?}"
    );
    file.read()
}

/// Free memory in blocks of huge-page size.
fn huge_blocks() -> Need {
    let sizes = hugepilot_units::PageSizes::X86_64;
    let free = hugepilot_kernel::memory::free_huge(&hugepilot_kernel::Root::live(), sizes)
        .unwrap_or(Bytes::ZERO);
    let enough = if free >= Bytes::mib(512) {
        Need::Ok
    } else {
        Need::Err(format!("only {free} in free huge blocks"))
    };
    need::all([need::live(), need::memory(Bytes::gib(1)), enough])
}

fn thp_is(wanted: &str) -> Need {
    let setting =
        fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if setting.contains(&format!("[{wanted}]")) {
        Need::Ok
    } else {
        Need::Err(format!("THP is not {wanted}"))
    }
}

fn count(file: &str) -> u64 {
    let text = fs::read_to_string(format!("{POOL}/{file}_hugepages")).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// Root, and a pool of 2 MiB pages without a free one.
fn empty_pool() -> Need {
    let pool = match (Path::new(POOL).exists(), count("free")) {
        (true, 0) => Need::Ok,
        (true, _) => Need::Err("the pool has free pages".to_owned()),
        (false, _) => Need::Err("no hugetlb pool of 2 MiB pages".to_owned()),
    };
    need::all([need::live(), need::root(), need::memory(Bytes::gib(1)), pool])
}

#[test]
fn the_exit_status_is_the_programs_own() {
    requires!(need::live());
    for (script, code) in
        [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143), ("kill -9 $$", 137)]
    {
        assert_eq!(run_shell("--pages base", script).status.code(), Some(code), "{script}");
    }
    hugepilot(["run", "--pages", "base", "--", "/no/such/program"])
        .exits(2)
        .says(&["/no/such/program"]);
    hugepilot(["run", "--pages", "huge", "--", "true"]).exits(2).says(&["huge", "glibc-thp"]);
    hugepilot(["run", "--pages", "base", "--library", "/x.so", "--", "true"])
        .exits(2)
        .says(&["base", "--library"]);
}

#[test]
fn bytes_on_standard_input_and_output_pass_untouched() {
    requires!(need::live());
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|i| (i % 251) as u8).collect();
    let mut command = shell("--quiet --pages base", "cat; echo oops >&2");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let sent = bytes.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&sent).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success() && output.stdout == bytes);
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "oops\n",
        "nothing of ours where all is well and --quiet"
    );
}

#[test]
fn signals_reach_the_program_once_and_only_it_decides() {
    requires!(need::live());
    let script = "n=0; trap 'n=$((n+1))' USR1; trap 'exit $((40+n))' TERM; echo ready; \
                  while :; do sleep 0.02; done";
    let folder = tempfile::tempdir().unwrap();
    let ready = folder.path().join("ready");
    let script = script.replace("echo ready", &format!("echo >{}", ready.display()));
    let mut tool = Running::start(shell("--pages base", &script));
    tool.until("it is ready", || ready.exists());
    for _ in 0..2 {
        tool.signal(Signal::USR1);
        std::thread::sleep(Duration::from_millis(200));
    }
    tool.signal(Signal::TERM);
    assert_eq!(tool.wait(LIMIT).status.code(), Some(42), "two, and then the end");
}

#[test]
fn a_program_that_is_stopped_stops_us_and_goes_on_with_us() {
    requires!(need::live());
    let folder = tempfile::tempdir().unwrap();
    let go = folder.path().join("go");
    // The program stops itself: Ctrl-Z works only with a shell that can continue it.
    let script =
        format!("kill -STOP $$; while ! test -e {}; do sleep 0.02; done; exit 9", go.display());
    let mut tool = Running::start(shell("--pages base", &script));
    let pid = tool.pid();
    let state = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(") ").next().and_then(|rest| rest.chars().next())
    };
    tool.until("we are stopped", || state() == Some('T'));
    tool.signal(Signal::CONT);
    tool.until("we go on", || state() != Some('T'));
    fs::write(&go, b"").unwrap();
    assert_eq!(tool.wait(LIMIT).status.code(), Some(9));
}

#[test]
fn what_its_user_had_set_stays() {
    requires!(need::live());
    let mut command = shell("--pages glibc-thp --quiet", "echo $GLIBC_TUNABLES; echo $OWN");
    command.env("GLIBC_TUNABLES", "glibc.malloc.check=0").env("OWN", "kept");
    let done = Running::start(command).wait(LIMIT);
    let out = String::from_utf8_lossy(&done.stdout).into_owned();
    assert_eq!(out, "glibc.malloc.check=0:glibc.malloc.hugetlb=1\nkept\n", "{done:?}");
    let mut command = shell("--pages glibc-thp", "echo $GLIBC_TUNABLES");
    command.env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=0");
    let done = Running::start(command).wait(LIMIT);
    assert_eq!(String::from_utf8_lossy(&done.stdout), "glibc.malloc.hugetlb=0\n");
    done.says(&["glibc.malloc.hugetlb=0 in GLIBC_TUNABLES is set by the user"]);
}

#[test]
fn page_faults_drop_where_huge_pages_take_effect() {
    requires!(need::all([huge_blocks(), thp_is("madvise")]));
    let base = hash_insert("--pages base");
    assert!(
        base.effect.took_effect == Some(true) && base.run.peak.all_huge() == Bytes::ZERO,
        "{base:?}"
    );
    assert!(
        base.run.peak.rss_peak_bytes > Bytes::mib(60) && base.run.peak.rss_samples > 0,
        "{base:?}"
    );
    // Before glibc 2.38 it works in some runs only, which the report must say.
    let glibc = (0..12).map(|_| hash_insert("--pages glibc-thp")).find(|run| {
        let took_effect = run.effect.took_effect == Some(true);
        assert!(took_effect || run.effect.cause == EffectCause::LibcThpBug, "{run:?}");
        took_effect
    });
    let glibc = glibc.expect("once in twelve runs");
    assert!(glibc.run.peak.anonymous_thp_peak_bytes > Bytes::mib(16), "{glibc:?}");
    assert!(
        glibc.run.page_faults * 10 < base.run.page_faults,
        "{} and {}",
        glibc.run.page_faults,
        base.run.page_faults
    );
    requires!(need::cap_sys_nice());
    let thp = workload("--pages thp", "hash-map --size 256MiB --seconds 1500ms");
    assert!(
        thp.effect.took_effect == Some(true) && thp.run.peak.thp_peak_bytes > Bytes::mib(16),
        "{thp:?}"
    );
    assert_eq!(thp.mode, Mode::Thp);
}

#[test]
fn a_static_program_is_a_warning_and_a_missing_library_an_error() {
    requires!(need::live());
    requires!(need::c_compiler());
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("static");
    let source = folder.path().join("static.c");
    // Touches 64 MiB, and leaves time to sample it.
    let text = "#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\n\
                int main(void) { char *p = malloc(64 << 20); memset(p, 1, 64 << 20);\n\
                usleep(300000); return p[5] - 1; }\n";
    fs::write(&source, text).unwrap();
    let built = Command::new("cc")
        .args(["-O0", "-static", "-o"])
        .arg(&program)
        .arg(&source)
        .output()
        .unwrap();
    let built =
        if built.status.success() { Need::Ok } else { Need::Err("no static C library".to_owned()) };
    requires!(built);
    let program = program.to_str().unwrap();
    let none = "/no/such/libmimalloc.so";
    hugepilot(["run", "--pages", "mimalloc", "--library", none, "--", program])
        .exits(3)
        .says(&[none]);
    let library = env!("CARGO_BIN_EXE_hugepilot");
    let done = hugepilot(["run", "--pages", "mimalloc", "--library", library, "--", program]);
    done.exits(0).says(&[
        "warning: mimalloc took no effect",
        "linked statically",
        "help: --pages thp",
    ]);
}

#[test]
fn an_empty_pool_is_reported_with_the_command_that_fills_it() {
    requires!(empty_pool());
    let report = Report::new();
    let line = format!("run --pages hugetlb --report {} -- sleep 0.1", report.path().display());
    let done = hugepilot(words(&line));
    done.exits(0).says(&[
        "warning: hugetlb took no effect",
        "no free page of 2MiB",
        "help: sudo hugepilot pool set --size 2MiB",
    ]);
    assert!(report.read().effect.took_effect == Some(false));
}

#[test]
fn a_pool_is_raised_for_the_run_and_restored_also_after_ctrl_c() {
    requires!(empty_pool());
    let before = count("nr");
    let report = hash_insert("--pages hugetlb --pool 128MiB");
    assert!(report.effect.took_effect == Some(true) && report.warnings.is_empty(), "{report:?}");
    assert!(report.run.peak.hugetlb_2m_peak_bytes > Bytes::mib(10), "{report:?}");
    assert_eq!(count("nr"), before);
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut tool = Running::start(shell("--pages hugetlb --pool 64MiB", "exec sleep 30"));
        tool.until("the pool is set", || count("nr") >= before + 32);
        std::thread::sleep(Duration::from_millis(300));
        tool.signal(signal);
        assert_eq!(tool.wait(LIMIT).status.code(), Some(128 + signal.as_raw()));
        assert_eq!(count("nr"), before, "{signal:?}");
    }
}

#[test]
fn a_run_that_was_killed_is_repaired_by_the_next_command() {
    requires!(empty_pool());
    let before = count("nr");
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    let script = format!("echo $$ >{}; exec sleep 30", pid.display());
    let mut tool = Running::start(shell("--pages hugetlb --pool 64MiB", &script));
    tool.until("it runs", || fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n')));
    tool.signal(Signal::KILL);
    tool.wait(LIMIT);
    assert_eq!(count("nr"), before + 32, "nobody is left to give it back");
    let done = hugepilot(["pool", "show"]);
    done.exits(0).says(&["was killed while hugepages-2048kB/nr_hugepages was changed"]);
    // The program goes on, and what it has touched goes back when it ends.
    assert_eq!(count("nr") - count("surplus"), before);
    let left: i32 = fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(left).unwrap(), Signal::KILL)
        .unwrap();
    let until = Instant::now() + LIMIT;
    while count("nr") != before {
        assert!(Instant::now() < until, "{} pages are left", count("nr"));
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn mimalloc_serves_the_program_where_it_is_installed() {
    requires!(need::live());
    let tried = hugepilot(["run", "--quiet", "--pages", "mimalloc", "--", "true"]);
    let installed =
        if tried.status.code() == Some(3) { Need::Err("no mimalloc".to_owned()) } else { Need::Ok };
    requires!(installed);
    let plain = hash_insert("--pages mimalloc");
    assert!(
        plain.effect.took_effect == Some(true)
            && plain.environment.iter().any(|set| set.starts_with("LD_PRELOAD=")),
        "{plain:?}"
    );
    requires!(huge_blocks());
    let large = hash_insert("--pages mimalloc-2m");
    assert!(
        large.effect.took_effect == Some(true) && large.run.peak.all_huge() > Bytes::mib(40),
        "{large:?}"
    );
    assert!(large.run.page_faults * 10 < plain.run.page_faults, "{large:?}");
}

/// Program with `MIB` of memory from mmap, which malloc does not advise. It writes its pid to a
/// file once all is touched, and ends when the file is gone. With a third word, its memory must not
/// be huge.
const MAPPED: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    size_t len = (size_t)atoi(argv[1]) << 20;
    char *memory = mmap(0, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || (argc > 3 && madvise(memory, len, MADV_NOHUGEPAGE)))
        return 1;
    for (size_t at = 0; at < len; at += 4096)
        memory[at] = 1;
    FILE *file = fopen(argv[2], "w");
    fprintf(file, "%d\n", (int)getpid());
    fclose(file);
    while (access(argv[2], F_OK) == 0)
        usleep(10000);
    return 0;
}
"#;

/// Starts [`MAPPED`] in mode `thp`, and waits until its memory is touched. Returns the run, its
/// report, and the file that holds it.
fn mapped(folder: &Path, more: &[&str]) -> (Running, PathBuf, PathBuf) {
    let source = folder.join("mapped.c");
    fs::write(&source, MAPPED).unwrap();
    let program = compiled(&source);
    let (report, held) = (folder.join("report.json"), folder.join("pid"));
    let mut command = Command::new(HUGEPILOT);
    command.args(["run", "--pages", "thp", "--report"]).arg(&report).arg("--");
    command.arg(program).arg("128").arg(&held).args(more);
    let mut running = Running::start(command);
    running.until("its memory is touched", || {
        fs::read_to_string(&held).is_ok_and(|text| text.ends_with('\n'))
    });
    (running, report, held)
}

#[test]
fn mode_thp_follows_memory_that_malloc_does_not_advise() {
    requires!(need::all([huge_blocks(), thp_is("madvise"), need::cap_sys_nice()]));
    requires!(need::c_compiler());
    let folder = tempfile::tempdir().unwrap();
    let (mut running, _, held) = mapped(folder.path(), &[]);
    let pid: i32 = fs::read_to_string(&held).unwrap().trim().parse().unwrap();
    running.until("most of its memory is huge", || {
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        let huge = rollup.lines().find_map(|line| line.strip_prefix("AnonHugePages:"));
        let huge = huge.and_then(|text| text.trim().trim_end_matches("kB").trim().parse().ok());
        huge.is_some_and(|kib: u64| kib >= 120 << 10)
    });
    fs::remove_file(&held).unwrap();
    running.wait(LIMIT).exits(0);
}

#[test]
fn mode_thp_says_what_it_reached() {
    requires!(need::all([huge_blocks(), thp_is("madvise"), need::cap_sys_nice()]));
    requires!(need::c_compiler());
    let folder = tempfile::tempdir().unwrap();
    let (running, report, held) = mapped(folder.path(), &["no-huge-pages"]);
    fs::remove_file(&held).unwrap();
    running.wait(LIMIT).exits(0).says(&["thp", "only 0B of 1", "on huge pages", "help: --pages"]);
    let report: RunReport = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
    let Some(RunWarning::ReachedLittle(reach)) = report.warnings.first() else {
        panic!("{report:?}");
    };
    assert!(reach.memory_bytes >= Bytes::mib(128), "{reach:?}");
    assert_eq!((reach.reached_bytes, reach.promoted_regions), (Bytes::ZERO, 0), "{reach:?}");
}
