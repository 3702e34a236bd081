//! Size and shape of a graph.

use std::sync::Mutex;

use hugepilot_record::graph::GraphFacts;

use crate::{Graph, ThreadPool, Width, dbg_group};

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
