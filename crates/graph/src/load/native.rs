//! Our own format; what it looks like is in `crate::native`.

use hugepilot_alloc::{Backing, HugeVec, Options};

use super::FileGraph;
use super::blocks::FileBlocks;
use super::ids::Ids;
use super::options::LoadOptions;
use super::records::Records;
use super::rows::{self, Direction, Layout, Weights};
use crate::native::{Header, IDS, PAGE, Section};
use crate::{Result, Width};

/// # Errors
/// [`GraphError::Format`](crate::GraphError::Format), [`GraphError::InsufficientMemory`](crate::GraphError::InsufficientMemory), and those of building.
pub(super) fn load<V: Width>(
    file: &FileBlocks<'_>,
    options: &LoadOptions<'_>,
) -> Result<FileGraph<V>> {
    let header = Header::of_page(file.reader().bytes(0, PAGE)?)
        .map_err(|(byte, what)| file.error_at(byte, what))?;
    check(file, &header)?;
    let width = header.width as usize;
    let layout = |sections: &[Section]| Layout {
        vertices: header.vertices,
        edges: header.edges,
        offsets: Records::of(file, sections[0].at, width),
        first_omitted: false,
        ends: Records::of(file, sections[1].at, width),
        weights: (header.weighted && !options.ignore_weights)
            .then(|| Weights::Apart(Records::of(file, sections[2].at, width))),
        signed: false,
        sums: Some([sections[0].sum, sections[1].sum, sections[2].sum]),
    };
    let transpose = header.directed.then(|| layout(&header.sections[3..6]));
    let direction = if header.directed { Direction::With } else { Direction::Without };
    let made = rows::load(&layout(&header.sections[..3]), transpose.as_ref(), direction, options)?;
    let ids = if header.numbered { Some(ids(file, &header, options)?) } else { None };
    Ok(FileGraph { ids, ..made })
}

/// Sections are as long as the numbers of vertices and edges make them, and follow each other.
fn check(file: &FileBlocks<'_>, header: &Header) -> Result<()> {
    let Some(lengths) = header.lengths() else {
        let what = format!(
            "{} vertices and {} edges take more than 2^64 bytes",
            header.vertices, header.edges
        );
        return Err(file.error_at(24, what));
    };
    let mut end = PAGE as u64;
    for (i, (section, wanted)) in header.sections.iter().zip(lengths).enumerate() {
        let byte = 40 + i as u64 * 24;
        if section.len != wanted {
            return Err(file.error_at(
                byte + 8,
                format!("a section of {} bytes, which takes {wanted}", section.len),
            ));
        }
        if wanted == 0 {
            continue;
        }
        let start = end.next_multiple_of(PAGE as u64);
        if section.at != start {
            return Err(file.error_at(
                byte,
                format!("a section at byte {}, which begins at {start}", section.at),
            ));
        }
        end = start.saturating_add(wanted);
        if end > file.len() {
            return Err(file.error_at(
                file.len(),
                format!("the file ends, but a section goes on to byte {end}"),
            ));
        }
    }
    if end != file.len() {
        return Err(
            file.error_at(end, format!("{} bytes more than there should be", file.len() - end))
        );
    }
    Ok(())
}

fn ids(file: &FileBlocks<'_>, header: &Header, options: &LoadOptions<'_>) -> Result<Ids> {
    let Section { at, sum, .. } = header.sections[IDS];
    let mut ids =
        HugeVec::zeroed(header.vertices as usize, Options::only(Backing::Base).named("ids")?)?;
    if Records::of(file, at, 8).read([&mut ids[..]], options.build.pool)? != sum {
        return Err(file.error_at(
            at,
            "the numbers of vertices from here on are damaged: their checksum is another",
        ));
    }
    Ok(ids)
}
