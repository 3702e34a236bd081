//! Huge pages for C and C++: what `include/hugepilot.h` declares, over the crate `alloc`.
//!
//! The header is the documentation; here is only how. A handle is a box of the Rust type. A pointer that may be NULL is
//! an `Option<&T>`, and is refused as an argument where it must not be. Numbers that C may get wrong are plain integers here
//! and are checked.
//!
//! No panic crosses the border: one that reaches an `extern "C"` function ends the process with its message, as the language
//! promises. It would be a fault of ours, and an allocator that goes on after one would spread it. What a caller can do
//! wrong, and memory that is not to be had, are errors and never panics.
//!
//! Handles, and the texts of errors, come from `malloc`; where that has no more, making a handle fails as mapping does.
//! Nothing else of a region does: the memory itself comes from the kernel.

mod arena;
mod error;
mod handle;
mod heap;
mod options;
mod region;
mod text;
mod version;

pub use arena::*;
pub use error::*;
pub use heap::*;
pub use options::RawOptions;
pub use region::*;
pub use version::*;
