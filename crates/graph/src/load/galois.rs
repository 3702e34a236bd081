//! Galois's binary: version, size of what belongs to an edge, vertices and edges in 8 bytes each; then where the edges of each
//! vertex end, the ends of the edges in 4 bytes (version 1) or 8 (version 2), up to a multiple of 8 bytes, and the weights.

use super::FileGraph;
use super::blocks::FileBlocks;
use super::options::LoadOptions;
use super::records::Records;
use super::rows::{self, Direction, Layout, Weights};
use crate::{Result, Width};

/// # Errors
/// [`GraphError::Format`](crate::GraphError::Format), [`GraphError::InsufficientMemory`](crate::GraphError::InsufficientMemory), and those of building.
pub(super) fn load<V: Width>(
    file: &FileBlocks<'_>,
    options: &LoadOptions<'_>,
) -> Result<FileGraph<V>> {
    const HEADER: u64 = 32;
    let mut reader = file.reader();
    let head = reader.bytes(0, HEADER as usize)?;
    let word = |at: usize| head[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let (version, data, vertices, edges) = (word(0), word(8), word(16), word(24));
    let width = match version {
        1 => 4,
        2 => 8,
        _ => return Err(file.error_at(0, format!("version {version}; 1 and 2 are read"))),
    };
    if !matches!(data, 0 | 4 | 8) {
        return Err(file.error_at(
            8,
            format!("{data} bytes with each edge; 0, 4 and 8 are read, as whole numbers"),
        ));
    }
    let places = || {
        let ends = vertices.checked_mul(8)?.checked_add(HEADER)?;
        let weights = edges.checked_mul(width)?.checked_add(ends)?.checked_next_multiple_of(8)?;
        Some((ends, weights, edges.checked_mul(data)?.checked_add(weights)?))
    };
    let wrong = |size: String| {
        let what = format!(
            "{vertices} vertices and {edges} edges take {size} bytes, the file has {}",
            file.len()
        );
        Err(file.error_at(16, what))
    };
    let Some((ends, weights, size)) = places() else { return wrong("more than 2^64".to_owned()) };
    // Without weights, what fills up the last 8 bytes may be left out.
    let least = if data == 0 { ends + edges * width } else { size };
    if file.len() != size && file.len() != least {
        return wrong(size.to_string());
    }
    if vertices == 0 {
        return Err(file.error_at(16, "no vertices"));
    }
    let weighted = data > 0 && !options.ignore_weights;
    let layout = Layout {
        vertices,
        edges,
        offsets: Records::of(file, HEADER, 8),
        first_omitted: true,
        ends: Records::of(file, ends, width as usize),
        weights: weighted.then(|| Weights::Apart(Records::of(file, weights, data as usize))),
        signed: data == 4,
        sums: None,
    };
    rows::load(&layout, None, Direction::Unsaid, options)
}
