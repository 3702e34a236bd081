//! Which graph.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum, ValueHint};
use hugepilot_graph::run::{Job, PreparedGraph};
use hugepilot_graph::{DegreeKind, Graph, GraphError, Ids, PropertyPool, VertexOrder, Width};
use hugepilot_kernel::cgroup::MemoryCgroup;
use hugepilot_kernel::{Root, memory};
use hugepilot_record::graph::{FileFacts, Phases};
use hugepilot_units::Bytes;

use super::file::FileArgs;
use super::fix::usage;
use super::generated::{GeneratedGraph, RngArg};
use crate::output::Progress;

#[derive(Debug, Args)]
pub(super) struct SourceArgs {
    /// The graph: a file (./NAME if it is called like one of these), or kronecker:SCALE[:DEGREE], uniform:SCALE[:DEGREE] (2^SCALE
    /// vertices, DEGREE times as many edges, 16 unless given), grid:ROWSxCOLUMNS, or - for a file on the standard input
    #[arg(value_name = "GRAPH", value_hint = ValueHint::FilePath,
        value_parser = OsStringValueParser::new().try_map(name))]
    graph: Name,
    /// Give the edges of a generated graph weights from 1 to 255; what needs some does so by itself
    #[arg(long)]
    weighted: bool,
    /// Keep the direction of edges, and build the transpose, too [default: only in files that say that they have directions]
    #[arg(long)]
    directed: bool,
    /// Let edges go both ways, whatever the file says
    #[arg(long, conflicts_with = "directed")]
    symmetrize: bool,
    /// How random numbers choose the edges of a Kronecker graph: u32 as the GAP benchmark suite since October 2023, float as before
    /// that, and as in the papers [default: u32]
    #[arg(long, value_name = "HOW")]
    rng: Option<RngArg>,
    /// Number vertices anew: dbg, hub-sort, hub-cluster, sort, random[:SEED] or rcm. Results keep the old numbers
    #[arg(long, value_name = "ORDER")]
    reorder: Option<VertexOrder>,
    /// Which edges count as a vertex's degree for --reorder: out for kernels that pull, in for those that push [default: out]
    #[arg(long, value_name = "WHICH", requires = "reorder")]
    degree: Option<DegreeArg>,
    #[command(flatten)]
    file: FileArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DegreeArg {
    Out,
    In,
}

/// What a graph is called.
#[derive(Clone, Debug)]
enum Name {
    Generated(GeneratedGraph),
    File(PathBuf),
}

fn name(text: OsString) -> Result<Name, String> {
    match text.to_str().and_then(GeneratedGraph::of) {
        Some(generated) => generated.map(Name::Generated),
        None => Ok(Name::File(PathBuf::from(text))),
    }
}

/// A graph under the numbers that it came with.
pub(super) struct SourceGraph<V: Width> {
    pub(super) graph: Graph<V>,
    pub(super) ids: Option<Ids>,
    /// What came before the graph.
    pub(super) properties: Option<PropertyPool>,
    pub(super) file: Option<FileFacts>,
    pub(super) peak: Bytes,
    pub(super) load: Option<Duration>,
    pub(super) build: Duration,
}

/// Memory that there is, and who is told what is taken of it.
#[derive(Clone, Copy)]
pub(super) struct MemoryBudget<'a> {
    pub(super) progress: &'a Progress,
}

impl MemoryBudget<'_> {
    /// Now: of the system, and within the limits at which this process would be killed.
    pub(super) fn available(self) -> Bytes {
        let root = Root::live();
        let system = memory::mem_info(&root).map_or(Bytes::MAX, |info| info.available);
        let text = root.read_text("proc/self/cgroup").unwrap_or_default();
        let group = MemoryCgroup::find(&root, &text);
        group.map_or(system, |group| system.min(group.hard_room(&root).left))
    }

    /// Says what something takes at its peak of what was available before it began, unless it does not fit.
    pub(super) fn take(
        self,
        what: &str,
        needed: Bytes,
        available: Bytes,
    ) -> Result<(), GraphError> {
        if needed > available {
            return Err(GraphError::InsufficientMemory { needed, available });
        }
        self.progress
            .keep(&format!("{what} takes {needed} of memory at most, {available} are available"));
        Ok(())
    }
}

impl SourceArgs {
    pub(super) fn name(&self) -> String {
        match &self.graph {
            Name::Generated(generated) => generated.text.clone(),
            Name::File(path) => path.display().to_string(),
        }
    }

