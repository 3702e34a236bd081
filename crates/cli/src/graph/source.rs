//! Input graph: a file or a generated graph.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum, ValueHint};
use hugepilot_graph::error::GraphStep;
use hugepilot_graph::run::{Job, PreparedGraph};
use hugepilot_graph::{DegreeKind, Graph, GraphError, Ids, PropertyPool, VertexOrder, Width};
use hugepilot_kernel::OwnMemory;
use hugepilot_reports::graph::{GraphReport, GraphWarning, InputFile, Phases};
use hugepilot_reports::graph_file_note;
use hugepilot_units::Bytes;

use super::error::usage;
use super::file::FileArgs;
use super::generated::{GeneratedGraph, RngArg};
use crate::output::Progress;

#[derive(Debug, Args)]
pub(super) struct SourceArgs {
    /// Graph: a file (./NAME if it has the name of a generated graph), - for a file on standard
    /// input, kronecker:SCALE[:DEGREE], uniform:SCALE[:DEGREE] (2^SCALE vertices, DEGREE times as
    /// many edges, 16 by default), or grid:ROWSxCOLUMNS
    #[arg(value_name = "GRAPH", value_hint = ValueHint::FilePath,
        value_parser = OsStringValueParser::new().try_map(name))]
    graph: Name,
    /// Weights from 1 to 255 for a generated graph; implied by kernels and formats that require
    /// them
    #[arg(long)]
    weighted: bool,
    /// Directed edges, with their transpose [default: for files or formats that state directions,
    /// unless each edge is there in both]
    #[arg(long)]
    directed: bool,
    /// Undirected edges, even if the file states directions
    #[arg(long, conflicts_with = "directed")]
    symmetrize: bool,
    /// Random numbers of a Kronecker graph: u32, as in the GAP benchmark suite since October 2023,
    /// or float, as before that date and in the papers [default: u32]
    #[arg(long, value_name = "KIND", hide_possible_values = true)]
    rng: Option<RngArg>,
    /// Vertex order to relabel by: dbg, hub-sort, hub-cluster, sort, random[:SEED] or rcm. Results
    /// carry the old IDs
    #[arg(long, value_name = "ORDER")]
    reorder: Option<VertexOrder>,
    /// Edges that count as the degree for --reorder: out for kernels that pull, in for kernels
    /// that push [default: out]
    #[arg(long, value_name = "DIRECTION", requires = "reorder", hide_possible_values = true)]
    degree: Option<DegreeArg>,
    #[command(flatten)]
    file: FileArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DegreeArg {
    Out,
    In,
}

/// Name of a graph.
#[derive(Clone, Debug)]
pub(super) enum Name {
    Generated(GeneratedGraph),
    File(PathBuf),
}

pub(super) fn name(text: OsString) -> Result<Name, String> {
    match text.to_str().and_then(GeneratedGraph::of) {
        Some(generated) => generated.map(Name::Generated),
        None => Ok(Name::File(PathBuf::from(text))),
    }
}

/// Graph before relabelling.
pub(super) struct SourceGraph<V: Width> {
    pub(super) graph: Graph<V>,
    pub(super) ids: Ids,
    /// Property arrays allocated before the graph.
    pub(super) property_pool: Option<PropertyPool>,
    pub(super) file: Option<InputFile>,
    pub(super) warnings: Vec<GraphWarning>,
    pub(super) peak: Bytes,
    pub(super) load: Option<Duration>,
    pub(super) build: Duration,
}

/// Available memory, and announcements of its use.
#[derive(Clone, Copy)]
pub(super) struct MemoryBudget<'a> {
    pub(super) progress: &'a Progress,
}

impl MemoryBudget<'_> {
    /// Returns the memory that this process may take now.
    pub(super) fn available(self) -> Bytes {
        OwnMemory::room_now()
    }

    /// Announces the memory that a step requires at its peak, unless it exceeds `available`.
    pub(super) fn check(
        self,
        step: GraphStep,
        needed: Bytes,
        available: Bytes,
    ) -> Result<(), GraphError> {
        if needed > available {
            return Err(GraphError::InsufficientMemory { step, needed, available });
        }
        self.progress.keep(&format!(
            "note: memory to {step} the graph: at most {needed}, {available} available"
        ));
        Ok(())
    }
}

/// Prints how a file was read, if the graph is from one.
pub(super) fn note_file(report: &GraphReport, print: impl Fn(&str)) {
    if let Some(file) = &report.file {
        let note = graph_file_note(file, &report.graph);
        print(&format!("note: {}: {note}", report.input));
    }
}

impl SourceArgs {
    pub(super) fn name(&self) -> String {
        match &self.graph {
            Name::Generated(generated) => generated.text.clone(),
            Name::File(path) => path.display().to_string(),
        }
    }

    /// Returns the path of a file.
    pub(super) fn path(&self) -> Option<&Path> {
        match &self.graph {
            Name::Generated(_) => None,
            Name::File(path) => Some(path),
        }
    }

