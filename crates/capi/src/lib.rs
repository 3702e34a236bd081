//! C and C++ interface: implements `include/hugepilot.h` with the crate `alloc`.
//!
//! The header is the documentation of the interface. A handle is a box of the Rust type. A pointer
//! that may be NULL is an `Option<&T>`; functions that require it return an error for NULL. Numbers
//! that C may get wrong are plain integers here and are checked.
//!
//! Panics never unwind into C: one that reaches an `extern "C"` function ends the process with its
//! message, as the language guarantees. It would be a defect of this library, and an allocator must
//! not continue after one. Misuse by the caller and lack of memory are errors, never panics.
//!
//! Handles and the texts of errors come from `malloc`; if it has no memory, creating a handle fails
//! like mapping. All other memory comes from the kernel.

mod arena;
mod error;
mod handle;
mod heap;
mod options;
mod phase;
mod region;
mod text;
mod version;

pub use arena::*;
pub use error::*;
pub use heap::*;
pub use options::RawOptions;
pub use phase::*;
pub use region::*;
pub use version::*;
