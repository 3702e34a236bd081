//! Quantities: sizes, page sizes, addresses, regions, times.
//!
//! Each quantity is a type, so that a size is never added to an address. Each prints as users write
//! it (`1.5GiB`, `4%`, `0x7f1000000000`) and parses its own output. In JSON it is a number in the
//! unit of the type.
//!
//! This crate opens no file, reads no clock and makes no system call: page sizes are arguments.
//!
//! ```
//! use hugepilot_units::{Bytes, PageSizes, Share, VirtAddr};
//!
//! let budget: Share = "4%".parse()?;
//! assert_eq!(budget.of(Bytes::gib(8)).to_string(), "327.68MiB");
//! let region = PageSizes::X86_64.region_of(VirtAddr::new(0x7f10_0020_1000));
//! assert_eq!(region.range(PageSizes::X86_64).to_string(), "7f1000200000-7f1000400000");
//! # Ok::<(), hugepilot_units::ParseError>(())
//! ```

#![forbid(unsafe_code)]

mod address;
mod amount;
mod bytes;
mod page;
mod time;

pub use address::{AddrRange, VirtAddr};
pub use amount::{Amount, Share};
pub use bytes::Bytes;
pub use page::{HugePages, PageSizes, Region};
pub use time::Nanos;

/// Text that does not parse as a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, found {found:?}")]
pub struct ParseError {
    /// Expected form, with an example.
    pub expected: &'static str,
    /// Text found.
    pub found: String,
}

impl ParseError {
    fn new(expected: &'static str, found: &str) -> Self {
        Self { expected, found: found.to_owned() }
    }
}
