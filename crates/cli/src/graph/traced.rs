//! Options of a traced graph kernel, for commands that simulate a trace.

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use hugepilot_graph::run::SourceVertex;
use hugepilot_graph::{DegreeKind, VertexOrder};
use hugepilot_kernel::proc::printable;
use hugepilot_reports::graph_warnings_text;
use hugepilot_trace::graph::{GraphInput, GraphTrace};

use super::kernel::{Algo, KernelArgs, Name as KernelName, source};
use super::source::{Name, name, note_file};
use crate::output::note;

/// Heading of the options in `--help`.
const HEADING: &str = "Graph kernel";

#[derive(Debug, Args)]
pub(crate) struct TracedArgs {
    /// Graph of a traced kernel: a file, kronecker:SCALE[:DEGREE], uniform:SCALE[:DEGREE] or
    /// grid:ROWSxCOLUMNS
    #[arg(help_heading = HEADING, long, value_name = "GRAPH", requires = "kernel",
        value_parser = OsStringValueParser::new().try_map(name))]
    graph: Option<Name>,
    /// Kernels that run on --graph, each a process: bfs, sssp, pr, cc, bc, diameter or tc
    #[arg(help_heading = HEADING, long, value_name = "KERNEL,…", value_delimiter = ',',
        requires = "graph", hide_possible_values = true)]
    kernel: Vec<KernelName>,
    /// Algorithm of the kernel, as in `graph run` [default: the first of each]
    #[arg(help_heading = HEADING, long, value_name = "ALGORITHM", requires = "graph",
        hide_possible_values = true)]
    algo: Option<Algo>,
    /// Maximum number of iterations of pr [default: 20; 1000 for delta-push]
    #[arg(help_heading = HEADING, long, value_name = "N", requires = "graph",
        value_parser = clap::value_parser!(u32).range(1..))]
    iterations: Option<u32>,
    /// Directed edges, with their transpose [default: only for files that state directions]
    #[arg(help_heading = HEADING, long, requires = "graph")]
    directed: bool,
    /// Vertex order to relabel by, from the out-degrees: dbg, hub-sort, hub-cluster, sort,
    /// random[:SEED] or rcm [default: the original order]
    #[arg(help_heading = HEADING, long, value_name = "ORDER", requires = "graph")]
    reorder: Option<VertexOrder>,
    /// Number of threads of the kernel, at most 1024
    #[arg(help_heading = HEADING, long, value_name = "N", requires = "graph", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// Number of runs of the kernel
    #[arg(help_heading = HEADING, long, value_name = "N", requires = "graph", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..))]
    trials: u32,
    /// Source vertex of bfs, sssp, bc and diameter: an ID in the input, max-degree, or
    /// random[:SEED], another one in each run [default: random]
    #[arg(help_heading = HEADING, long, value_name = "VERTEX", requires = "graph",
        value_parser = source)]
    source: Option<SourceVertex>,
    /// Seed of random source vertices [default: 1]
    #[arg(help_heading = HEADING, long, value_name = "SEED", requires = "graph",
        conflicts_with = "source")]
    seed: Option<u64>,
    /// Phase of the kernel, or of a trace of one, at whose first begin the accesses begin, such as
    /// "run 2" or "pr 3"; `hugepilot trace` lists them [default: the start]
    #[arg(help_heading = HEADING, long, value_name = "NAME")]
    pub(crate) from_phase: Option<String>,
    /// Phase after that at whose begin they end [default: the end]
    #[arg(help_heading = HEADING, long, value_name = "NAME")]
    pub(crate) to_phase: Option<String>,
}

impl TracedArgs {
    /// Returns the kernels to trace; none without `--graph`. Exits with a usage error if an option
    /// does not suit a kernel.
    pub(crate) fn traces(&self) -> Vec<GraphTrace> {
        let Some(graph) = &self.graph else { return Vec::new() };
        self.kernel.iter().map(|&kernel| self.trace(graph, kernel)).collect()
    }

    /// Returns the name of a trace.
    pub(crate) fn name_of(trace: &GraphTrace) -> String {
        printable(format!("{} on {}", trace.kernel.name(), trace.input).as_bytes())
    }

