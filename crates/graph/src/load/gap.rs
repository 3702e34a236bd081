//! Binary formats of the GAP benchmark suite.
//!
//! A byte for directed, the numbers of edges and vertices, then offsets of 8 bytes and edges of 4.
//! In a `.wsg` file, each edge is followed by its weight. A directed graph then has the same for
//! its transpose.

use super::FileGraph;
use super::direction::Directedness;
use super::file_blocks::FileBlocks;
use super::options::LoadOptions;
use super::records::Records;
use super::rows::{self, Layout, Weights};
use crate::error::LoadFault;
use crate::{Result, Width};

/// Bytes before the offsets.
const HEADER: u64 = 17;
/// Most vertices: IDs are signed.
const MAX_VERTICES: u64 = 1 << 31;

/// Loads a graph.
///
/// # Errors
/// [`GraphError::Load`](crate::GraphError::Load),
/// [`GraphError::InsufficientMemory`](crate::GraphError::InsufficientMemory), and those of
/// building.
pub(super) fn load<V: Width>(
    file: &FileBlocks<'_>,
    weighted: bool,
    options: &LoadOptions<'_>,
) -> Result<FileGraph<V>> {
    let mut reader = file.reader();
    let head = reader.bytes(0, HEADER as usize)?;
    let word = |at: usize| head[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let (directed, edges, vertices) = (head[0], word(1), word(9));
    if directed > 1 {
        let (what, found) = ("directed flag", directed.into());
        let fault = LoadFault::UnsupportedNumber { what, found, expected: "0 or 1" };
        return Err(file.error_at(0, fault));
    }
    if vertices > MAX_VERTICES {
        let fault = LoadFault::TooManyVertices { vertices, limit: MAX_VERTICES };
        return Err(file.error_at(9, fault));
    }
    let edge: u64 = if weighted { 8 } else { 4 };
    let directions = u64::from(directed) + 1;
    let ends = edges.checked_mul(edge);
    let one = ends.and_then(|ends| ends.checked_add((vertices + 1) * 8));
    let expected = one.and_then(|one| one.checked_mul(directions)?.checked_add(HEADER));
    if expected != Some(file.len()) {
        let fault = LoadFault::SizeMismatch { vertices, edges, expected, found: file.len() };
        return Err(file.error_at(1, fault));
    }
    if vertices == 0 {
        return Err(file.error_at(9, LoadFault::NoVertices));
    }
    let weights = weighted && !options.ignore_weights;
    let layout = |at: u64| Layout {
        vertices,
        edges,
        offsets: Records::of(file, at, 8),
        first_omitted: false,
        ends: Records { file, at: at + (vertices + 1) * 8, size: edge as usize, fields: [(0, 4)] },
        weights: weights.then_some(Weights::Interleaved),
        signed: true,
        untyped: false,
        checksums: None,
    };
    let transpose = (directed == 1).then(|| layout(HEADER + one.unwrap_or(0)));
    let stated = if directed == 1 { Directedness::Directed } else { Directedness::Undirected };
    rows::load(&layout(HEADER), transpose.as_ref(), stated, options)
}
