//! `lab run`: each run once, whatever interrupts it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use hugepilot_testkit::{need, requires};
use rustix::process::Signal;
use serde_json::Value;

use crate::tool::{Done, HUGEPILOT, LIMIT, Running, hugepilot};

/// Two cells, of which the second has the flags of `CELL`, in four rounds.
const EXPERIMENT: &str = r#"
    name = "own"
    claim = "it runs"
    source = "a test"
    rounds = 4
    [measure]
    schema = "hugepilot.graph/2"
    value = "median /trials/*/seconds"
    unit = "seconds"
    check = "/verified"
    [scale.small]
    minutes = 1
    memory = "64MiB"
    variables = { graph = "kronecker:16" }
    [[file]]
    name = "file"
    file = "graph.hpg"
    run = "graph generate {graph} {file}"
    [[cell]]
    name = "base"
    run = "graph run bfs {file} --verify --trials 20 --json"
    [[cell]]
    name = "other"
    run = "graph run bfs {file} CELL --json"
    [[band]]
    claim = "both end"
    cell = "other"
    at_least = 0.0
"#;

fn command(folder: &Path) -> std::process::Command {
    let mut command = std::process::Command::new(HUGEPILOT);
    let file = |name: &str| folder.join(name).display().to_string();
    let words = ["lab", "run", &file("own.toml"), "-o", &file("runs"), "--data", &file("data")];
    command.args(words);
    command
}

fn run(folder: &Path) -> Done {
    Running::start(command(folder)).wait(LIMIT)
}

