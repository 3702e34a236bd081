//! How a file of a graph is read.

use std::path::Path;
use std::sync::Mutex;

use clap::Args;
use hugepilot_graph::run::Job;
use hugepilot_graph::{Format, GraphError, LoadMode, LoadOptions, Width, load};
use hugepilot_record::graph::FileFacts;

use super::source::{MemoryBudget, SourceGraph};

/// The heading in --help.
const FILES: &str = "Files";

#[derive(Debug, Args)]
pub(super) struct FileArgs {
    /// What the file looks like: el, wel, mtx, dimacs, metis, ldbc, sg, wsg, galois, galois64, four-files or hpg [default: what
    /// it begins with, or its name, tells]
    #[arg(help_heading = FILES, long, value_name = "FORMAT")]
    format: Option<Format>,
    /// What becomes of it in the page cache, whose memory huge pages are made of: direct never goes there, drop takes it out as it
    /// is read, cached leaves it, tmpfs is for a file that is in memory already [default: direct]
    #[arg(help_heading = FILES, long, value_name = "HOW")]
    load: Option<LoadMode>,
    /// Count vertices anew: their numbers have gaps, or up to 64 bits. Results keep the file's numbers
    #[arg(help_heading = FILES, long)]
    compact: bool,
    /// How many vertices there are, where the file does not say it and the last have no edges
    #[arg(help_heading = FILES, long, value_name = "N")]
    vertices: Option<u64>,
    /// Multiply real weights with this, and round them
    #[arg(help_heading = FILES, long, value_name = "FACTOR", conflicts_with = "ignore_weights")]
    scale_weights: Option<f64>,
    /// Leave the weights out
    #[arg(help_heading = FILES, long)]
    ignore_weights: bool,
}

impl FileArgs {
    /// The first option that was given, for a graph that no file has.
    pub(super) fn given(&self) -> Option<&'static str> {
        [
            (self.format.is_some(), "--format"),
            (self.load.is_some(), "--load"),
            (self.compact, "--compact"),
            (self.vertices.is_some(), "--vertices"),
            (self.scale_weights.is_some(), "--scale-weights"),
            (self.ignore_weights, "--ignore-weights"),
        ]
        .into_iter()
        .find_map(|(given, name)| given.then_some(name))
    }

    /// Loads it, if it fits. `keep_directions`: what the file says of directions counts.
    pub(super) fn make<V: Width>(
        &self,
        path: &Path,
        job: &Job,
        keep_directions: bool,
        room: MemoryBudget<'_>,
    ) -> Result<SourceGraph<V>, GraphError> {
        let properties = Mutex::new(None);
        // Before anything is read: what is needed counts what is read by then.
        let available = room.available();
        let building = |vertices, peak| {
            room.take("building", peak + job.stashed::<V>(vertices), available)?;
            let mut properties = properties.lock().expect("nobody panics with it");
            if properties.is_none() {
                *properties = job.properties::<V>(vertices)?;
            }
            Ok(())
        };
        let options = LoadOptions {
            keep_directions,
            format: self.format,
            load_mode: self.load.unwrap_or_default(),
            vertices: self.vertices,
            compact: self.compact,
            scale_weights: self.scale_weights,
            ignore_weights: self.ignore_weights,
            available: Some(available),
            building: &building,
            progress: &|done, all| room.progress.of(done, all),
            ..LoadOptions::new(job.building())
        };
        let loaded = load::<V>(path, &options)?;
        let stashed = job.stashed::<V>(loaded.graph.vertices() as u64);
        let facts = FileFacts {
            bytes: loaded.file,
            format: loaded.format.to_string(),
            packed: loaded.packed.map(|packed| packed.to_string()),
            loading: loaded.load_mode.to_string(),
            compacted: loaded.ids.is_some(),
        };
        Ok(SourceGraph {
            graph: loaded.graph,
            ids: loaded.ids,
            properties: properties.into_inner().expect("nobody panics with it"),
            file: Some(facts),
            peak: loaded.peak + stashed,
            load: Some(loaded.read),
            build: loaded.build,
        })
    }
}
