//! The GAP benchmark suite's binary: a byte for directed, the numbers of edges and vertices, and then offsets of 8 bytes and
//! ends of 4, each end followed by its weight in a `.wsg`; once more for the transpose of a directed graph.

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
    weighted: bool,
    options: &LoadOptions<'_>,
) -> Result<FileGraph<V>> {
    const HEADER: u64 = 17;
    let mut reader = file.reader();
    let head = reader.bytes(0, HEADER as usize)?;
    let word = |at: usize| head[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let (directed, edges, vertices) = (head[0], word(1), word(9));
    if directed > 1 {
        return Err(
            file.error_at(0, format!("{directed} where 0 or 1 says whether edges have directions"))
        );
    }
    if vertices > 1 << 31 {
        return Err(
            file.error_at(9, format!("{vertices} vertices, of which 31 bits count 2147483648"))
        );
    }
    let edge: u64 = if weighted { 8 } else { 4 };
    let direction = u64::from(directed) + 1;
    let ends = edges.checked_mul(edge);
    let one = ends.and_then(|ends| ends.checked_add((vertices + 1) * 8));
    let size = one.and_then(|one| one.checked_mul(direction)?.checked_add(HEADER));
    if size != Some(file.len()) {
        let wanted = size.map_or("more than 2^64".to_owned(), |size| size.to_string());
        let what = format!(
            "{vertices} vertices and {edges} edges take {wanted} bytes{}, the file has {}",
            if weighted { " with weights" } else { "" },
            file.len()
        );
        return Err(file.error_at(1, what));
    }
    if vertices == 0 {
        return Err(file.error_at(9, "no vertices"));
    }
    let weights = weighted && !options.ignore_weights;
    let layout = |at: u64| Layout {
        vertices,
        edges,
        offsets: Records::of(file, at, 8),
        first_omitted: false,
        ends: Records { file, at: at + (vertices + 1) * 8, size: edge as usize, fields: [(0, 4)] },
        weights: weights.then_some(Weights::Beside),
        signed: true,
        sums: None,
    };
    let transpose = (directed == 1).then(|| layout(HEADER + one.unwrap_or(0)));
    let said = if directed == 1 { Direction::With } else { Direction::Without };
    rows::load(&layout(HEADER), transpose.as_ref(), said, options)
}