/// The complete lines of the file of runs.
fn lines(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("runs")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Cell and round of each run with a value.
fn runs(folder: &Path) -> Vec<(String, u64)> {
    let lines = lines(folder);
    let good = lines.iter().filter(|line| line["failed"].is_null());
    good.map(|line| (line["cell"].as_str().unwrap().to_owned(), line["round"].as_u64().unwrap()))
        .collect()
}

#[test]
fn an_experiment_goes_on_where_it_was_killed_or_interrupted() {
    requires!(need::live());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::write(path.join("own.toml"), EXPERIMENT.replace("CELL", "--verify")).unwrap();
    for (signal, least) in [(Signal::KILL, 2), (Signal::INT, 4)] {
        let mut running = Running::start(command(path));
        running.until("runs", || lines(path).len() >= least);
        running.signal(signal);
        let done = running.wait(LIMIT);
        if signal == Signal::INT {
            done.exits(1);
        }
    }
    assert!(lines(path).len() < 8, "it was interrupted");
    let done = run(path);
    let text = done.exits(0).out();
    assert!(text.starts_with("own: reproduced.\n"), "{text}");
    let all: BTreeSet<(String, u64)> = runs(path).into_iter().collect();
    assert_eq!((all.len(), runs(path).len()), (8, 8), "each once");
    let graph = path.join("data/graph.hpg");
    fs::remove_file(&graph).unwrap();
    let again = run(path);
    assert!(again.exits(0).err().contains("nothing is due"), "{}", again.err());
    assert!(!graph.exists(), "no run requires the file");

    let [runs, merged] = ["runs", "merged"].map(|name| path.join(name).display().to_string());
    let merge =
        |flag: &[&str]| hugepilot(["lab", "merge", &runs, "-o", &merged].iter().chain(flag));
    merge(&[]).exits(0);
    assert_eq!(fs::read(&merged).unwrap(), fs::read(&runs).unwrap());
    assert!(merge(&[]).exits(2).err().contains("replace it: --force"));
    merge(&["--force"]).exits(0);
}

#[test]
fn a_failed_run_has_its_cause_and_is_repeated() {
    requires!(need::live());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::write(path.join("own.toml"), EXPERIMENT.replace("CELL", "--source 9999999")).unwrap();
    let done = run(path);
    let text = done.exits(1).out();
    let cause =
        "4 runs of as it is, other failed: it printed no result (status 2): cannot find vertex";
    assert!(text.contains(cause), "{text}");
    let [file, toml] = ["runs", "own.toml"].map(|name| path.join(name).display().to_string());
    let report = hugepilot(["lab", "report", &file, "--experiment", &toml, "--json"]);
    let report: Value = report.exits(0).json();
    let own = &report["experiments"][0];
    assert_eq!((&own["verdict"], &own["failed"][0]["runs"]), (&"not_measured".into(), &4.into()));
    assert_eq!(own["cells"][0]["runs"], 4, "the others have values");
    run(path).exits(1);
    assert_eq!(lines(path).len(), 12, "the failed runs were repeated");
}

/// A program with bloat beside another one, and acts on them.
const ACTS: &str = r#"
    name = "own"
    claim = "it runs"
    source = "a test"
    rounds = 1
    [measure]
    schema = "hugepilot.workload/1"
    value = "settled column 2"
    unit = "per_second"
    also = { freed_bytes = "/freed_bytes" }
    [variables]
    program = "lab workload random-access --size 32MiB --seconds 3 --interval 50ms"
    [scale.small]
    minutes = 1
    memory = "64MiB"
    [[cell]]
    name = "alone"
    run = "{program}"
    beside = ["{program} --seed 2"]
    [[cell]]
    name = "split"
    run = "{program}"
    beside = ["{program} --seed 2"]
    act = ["run --quiet --pages base -- true", "debloat --json --order exact --amount 1MiB {pids}"]
    [[cell]]
    name = "wrong"
    run = "{program}"
    act = ["debloat -p {pid} --order none"]
    [[cell]]
    name = "late"
    run = "{program}"
    act = ["run --quiet --pages base -- sleep 60"]
    [[band]]
    claim = "both alike"
    cell = "split"
    fairness = true
    at_most = 1.0
"#;

#[test]
fn acts_work_on_all_programs_of_a_cell_and_end_before_them() {
    requires!(need::live());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::write(path.join("own.toml"), ACTS).unwrap();
    let done = run(path);
    assert!(done.exits(1).out().contains("both alike"), "{}", done.out());
    let lines = lines(path);
    let of = |cell: &str| lines.iter().find(|line| line["cell"] == cell).unwrap();
    for cell in ["alone", "split"] {
        let values = &of(cell)["values"];
        assert!(["value", "value2"].iter().all(|name| values[name].is_f64()), "{}", of(cell));
        assert_eq!(values["freed_bytes"].as_f64() >= Some(1048576.0), cell == "split", "{values}");
    }
    let cause = |cell: &str| of(cell)["failed"].as_str().unwrap().to_owned();
    assert!(cause("wrong").contains("--order none: it failed (status 2)"), "{}", cause("wrong"));
    assert!(cause("late").contains("did not outlast it"), "{}", cause("late"));
}

#[test]
fn an_experiment_without_its_tool_says_how_to_get_it() {
    requires!(need::live());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let tool = "[[tool]]\nname = \"suite\"\nenvironment = \"HUGEPILOT_NONE\"\nfile = \"none\"\n\
                help = \"build it\"\n[[cell]]";
    let text = EXPERIMENT.replacen("[[cell]]", tool, 1).replace("CELL", "--source {suite}/1");
    fs::write(path.join("own.toml"), text).unwrap();
    let done = run(path);
    let text = done.exits(2).err();
    assert!(text.contains("HUGEPILOT_NONE names no folder that holds none"), "{text}");
    assert!(text.contains("help: build it"), "{text}");
    assert_eq!(lines(path).len(), 0);
    let mut with = command(path);
    fs::write(path.join("none"), "").unwrap();
    with.env("HUGEPILOT_NONE", path);
    let found = Running::start(with).wait(LIMIT);
    let cause = format!("{}/1", path.display());
    assert!(found.exits(1).out().contains(&cause), "{}", found.out());
}
