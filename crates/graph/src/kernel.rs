//! What is computed on graphs. Each kernel in a file of its own, with its verifier.

mod betweenness;
mod bfs;
mod bitmap;
mod components;
mod diameter;
mod pagerank;
mod queue;
mod spent;
mod sssp;
mod triangles;
mod ways;

pub use betweenness::{Betweenness, betweenness};
pub use bfs::{Bfs, Direction, bfs};
pub use components::{Components, Joining, components};
pub use diameter::{Diameter, Looking, diameter};
pub use pagerank::{Dangling, Iterations, PageRank, Sweep, pagerank};
pub use spent::{Held, Spent};
pub use sssp::{Distances, Stepping, sssp};
pub use triangles::{Triangles, triangles};

use hugepilot_alloc::Plain;

use crate::hook::Hook;
use crate::{Graph, PagePlan, Property, Result, Stash, Team, Width};

/// What all kernels are told.
#[derive(Clone, Debug)]
pub struct Setup<H: Hook = ()> {
    /// The pages of what a kernel allocates.
    pub pages: PagePlan,
    /// Who works.
    pub team: Team,
    /// Who hears of accesses.
    pub hook: H,
    /// What was set aside for properties before.
    pub stash: Option<Stash>,
}

impl Setup {
    /// Nobody hears of accesses, and nothing was set aside.
    pub const fn new(pages: PagePlan, team: Team) -> Self {
        Self { pages, team, hook: (), stash: None }
    }
}

impl<H: Hook> Setup<H> {
    /// `len` values, all zero.
    fn property<T: Plain>(&self, len: usize) -> Result<Property<T>> {
        Property::zeroed(&self.pages, self.stash.as_ref(), len)
    }
}

/// The level of each vertex, `usize::MAX` for who is not reached, and those that are in the order of a search by one thread: what
/// verifiers go by.
fn searched<V: Width>(graph: &Graph<V>, source: usize) -> (Vec<usize>, Vec<usize>) {
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
