//! Real outputs against the schemas, without permissions: where one is missing, the output is an
//! error, which has a schema, too.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use hugepilot_testkit::{Victim, assert_golden};

use crate::ROOT;
use crate::validation::validate;

/// Runs `hugepilot` with the words of `line`.
#[track_caller]
fn hugepilot(line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hugepilot"));
    let output = command.args(line.split_whitespace()).output().expect("the program starts");
    assert!(matches!(output.status.code(), Some(0..=3)), "{line}: {output:?}");
    output
}

/// Runs `hugepilot` with the words of `line`, whose JSON must be of one of these schemas.
#[track_caller]
fn prints_one_of(names: &[&str], line: &str) {
    let output = hugepilot(line);
    match validate(&output.stdout) {
        Ok(found) => assert!(names.contains(&&*found), "{line}: {output:?}"),
        Err(error) => panic!("{line}: {error}\n{output:?}"),
    }
}

/// The same with one schema.
#[track_caller]
fn prints(name: &str, line: &str) {
    prints_one_of(&[name], line);
}

/// The same for a command that may lack a permission or a feature of the kernel.
#[track_caller]
fn prints_or_fails(name: &str, line: &str) {
    prints_one_of(&[name, "error"], line);
}

#[test]
fn graph_reports() {
    for kernel in ["bfs", "sssp", "pr", "cc", "bc", "diameter", "tc"] {
        prints("graph", &format!("graph run {kernel} kronecker:6 --verify --json"));
    }
    prints("graph", "graph info uniform:6 --json --reorder dbg --width 64");
    let folder = tempfile::tempdir().unwrap();
    let [weighted, list] = ["a.wel", "a.el"].map(|name| folder.path().join(name));
    fs::write(folder.path().join("a.el.map"), "").unwrap();
    prints("graph", &format!("graph generate uniform:6:1 {} --json", weighted.display()));
    let (from, to) = (weighted.display(), list.display());
    prints("graph", &format!("graph convert {from} {to} --json"));
}

#[test]
fn micro_benchmarks() {
    prints("lab-pchase", "lab pchase --size 1MiB --rounds 1 --time 1ms --chains 1,2 --json");
    prints("lab-stream", "lab stream --array 1MiB --rounds 2 --json");
    prints("lab-gups", "lab gups --size 1MiB --json");
    prints("lab-tlb-sweep", "lab tlb-sweep --pages base,hugetlb-1g --size 1MiB --json");
    prints("error", "lab pchase --chains 17 --json");
    prints("error", "lab stream --rounds 1 --json");
}

#[test]
fn conditions_for_experiments() {
    prints("lab-quiet", "lab quiet --seconds 0.01 --json");
    prints("lab-page-cache", "lab page-cache --size 1MiB --json -- true");
    prints("lab-page-cache", "lab page-cache --file /proc/self/exe --size 1MiB --json -- true");
    prints_or_fails("lab-warm", "lab warm --size 1MiB --json");
    prints("error", "lab pressure --leave 1023MiB --json");
    prints("error", "lab pressure --leave footprint+1GiB --json");
    prints("error", "lab pressure --leave 2GiB --kind cgroup --json");
    prints_or_fails("lab-pressure", "lab pressure --leave 2GiB --kind cgroup --json -- true");
    prints_or_fails("lab-fragment", "lab fragment --level 0% --json -- true");
}

#[test]
fn errors() {
    prints("error", "graph info /nonexistent --json");
    prints("error", "graph run bfs kronecker:6 --trials 0 --json");
    prints("error", "status -p 2147483647 --json");
    for line in ["schema status", "--help", "tune --version"] {
        let mut unwritten = Command::new(env!("CARGO_BIN_EXE_hugepilot"));
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = unwritten.args(line.split(' ')).stdout(full).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        let cause =
            "hugepilot: cannot write to stdout: No space left on device (os error 28)\nhelp: ";
        assert!(error.starts_with(cause) && output.status.code() == Some(2), "{line}: {error}");
    }
}

#[test]
fn reports_about_a_journal() {
    let journal = Path::new(ROOT).join("crates/policy/testdata/journal.ndjson");
    let path = journal.display();
    prints("explain", &format!("explain {path} --json --region all"));
    prints("undo", &format!("tune --undo {path} --json"));
    let text = hugepilot(&format!("explain {path} --region 0x20000000000"));
    let text = String::from_utf8(text.stdout).unwrap();
    assert_golden(Path::new(ROOT).join("crates/reports/testdata/explain.txt"), &text);
    prints("error", &format!("explain {ROOT}/Cargo.toml --json"));
    prints("error", &format!("explain {path} --round 1000 --json"));
    prints("error", &format!("explain {path} --region 0x123 --json"));
}

