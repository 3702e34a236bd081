//! Graph kernels, each in its own file with its verifier.

mod betweenness;
mod bfs;
mod bitmap;
mod components;
mod cost;
mod diameter;
mod pagerank;
mod path_count;
mod queue;
mod sssp;
mod triangles;
mod verify;

pub use betweenness::{Betweenness, betweenness};
pub use bfs::{Bfs, Direction, bfs};
pub use components::{CcAlgorithm, Components, components};
pub use cost::{ArrayUsage, KernelCost};
pub use diameter::{Diameter, DiameterAlgorithm, diameter};
pub use pagerank::{Dangling, PageRank, PageRankAlgorithm, PageRankConfig, pagerank};
pub use sssp::{Distances, SsspAlgorithm, sssp};
pub use triangles::{Triangles, triangles};
pub use verify::{Verdict, VerifyError};

use hugepilot_alloc::Plain;

use crate::access_sink::{ArrayRange, Tracer};
use crate::{Graph, PagePlan, Property, PropertyPool, Result, ThreadPool, Width, Worker};

/// Configuration common to all kernels.
#[derive(Clone, Debug)]
pub struct Setup<T: Tracer = ()> {
    /// Pages of the arrays that a kernel allocates.
    pub pages: PagePlan,
    /// Threads.
    pub pool: ThreadPool,
    /// Receiver of memory accesses.
    pub tracer: T,
    /// Property arrays allocated before the graph.
    pub property_pool: Option<PropertyPool>,
}

impl Setup {
    /// Makes a configuration without a receiver and without preallocated property arrays.
    pub const fn new(pages: PagePlan, pool: ThreadPool) -> Self {
        Self { pages, pool, tracer: (), property_pool: None }
    }
}

impl<T: Tracer> Setup<T> {
    /// Allocates a property array of `len` zeroed values.
    fn property<P: Plain>(&self, len: usize) -> Result<Property<P>> {
        Property::zeroed(&self.pages, self.property_pool.as_ref(), len)
    }

    /// Runs `work` on each thread with its receiver of accesses.
    fn run<'a, R: Send>(&'a self, work: impl Fn(&Worker<'_, T::Sink<'a>>) -> R + Sync) -> Vec<R> {
        self.pool.run(|worker| {
            let sink = self.tracer.sink(worker.id);
            work(&worker.with(&sink))
        })
    }

    /// Announces the arrays of a graph, and those of a kernel that runs on it.
    fn announce<V: Width>(&self, graph: &Graph<V>, own: &dyn Fn() -> Vec<ArrayRange>) {
        self.tracer.on_arrays(&|| {
            let mut arrays = graph.arrays();
            arrays.extend(own());
            arrays
        });
    }
}

/// Searches breadth-first on one thread, for the verifiers. Returns the level of each vertex,
/// `usize::MAX` for unreachable ones, and the reached vertices in search order.
fn serial_bfs<V: Width>(graph: &Graph<V>, source: usize) -> (Vec<usize>, Vec<usize>) {
    let (mut levels, mut order) = (vec![usize::MAX; graph.vertices()], vec![source]);
    levels[source] = 0;
    let mut next = 0;
    while let Some(&v) = order.get(next) {
        next += 1;
        for to in graph.out.neighbours(v).iter().map(|to| to.at()) {
            if levels[to] == usize::MAX {
                levels[to] = levels[v] + 1;
                order.push(to);
            }
        }
    }
    (levels, order)
}
