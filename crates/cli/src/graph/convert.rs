//! Options and output of `graph convert`, `graph generate` and `graph reorder`.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use hugepilot_graph::run::PreparedGraph;
use hugepilot_graph::{Format, Graph, GraphError, Ids, Width, save, save_map};
use hugepilot_reports::graph::{GraphWarning, OutputFile};

use super::CommonArgs;
use super::error::usage;
use super::out::{LINES, check, format, is_same, map_of};
use crate::output::Progress;

// No doc comment: each command has its own description.
#[derive(Debug, Args)]
pub(super) struct ConvertArgs {
    #[command(flatten)]
    pub(super) common: CommonArgs,
    /// Output file; for four-files, a directory
    #[arg(value_name = "OUT")]
    out: PathBuf,
    /// Output format: el, wel, mtx, dimacs, metis, sg, wsg, galois, galois64, four-files or hpg
    /// [default: by the name of OUT]
    #[arg(long, value_name = "FORMAT")]
    to: Option<Format>,
    /// File for the map of vertex IDs, OLD NEW on each line [default: OUT.map, if vertices are
    /// relabelled and OUT does not store the old IDs, as hpg does]
    #[arg(long, value_name = "FILE")]
    map: Option<PathBuf>,
    /// Replacement of existing files
    #[arg(long)]
    force: bool,
}

/// Formats without weights, each with the similar format that has them.
const WITH_WEIGHTS: [(Format, Format); 2] =
    [(Format::EdgeList, Format::WeightedEdgeList), (Format::Gap, Format::WeightedGap)];

impl ConvertArgs {
    /// Returns the format of OUT, after a check that it can be written.
    pub(super) fn check(&self) -> Result<Format, GraphError> {
        let format = format(&self.out, self.to)?;
        check(&self.out, self.force, format)?;
        let reordered = self.common.source.reorder().is_some() && format != Format::Native;
        if let Some(map) = self.map.clone().or_else(|| reordered.then(|| map_of(&self.out))) {
            if is_same(&map, &self.out) {
                usage(&format!("--map and OUT are both {}", map.display()));
            }
            check(&map, self.force, LINES)?;
        }
        Ok(format)
    }

    /// Whether the format requires weights.
    pub(super) fn needs_weights(format: Format) -> bool {
        matches!(format, Format::WeightedEdgeList | Format::WeightedGap | Format::Dimacs)
    }

    /// Writes the graph, and the map of vertex IDs if the format does not store them.
    pub(super) fn write<V: Width>(
        &self,
        format: Format,
        prepared: &mut PreparedGraph<V>,
        progress: &Progress,
    ) -> Result<(), GraphError> {
        let begin = Instant::now();
        progress.now(format!("writing {}", self.out.display()));
        let (original, vertices) = (prepared.original_ids(), prepared.graph.vertices());
        let is_listed = prepared.ids.listed().is_some() || prepared.map.is_some();
        // An edge list with the old IDs would not be in the new order.
        let stores_ids = match format {
            Format::Native => true,
            Format::EdgeList | Format::WeightedEdgeList => prepared.map.is_none(),
            _ => false,
        };
        let ids = match (stores_ids, &prepared.map) {
            (true, None) => None,
            (true, Some(_)) => Some(Ids::list(vertices, |v| original.of(v))?),
            (false, _) => Some(Ids::default()),
        };
        let ids = ids.as_ref().unwrap_or(&prepared.ids);
        let mut warnings = losses(format, &prepared.graph, ids);
        let output_first_id = format.first_id();
        if let (Ids::From(input_first_id), false, None) = (&prepared.ids, stores_ids, &prepared.map)
            && *input_first_id != output_first_id
        {
            let (format, input_first_id) = (format.to_string(), *input_first_id);
            warnings.push(GraphWarning::IdsShifted { format, input_first_id, output_first_id });
        }
        let is_lost = is_listed && !stores_ids;
        let map = self.map.clone().or_else(|| is_lost.then(|| map_of(&self.out)));
        map.iter().try_for_each(|map| check(map, self.force, LINES))?;
        let bytes = save(&self.out, self.force, format, &prepared.graph, ids)?;
        // The map comes second: if the format cannot store the graph, both files are unchanged.
        map.iter().try_for_each(|map| {
            save_map(map, self.force, &original, vertices, output_first_id).map(drop)
        })?;
        let stale = map_of(&self.out);
        if stale.exists() && !map.as_ref().is_some_and(|map| is_same(map, &stale)) {
            warnings.push(GraphWarning::StaleMap { path: stale.display().to_string() });
        }
        prepared.report.written = Some(OutputFile {
            path: self.out.display().to_string(),
            format: format.to_string(),
            bytes,
            map: map.map(|map| map.display().to_string()),
        });
        prepared.report.warnings.extend(warnings);
        prepared.report.phases.save_seconds = Some(begin.elapsed().as_secs_f64());
        Ok(())
    }
}

/// Returns warnings about data that the format does not store. `ids`: those of the file.
fn losses<V: Width>(format: Format, graph: &Graph<V>, ids: &Ids) -> Vec<GraphWarning> {
    let mut warnings = Vec::new();
    let first_id = if let Ids::From(first) = ids { *first } else { 0 };
    // `--vertices` reads IDs from 0 unless the last one occurs.
    let original_ids = ids.listed().is_some() || first_id > 0;
    let weighted =
        WITH_WEIGHTS.iter().find(|(without, _)| *without == format && graph.out.is_weighted());
    if let Some((_, weighted)) = weighted {
        let (format, weighted_format) = (format.to_string(), weighted.to_string());
        warnings.push(GraphWarning::WeightsDropped { format, weighted_format });
    }
    if matches!(format, Format::EdgeList | Format::WeightedEdgeList) {
        if graph.is_directed() {
            warnings.push(GraphWarning::DirectionsDropped { format: format.to_string() });
        }
        let is_isolated = |v: &usize| graph.is_isolated(*v);
        let all = graph.vertices();
        // A list without the ID 1 counts from 0.
        let first = (0..all).take_while(|v| first_id > 0 && is_isolated(v)).count();
        let dropped = match ids.listed() {
            Some(_) => graph.isolated(),
            None => first + (0..all).rev().take_while(is_isolated).count(),
        };
        if dropped > 0 {
            let (format, dropped, vertices) = (format.to_string(), dropped as u64, all as u64);
            let warning =
                GraphWarning::IsolatedVerticesDropped { format, dropped, vertices, original_ids };
            warnings.push(warning);
        }
    }
    warnings
}
