//! Graph kernels as the source of a trace: exact, and without an engine.
//!
//! The kernel runs in this process, and records its accesses itself
//! ([`hugepilot_graph::Tracer`] states which). Each worker is a thread of the trace, and each array
//! is a mapping: `offsets`, `edges`, `weights`, those of the transpose (`in-offsets`, …), and the
//! arrays of a kernel with their role, such as `property:ranks` and `worklist:queue`. Arrays are
//! aligned to huge pages if the system has them, so that the regions of a mapping hold the same
//! data each time.
//!
//! Phases are `run N`, and within a run `KERNEL begin` (the preparation), `KERNEL N` (a round or
//! iteration), and a few others by kernel, such as `pr end`. Building the graph is not traced.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use hugepilot_alloc::Backing;
use hugepilot_graph::error::GraphStep;
use hugepilot_graph::run::{Job, Kernel, PreparedGraph, SourceVertex, file_facts};
use hugepilot_graph::{
    Array, DegreeKind, EdgeSource, Graph, GraphError, Grid, Ids, Kronecker, LoadOptions, PagePlan,
    ThreadPool, Uniform, VertexOrder, Width, load,
};
use hugepilot_kernel::OwnMemory;
use hugepilot_record::trace::TracePiece;
use hugepilot_reports::graph::{AllocOrder, GraphReport, Phases};
use hugepilot_units::Bytes;

/// Kernel on a graph.
#[derive(Clone, Debug)]
pub struct GraphTrace {
    /// Graph.
    pub input: GraphInput,
    /// Whether edges keep their direction. A file that states directions keeps them anyway.
    pub is_directed: bool,
    /// Vertex order, if the graph is relabelled.
    pub reorder: Option<(VertexOrder, DegreeKind)>,
    /// Kernel.
    pub kernel: Kernel,
    /// Threads of the kernel. With one, the trace is in program order and the same each time,
    /// except for addresses.
    pub threads: usize,
    /// Runs of the kernel.
    pub runs: usize,
    /// Source vertex, for kernels with one.
    pub source: SourceVertex,
    /// Pages of the arrays; `None` for THP, or base pages if the settings exclude THP.
    pub pages: Option<PagePlan>,
    /// Called with the facts of a graph from a file, and how the file was read.
    pub on_load: fn(&GraphReport),
}

/// Graph of a trace.
#[derive(Clone, Debug)]
pub enum GraphInput {
    /// Kronecker graph. It also has weights if the kernel requires them.
    Kronecker(Kronecker),
    /// Uniform random graph, with weights likewise.
    Uniform(Uniform),
    /// Grid, with weights likewise.
    Grid(Grid),
    /// File in any format that the engine reads.
    File(PathBuf),
}

/// End of a trace of a kernel.
#[derive(Clone, Debug)]
pub struct GraphTraceEnd {
    /// Graph, kernel and runs. The times of runs include recording, and waiting for the sink.
    pub report: GraphReport,
    /// Accesses that the sink received.
    pub accesses: u64,
    /// Whether the sink ended the trace.
    pub is_stopped: bool,
}

/// Builds or loads the graph, runs the kernel, and delivers its accesses to `sink` in this thread.
/// Vertex IDs have 32 bits, or 64 if required. The mappings of arrays precede the first access in
/// them. Workers wait for a slow sink; pieces in between take 8 MiB at most.
///
/// If the sink returns `Break`, it receives no more. The kernel completes the run in progress
/// without recording, and this function waits for that.
///
/// # Errors
/// Those of reading and building the graph, [`GraphError::InsufficientMemory`] among them, and of
/// the kernel.
pub fn trace_graph(
    spec: &GraphTrace,
    sink: &mut dyn FnMut(TracePiece) -> ControlFlow<()>,
) -> Result<GraphTraceEnd, GraphError> {
    match trace_width::<u32>(spec, sink) {
        Err(error) if error.is_too_narrow() => trace_width::<u64>(spec, sink),
        result => result,
    }
}

fn trace_width<V: Width>(
    spec: &GraphTrace,
    sink: &mut dyn FnMut(TracePiece) -> ControlFlow<()>,
) -> Result<GraphTraceEnd, GraphError> {
    let job = spec.job();
    let mut prepared = spec.prepare::<V>(&job)?;
    let traced = prepared.trace(&job, sink)?;
    prepared.report.kernel = Some(spec.kernel.name().to_owned());
    prepared.report.trials = traced.runs;
    Ok(GraphTraceEnd {
        report: prepared.report,
        accesses: traced.accesses,
        is_stopped: traced.is_stopped,
    })
}

impl GraphTrace {
    fn job(&self) -> Job {
        let pages = self.pages.unwrap_or_else(default_pages);
        Job {
            input: self.input.to_string(),
            directed: self.is_directed,
            pages,
            pages_text: pages.of(Array::Property).to_string(),
            alloc_order: AllocOrder::Natural,
            pool: ThreadPool::new(self.threads),
            reorder: self.reorder,
            kernel: Some(self.kernel),
            trials: self.runs,
            source: self.source,
            verify: false,
            output: None,
        }
    }

