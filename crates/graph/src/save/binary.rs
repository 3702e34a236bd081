//! Binary formats of other programs.

use std::path::Path;

use hugepilot_alloc::bytes;

use crate::error::SaveFault;
use crate::load::four_files::MAX_NARROW_EDGES;
use crate::{Csr, Graph, GraphError, Result, Width};
use hugepilot_kernel::file::NewFile;

/// Values of one write.
const CHUNK: usize = 1 << 16;

/// Writes values as numbers of 4 or 8 bytes.
pub(super) fn numbers<V: Width>(out: &mut NewFile, values: &[V], width: usize) -> Result<()> {
    if width == size_of::<V>() {
        return values.chunks(CHUNK).try_for_each(|piece| Ok(out.write(bytes(piece))?));
    }
    let mut buffer = Vec::with_capacity(CHUNK * width);
    for piece in values.chunks(CHUNK) {
        buffer.clear();
        piece.iter().for_each(|value| {
            buffer.extend_from_slice(&(value.at() as u64).to_le_bytes()[..width])
        });
        out.write(&buffer)?;
    }
    Ok(())
}

/// Writes weights as signed numbers of 4 bytes.
pub(super) fn signed<V: Width>(out: &mut NewFile, weights: &[V]) -> Result<()> {
    if let Some(weight) = weights.iter().find(|weight| weight.at() >= 1 << 31) {
        return Err(too_large(out.path(), weight.at()));
    }
    numbers(out, weights, 4)
}

/// Checks that the format can count the vertices.
fn check_vertices(path: &Path, vertices: u64, limit: u64) -> Result<()> {
    if vertices > limit {
        return Err(GraphError::save(path, SaveFault::TooManyVertices { vertices, limit }));
    }
    Ok(())
}

fn too_large(path: &Path, weight: usize) -> GraphError {
    GraphError::save(path, SaveFault::WeightTooLarge(weight as u64))
}

/// Returns the width of offsets and edges in four-files, which depends on the number of edges
/// alone.
///
/// # Errors
/// [`SaveFault::TooManyVertices`] for few edges between many vertices.
pub(super) fn width_of_four(path: &Path, vertices: u64, edges: u64) -> Result<usize> {
    if edges > MAX_NARROW_EDGES {
        return Ok(8);
    }
    check_vertices(path, vertices, 1 << 32)?;
    Ok(4)
}

/// Writes the format of the GAP benchmark suite.
pub(super) fn gap<V: Width>(out: &mut NewFile, graph: &Graph<V>, weighted: bool) -> Result<()> {
    check_vertices(out.path(), graph.vertices() as u64, 1 << 31)?;
    out.write(&[u8::from(graph.is_directed())])?;
    out.write(&(graph.out.edges() as u64).to_le_bytes())?;
    out.write(&(graph.vertices() as u64).to_le_bytes())?;
    for rows in std::iter::once(&graph.out).chain(&graph.transpose) {
        numbers(out, &rows.offsets, 8)?;
        if weighted { interleaved(out, rows)? } else { numbers(out, &rows.edges, 4)? }
    }
    Ok(())
}

/// Writes each edge, followed by its weight.
fn interleaved<V: Width>(out: &mut NewFile, rows: &Csr<V>) -> Result<()> {
    let mut both = Vec::with_capacity(2 * CHUNK);
    for (ends, weights) in rows.edges.chunks(CHUNK).zip(rows.weights.chunks(CHUNK)) {
        if let Some(weight) = weights.iter().find(|weight| weight.at() >= 1 << 31) {
            return Err(too_large(out.path(), weight.at()));
        }
        both.clear();
        both.extend(ends.iter().zip(weights).flat_map(|(&end, &weight)| [end, weight]));
        numbers(out, &both, 4)?;
    }
    Ok(())
}

/// Writes the format of Galois.
pub(super) fn galois<V: Width>(out: &mut NewFile, graph: &Graph<V>, width: usize) -> Result<()> {
    let rows = &graph.out;
    if width == 4 {
        check_vertices(out.path(), graph.vertices() as u64, 1 << 32)?;
    }
    let version = width as u64 / 4;
    let data = if rows.is_weighted() { 4 } else { 0 };
    for value in [version, data, graph.vertices() as u64, rows.edges() as u64] {
        out.write(&value.to_le_bytes())?;
    }
    numbers(out, &rows.offsets[1..], 8)?;
    numbers(out, &rows.edges, width)?;
    out.write(&[0; 8][..(rows.edges() * width).next_multiple_of(8) - rows.edges() * width])?;
    if rows.is_weighted() { signed(out, &rows.weights) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_files_count_vertices_by_their_width() {
        let width = |vertices, edges| width_of_four(Path::new("g"), vertices, edges);
        assert_eq!(width(1 << 32, 5).unwrap(), 4);
        assert_eq!(width((1 << 32) + 1, MAX_NARROW_EDGES + 1).unwrap(), 8);
        assert!(width((1 << 32) + 1, MAX_NARROW_EDGES).is_err());
    }
}
