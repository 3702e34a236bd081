//! Native format; `crate::native` defines its layout.

use crc32c::{crc32c, crc32c_append};
use hugepilot_alloc::{Plain, bytes};

use crate::error::SaveFault;
use crate::native::{Header, IDS, PAGE, Section};
use crate::{Graph, GraphError, Ids, Result, Width};
use hugepilot_kernel::file::NewFile;

/// Writes a graph and its vertex IDs.
pub(super) fn write<V: Width>(out: &mut NewFile, graph: &Graph<V>, ids: &Ids) -> Result<()> {
    let listed = ids.listed();
    if let Some(ids) = listed.filter(|ids| ids.len() != graph.vertices()) {
        let fault = SaveFault::IdMismatch { ids: ids.len(), vertices: graph.vertices() };
        return Err(GraphError::save(out.path(), fault));
    }
    out.write(&[0; PAGE])?;
    let mut sections = [Section::default(); 7];
    for (i, rows) in std::iter::once(&graph.out).chain(&graph.transpose).enumerate() {
        sections[i * 3] = section(out, &rows.offsets)?;
        sections[i * 3 + 1] = section(out, &rows.edges)?;
        sections[i * 3 + 2] = section(out, &rows.weights)?;
    }
    sections[IDS] = section(out, listed.unwrap_or_default())?;
    let header = Header {
        width: size_of::<V>() as u32,
        directed: graph.is_directed(),
        weighted: graph.out.is_weighted(),
        has_ids: listed.is_some(),
        from_1: matches!(ids, Ids::From(1)),
        vertices: graph.vertices() as u64,
        edges: graph.out.edges() as u64,
        sections,
    };
    Ok(out.write_first(&header.page())?)
}

/// Writes an array, aligned to a page. An empty array has no position.
fn section<T: Plain>(out: &mut NewFile, values: &[T]) -> Result<Section> {
    if values.is_empty() {
        return Ok(Section::default());
    }
    let gap = out.bytes().next_multiple_of(PAGE as u64) - out.bytes();
    out.write(&[0; PAGE][..gap as usize])?;
    let (at, all) = (out.bytes(), bytes(values));
    let mut sum = crc32c(&[]);
    for piece in all.chunks(1 << 20) {
        sum = crc32c_append(sum, piece);
        out.write(piece)?;
    }
    Ok(Section { at, len: all.len() as u64, sum })
}
