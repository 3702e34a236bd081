//! Graphs into files.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use hugepilot_graph::run::PreparedGraph;
use hugepilot_graph::{Format, Graph, GraphError, Width, save, save_map};
use hugepilot_record::graph::Written;

use super::CommonArgs;
use super::fix::usage;
use super::out::{LINES, check, format, is_same, map_of};
use crate::output::Progress;

// No doc comment: each verb has its own words.
#[derive(Debug, Args)]
pub(super) struct ConvertArgs {
    #[command(flatten)]
    pub(super) common: CommonArgs,
    /// The file it goes to; for four-files, a directory
    #[arg(value_name = "OUT")]
    out: PathBuf,
    /// What it becomes: el, wel, mtx, dimacs, metis, sg, wsg, galois, galois64, four-files or hpg [default: what the name of OUT
    /// tells]
    #[arg(long, value_name = "FORMAT")]
    to: Option<Format>,
    /// Where the numbers of vertices are kept, OLD NEW on each line [default: OUT.map where vertices are numbered anew and OUT has no
    /// place for the old numbers, as hpg has]
    #[arg(long, value_name = "FILE")]
    map: Option<PathBuf>,
    /// Replace files that are there already
    #[arg(long)]
    force: bool,
}

/// The formats that have no place for weights, and those like them which have.
const WITH_WEIGHTS: [(Format, Format); 2] =
    [(Format::EdgeList, Format::WeightedEdgeList), (Format::Gap, Format::WeightedGap)];

impl ConvertArgs {
    /// What OUT becomes, if it can be written.
    pub(super) fn check(&self) -> Result<Format, GraphError> {
        let format = format(&self.out, self.to)?;
        check(&self.out, self.force, format)?;
        let reordered = self.common.source.order().is_some() && format != Format::Native;
        if let Some(map) = self.map.clone().or_else(|| reordered.then(|| map_of(&self.out))) {
            if is_same(&map, &self.out) {
                usage(&format!("--map and OUT are both {}; name another file", map.display()));
            }
            check(&map, self.force, LINES)?;
        }
        Ok(format)
    }

    /// Whether there must be weights.
    pub(super) fn needs_weights(format: Format) -> bool {
        matches!(format, Format::WeightedEdgeList | Format::WeightedGap | Format::Dimacs)
    }

    /// Writes it, and the numbers that its vertices had if these would be lost.
    pub(super) fn write<V: Width>(
        &self,
        format: Format,
        ready: &mut PreparedGraph<V>,
        progress: &Progress,
    ) -> Result<(), GraphError> {
        let begin = Instant::now();
        progress.now(format!("writing {}", self.out.display()));
        let (names, vertices) = (ready.original_ids(), ready.graph.vertices());
        let is_other = ready.ids.is_some() || ready.numbers.is_some();
        // A list under old numbers would not be in the new order.
        let keeps = match format {
            Format::Native => true,
            Format::EdgeList | Format::WeightedEdgeList => ready.numbers.is_none(),
            _ => false,
        };
        let ids =
            (is_other && keeps).then(|| (0..vertices).map(|v| names.of(v)).collect::<Vec<_>>());
        for what in lost(format, &ready.graph, ids.is_some()) {
            progress.keep(&format!("{format} has no place for {what}"));
        }
        let map = self.map.clone().or_else(|| (is_other && !keeps).then(|| map_of(&self.out)));
        map.iter().try_for_each(|map| check(map, self.force, LINES))?;
        let bytes = save(&self.out, self.force, format, &ready.graph, ids.as_deref())?;
        // What the format refuses leaves both files as they were.
        map.iter().try_for_each(|map| save_map(map, self.force, &names, vertices).map(drop))?;
        let stale = map_of(&self.out);
        if stale.exists() && !map.as_ref().is_some_and(|map| is_same(map, &stale)) {
            progress.keep(&format!("{} is not of this graph; remove it", stale.display()));
        }
        ready.report.written = Some(Written {
            path: self.out.display().to_string(),
            format: format.to_string(),
            bytes,
            map: map.map(|map| map.display().to_string()),
        });
        ready.report.phases.save_seconds = Some(begin.elapsed().as_secs_f64());
        Ok(())
    }
}

/// What a format has no place for, which is left out; `numbered`: vertices are written under the numbers of their source.
fn lost<V: Width>(format: Format, graph: &Graph<V>, numbered: bool) -> Vec<String> {
    let mut lost = Vec::new();
    let with =
        WITH_WEIGHTS.iter().find(|(without, _)| *without == format && graph.out.is_weighted());
    if let Some((_, with)) = with {
        lost.push(format!("the weights, which are left out; {with} has"));
    }
    if matches!(format, Format::EdgeList | Format::WeightedEdgeList) {
        let is_alone = |v: &usize| graph.out.degree(*v) == 0 && graph.incoming().degree(*v) == 0;
        let all = graph.vertices();
        let (alone, back) = if numbered {
            ((0..all).filter(is_alone).count(), "hpg has".to_owned())
        } else {
            let last = (0..all).rev().take_while(is_alone).count();
            (last, format!("--vertices {all} brings them back"))
        };
        if alone > 0 {
            lost.push(format!("{alone} of {all} vertices, which have no edges; {back}"));
        }
    }
    lost
}
