//! Traces: the memory accesses of a program, in a file that can be written and read as a stream.
//!
//! A file is a header and blocks. A block is compressed and has a checksum, so a damaged or
//! truncated file is read up to the damage, and the error has its position. Memory is bounded by
//! the largest block, whatever the file claims.
//!
//! ```text
//! header  "HPTRACE" and the version, 8 bytes
//! block   kind (1 byte), bytes stored, bytes before compression, CRC-32C of the stored bytes
//!         (4 bytes each, little-endian), the stored bytes (raw deflate)
//! ```
//!
//! Version 2 added the ends of threads, version 3 the warnings in the end block ([`TraceWarning`]).
//! Without them, it is unknown whether the trace has all accesses of its program. Version 4 added
//! the number of folded accesses, version 5 the warning about phases.
//!
//! Numbers in a block are varints (LEB128). An access is the difference to the address before, with
//! its sign and then whether it is a store in the lowest bits.

mod block;
mod end;
mod reader;
mod report;
mod summary;
#[cfg(test)]
mod tests;
mod writer;

use hugepilot_units::AddrRange;

pub use reader::TraceReader;
pub use report::{TraceTotals, TraceWarning, TracedMapping, TracedPhase};
pub use summary::TraceSummary;
pub use writer::TraceWriter;

/// Version of the format that this crate writes. It reads all up to this one.
pub const VERSION: u8 = 5;
/// Bits of an address: those of a page table with five levels.
pub const ADDRESS_BITS: u32 = 57;
/// Most accesses of a piece.
pub const MAX_PIECE: usize = 1 << 20;
/// Most mappings of a piece.
pub const MAX_MAPPINGS: usize = 1 << 16;
/// Most phases of a report.
pub const MAX_PHASES: usize = 1 << 12;
/// Most bytes of a name; longer ones are cut.
pub const MAX_NAME: usize = 4096;

/// Access of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceAccess {
    /// Address.
    pub address: u64,
    /// Whether it is a store.
    pub store: bool,
}

/// Mapping of the traced program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceMapping {
    /// Addresses.
    pub range: AddrRange,
    /// Name: a file, an array, or `[anon]`.
    pub name: String,
}

/// Part of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TracePiece {
    /// Consecutive accesses of a thread.
    Accesses {
        /// Thread, from 0 in the order of first use. A thread may have the number of one that has
        /// ended.
        thread: u16,
        /// Accesses, at most [`MAX_PIECE`].
        accesses: Vec<TraceAccess>,
    },
    /// All mappings from here on, at most [`MAX_MAPPINGS`].
    Mappings(Vec<TraceMapping>),
    /// Begin of a phase, with its name.
    Phase(String),
    /// End of a thread: further accesses of this number are of a new one.
    ThreadEnd(u16),
}

/// Error of reading or writing a trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// Reading or writing failed.
    #[error("byte {at}: {source}")]
    Io {
        /// Position in the file.
        at: u64,
        /// Cause.
        source: std::io::Error,
    },
    /// The file is not a trace, or of a later version.
    #[error("{0}")]
    Header(String),
    /// The file is damaged.
    #[error("block at byte {at}: {problem}")]
    Block {
        /// Position of the block in the file.
        at: u64,
        /// The problem.
        problem: String,
    },
}
