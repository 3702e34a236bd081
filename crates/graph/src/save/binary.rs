//! Formats of rows that others read.

use std::path::Path;

use hugepilot_alloc::bytes;

use super::no_place;
use crate::load::four_files::MOST_NARROW;
use crate::{Csr, Graph, Result, Width};
use hugepilot_kernel::file::NewFile;

/// Values written at once.
const PIECE: usize = 1 << 16;

/// These as numbers of 4 or 8 bytes.
pub(super) fn numbers<V: Width>(out: &mut NewFile, values: &[V], width: usize) -> Result<()> {
    if width == size_of::<V>() {
        return values.chunks(PIECE).try_for_each(|piece| Ok(out.write(bytes(piece))?));
    }
    let mut buffer = Vec::with_capacity(PIECE * width);
    for piece in values.chunks(PIECE) {
        buffer.clear();
        piece.iter().for_each(|value| {
            buffer.extend_from_slice(&(value.at() as u64).to_le_bytes()[..width])
        });
        out.write(&buffer)?;
    }
    Ok(())
}

/// The same of 4 bytes, the highest bit being a sign.
pub(super) fn signed<V: Width>(out: &mut NewFile, weights: &[V]) -> Result<()> {
    if let Some(weight) = weights.iter().find(|weight| weight.at() >= 1 << 31) {
        return Err(no_place(
            out.path(),
            format!("has no place for the weight {weight}, which takes more than 31 bits"),
        ));
    }
    numbers(out, weights, 4)
}

/// Numbers of 4 bytes count that many, and no more.
fn narrow(path: &Path, what: &str, count: u64, most: u64) -> Result<()> {
    if count > most {
        return Err(no_place(
            path,
            format!("has no place for {count} {what}; it counts {most}; use hpg"),
        ));
    }
    Ok(())
}

/// What papers' files have offsets and ends of, by the number of edges alone.
///
/// # Errors
/// [`GraphError::Format`](crate::GraphError::Format) for few edges between more vertices than that counts.
pub(super) fn width_of_four(path: &Path, vertices: u64, edges: u64) -> Result<usize> {
    if edges > MOST_NARROW {
        return Ok(8);
    }
    narrow(path, "vertices", vertices, 1 << 32)?;
    Ok(4)
}

pub(super) fn gap<V: Width>(out: &mut NewFile, graph: &Graph<V>, weighted: bool) -> Result<()> {
    narrow(out.path(), "vertices", graph.vertices() as u64, 1 << 31)?;
    out.write(&[u8::from(graph.is_directed())])?;
    out.write(&(graph.out.edges() as u64).to_le_bytes())?;
    out.write(&(graph.vertices() as u64).to_le_bytes())?;
    for rows in std::iter::once(&graph.out).chain(&graph.transpose) {
        numbers(out, &rows.offsets, 8)?;
        if weighted { beside(out, rows)? } else { numbers(out, &rows.edges, 4)? }
    }
    Ok(())
}

/// Each end, and its weight after it.
fn beside<V: Width>(out: &mut NewFile, rows: &Csr<V>) -> Result<()> {
    let mut both = Vec::with_capacity(2 * PIECE);
    for (ends, weights) in rows.edges.chunks(PIECE).zip(rows.weights.chunks(PIECE)) {
        if let Some(weight) = weights.iter().find(|weight| weight.at() >= 1 << 31) {
            return Err(no_place(
                out.path(),
                format!("has no place for the weight {weight}, which takes more than 31 bits"),
            ));
        }
        both.clear();
        both.extend(ends.iter().zip(weights).flat_map(|(&end, &weight)| [end, weight]));
        numbers(out, &both, 4)?;
    }
    Ok(())
}

pub(super) fn galois<V: Width>(out: &mut NewFile, graph: &Graph<V>, width: usize) -> Result<()> {
    let rows = &graph.out;
    if width == 4 {
        narrow(out.path(), "vertices", graph.vertices() as u64, 1 << 32)?;
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
    fn four_files_count_as_many_vertices_as_their_width_does() {
        let width = |vertices, edges| width_of_four(Path::new("g"), vertices, edges);
        assert_eq!(width(1 << 32, 5).unwrap(), 4);
        assert_eq!(width((1 << 32) + 1, MOST_NARROW + 1).unwrap(), 8);
        let error = width((1 << 32) + 1, MOST_NARROW).unwrap_err().to_string();
        assert!(error.contains("4294967297 vertices") && error.contains("hpg"), "{error}");
    }
}