    /// Builds or loads the graph on all processors, and relabels it.
    fn prepare<V: Width>(&self, job: &Job) -> Result<PreparedGraph<V>, GraphError> {
        let building = Job { pool: ThreadPool::all(), ..job.clone() };
        let weighted = self.kernel.needs_weights();
        let (mut ids, mut file) = (Ids::default(), None);
        let (graph, phases) = match &self.input {
            &GraphInput::Kronecker(mut input) => {
                input.weighted |= weighted;
                build(&building, &input)?
            }
            &GraphInput::Uniform(mut input) => {
                input.weighted |= weighted;
                build(&building, &input)?
            }
            &GraphInput::Grid(mut input) => {
                input.weighted |= weighted;
                build(&building, &input)?
            }
            GraphInput::File(path) => {
                let available = OwnMemory::room_now();
                let fits = |_, needed| check(GraphStep::Build, needed, available);
                let options = LoadOptions {
                    directed: self.is_directed.then_some(true),
                    needs_undirected: self.kernel.needs_undirected(),
                    available: Some(available),
                    building: &fits,
                    ..LoadOptions::new(building.build_options())
                };
                let loaded = load::<V>(path, &options)?;
                file = Some(file_facts(&loaded));
                ids = loaded.ids;
                (loaded.graph, phases(Some(loaded.read), loaded.build))
            }
        };
        if self.reorder.is_some() {
            check(GraphStep::Relabel, graph.relabel_memory(), OwnMemory::room_now())?;
        }
        let mut prepared = building.prepare(graph, phases, None)?;
        prepared.ids = ids;
        prepared.report.threads = job.pool.threads();
        if let Some((file, warnings)) = file {
            (prepared.report.file, prepared.report.warnings) = (Some(file), warnings);
            (self.on_load)(&prepared.report);
        }
        Ok(prepared)
    }
}

/// Writes the name on the command line.
impl std::fmt::Display for GraphInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Kronecker(Kronecker { scale, degree, .. }) => {
                write!(f, "kronecker:{scale}:{degree}")
            }
            Self::Uniform(Uniform { scale, degree, .. }) => write!(f, "uniform:{scale}:{degree}"),
            Self::Grid(Grid { rows, columns, .. }) => write!(f, "grid:{rows}x{columns}"),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Returns THP, which align arrays and speed the kernel up, or base pages if the settings exclude
/// THP.
fn default_pages() -> PagePlan {
    let thp = PagePlan::all(Backing::THP);
    if thp.zeroed::<u64>(Array::Property, 1).is_ok() { thp } else { PagePlan::default() }
}

fn build<V: Width>(job: &Job, source: &impl EdgeSource) -> Result<(Graph<V>, Phases), GraphError> {
    check(GraphStep::Build, job.peak::<V>(source), OwnMemory::room_now())?;
    let begin = Instant::now();
    let graph = job.build_options().graph(source)?;
    Ok((graph, phases(None, begin.elapsed())))
}

fn phases(load: Option<Duration>, build: Duration) -> Phases {
    Phases {
        load_seconds: load.map(|load| load.as_secs_f64()),
        build_seconds: build.as_secs_f64(),
        ..Phases::default()
    }
}

