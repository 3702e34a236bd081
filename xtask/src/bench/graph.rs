//! Graph kernels beside the GAP benchmark suite: the same files, source vertices, threads and
//! pages, in interleaved trials.
//!
//! The Makefile of the suite builds it; `HUGEPILOT_GAPBS` names its directory. Each trial is a
//! separate process. It reads the graph, which is not timed, and runs the kernel once, including
//! mapping and first touch of its arrays, in both programs.

use std::path::{self, Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result, ensure};
use hugepilot_reports::graph::GraphReport;
use hugepilot_stats::Rounds;

use super::arguments::Positional;
use super::pairs::line;
use crate::run::{self, json, stdout};

/// Graph: its name in both programs, and the bucket width that suits its shortest paths.
struct Shape {
    own: &'static str,
    /// Arguments of the suite; `None` if it cannot make the graph.
    theirs: Option<[&'static str; 4]>,
    delta: &'static str,
}

const SHAPES: [Shape; 3] = [
    Shape { own: "kronecker:22:16", theirs: Some(["-g", "22", "-k", "16"]), delta: "2" },
    Shape { own: "uniform:23:8", theirs: Some(["-u", "23", "-k", "8"]), delta: "2" },
    Shape { own: "grid:4096x4096", theirs: None, delta: "512" },
];

/// Kernel: its name in both programs, with the arguments that make both equal.
struct Kernel {
    theirs: &'static str,
    own: &'static [&'static str],
    starts: bool,
}

const KERNELS: [Kernel; 8] = [
    Kernel { theirs: "bfs", own: &["bfs"], starts: true },
    Kernel { theirs: "sssp", own: &["sssp"], starts: true },
    Kernel {
        theirs: "pr",
        own: &["pr", "--algo", "gauss-seidel", "--dangling", "drop"],
        starts: false,
    },
    Kernel {
        theirs: "pr_spmv",
        own: &["pr", "--algo", "jacobi", "--dangling", "drop"],
        starts: false,
    },
    Kernel { theirs: "cc", own: &["cc"], starts: false },
    Kernel { theirs: "cc_sv", own: &["cc", "--algo", "shiloach-vishkin"], starts: false },
    Kernel { theirs: "bc", own: &["bc"], starts: true },
    Kernel { theirs: "tc", own: &["tc"], starts: false },
];

/// Variants of a measurement.
const SUITE: usize = 0;
const OWN: usize = 1;
/// Measurements besides kernels.
const BUILD: &str = "build";
const LOAD: &str = "load";

/// `[RUNS=5] [GRAPH|KERNEL…]`
pub(super) fn run(hugepilot: &Path, args: &[&str]) -> Result<()> {
    let runs = Positional::read(args, (5, 1), "")?.count;
    let suite = suite()?;
    let only = Filter::of(args.get(1..).unwrap_or_default())?;
    println!(
        "seconds, medians of {runs} interleaved trials; \
         hugepilot / suite with the spread of the ratios"
    );
    println!("{:<16} {:<8} {:>8} {:>9}", "GRAPH", "", "SUITE", "HUGEPILOT");
    for shape in SHAPES.iter().filter(|shape| only.graph(shape.own)) {
        let bench = Bench { hugepilot, suite: &suite, shape, runs };
        if only.kernel(BUILD)
            && let Some(theirs) = shape.theirs
        {
            let build = |_, who| match who {
                SUITE => bench.their_build(&theirs),
                _ => bench.own_build(),
            };
            bench.print(BUILD, &Rounds::after_warm_up(2, runs, build)?);
        }
        let mut loads = Rounds::default();
        for kernel in KERNELS.iter().filter(|kernel| only.kernel(kernel.theirs)) {
            loads.append(bench.kernel(kernel)?);
        }
        if only.kernel(LOAD) && loads.count() > 0 {
            bench.print(LOAD, &loads);
        }
    }
    Ok(())
}

/// Names of graphs and kernels to run; without names of one kind, all of that kind.
struct Filter<'a>(&'a [&'a str]);

impl<'a> Filter<'a> {
    fn of(names: &'a [&'a str]) -> Result<Self> {
        let unknown = names.iter().find(|name| !is_graph(name) && !is_kernel(name));
        ensure!(unknown.is_none(), "{unknown:?} is neither a graph nor a kernel of this benchmark");
        Ok(Self(names))
    }

    fn graph(&self, name: &str) -> bool {
        self.0.contains(&name) || !self.0.iter().any(|name| is_graph(name))
    }

    fn kernel(&self, name: &str) -> bool {
        self.0.contains(&name) || !self.0.iter().any(|name| is_kernel(name))
    }
}

fn is_graph(name: &str) -> bool {
    SHAPES.iter().any(|shape| shape.own == name)
}

fn is_kernel(name: &str) -> bool {
    [BUILD, LOAD].contains(&name) || KERNELS.iter().any(|kernel| kernel.theirs == name)
}

/// Comparisons on one graph.
struct Bench<'a> {
    hugepilot: &'a Path,
    suite: &'a Path,
    shape: &'a Shape,
    runs: usize,
}

/// Seconds of a process to read the graph and to run the kernel.
struct Timing {
    load: f64,
    kernel: f64,
}