#[test]
fn recordings_of_commands() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.rec");
    let file = file.display();
    let graph = format!("graph run bfs kronecker:6 --trials 2 --record {file}");
    let sim = format!(
        "sim pcc --preset haswell --budget 30% --interval 50000 --pattern random:16MiB \
         --max-accesses 300000 --record {file}"
    );
    let source = "--pattern random:16MiB --max-accesses 100000";
    let others = ["tlb", "utility --interval 30000", "reuse"];
    let others = others.map(|name| format!("sim {name} {source} --record {file}"));
    for (line, title) in [(&graph, "Runs and trials"), (&sim, "Rounds, a row for each process")]
        .into_iter()
        .chain(others.iter().map(|line| (line, "Simulated accesses of random:16MiB")))
    {
        let own = hugepilot(&format!("{line} --json")).stdout;
        validate(&own).unwrap();
        let json = hugepilot(&format!("report {file} --json")).stdout;
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(json["schema"], "hugepilot.report/1");
        let text = String::from_utf8(hugepilot(&format!("report {file}")).stdout).unwrap();
        let warned = text.contains("warning:") || text.contains("is not shown");
        assert!(text.contains(title) && !warned, "{line}: {text}");
        let is_journal = line.starts_with("sim pcc");
        let explained = if is_journal { "explain" } else { "error" };
        prints(explained, &format!("explain {file} --json"));
    }
    let graph = folder.path().join("a.el");
    fs::write(&graph, "0 1\n").unwrap();
    let path = graph.display();
    let refused = hugepilot(&format!("graph run bfs {path} --record {path}"));
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert_eq!(fs::read_to_string(&graph).unwrap(), "0 1\n", "the graph stays");
}

#[test]
fn a_region_that_a_journal_lacks_is_an_error() {
    let journal = Path::new(ROOT).join("crates/policy/testdata/journal.ndjson");
    let path = journal.display();
    let explain = |flags: &str| {
        let Output { status, stderr, .. } = hugepilot(&format!("explain {path} {flags}"));
        (status.code(), String::from_utf8(stderr).unwrap())
    };
    let help = format!(
        "help: list the regions that each round promotes, demotes or splits: hugepilot explain \
         {path} --region all\n"
    );
    for (flags, what) in [
        ("--region 0x123", "the journal has no region at 0x123"),
        ("--region 0xffffffffffffffff", "the journal has no region at 0xffffffffffffffff"),
        ("--region 291 --round 2", "round 2 of the journal has no region at 0x123"),
    ] {
        assert_eq!(explain(flags), (Some(2), format!("hugepilot: {what}\n{help}")), "{flags}");
    }
    let unaligned = "note: 0x20000000123 is in region 0x20000000000\n";
    assert_eq!(explain("--region 0x20000000123"), (Some(0), unaligned.to_owned()));
    assert_eq!(explain("--region 0x20000000000"), (Some(0), String::new()));
}

#[test]
fn reports_about_the_machine() {
    prints("doctor", "doctor --json");
    prints_or_fails("knobs", "knobs prefetch show --json");
    prints_or_fails("pool", "pool show --json");
    prints_or_fails("pool", "pool set --size 2MiB --count 1 --dry-run --json");
    prints_or_fails("pool", "pool set --size 2MiB --count 0 --dry-run --json");
}

#[test]
fn reports_about_a_process() {
    // A process without children: each that is tuned has a report.
    let mut program = Command::new(env!("CARGO_BIN_EXE_hugepilot"));
    program.args(["lab", "workload", "hot-set", "--footprint", "32MiB", "--hot", "8MiB"]);
    program.args(["--seconds", "0"]);
    // A failed check does not leave it running.
    let program = Victim::spawn(program);
    let pid = program.pid();
    prints("status", &format!("status -p {pid} --json"));
    let quick = "--dry-run --observe 0.2s --calibration off --json";
    prints_or_fails("tune", &format!("tune -p {pid} {quick}"));
    prints_or_fails("debloat", &format!("debloat -p {pid} {quick}"));
    drop(program);
    prints_or_fails("debloat", "debloat --backend shrinker --cgroup /nonexistent --dry-run --json");
}

