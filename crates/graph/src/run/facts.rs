//! Size and shape of a graph, and the interpretation of its file.

use std::sync::Mutex;

use hugepilot_reports::graph::{GraphFacts, GraphWarning, InputFile};

use crate::{Graph, Ids, LoadedGraph, StatedCount, ThreadPool, Width, dbg_group};

/// Computes size and shape of a graph. One pass over the offsets.
pub fn facts<V: Width>(graph: &Graph<V>, pool: ThreadPool) -> GraphFacts {
    let sum = Mutex::new(GraphFacts::default());
    pool.each(graph.vertices(), 1 << 16, |range| {
        let mut part = GraphFacts::default();
        for v in range {
            part.isolated += u64::from(graph.is_isolated(v));
            part.max_degree = part.max_degree.max(graph.out.degree(v) as u64);
            part.dbg_group_sizes[dbg_group(&graph.out, v)] += 1;
        }
        if let Ok(mut sum) = sum.lock() {
            sum.isolated += part.isolated;
            sum.max_degree = sum.max_degree.max(part.max_degree);
            sum.dbg_group_sizes
                .iter_mut()
                .zip(part.dbg_group_sizes)
                .for_each(|(sum, part)| *sum += part);
        }
    });
    GraphFacts {
        vertices: graph.vertices() as u64,
        edges: graph.edges() as u64,
        directed: graph.is_directed(),
        weighted: graph.out.is_weighted(),
        self_loops_removed: graph.dropped.self_loops,
        duplicates_removed: graph.dropped.duplicates,
        ..sum.into_inner().unwrap_or_default()
    }
}

/// Describes a file and its interpretation, with warnings.
pub fn file_facts<V: Width>(loaded: &LoadedGraph<V>) -> (InputFile, Vec<GraphWarning>) {
    let reading = &loaded.reading;
    let file = InputFile {
        bytes: loaded.file,
        format: loaded.format.to_string(),
        compression: loaded.compression.map(|compression| compression.to_string()),
        load_mode: loaded.load_mode.to_string(),
        compacted: loaded.ids.listed().is_some(),
        columns: reading.columns.iter().map(|&name| name.to_owned()).collect(),
        count_line: reading.count_line,
        first_id: match loaded.ids {
            Ids::From(first) => Some(first),
            Ids::Listed(_) => None,
        },
        bipartite_sources: reading.sources,
        direction_cause: reading.direction.name().to_owned(),
    };
    let vertices = loaded.graph.vertices() as u64;
    let gaps = |unused_ids| GraphWarning::VertexIdGaps { vertices, unused_ids };
    let differs = |&StatedCount { what, stated, found }: &StatedCount| {
        GraphWarning::StatedCountDiffers { what: what.to_owned(), stated, found }
    };
    let gaps = loaded.unused_ids.map(gaps).into_iter();
    (file, gaps.chain(reading.differences.iter().map(differs)).collect())
}
