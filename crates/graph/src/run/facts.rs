//! What a graph is, in a few numbers.

use std::sync::Mutex;

use hugepilot_record::graph::GraphFacts;

use crate::{Graph, ThreadPool, Width, dbg_group};

/// One pass over the offsets.
pub fn facts<V: Width>(graph: &Graph<V>, pool: ThreadPool) -> GraphFacts {
    let found = Mutex::new(GraphFacts::default());
    pool.each(graph.vertices(), 1 << 16, |range| {
        let mut own = GraphFacts::default();
        for v in range {
            let degree = graph.out.degree(v) as u64;
            own.isolated += u64::from(degree == 0 && graph.incoming().degree(v) == 0);
            own.max_degree = own.max_degree.max(degree);
            own.dbg_group_sizes[dbg_group(&graph.out, v)] += 1;
        }
        if let Ok(mut all) = found.lock() {
            all.isolated += own.isolated;
            all.max_degree = all.max_degree.max(own.max_degree);
            all.dbg_group_sizes
                .iter_mut()
                .zip(own.dbg_group_sizes)
                .for_each(|(all, own)| *all += own);
        }
    });
    GraphFacts {
        vertices: graph.vertices() as u64,
        edges: graph.edges() as u64,
        directed: graph.is_directed(),
        weighted: graph.out.is_weighted(),
        self_loops_removed: graph.dropped.self_loops,
        duplicates_removed: graph.dropped.duplicates,
        ..found.into_inner().unwrap_or_default()
    }
}
