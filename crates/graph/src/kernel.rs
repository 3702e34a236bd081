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

pub use betweenness::{Betweenness, betweenness};
pub use bfs::{Bfs, Direction, bfs};
pub use components::{Components, Joining, components};
pub use diameter::{Diameter, Looking, diameter};
pub use pagerank::{Dangling, Iterations, PageRank, Sweep, pagerank};
pub use spent::{Held, Spent};
pub use sssp::{Distances, Stepping, sssp};
pub use triangles::triangles;

use crate::hook::Hook;
use crate::{PagePlan, Team};

/// What all kernels are told.
#[derive(Clone, Copy, Debug)]
pub struct Setup<H: Hook = ()> {
    /// The pages of what a kernel allocates.
    pub pages: PagePlan,
    /// Who works.
    pub team: Team,
    /// Who hears of accesses.
    pub hook: H,
}

impl Setup {
    /// Nobody hears of accesses.
    pub const fn new(pages: PagePlan, team: Team) -> Self {
        Self { pages, team, hook: () }
    }
}
