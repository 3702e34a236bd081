//! An in-memory graph engine whose arrays each have a page policy.
//!
//! Graph analytics is the worst case for address translation: what a kernel keeps per vertex is read all over, edge by edge
//! (Manocha and others, IISWC'22). Here each array is a mapping of its own, with a name and the pages that a [`PagePlan`] gives
//! it, and tells on which pages it really is.
//!
//! ```
//! use hugepilot_graph::{Build, Graph, Kronecker, PagePlan, Rng, ThreadPool};
//!
//! let source = Kronecker { scale: 10, degree: 8, weighted: false, rng: Rng::Whole, shuffled: true };
//! let build = Build { directed: false, pages: "edges=thp".parse()?, pool: ThreadPool::new(2) };
//! let graph: Graph<u32> = build.graph(&source)?;
//! assert_eq!(graph.vertices(), 1024);
//! # Ok::<(), hugepilot_graph::GraphError>(())
//! ```

#![forbid(unsafe_code)]

mod access_sink;
mod build;
mod csr;
mod error;
mod format;
mod generate;
#[cfg(debug_assertions)]
mod instances;
pub mod kernel;
mod load;
mod mix;
mod native;
mod pages;
mod property_pool;
mod reorder;
mod rounds;
pub mod run;
mod save;
mod source;
mod thread_pool;
mod width;

pub use access_sink::{AccessSink, SharedSink};
pub use build::Build;
pub use csr::{Csr, DroppedEdges, Graph};
pub use error::{GraphError, Result};
pub use format::Format;
pub use generate::{Grid, Kronecker, Rng, SEED, Uniform};
#[cfg(debug_assertions)]
#[doc(hidden)]
pub use instances::instances;
pub use load::{Compression, Ids, LoadMode, LoadOptions, LoadedGraph, Progress, load};
pub use pages::{Array, PagePlan};
pub use property_pool::{Property, PropertyPool};
pub use reorder::{DBG_HALVES, DegreeKind, VertexMap, VertexOrder, dbg_group};
pub use save::{save, save_map, try_save};
pub use source::{Edge, EdgeList, EdgeSource};
pub use thread_pool::{Cursor, ThreadPool, WorkQueue, Worker};
pub use width::{Cell, Real, Width};
