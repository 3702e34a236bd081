//! Binary format of Galois.
//!
//! Version, bytes of edge data, vertices and edges, of 8 bytes each; the end offset of each vertex;
//! the edges of 4 bytes (version 1) or 8 (version 2), padded to a multiple of 8 bytes; the weights.

use super::FileGraph;
use super::direction::Directedness;
use super::file_blocks::FileBlocks;
use super::options::LoadOptions;
use super::records::Records;
use super::rows::{self, Layout, Weights};
use crate::error::LoadFault;
use crate::{Result, Width};

/// Bytes before the offsets.
const HEADER: u64 = 32;

/// Loads a graph.
///
/// # Errors
/// [`GraphError::Load`](crate::GraphError::Load),
/// [`GraphError::InsufficientMemory`](crate::GraphError::InsufficientMemory), and those of
/// building.
pub(super) fn load<V: Width>(
    file: &FileBlocks<'_>,
    options: &LoadOptions<'_>,
) -> Result<FileGraph<V>> {
    let mut reader = file.reader();
    let head = reader.bytes(0, HEADER as usize)?;
    let word = |at: usize| head[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let (version, data, vertices, edges) = (word(0), word(8), word(16), word(24));
    let unsupported = |byte, what, found, expected| {
        Err(file.error_at(byte, LoadFault::UnsupportedNumber { what, found, expected }))
    };
    let width = match version {
        1 => 4,
        2 => 8,
        _ => return unsupported(0, "version", version, "1 or 2"),
    };
    if !matches!(data, 0 | 4 | 8) {
        return unsupported(8, "bytes of edge data", data, "0, 4 or 8");
    }
    let places = || {
        let ends = vertices.checked_mul(8)?.checked_add(HEADER)?;
        let weights = edges.checked_mul(width)?.checked_add(ends)?.checked_next_multiple_of(8)?;
        Some((ends, weights, edges.checked_mul(data)?.checked_add(weights)?))
    };
    let mismatch = |expected| {
        let fault = LoadFault::SizeMismatch { vertices, edges, expected, found: file.len() };
        Err(file.error_at(16, fault))
    };
    let Some((ends, weights, size)) = places() else { return mismatch(None) };
    // Without weights, the padding may be absent.
    let least = if data == 0 { ends + edges * width } else { size };
    if file.len() != size && file.len() != least {
        return mismatch(Some(size));
    }
    if vertices == 0 {
        return Err(file.error_at(16, LoadFault::NoVertices));
    }
    let weighted = data > 0 && !options.ignore_weights;
    let layout = Layout {
        vertices,
        edges,
        offsets: Records::of(file, HEADER, 8),
        first_omitted: true,
        ends: Records::of(file, ends, width as usize),
        weights: weighted.then(|| Weights::Separate(Records::of(file, weights, data as usize))),
        signed: data == 4,
        untyped: options.format.is_none(),
        checksums: None,
    };
    rows::load(&layout, None, Directedness::Arcs, options)
}
