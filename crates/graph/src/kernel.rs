//! What is computed on graphs. Each kernel in a file of its own, with its verifier.

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

pub use betweenness::{Betweenness, betweenness};
pub use bfs::{Bfs, Direction, bfs};
pub use components::{CcAlgorithm, Components, components};
pub use cost::{ArrayUsage, KernelCost};
pub use diameter::{Diameter, DiameterAlgorithm, diameter};
pub use pagerank::{Dangling, PageRank, PageRankAlgorithm, PageRankConfig, pagerank};
pub use sssp::{Distances, SsspAlgorithm, sssp};
pub use triangles::{Triangles, triangles};

use hugepilot_alloc::Plain;

use crate::access_sink::AccessSink;
use crate::{Graph, PagePlan, Property, PropertyPool, Result, ThreadPool, Width};

/// What all kernels are told.
#[derive(Clone, Debug)]
pub struct Setup<H: AccessSink = ()> {
    /// The pages of what a kernel allocates.
    pub pages: PagePlan,
    /// Who works.
    pub pool: ThreadPool,
    /// Who hears of accesses.
    pub sink: H,
    /// What was set aside for properties before.
    pub properties: Option<PropertyPool>,
}

impl Setup {
    /// Nobody hears of accesses, and nothing was set aside.
    pub const fn new(pages: PagePlan, pool: ThreadPool) -> Self {
        Self { pages, pool, sink: (), properties: None }
    }
}

impl<H: AccessSink> Setup<H> {
    /// `len` values, all zero.
    fn property<T: Plain>(&self, len: usize) -> Result<Property<T>> {
        Property::zeroed(&self.pages, self.properties.as_ref(), len)
    }
}

/// The level of each vertex, `usize::MAX` for who is not reached, and those that are in the order of a search by one thread: what
/// verifiers go by.
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
