//! Our graph kernels beside the GAP benchmark suite: the same files, sources, threads and pages, trials in turns.
//!
//! The suite is built by its own Makefile; `HUGEPILOT_GAPBS` says where. Each trial is a process of its own: it reads the graph,
//! which is not counted, and runs the kernel once, mapping and first touch of its arrays included, in both.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use hugepilot_record::graph::GraphReport;

use super::pairs::{PairedStats, median};
use crate::run;

/// A graph: how it is written here and there, and the bucket width that suits its shortest ways.
struct Shape {
    ours: &'static str,
    /// `None` where the suite cannot make it.
    theirs: Option<[&'static str; 4]>,
    delta: &'static str,
}

const SHAPES: [Shape; 3] = [
    Shape { ours: "kronecker:22:16", theirs: Some(["-g", "22", "-k", "16"]), delta: "2" },
    Shape { ours: "uniform:24:8", theirs: Some(["-u", "24", "-k", "8"]), delta: "2" },
    Shape { ours: "grid:4096x4096", theirs: None, delta: "512" },
];

/// A kernel: what it is called here and there, each with what makes it the same.
struct Kernel {
    theirs: &'static str,
    ours: &'static [&'static str],
    starts: bool,
}

const KERNELS: [Kernel; 8] = [
    Kernel { theirs: "bfs", ours: &["bfs"], starts: true },
    Kernel { theirs: "sssp", ours: &["sssp"], starts: true },
    Kernel {
        theirs: "pr",
        ours: &["pr", "--algo", "gauss-seidel", "--dangling", "drop"],
        starts: false,
    },
    Kernel {
        theirs: "pr_spmv",
        ours: &["pr", "--algo", "jacobi", "--dangling", "drop"],
        starts: false,
    },
    Kernel { theirs: "cc", ours: &["cc"], starts: false },
    Kernel { theirs: "cc_sv", ours: &["cc", "--algo", "shiloach-vishkin"], starts: false },
    Kernel { theirs: "bc", ours: &["bc"], starts: true },
    Kernel { theirs: "tc", ours: &["tc"], starts: false },
];

/// What is measured besides kernels.
const BUILD: &str = "build";
const LOAD: &str = "load";

/// `[RUNS=5] [GRAPH|KERNEL…]`
pub(super) fn run(hugepilot: &Path, args: &[&str]) -> Result<()> {
    let runs: usize =
        args.first().map_or(Ok(5), |text| text.parse()).context("RUNS is a number")?;
    ensure!(runs > 0, "at least one run");
    let suite = env::var_os("HUGEPILOT_GAPBS").map(PathBuf::from);
    let suite = suite.context(
        "HUGEPILOT_GAPBS names a checkout of the GAP benchmark suite in which make has run",
    )?;
    let only = Only::of(args.get(1..).unwrap_or_default())?;
    println!(
        "seconds, medians of {runs} trials each, in turns; ours / theirs with the spread of the ratios"
    );
    println!("{:<16} {:<8} {:>8} {:>8}", "graph", "", "theirs", "ours");
    for shape in SHAPES.iter().filter(|shape| only.graph(shape.ours)) {
        let bench = Bench { hugepilot, suite: &suite, shape, runs };
        if only.kernel(BUILD)
            && let Some(theirs) = shape.theirs
        {
            bench
                .print(BUILD, &bench.turns(|_| bench.their_build(&theirs), |_| bench.our_build())?);
        }
        let mut loads = Vec::new();
        for kernel in KERNELS.iter().filter(|kernel| only.kernel(kernel.theirs)) {
            loads.extend(bench.kernel(kernel)?);
        }
        if only.kernel(LOAD) && !loads.is_empty() {
            bench.print(LOAD, &loads);
        }
    }
    Ok(())
}

