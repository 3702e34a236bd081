//! Our own format; what it looks like is in `crate::native`.

use crc32c::{crc32c, crc32c_append};
use hugepilot_alloc::{Plain, bytes};

use super::no_place;
use crate::native::{Header, IDS, PAGE, Section};
use crate::{Graph, Result, Width};
use hugepilot_kernel::file::NewFile;

pub(super) fn write<V: Width>(
    out: &mut NewFile,
    graph: &Graph<V>,
    ids: Option<&[u64]>,
) -> Result<()> {
    if ids.is_some_and(|ids| ids.len() != graph.vertices()) {
        return Err(no_place(out.path(), "keeps one number for each vertex, not fewer or more"));
    }
    out.write(&[0; PAGE])?;
    let mut sections = [Section::default(); 7];
    for (i, rows) in std::iter::once(&graph.out).chain(&graph.transpose).enumerate() {
        sections[i * 3] = section(out, &rows.offsets)?;
        sections[i * 3 + 1] = section(out, &rows.edges)?;
        sections[i * 3 + 2] = section(out, &rows.weights)?;
    }
    sections[IDS] = section(out, ids.unwrap_or_default())?;
    let header = Header {
        width: size_of::<V>() as u32,
        directed: graph.is_directed(),
        weighted: graph.out.is_weighted(),
        numbered: ids.is_some(),
        vertices: graph.vertices() as u64,
        edges: graph.out.edges() as u64,
        sections,
    };
    Ok(out.write_first(&header.page())?)
}

/// On a page of its own; nowhere if it is empty.
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
