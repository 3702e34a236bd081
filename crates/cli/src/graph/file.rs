//! Options of graph files.

use std::path::Path;
use std::sync::Mutex;

use clap::Args;
use hugepilot_graph::error::GraphStep;
use hugepilot_graph::run::{Job, file_facts};
use hugepilot_graph::{Format, GraphError, LoadMode, LoadOptions, Width, load};

use super::source::{MemoryBudget, SourceGraph};

/// Heading of the options in `--help`.
pub(super) const FILES: &str = "Files";

#[derive(Debug, Args)]
pub(super) struct FileArgs {
    /// Input format: el, wel, mtx, dimacs, metis, ldbc, sg, wsg, galois, galois64, four-files or
    /// hpg [default: by content and name]
    #[arg(help_heading = FILES, long, value_name = "FORMAT")]
    format: Option<Format>,
    /// Member of a tar archive, such as net/net.mtx
    #[arg(help_heading = FILES, long, value_name = "NAME")]
    member: Option<String>,
    /// Names of the columns of an edge list, such as source,target,weight,-; others than source,
    /// target and weight are ignored [default: by a header line or the number of columns]
    #[arg(help_heading = FILES, long, value_name = "NAMES", allow_hyphen_values = true)]
    columns: Option<String>,
    /// Number of lines of an edge list before its first edge or its header line; comments do not
    /// count [default: 1 if the first line states vertices and edges, else 0]
    #[arg(help_heading = FILES, long, value_name = "N")]
    skip_lines: Option<u64>,
    /// Treatment of the page cache, which takes memory from huge pages: direct bypasses it, drop
    /// drops each block after reading, cached leaves the file in it, tmpfs requires a file in
    /// memory [default: direct]
    #[arg(help_heading = FILES, long, value_name = "MODE")]
    load: Option<LoadMode>,
    /// Relabelling of vertices to consecutive IDs, for IDs with gaps or up to 64 bits. Results
    /// carry the IDs of the file
    #[arg(help_heading = FILES, long)]
    compact: bool,
    /// Number of vertices, if the file does not state it and the last ones have no edges
    #[arg(help_heading = FILES, long, value_name = "N")]
    vertices: Option<u64>,
    /// Factor for real weights, which are rounded after multiplication
    #[arg(help_heading = FILES, long, value_name = "FACTOR", conflicts_with = "ignore_weights")]
    scale_weights: Option<f64>,
    /// Unweighted graph, even if the file has weights
    #[arg(help_heading = FILES, long)]
    ignore_weights: bool,
}

impl FileArgs {
    /// Returns the first option given, for graphs that are not files.
    pub(super) fn first_given(&self) -> Option<&'static str> {
        [
            (self.format.is_some(), "--format"),
            (self.member.is_some(), "--member"),
            (self.columns.is_some(), "--columns"),
            (self.skip_lines.is_some(), "--skip-lines"),
            (self.load.is_some(), "--load"),
            (self.compact, "--compact"),
            (self.vertices.is_some(), "--vertices"),
            (self.scale_weights.is_some(), "--scale-weights"),
            (self.ignore_weights, "--ignore-weights"),
        ]
        .into_iter()
        .find_map(|(is_given, name)| is_given.then_some(name))
    }

    /// Loads the graph if it fits into memory. `directed`: requested directions.
    pub(super) fn load<V: Width>(
        &self,
        path: &Path,
        job: &Job,
        directed: Option<bool>,
        budget: MemoryBudget<'_>,
    ) -> Result<SourceGraph<V>, GraphError> {
        let property_pool = Mutex::new(None);
        // Read before the load: the memory that the build requires includes the loaded edges.
        let available = budget.available();
        let building = |vertices, peak| {
            let needed = peak + job.property_pool_bytes::<V>(vertices);
            budget.check(GraphStep::Build, needed, available)?;
            let mut pool = property_pool.lock().expect("no thread panics while it holds the lock");
            if pool.is_none() {
                *pool = job.property_pool::<V>(vertices)?;
            }
            Ok(())
        };
        let options = LoadOptions {
            directed,
            needs_undirected: job.kernel.is_some_and(|kernel| kernel.needs_undirected()),
            format: self.format,
            member: self.member.as_deref(),
            columns: self.columns.as_deref(),
            skip_lines: self.skip_lines,
            load_mode: self.load.unwrap_or_default(),
            vertices: self.vertices,
            compact: self.compact,
            scale_weights: self.scale_weights,
            ignore_weights: self.ignore_weights,
            available: Some(available),
            building: &building,
            progress: &|done, all| budget.progress.of(done, all),
            ..LoadOptions::new(job.build_options())
        };
        let loaded = load::<V>(path, &options)?;
        let vertices = loaded.graph.vertices() as u64;
        let (file, warnings) = file_facts(&loaded);
        Ok(SourceGraph {
            graph: loaded.graph,
            ids: loaded.ids,
            property_pool: property_pool
                .into_inner()
                .expect("no thread panics while it holds the lock"),
            file: Some(file),
            warnings,
            peak: loaded.peak + job.property_pool_bytes::<V>(vertices),
            load: Some(loaded.read),
            build: loaded.build,
        })
    }
}
