//! In-memory graph engine whose arrays each have a page policy.
//!
//! Graph analytics is the worst case for address translation: kernels read property arrays at
//! random, edge by edge (Manocha et al., IISWC'22). Here each array has its own mapping, its name
//! in `/proc/PID/maps`, and the pages that a [`PagePlan`] gives it. It reports the pages that it
//! really has.
//!
//! ```
//! use hugepilot_graph::kernel::{Direction, Setup, bfs};
//! use hugepilot_graph::{Build, Graph, Kronecker, PagePlan, Rng, ThreadPool};
//!
//! // Base pages for all arrays except the property arrays.
//! let (pages, pool): (PagePlan, _) = ("property=thp".parse()?, ThreadPool::new(2));
//! let input =
//!     Kronecker { scale: 10, degree: 8, weighted: false, rng: Rng::Whole, shuffled: true };
//! let graph: Graph<u32> = Build { directed: false, pages, pool }.graph(&input)?;
//! let search = bfs(&graph, 0, Direction::Optimizing, &Setup::new(pages, pool))?;
//! search.verify(&graph, 0).expect("a breadth-first tree");
//! assert_eq!(graph.vertices(), 1024);
//! # Ok::<(), hugepilot_graph::GraphError>(())
//! ```

#![forbid(unsafe_code)]

mod access_sink;
mod build;
mod csr;
pub mod error;
mod format;
mod generate;
pub mod kernel;
mod load;
mod mix;
mod native;
mod pages;
mod property_pool;
mod recorder;
mod reorder;
mod rounds;
pub mod run;
mod save;
mod source;
mod thread_pool;
mod width;

pub use access_sink::{AccessSink, ArrayRange, Tracer};
pub use build::Build;
pub use csr::{Csr, DroppedEdges, Graph};
pub use error::{GraphError, Help, LoadFault, Result, SaveFault};
pub use format::Format;
pub use generate::{Grid, Kronecker, Rng, SEED, Uniform};
pub use load::{
    Compression, DirectionCause, Ids, LoadMode, LoadOptions, LoadedGraph, Progress, Reading,
    StatedCount, load,
};
pub use pages::{Array, PagePlan};
pub use property_pool::{Property, PropertyPool};
pub use reorder::{DBG_HALVES, DegreeKind, VertexMap, VertexOrder, dbg_group};
pub use save::{save, save_map, try_save};
pub use source::{Edge, EdgeList, EdgeSource};
pub use thread_pool::{Cursor, ThreadPool, WorkQueue, Worker};
pub use width::{Cell, Real, Width};
