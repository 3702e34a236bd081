//! Command lines that keep each command at work.

use std::fs;

use super::{Moment, POOL};
use crate::tool::HUGEPILOT;

/// A journal of two rounds.
const JOURNAL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../policy/testdata/journal.ndjson");

/// Runs of an experiment.
const RUNS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/runs/lab/scarce.ndjson");

/// A command line, and when to send the signal.
pub(super) struct Work {
    pub(super) line: String,
    pub(super) moment: Moment,
}

pub(super) fn work(line: impl Into<String>, moment: Moment) -> Work {
    Work { line: line.into(), moment }
}

/// A recording of a few lines.
const RECORDING: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../recording/src/format/samples/version-2.ndjson.gz");

/// Command lines that keep `command` at work; `pid` is a process for it alone, and `$D` a folder.
pub(super) fn works(command: &str, pid: u32) -> Vec<Work> {
    use Moment::{Lines, Listening, Printing, Wrote};
    let slow = |call: &str, milliseconds: u32| {
        let delay = format!("inject={call}:delay_enter={milliseconds}000");
        format!("strace -D -f -qq -o /dev/null -e trace={call} -e {delay} {HUGEPILOT}")
    };
    let plain = |words: &str, moment| work(format!("{HUGEPILOT} {command} {words}"), moment);
    let names: Vec<&str> = command.split(' ').collect();
    match names[..] {
        ["compare"] => vec![
            plain("--json --no-stalls --modes glibc-thp --rounds 1 -- true", Printing),
            plain(
                "--json --no-stalls --modes glibc-thp --rounds 1000 -- \
                 sh -c 'echo x >>$D/lines; sleep 0.01'",
                Lines(6),
            ),
        ],
        ["completions"] => vec![plain("bash", Printing)],
        ["daemon"] => vec![plain("--dry-run --interval 60s", Wrote("\"started\""))],
        ["debloat"] => debloat_works(pid),
        ["doctor"] | ["pool", "show" | "explain"] => vec![plain("", Printing)],
        ["explain"] => vec![plain(JOURNAL, Printing)],
        ["graph", "info"] => vec![plain("uniform:8", Printing)],
        ["graph", "run"] => vec![plain("bfs uniform:8", Printing)],
        ["graph", "convert" | "generate"] => vec![plain("uniform:8 $D/to.sg --force", Printing)],
        ["graph", "reorder"] => vec![plain("uniform:8 $D/to.sg --force --reorder dbg", Printing)],
        ["knobs", "prefetch", "show"] => vec![plain("--json", Printing)],
        // Machines without the registers refuse, and no program gets a signal.
        ["knobs", "prefetch", "set"] => Vec::new(),
        ["lab", "pchase"] => vec![plain("--size 1MiB --rounds 1 --time 1ms", Printing)],
        ["lab", "stream" | "gups"] => vec![plain("--size 1MiB", Printing)],
        ["lab", "tlb-sweep"] => vec![plain("--size 2MiB --pages base", Printing)],
        ["lab", "collapse"] => vec![
            // First: the other one leaves nothing to collapse.
            work(format!("{} lab collapse --pid {pid}", slow("process_madvise", 200)), Listening),
            plain(&format!("--pid {pid}"), Printing),
        ],
        ["lab", "workload", name] => vec![plain(workload_size(name), Printing)],
        ["lab", name] => lab_works(name),
        ["pool", "set"] => {
            let line = format!("--json --size 2MiB --count {}", pool_pages() + 1);
            vec![
                plain(&format!("{line} --dry-run"), Printing),
                work(format!("{} pool set {line}", slow("write", 500)), Listening),
            ]
        }
        ["record"] => record_works(pid),
        ["report"] => vec![plain(RECORDING, Printing)],
        ["run"] => run_works(),
        ["schema"] => vec![plain("tune", Printing)],
        ["sim", "presets"] => vec![plain("", Printing)],
        ["sim", name] => sim_works(name),
        ["status"] => vec![plain(&format!("--pid {pid}"), Printing)],
        ["top"] => vec![plain("--interval 200ms", Printing)],
        ["trace"] => trace_works(),
        ["tune"] => tune_works(pid),
        _ => {
            panic!("no test sends signals to `{command}`: add a command line that keeps it at work")
        }
    }
}

