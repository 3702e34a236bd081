//! The nouns every other crate counts in: sizes, page sizes, addresses, regions, times.
//!
//! Each is a type, so that a byte is never added to a page and an address never to a size. Each prints as a
//! person writes it (`1.5GiB`, `4%`, `0x7f10_0000_0000`), parses what it prints, and travels in JSON as the plain
//! number of its unit.
//!
//! This crate opens no file, reads no clock and asks nothing of the system: page sizes come in as values.

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

/// A text that is not the quantity it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, found {found:?}")]
pub struct ParseError {
    /// What would have been right, with an example.
    pub expected: &'static str,
    /// What was there.
    pub found: String,
}

impl ParseError {
    fn new(expected: &'static str, found: &str) -> Self {
        Self { expected, found: found.to_owned() }
    }
}
