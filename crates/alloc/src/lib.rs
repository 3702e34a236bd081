//! Memory on huge pages: regions, vectors, arenas and a heap.
//!
//! A [`HugeRegion`] maps memory on the first available [`Backing`] of its [`Chain`]: hugetlb pages,
//! transparent huge pages, or base pages, in the caller's order. It reports the request
//! ([`HugeRegion::requested`]), each refused backing with its cause ([`HugeRegion::refused`]), and
//! the pages in use ([`HugeRegion::usage`], read from the pagemap, never assumed). [`HugeVec`],
//! [`Arena`] and [`Heap`] allocate from regions.
//!
//! ```
//! use hugepilot_alloc::{HugeRegion, Options};
//! use hugepilot_units::Bytes;
//!
//! let options = Options::new("hugetlb-2m,thp,base".parse()?).named("index")?;
//! let mut region = HugeRegion::map(Bytes::mib(8), &options)?;
//! region.prefault(2)?;
//! region.bytes_mut()[0] = 1;
//! println!("{} of {} on huge pages ({})", region.usage()?.huge(), region.len(), region.backing());
//! for error in region.refused() {
//!     println!("skipped: {error}");
//!     error.help().iter().for_each(|help| println!("help: {help}"));
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The backings are those of Zheng, *Using Huge Pages on Linux*, without its limits: a size that
//! overflows, a length of 0, alignment above a page, an empty pool and THP set to `never` are
//! errors with a cause and a help.
//!
//! Unsafe code lives here file by file, each with a `# Safety`. System calls go through [`Sys`],
//! which tests replace to inject failures. Mapping, naming, prefaulting and freeing a region never
//! allocate from the global allocator, so an allocator can be built on regions.

mod arena;
mod backing;
mod error;
mod heap;
mod help;
mod label;
mod numa;
mod options;
pub mod pagemap;
mod phase;
mod plain;
mod prefetch;
mod region;
mod sys;
mod vec;

pub use arena::Arena;
pub use backing::{Backing, Chain, Part};
pub use error::{AllocError, Pool};
pub use heap::{Heap, HeapStats, ObjectCount};
pub use help::Help;
pub use label::Label;
pub use numa::{Nodes, Numa};
pub use options::{Fork, Options};
pub use phase::{MARKERS, begin_phase, has_more_privileges};
pub use plain::{Plain, Zero, bytes, bytes_mut, cells};
pub use prefetch::prefetch;
pub use region::{CollapseOutcome, HugeRegion, NameStatus, PageUsage};
pub use sys::{Advice, Linux, Pages, Setting, Sys};
pub use vec::HugeVec;

/// Result with this crate's error.
pub type Result<T> = std::result::Result<T, AllocError>;