    /// Where it is, if it is a file.
    pub(super) fn path(&self) -> Option<&Path> {
        match &self.graph {
            Name::Generated(_) => None,
            Name::File(path) => Some(path),
        }
    }

    pub(super) const fn is_directed(&self) -> bool {
        self.directed
    }

    pub(super) fn order(&self) -> Option<(VertexOrder, DegreeKind)> {
        let degree = match self.degree {
            None | Some(DegreeArg::Out) => DegreeKind::Out,
            Some(DegreeArg::In) => DegreeKind::In,
        };
        self.reorder.map(|order| (order, degree))
    }

    /// Ends with a usage error where an option has no meaning for this graph.
    pub(super) fn check(&self) {
        if let Some(what) = self.idle() {
            usage(&what);
        }
    }

    /// Which option that was given means nothing here, and what it is for.
    fn idle(&self) -> Option<String> {
        let is_kronecker = matches!(&self.graph, Name::Generated(graph) if graph.is_kronecker());
        let by_degree = !matches!(self.reorder, Some(VertexOrder::Random(_) | VertexOrder::Rcm));
        match (&self.graph, self.file.given()) {
            (Name::Generated(generated), Some(option)) => {
                Some(format!("{option} is for files, and {} is none", generated.text))
            }
            (Name::File(_), _) if self.weighted => {
                Some("--weighted is for generated graphs; a file has weights or not".to_owned())
            }
            _ if self.rng.is_some() && !is_kronecker => {
                Some(format!("--rng is for Kronecker graphs, and {} is none", self.name()))
            }
            _ if self.degree.is_some() && !by_degree => {
                Some("--degree is for --reorder dbg, hub-sort, hub-cluster and sort".to_owned())
            }
            _ => None,
        }
    }

    /// Builds or loads it, and numbers it anew, if all that fits. `weighted`: something needs weights.
    pub(super) fn ready<V: Width>(
        &self,
        job: &Job,
        weighted: bool,
        progress: &Progress,
    ) -> Result<PreparedGraph<V>, GraphError> {
        let room = MemoryBudget { progress };
        let SourceGraph { graph, ids, properties, file, mut peak, load, build } = match &self.graph
        {
            Name::Generated(graph) => {
                progress.now(format!("building {}", graph.text));
                graph.make(job, weighted || self.weighted, self.rng.unwrap_or(RngArg::U32), room)?
            }
            Name::File(path) => {
                progress.now(format!("reading {}", path.display()));
                self.file.make(path, job, !self.symmetrize, room)?
            }
        };
        if let Some((order, _)) = job.order {
            let more = graph.relabel_memory();
            room.take("numbering vertices anew", more, room.available())?;
            progress.now(format!("numbering vertices anew by {order}"));
            // What is there already takes less than what is made of it.
            peak = peak.max(more.times(2) + job.stashed::<V>(graph.vertices() as u64));
        }
        let phases = Phases {
            load_seconds: load.map(|load| load.as_secs_f64()),
            build_seconds: build.as_secs_f64(),
            ..Phases::default()
        };
        let mut ready = job.ready(graph, phases, properties)?;
        ready.ids = ids;
        ready.report.file = file;
        ready.report.peak_bytes = peak;
        Ok(ready)
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
        for (line, says) in [
            ("kronecker:4 --rng float --weighted --reorder dbg --degree in", None),
            ("g.el --reorder random --compact --scale-weights 2", None),
            ("kronecker:4 --compact", Some("--compact is for files")),
            ("g.el --weighted", Some("--weighted is for generated")),
            ("g.el --rng u32", Some("--rng is for Kronecker graphs, and g.el")),
            ("uniform:4 --rng float", Some("--rng is for Kronecker graphs, and uniform:4")),
            ("grid:4x4 --rng float", Some("--rng is for Kronecker graphs")),
            ("g.el --reorder random:3 --degree out", Some("--degree is for --reorder dbg")),
            ("g.el --reorder rcm --degree in", Some("--degree is for --reorder dbg")),
        ] {
            let found = parsed(line).unwrap().idle();
            assert_eq!(found.is_some(), says.is_some(), "{line}: {found:?}");
            assert!(found.unwrap_or_default().contains(says.unwrap_or_default()), "{line}");
        }
        assert!(parsed("g.el --degree in").is_err());
        assert!(parsed("g.wel --scale-weights 2 --ignore-weights").is_err());
    }
}