/// A condition that holds.
/// Command lines of experiments and conditions.
fn lab_works(name: &str) -> Vec<Work> {
    let plain = |words: &str, moment| work(format!("{HUGEPILOT} lab {name} {words}"), moment);
    match name {
        "list" => vec![plain("", Moment::Printing)],
        "report" => vec![plain(RUNS, Moment::Printing)],
        // It prints nothing, and ends at once.
        "merge" => Vec::new(),
        "run" => vec![plain("pcc-size -o $D/runs --data $D", Moment::Listening)],
        // Several would compete for the memory that is left; `weather` ends one by a signal.
        "pressure" => Vec::new(),
        "fragment" | "page-cache" | "warm" | "quiet" => condition_works(name),
        other => panic!("no test sends signals to `lab {other}`: add a command line"),
    }
}

fn condition_works(name: &str) -> Vec<Work> {
    let options = match name {
        "fragment" => "--level 1%",
        "quiet" => "--seconds 0.01",
        _ => "--size 8MiB",
    };
    let line = format!("{HUGEPILOT} lab {name} {options} --json");
    let moment = match name {
        "warm" | "quiet" => Moment::Printing,
        _ => Moment::Wrote("\"schema\""),
    };
    vec![work(line, moment)]
}

/// Options of a small footprint.
fn workload_size(name: &str) -> &'static str {
    match name {
        "hash-insert" => "--entries 1000",
        "memcached" => "--size 64MiB",
        "hot-set" => "--size 16MiB --hot 4MiB",
        "tlb-friendly" => "--size 16MiB --scan 8MiB",
        _ => "--size 16MiB",
    }
}

fn record_works(pid: u32) -> Vec<Work> {
    let record = format!("{HUGEPILOT} record --json --force -o");
    vec![
        work(format!("{record} $D/a.rec -- true"), Moment::Printing),
        // At the end it reads the symbols of samples: seconds, without optimisation under load.
        work(format!("{record} $D/b.rec --no-stalls --pid {pid}"), Moment::Listening),
    ]
}

fn run_works() -> Vec<Work> {
    let script =
        "trap \"exit 40\" HUP INT QUIT TERM USR1; echo ready; while :; do sleep 0.02; done";
    let line = format!("{HUGEPILOT} run --quiet --pages base -- sh -c '{script}'");
    vec![work(line, Moment::Wrote("ready"))]
}

fn sim_works(name: &str) -> Vec<Work> {
    let mapping = if name == "prefix" { "--prefix [anon] " } else { "" };
    let sim = format!("{HUGEPILOT} sim {name} {mapping}--json --pattern");
    vec![
        work(format!("{sim} random:1MiB --max-accesses 1000"), Moment::Printing),
        work(format!("{sim} random:64MiB --max-accesses 1000000000000"), Moment::Listening),
    ]
}

fn trace_works() -> Vec<Work> {
    let trace = format!("{HUGEPILOT} trace --json -o");
    let endless = "sh -c 'echo ready; while :; do :; done'";
    vec![
        work(format!("{trace} $D/a.trace -- true"), Moment::Printing),
        work(format!("{trace} $D/b.trace -- {endless}"), Moment::Wrote("ready")),
    ]
}

fn debloat_works(pid: u32) -> Vec<Work> {
    let debloat = format!("{HUGEPILOT} debloat --json --pid {pid}");
    vec![
        work(format!("{debloat} --order exact --observe 0s --dry-run"), Moment::Printing),
        work(format!("{debloat} --calibration off --observe 60s"), Moment::Listening),
    ]
}

fn tune_works(pid: u32) -> Vec<Work> {
    let calibrating = format!("env XDG_CACHE_HOME=$D {HUGEPILOT} tune --calibration force");
    let tune = format!("{HUGEPILOT} tune --json --pid {pid} --calibration off --observe 60s");
    vec![
        work(calibrating, Moment::Begins("calibrating: gain of huge pages")),
        work(tune, Moment::Wrote("sampling ")),
    ]
}

/// Pages of the 2 MiB pool.
pub(super) fn pool_pages() -> u64 {
    fs::read_to_string(POOL).expect("a pool").trim().parse().expect("a number")
}
