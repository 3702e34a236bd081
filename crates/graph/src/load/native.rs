//! Native format; `crate::native` defines its layout.

use hugepilot_alloc::{Backing, HugeVec, Options};

use super::FileGraph;
use super::direction::Directedness;
use super::file_blocks::FileBlocks;
use super::ids::Ids;
use super::options::LoadOptions;
use super::records::Records;
use super::rows::{self, Layout, Weights};
use crate::error::LoadFault;
use crate::native::{Header, IDS, PAGE, Section};
use crate::{Result, Width};

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
    let header = Header::of_page(file.reader().bytes(0, PAGE)?)
        .map_err(|(byte, fault)| file.error_at(byte, fault))?;
    check(file, &header)?;
    let width = header.width as usize;
    let layout = |sections: &[Section]| Layout {
        vertices: header.vertices,
        edges: header.edges,
        offsets: Records::of(file, sections[0].at, width),
        first_omitted: false,
        ends: Records::of(file, sections[1].at, width),
        weights: (header.weighted && !options.ignore_weights)
            .then(|| Weights::Separate(Records::of(file, sections[2].at, width))),
        signed: false,
        untyped: false,
        checksums: Some([sections[0].sum, sections[1].sum, sections[2].sum]),
    };
    let transpose = header.directed.then(|| layout(&header.sections[3..6]));
    let stated = if header.directed { Directedness::Directed } else { Directedness::Undirected };
    let graph = rows::load(&layout(&header.sections[..3]), transpose.as_ref(), stated, options)?;
    let ids = if header.has_ids {
        Ids::Listed(Box::new(ids(file, &header, options)?))
    } else {
        Ids::From(u64::from(header.from_1))
    };
    Ok(FileGraph { ids, ..graph })
}

/// Checks the lengths of the sections, and that they follow each other.
fn check(file: &FileBlocks<'_>, header: &Header) -> Result<()> {
    let Some(lengths) = header.lengths() else {
        let Header { vertices, edges, .. } = *header;
        let (expected, found) = (None, file.len());
        let fault = LoadFault::SizeMismatch { vertices, edges, expected, found };
        return Err(file.error_at(24, fault));
    };
    let mut end = PAGE as u64;
    for (i, (section, expected)) in header.sections.iter().zip(lengths).enumerate() {
        let byte = 40 + i as u64 * 24;
        if section.len != expected {
            let fault = LoadFault::SectionLength { found: section.len, expected };
            return Err(file.error_at(byte + 8, fault));
        }
        if expected == 0 {
            continue;
        }
        let start = end.next_multiple_of(PAGE as u64);
        if section.at != start {
            let fault = LoadFault::SectionStart { found: section.at, expected: start };
            return Err(file.error_at(byte, fault));
        }
        end = start.saturating_add(expected);
        if end > file.len() {
            return Err(file.error_at(file.len(), LoadFault::Truncated { expected: end }));
        }
    }
    if end != file.len() {
        return Err(file.error_at(end, LoadFault::TrailingBytes(file.len() - end)));
    }
    Ok(())
}

fn ids(file: &FileBlocks<'_>, header: &Header, options: &LoadOptions<'_>) -> Result<HugeVec<u64>> {
    let Section { at, sum, .. } = header.sections[IDS];
    let mut ids =
        HugeVec::zeroed(header.vertices as usize, Options::only(Backing::Base).named("ids")?)?;
    if Records::of(file, at, 8).read([&mut ids[..]], true, options.build.pool)? != sum {
        return Err(file.error_at(at, LoadFault::Checksum("vertex IDs")));
    }
    Ok(ids)
}
