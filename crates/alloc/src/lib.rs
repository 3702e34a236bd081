//! Huge pages for memory of our own.
//!
//! A [`HugeRegion`] is memory on the pages that its [`Chain`] of [`Backing`]s could get: pages of the hugetlb pools,
//! transparent huge pages, or base pages, in the order that the caller chose. It says what was asked for
//! ([`HugeRegion::requested`]), what the kernel refused and why ([`HugeRegion::refused`]), and on which pages it really is
//! ([`HugeRegion::usage`], read from the page map, never assumed). [`HugeVec`], [`Arena`] and [`Heap`] live on regions.
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
//!     println!("{error}; {}", error.fix().unwrap_or_default());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The ways to huge pages are those of Zheng, *Using Huge Pages on Linux*, without its limits: n·size that overflows, no
//! elements, alignment beyond a page, an empty pool and a setting of `never` are errors with a cause and a fix.
//!
//! Unsafe code lives here file by file, each with a `# Safety`. What the kernel is asked for goes through [`Sys`], where
//! tests let it fail. Mapping, naming, prefaulting and freeing a region take nothing from the global allocator, so that an
//! allocator can be built on them.

mod arena;
mod backing;
mod error;
mod heap;
mod label;
mod numa;
mod options;
mod plain;
mod region;
mod sys;
mod vec;

pub use arena::Arena;
pub use backing::{Backing, Chain, Part};
pub use error::{AllocError, Pool};
pub use heap::{Heap, HeapStats, ObjectCount};
pub use label::Label;
pub use numa::{Nodes, Numa};
pub use options::{Fork, Options};
pub use plain::{Plain, Zero, bytes, bytes_mut, cells};
pub use region::{CollapseOutcome, HugeRegion, NameStatus, PageUsage};
pub use sys::{Advice, Linux, Pages, Setting, Sys};
pub use vec::HugeVec;

/// This crate's result.
pub type Result<T> = std::result::Result<T, AllocError>;