#[test]
fn reports_about_programs() {
    prints("compare", "compare --modes advised --rounds 2 --json -- true");
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.json");
    for mode in ["base", "advised", "hugepilot-base"] {
        hugepilot(&format!("run --pages {mode} --report {} -- true", report.display()));
        let json = fs::read(&report).unwrap_or_default();
        if mode != "hugepilot-base" || !json.is_empty() {
            assert_eq!(validate(&json).as_deref(), Ok("run"), "{mode}");
        }
    }
}

#[test]
fn reports_about_traces() {
    let folder = tempfile::tempdir().unwrap();
    let [log, trace, other] = ["log", "a.trace", "b.trace"].map(|name| folder.path().join(name));
    fs::write(&log, " L 1fff000698,8\n S 04035480,4\n==7== Exit code:       0\n").unwrap();
    let line = format!("trace -o {} --import lackey {} --json", trace.display(), log.display());
    prints("trace", &line);
    prints("error", &line);
    prints("trace", &format!("{line} --force --skip 1 --window 1/2"));
    fs::write(&log, "9 2: W0.T7 write  8 byte(s) @ 0x00007fff9a9e3528 by PC 0x10\n").unwrap();
    let line = format!("trace -o {} --import drmemtrace {}", trace.display(), log.display());
    prints("trace", &format!("{line} --force --json"));
    prints_or_fails("trace", &format!("trace -o {} --json -- true", other.display()));
    prints("error", &format!("trace -o {} --json -- /dev/null", other.display()));
}

/// A plan of a part of the run states wrong times, and one of mappings without a process none.
#[test]
fn schedules_that_could_not_be_replayed_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let [log, trace, plan] = ["log", "a.trace", "plan"].map(|name| folder.path().join(name));
    let end = "==7== Exit code:       0\n";
    fs::write(&log, " L 1fff000698,8\n".repeat(100) + end).unwrap();
    hugepilot(&format!("trace -o {} --import lackey {}", trace.display(), log.display()));
    fs::write(&plan, "old").unwrap();
    let refused = |source: &str, cause: &str| {
        let line = format!("sim hawkeye --schedule {} {source}", plan.display());
        let Output { status, stderr, stdout } = hugepilot(&line);
        let text = String::from_utf8(stderr).unwrap();
        assert_eq!(status.code(), Some(2), "{source}: {text}");
        assert!(text.contains(cause) && text.contains("help: "), "{source}: {text}");
        assert_eq!(fs::read_to_string(&plan).unwrap(), "old", "{source}");
        String::from_utf8(stdout).unwrap()
    };
    let files = || fs::read_dir(folder.path()).unwrap().count();
    let bytes = fs::read(&trace).unwrap();
    fs::write(&trace, &bytes[..bytes.len() - 1]).unwrap();
    let (shown, before) = (trace.display().to_string(), files());
    let report = refused(&shown, "the trace is cut at byte");
    assert!(report.contains("Decisions of policy hawkeye"), "the report is printed: {report}");
    let new = folder.path().join("new");
    let output = hugepilot(&format!("sim hawkeye --json --schedule {} {shown}", new.display()));
    assert_eq!(validate(&output.stdout).as_deref(), Ok("sim-policy"), "{output:?}");
    assert_eq!((output.status.code(), files()), (Some(2), before), "no file is left");
    refused("--graph kronecker:6 --kernel bfs", "are in no process");
    refused("--pattern random:4MiB --max-accesses 1000", "are in no process");
    fs::write(&trace, &bytes).unwrap();
    refused(&shown, "no decision: the accesses are fewer than --interval");
    let load = |page: u64| format!(" L {:x},8\n", (1 << 30) + page % 500 * 4096);
    fs::write(&log, (0..1000).map(load).collect::<String>() + end).unwrap();
    hugepilot(&format!("trace --force -o {shown} --import lackey {}", log.display()));
    refused(&format!("--interval 120 --pace 100% {shown}"), "does not have the mappings");
}

#[test]
fn the_last_line_of_a_workload() {
    for more in ["", "--steps 1000"] {
        let line = "lab workload hot-set --footprint 4MiB --hot 2MiB --ops 10000";
        let output = hugepilot(&format!("{line} {more}"));
        let last = output.stdout.trim_ascii_end().rsplit(|&byte| byte == b'\n').next();
        assert_eq!(validate(last.unwrap_or_default()).as_deref(), Ok("workload"), "{output:?}");
    }
}

#[test]
fn every_event_of_the_daemon() {
    let log = Path::new(ROOT).join("crates/reports/testdata/daemon.ndjson");
    for line in fs::read_to_string(log).unwrap().lines() {
        assert_eq!(validate(line.as_bytes()).as_deref(), Ok("daemon"), "{line}");
    }
}