    pub(super) const fn is_directed(&self) -> bool {
        self.directed
    }

    /// Returns the directions that the user requests for a file.
    fn requested_directions(&self) -> Option<bool> {
        self.directed.then_some(true).or(self.symmetrize.then_some(false))
    }

    pub(super) fn reorder(&self) -> Option<(VertexOrder, DegreeKind)> {
        let degree = match self.degree {
            None | Some(DegreeArg::Out) => DegreeKind::Out,
            Some(DegreeArg::In) => DegreeKind::In,
        };
        self.reorder.map(|order| (order, degree))
    }

    /// Exits with a usage error if an option has no effect on this graph.
    pub(super) fn check(&self) {
        if let Some(message) = self.unused_option() {
            usage(&message);
        }
    }

    /// Describes the first option without effect on this graph.
    fn unused_option(&self) -> Option<String> {
        let is_kronecker = matches!(&self.graph, Name::Generated(graph) if graph.is_kronecker());
        let by_degree = !matches!(self.reorder, Some(VertexOrder::Random(_) | VertexOrder::Rcm));
        match (&self.graph, self.file.first_given()) {
            (Name::Generated(generated), Some(option)) => {
                Some(format!("{option} is for files, and {} is generated", generated.text))
            }
            (Name::File(_), _) if self.weighted => {
                Some("--weighted is for generated graphs; a file has weights or not".to_owned())
            }
            _ if self.rng.is_some() && !is_kronecker => {
                Some(format!("--rng is for Kronecker graphs, not {}", self.name()))
            }
            _ if self.degree.is_some() && !by_degree => {
                Some("--degree is for --reorder dbg, hub-sort, hub-cluster and sort".to_owned())
            }
            _ => None,
        }
    }

    /// Builds or loads the graph and relabels it, if it fits into memory. `weighted`: the kernel or
    /// the output format requires weights.
    pub(super) fn prepare<V: Width>(
        &self,
        job: &Job,
        weighted: bool,
        progress: &Progress,
    ) -> Result<PreparedGraph<V>, GraphError> {
        let budget = MemoryBudget { progress };
        let source: SourceGraph<V> = match &self.graph {
            Name::Generated(graph) => {
                progress.now(format!("building {}", graph.text));
                let rng = self.rng.unwrap_or(RngArg::U32);
                graph.build(job, weighted || self.weighted, rng, budget)?
            }
            Name::File(path) => {
                progress.now(format!("reading {}", path.display()));
                self.file.load(path, job, self.requested_directions(), budget)?
            }
        };
        let SourceGraph { graph, ids, property_pool, file, warnings, mut peak, load, build } =
            source;
        if let Some((order, _)) = job.reorder {
            let more = graph.relabel_memory();
            budget.check(GraphStep::Relabel, more, budget.available())?;
            progress.now(format!("relabelling vertices by {order}"));
            // The graph takes no more than the relabelled one and the maps.
            let pool = job.property_pool_bytes::<V>(graph.vertices() as u64);
            peak = peak.max(more.times(2) + pool);
        }
        let phases = Phases {
            load_seconds: load.map(|load| load.as_secs_f64()),
            build_seconds: build.as_secs_f64(),
            ..Phases::default()
        };
        let mut prepared = job.prepare(graph, phases, property_pool)?;
        prepared.ids = ids;
        prepared.report.file = file;
        note_file(&prepared.report, |line| progress.keep(line));
        prepared.report.peak_bytes = peak;
        prepared.report.warnings.extend(warnings);
        Ok(prepared)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        source: SourceArgs,
    }

    fn parsed(line: &str) -> Result<SourceArgs, clap::Error> {
        Line::try_parse_from(["info"].into_iter().chain(line.split(' '))).map(|line| line.source)
    }

    #[test]
    fn options_are_for_the_graphs_that_use_them() {
        for (line, words) in [
            ("kronecker:4 --rng float --weighted --reorder dbg --degree in", None),
            ("g.el --reorder random --compact --scale-weights 2", None),
            ("kronecker:4 --compact", Some("--compact is for files")),
            ("g.el --weighted", Some("--weighted is for generated")),
            ("g.el --rng u32", Some("--rng is for Kronecker graphs, not g.el")),
            ("uniform:4 --rng float", Some("--rng is for Kronecker graphs, not uniform:4")),
            ("grid:4x4 --rng float", Some("--rng is for Kronecker graphs")),
            ("g.el --reorder random:3 --degree out", Some("--degree is for --reorder dbg")),
            ("g.el --reorder rcm --degree in", Some("--degree is for --reorder dbg")),
        ] {
            let found = parsed(line).unwrap().unused_option();
            assert_eq!(found.is_some(), words.is_some(), "{line}: {found:?}");
            assert!(found.unwrap_or_default().contains(words.unwrap_or_default()), "{line}");
        }
        assert!(parsed("g.el --degree in").is_err());
        assert!(parsed("g.wel --scale-weights 2 --ignore-weights").is_err());
    }
}