impl Bench<'_> {
    /// Runs a kernel in both programs and prints the comparison. Returns the times to read the
    /// file.
    fn kernel(&self, kernel: &Kernel) -> Result<Rounds<f64>> {
        let file = self.file(kernel.theirs == "sssp")?;
        let sources = match kernel.starts {
            true => self.sources(&file)?,
            false => vec![None; self.runs + 1],
        };
        let trials = Rounds::after_warm_up(2, self.runs, |round, who| {
            let source = sources[round].as_deref();
            match who {
                SUITE => self.theirs(kernel, &file, source),
                _ => self.own(kernel, &file, source),
            }
        })?;
        self.print(kernel.theirs, &trials.map(|took| took.kernel));
        Ok(trials.map(|took| took.load))
    }

    fn print(&self, what: &str, rounds: &Rounds<f64>) {
        let (graph, ratios) = (self.shape.own, line(&rounds.ratios(OWN, SUITE)));
        let [theirs, own] = [SUITE, OWN].map(|who| rounds.median(who));
        println!("{graph:<16} {what:<8} {theirs:>8.3} {own:>9.3}  {ratios}");
    }

    /// Returns the file that both programs read.
    fn file(&self, weighted: bool) -> Result<PathBuf> {
        let (name, args): (_, &[_]) = if weighted { ("wsg", &["--weighted"]) } else { ("sg", &[]) };
        generated(self.hugepilot, self.shape.own, name, args)
    }

    /// Returns the source vertex of each trial: random vertices with edges.
    fn sources(&self, file: &Path) -> Result<Vec<Option<String>>> {
        let trials = (self.runs + 1).to_string();
        let kernel = ["bfs", "--source", "random:1", "--trials", &trials];
        let trials = graph_report(self.hugepilot, &kernel, file, &[])?.trials;
        trials.iter().map(|trial| Ok(Some(trial.source.context("source")?.to_string()))).collect()
    }

    fn own(&self, kernel: &Kernel, file: &Path, source: Option<&str>) -> Result<Timing> {
        let mut args = kernel.own.to_vec();
        if kernel.theirs == "sssp" {
            args.extend(["--delta", self.shape.delta]);
        }
        if let Some(source) = source {
            args.extend(["--source", source]);
        }
        // As in the suite: through the page cache, which holds the file after the first trial.
        let cached = ["--load", "cached"];
        let GraphReport { phases, trials, .. } =
            graph_report(self.hugepilot, &args, file, &cached)?;
        let load = phases.load_seconds.context("load_seconds")? + phases.build_seconds;
        Ok(Timing { load, kernel: trials.first().context("a trial")?.seconds })
    }

    fn theirs(&self, kernel: &Kernel, file: &Path, source: Option<&str>) -> Result<Timing> {
        let mut command = Command::new(self.suite.join(kernel.theirs));
        command.arg("-f").arg(file).args(["-n", "1"]);
        if kernel.theirs == "sssp" {
            command.args(["-d", self.shape.delta]);
        }
        if let Some(source) = source {
            command.args(["-r", source]);
        }
        let output = stdout(&mut command)?;
        Ok(Timing { load: seconds(&output, "Read Time")?, kernel: seconds(&output, "Trial Time")? })
    }

    /// Measures generation and build, which are separate steps of the suite. hugepilot generates
    /// edges during the build.
    fn their_build(&self, shape: &[&str]) -> Result<f64> {
        let output = stdout(Command::new(self.suite.join("cc")).args(shape).args(["-n", "1"]))?;
        Ok(seconds(&output, "Generate Time")? + seconds(&output, "Build Time")?)
    }

    fn own_build(&self) -> Result<f64> {
        let mut command = Command::new(self.hugepilot);
        let info = command.args(["graph", "info", self.shape.own, "--json"]);
        Ok(json::<GraphReport>(info)?.phases.build_seconds)
    }
}

/// Folder of the GAP benchmark suite.
pub(super) fn suite() -> Result<PathBuf> {
    let folder = env::var_os("HUGEPILOT_GAPBS").and_then(|folder| path::absolute(folder).ok());
    folder.filter(|folder| folder.join("pr").exists()).context(
        "HUGEPILOT_GAPBS names a checkout of the GAP benchmark suite in which make has run",
    )
}

/// Writes a graph to a file named by graph and `name`, and keeps it for the next run.
pub(super) fn generated(
    hugepilot: &Path,
    graph: &str,
    name: &str,
    args: &[&str],
) -> Result<PathBuf> {
    let folder = run::target().join("graphs");
    fs::create_dir_all(&folder)?;
    let file = folder.join(format!("{}.{name}", graph.replace(':', "-")));
    if !file.exists() {
        run::run(Command::new(hugepilot).args(["graph", "generate", graph]).arg(&file).args(args))?;
    }
    Ok(file)
}

/// Runs a kernel on a file, and returns the report.
pub(super) fn graph_report(
    hugepilot: &Path,
    kernel: &[&str],
    file: &Path,
    args: &[&str],
) -> Result<GraphReport> {
    let mut command = Command::new(hugepilot);
    json(command.args(["graph", "run"]).args(kernel).arg(file).args(args).arg("--json"))
}

/// Returns the number in the suite's line of that name.
fn seconds(output: &str, name: &str) -> Result<f64> {
    let line = output.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.with_context(|| format!("no {name} in {output}"))?.trim().parse().context("seconds")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_suite_are_parsed() {
        let output =
            "Read Time:           0.25000\nGraph has 4 nodes\nTrial Time:          0.00125\n";
        assert!((seconds(output, "Trial Time").unwrap() - 0.00125).abs() < 1e-9);
        assert!((seconds(output, "Read Time").unwrap() - 0.25).abs() < 1e-9);
        assert!(seconds(output, "Build Time").is_err());
    }

    #[test]
    fn names_filter_graphs_and_kernels() {
        let names = ["cc", "grid:4096x4096"];
        let only = Filter::of(&names).unwrap();
        assert!(only.kernel("cc") && !only.kernel("bfs"));
        assert!(only.graph("grid:4096x4096") && !only.graph("uniform:23:8"));
        assert!(Filter::of(&["cc"]).unwrap().graph("uniform:23:8"));
        assert!(Filter::of(&["cx"]).is_err());
    }
}