    fn trace(&self, graph: &Name, kernel: KernelName) -> GraphTrace {
        let source = self.source.or_else(|| self.seed.map(SourceVertex::Random));
        let kernel = KernelArgs::new(kernel, self.algo, source, self.iterations);
        GraphTrace {
            input: match graph {
                Name::Generated(graph) => graph.input(),
                Name::File(path) => GraphInput::File(path.clone()),
            },
            is_directed: self.directed,
            reorder: self.reorder.map(|order| (order, DegreeKind::Out)),
            kernel: kernel.kernel(),
            threads: self.threads as usize,
            runs: self.trials as usize,
            source: kernel.source(),
            pages: None,
            on_load: |report| {
                note_file(report, note);
                eprint!("{}", graph_warnings_text(report));
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use hugepilot_graph::kernel::{Direction, PageRankAlgorithm};
    use hugepilot_graph::run::Kernel;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        traced: TracedArgs,
    }

    fn parsed_all(line: &str) -> Result<Vec<GraphTrace>, clap::Error> {
        let words = line.split(' ').filter(|word| !word.is_empty());
        Line::try_parse_from(["sim"].into_iter().chain(words)).map(|line| line.traced.traces())
    }

    fn parsed(line: &str) -> Result<Option<GraphTrace>, clap::Error> {
        parsed_all(line).map(|all| all.into_iter().next())
    }

    #[test]
    fn each_kernel_is_a_trace() {
        let names = |line| -> Vec<&str> {
            parsed_all(line).unwrap().iter().map(|trace| trace.kernel.name()).collect()
        };
        assert_eq!(names("--graph kronecker:4 --kernel pr,sssp"), ["pr", "sssp"]);
        assert_eq!(names("--graph kronecker:4 --kernel pr --kernel pr"), ["pr", "pr"]);
        assert!(names("").is_empty());
    }

    #[test]
    fn options_name_a_trace() {
        let trace = parsed("--graph kronecker:20 --kernel bfs").unwrap().unwrap();
        assert_eq!(trace.input.to_string(), "kronecker:20:16");
        assert_eq!(trace.kernel, Kernel::Bfs(Direction::Optimizing));
        assert_eq!((trace.threads, trace.runs), (1, 1));
        assert_eq!(trace.source, SourceVertex::Random(1));
        assert!(trace.reorder.is_none() && !trace.is_directed);

        let line = "--graph grid:3x4 --kernel sssp --threads 2 --reorder dbg --trials 3 --seed 7";
        let trace = parsed(line).unwrap().unwrap();
        assert_eq!(trace.input.to_string(), "grid:3x4");
        assert_eq!((trace.threads, trace.runs), (2, 3));
        assert_eq!(trace.source, SourceVertex::Random(7));
        assert_eq!(trace.reorder, Some((VertexOrder::Dbg, DegreeKind::Out)));

        let line = "--graph ./g.el --kernel pr --algo jacobi --iterations 3 --directed";
        let trace = parsed(line).unwrap().unwrap();
        assert!(matches!(&trace.input, GraphInput::File(path) if path.ends_with("g.el")));
        let is_jacobi = matches!(trace.kernel, Kernel::PageRank(config)
            if config.algorithm == PageRankAlgorithm::Jacobi && config.max_iterations == 3);
        assert!(is_jacobi && trace.is_directed);
        let trace = parsed("--graph uniform:8:4 --kernel bc --source max-degree").unwrap().unwrap();
        assert_eq!(trace.source, SourceVertex::MaxDegree);
    }

    #[test]
    fn options_require_a_graph_with_a_kernel() {
        assert!(parsed("").unwrap().is_none());
        for line in [
            "--graph kronecker:20",
            "--kernel bfs",
            "--threads 2",
            "--graph kronecker:99 --kernel bfs",
            "--graph kronecker:4 --kernel bfs --threads 0",
            "--graph kronecker:4 --kernel bfs --trials 0",
            "--graph kronecker:4 --kernel bfs --source 3 --seed 4",
            "--graph kronecker:4 --kernel walk",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