/// Names that were given: of graphs, of kernels; all of a kind where none of it is.
struct Only<'a>(&'a [&'a str]);

impl<'a> Only<'a> {
    fn of(names: &'a [&'a str]) -> Result<Self> {
        let unknown = names.iter().find(|name| !is_graph(name) && !is_kernel(name));
        ensure!(unknown.is_none(), "{unknown:?} is neither a graph nor a kernel of these");
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
    SHAPES.iter().any(|shape| shape.ours == name)
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

/// Seconds of a process: to read the graph, and to run the kernel.
struct Took {
    load: f64,
    kernel: f64,
}

impl Bench<'_> {
    /// Runs a kernel here and there; prints the comparison, and gives the one of reading the file.
    fn kernel(&self, kernel: &Kernel) -> Result<Vec<(f64, f64)>> {
        let file = self.file(kernel.theirs == "sssp")?;
        let sources = match kernel.starts {
            true => self.sources(&file)?,
            false => vec![None; self.runs + 1],
        };
        let trials = self.turns(
            |turn| self.theirs(kernel, &file, sources[turn].as_deref()),
            |turn| self.ours(kernel, &file, sources[turn].as_deref()),
        )?;
        let part = |of: fn(&Took) -> f64| {
            trials.iter().map(|(theirs, ours)| (of(theirs), of(ours))).collect::<Vec<_>>()
        };
        self.print(kernel.theirs, &part(|took| took.kernel));
        Ok(part(|took| took.load))
    }

    /// Both in turns, the first time of each thrown away.
    fn turns<T>(
        &self,
        theirs: impl Fn(usize) -> Result<T>,
        ours: impl Fn(usize) -> Result<T>,
    ) -> Result<Vec<(T, T)>> {
        let mut pairs = Vec::new();
        for turn in 0..=self.runs {
            pairs.push(if turn % 2 == 0 {
                (theirs(turn)?, ours(turn)?)
            } else {
                let ours = ours(turn)?;
                (theirs(turn)?, ours)
            });
        }
        pairs.remove(0);
        Ok(pairs)
    }

    fn print(&self, what: &str, pairs: &[(f64, f64)]) {
        let middle =
            |part: fn(&(f64, f64)) -> f64| median(&pairs.iter().map(part).collect::<Vec<_>>());
        let (theirs, ours) = (middle(|pair| pair.0), middle(|pair| pair.1));
        let ratio = PairedStats::of(pairs.to_vec());
        println!("{:<16} {what:<8} {theirs:>8.3} {ours:>8.3}  {}", self.shape.ours, ratio.line());
    }

    /// The graph as a file that both read.
    fn file(&self, weighted: bool) -> Result<PathBuf> {
        let (name, args): (_, &[_]) = if weighted { ("wsg", &["--weighted"]) } else { ("sg", &[]) };
        generated(self.hugepilot, self.shape.ours, name, args)
    }

    /// Where each trial begins: vertices drawn from those that have edges.
    fn sources(&self, file: &Path) -> Result<Vec<Option<String>>> {
        let trials = (self.runs + 1).to_string();
        let kernel = ["bfs", "--source", "random:1", "--trials", &trials];
        let trials = graph_report(self.hugepilot, &kernel, file, &[])?.trials;
        trials.iter().map(|trial| Ok(Some(trial.source.context("source")?.to_string()))).collect()
    }

    fn ours(&self, kernel: &Kernel, file: &Path, source: Option<&str>) -> Result<Took> {
        let mut args = kernel.ours.to_vec();
        if kernel.theirs == "sssp" {
            args.extend(["--delta", self.shape.delta]);
        }
        if let Some(source) = source {
            args.extend(["--source", source]);
        }
        // As the suite reads it: by the page cache, in which it is after the first trial.
        let cached = ["--load", "cached"];
        let GraphReport { phases, trials, .. } =
            graph_report(self.hugepilot, &args, file, &cached)?;
        let load = phases.load_seconds.context("load_seconds")? + phases.build_seconds;
        Ok(Took { load, kernel: trials.first().context("a trial")?.seconds })
    }

    fn theirs(&self, kernel: &Kernel, file: &Path, source: Option<&str>) -> Result<Took> {
        let mut command = Command::new(self.suite.join(kernel.theirs));
        command.arg("-f").arg(file).args(["-n", "1"]);
        if kernel.theirs == "sssp" {
            command.args(["-d", self.shape.delta]);
        }
        if let Some(source) = source {
            command.args(["-r", source]);
        }
        let said = said(&mut command)?;
        Ok(Took { load: seconds(&said, "Read Time")?, kernel: seconds(&said, "Trial Time")? })
    }

    /// Edges and arrays; the suite makes them one after the other, we make edges while we build.
    fn their_build(&self, shape: &[&str]) -> Result<f64> {
        let said = said(Command::new(self.suite.join("cc")).args(shape).args(["-n", "1"]))?;
        Ok(seconds(&said, "Generate Time")? + seconds(&said, "Build Time")?)
    }

    fn our_build(&self) -> Result<f64> {
        let report =
            said(Command::new(self.hugepilot).args(["graph", "info", self.shape.ours, "--json"]))?;
        let report: GraphReport = serde_json::from_str(&report).context("a report")?;
        Ok(report.phases.build_seconds)
    }
}

/// A graph in a file called by it and `name`; kept for the next time.
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

/// What a kernel on a graph in a file reports.
pub(super) fn graph_report(
    hugepilot: &Path,
    kernel: &[&str],
    file: &Path,
    args: &[&str],
) -> Result<GraphReport> {
    let mut command = Command::new(hugepilot);
    command.args(["graph", "run"]).args(kernel).arg(file).args(args).arg("--json");
    serde_json::from_str(&said(&mut command)?).context("a report")
}

fn said(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8(output.stdout)?)
}

/// The figure of the suite's line of that name.
fn seconds(said: &str, name: &str) -> Result<f64> {
    let line = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.with_context(|| format!("no {name} in {said}"))?.trim().parse().context("seconds")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suites_lines_are_read() {
        let said =
            "Read Time:           0.25000\nGraph has 4 nodes\nTrial Time:          0.00125\n";
        assert!((seconds(said, "Trial Time").unwrap() - 0.00125).abs() < 1e-9);
        assert!((seconds(said, "Read Time").unwrap() - 0.25).abs() < 1e-9);
        assert!(seconds(said, "Build Time").is_err());
    }

    #[test]
    fn names_choose_graphs_and_kernels_apart() {
        let names = ["cc", "grid:4096x4096"];
        let only = Only::of(&names).unwrap();
        assert!(only.kernel("cc") && !only.kernel("bfs"));
        assert!(only.graph("grid:4096x4096") && !only.graph("uniform:24:8"));
        assert!(Only::of(&["cc"]).unwrap().graph("uniform:24:8"));
        assert!(Only::of(&["cx"]).is_err());
    }
}