fn check(step: GraphStep, needed: Bytes, available: Bytes) -> Result<(), GraphError> {
    if needed > available {
        return Err(GraphError::InsufficientMemory { step, needed, available });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use hugepilot_graph::Rng;
    use hugepilot_graph::kernel::{DiameterAlgorithm, Direction, PageRankConfig, SsspAlgorithm};

    use super::*;
    use crate::source::{TraceOptions, TraceSource, trace};

    fn spec(input: GraphInput, kernel: Kernel) -> GraphTrace {
        let (reorder, source, pages) = (None, SourceVertex::Random(1), None);
        GraphTrace {
            input,
            is_directed: false,
            reorder,
            kernel,
            threads: 1,
            runs: 1,
            source,
            pages,
            on_load: |_| {},
        }
    }

    fn kronecker(scale: u32) -> GraphInput {
        let (weighted, rng, shuffled) = (false, Rng::Whole, true);
        GraphInput::Kronecker(Kronecker { scale, degree: 8, weighted, rng, shuffled })
    }

    /// Delivers a whole trace. Returns its pieces and its end.
    fn all(spec: &GraphTrace) -> (Vec<TracePiece>, GraphTraceEnd) {
        let mut pieces = Vec::new();
        let end = trace_graph(spec, &mut |piece| {
            pieces.push(piece);
            ControlFlow::Continue(())
        });
        (pieces, end.unwrap())
    }

    fn names(pieces: &[TracePiece]) -> Vec<String> {
        let mappings = pieces.iter().filter_map(|piece| match piece {
            TracePiece::Mappings(mappings) => Some(mappings),
            _ => None,
        });
        let mut names: Vec<_> = mappings.flatten().map(|mapping| mapping.name.clone()).collect();
        names.sort();
        names.dedup();
        names
    }

    #[test]
    fn a_kernel_gets_its_weights_and_its_order() {
        let kernel = Kernel::Sssp(SsspAlgorithm::BellmanFord);
        for reorder in [None, Some((VertexOrder::Dbg, DegreeKind::Out))] {
            let spec = GraphTrace { reorder, runs: 2, ..spec(kronecker(8), kernel) };
            let (pieces, end) = all(&spec);
            assert_eq!(
                names(&pieces),
                [
                    "edges",
                    "offsets",
                    "property:distances",
                    "weights",
                    "worklist:queue-0",
                    "worklist:queue-1",
                    "worklist:waiting"
                ]
            );
            let runs = pieces.iter().filter(
                |piece| matches!(piece, TracePiece::Phase(name) if name.starts_with("run ")),
            );
            assert_eq!((runs.count(), end.report.trials.len()), (2, 2));
            assert_eq!(end.report.reorder.is_some(), reorder.is_some());
            assert_eq!(end.report.kernel.as_deref(), Some("sssp"));
            assert!(end.accesses > 0 && !end.is_stopped);
        }
    }

    #[test]
    fn a_phase_selects_a_run() {
        let whole = GraphTrace { runs: 2, ..spec(kronecker(8), Kernel::Bfs(Direction::TopDown)) };
        let source = TraceSource::Graph(Box::new(whole));
        let selected = |from: &str| {
            let options = TraceOptions { from_phase: Some(from.to_owned()), ..Default::default() };
            let mut phases = Vec::new();
            let mut sink = |piece, _| {
                if let TracePiece::Phase(name) = piece {
                    phases.push(name);
                }
                ControlFlow::Continue(())
            };
            trace(&source, &options, &|| false, &mut sink).map(|end| (phases, end))
        };
        let (phases, end) = selected("run 2").unwrap();
        assert_eq!(phases[..2], ["run 2", "bfs begin"]);
        assert!(end.delivered > 0 && end.omitted > 0, "{end:?}");
        let error = selected("run 3").unwrap_err();
        assert!(error.help()[0].contains("run 1, bfs begin, bfs 1"), "{error:?}");
    }

    #[test]
    fn files_are_loaded_and_keep_their_directions() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("g.el");
        std::fs::write(&path, "0 1\n1 2\n2 0\n0 3\n").unwrap();
        let input = GraphInput::File(path.clone());
        let kernel = Kernel::PageRank(PageRankConfig::default());
        let directed = GraphTrace { is_directed: true, ..spec(input.clone(), kernel) };
        let (pieces, end) = all(&directed);
        let expected = ["edges", "in-edges", "in-offsets", "offsets"];
        assert_eq!(names(&pieces)[..4], expected);
        assert_eq!((end.report.graph.vertices, end.report.graph.edges), (4, 4));
        let (pieces, _) = all(&spec(input, Kernel::Diameter(DiameterAlgorithm::DoubleSweep)));
        assert!(!names(&pieces).contains(&"in-edges".to_owned()));
        let missing = GraphInput::File(dir.path().join("none.el"));
        assert!(trace_graph(&spec(missing, kernel), &mut |_| ControlFlow::Break(())).is_err());
        // The file has no weights.
        let sssp = Kernel::Sssp(SsspAlgorithm::Delta(2));
        let error =
            trace_graph(&spec(GraphInput::File(path), sssp), &mut |_| ControlFlow::Continue(()));
        assert!(matches!(error, Err(GraphError::Unweighted)));
    }

    #[test]
    fn a_graph_beyond_the_memory_is_an_error() {
        let (scale, degree, weighted) = (32, 1 << 20, false);
        let input = GraphInput::Uniform(Uniform { scale, degree, weighted });
        let huge = spec(input, Kernel::Bfs(Direction::TopDown));
        let result = trace_graph(&huge, &mut |_| panic!("nothing is traced"));
        assert!(matches!(result, Err(GraphError::InsufficientMemory { .. })), "{result:?}");
    }

    #[test]
    fn a_sink_ends_the_trace() {
        let spec = GraphTrace { runs: 100, ..spec(kronecker(10), Kernel::Betweenness) };
        let end = trace_graph(&spec, &mut |piece| match piece {
            TracePiece::Accesses { .. } => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        });
        let end = end.unwrap();
        // Pieces in between may belong to further runs.
        assert!(end.is_stopped && end.report.trials.len() < 100);
        assert!((1..=8192).contains(&end.accesses), "{}", end.accesses);
    }
}
