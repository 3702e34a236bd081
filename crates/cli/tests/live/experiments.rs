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
