//! Our own format; what it looks like is in `crate::native`.

use hugepilot_alloc::{Backing, HugeVec, Options};

use super::Made;
use super::blocks::FileBlocks;
use super::ids::Ids;
use super::numbers::Records;
use super::options::LoadOptions;
use super::rows::{self, Direction, Layout, Weights};
use crate::native::{Header, IDS, PAGE, Section};
use crate::{Result, Width};

/// # Errors
/// [`GraphError::Format`](crate::GraphError::Format), [`GraphError::Room`](crate::GraphError::Room), and those of building.
pub(super) fn load<V: Width>(file: &FileBlocks<'_>, options: &LoadOptions<'_>) -> Result<Made<V>> {
    let header = Header::of_page(file.reader().bytes(0, PAGE)?)
        .map_err(|(byte, what)| file.wrong(byte, what))?;
    check(file, &header)?;
    let width = header.width as usize;
    let layout = |sections: &[Section]| Layout {
        vertices: header.vertices,
        edges: header.edges,
        offsets: Records::of(file, sections[0].at, width),
        first_left_out: false,
        ends: Records::of(file, sections[1].at, width),
        weights: (header.weighted && !options.ignore_weights)
            .then(|| Weights::Apart(Records::of(file, sections[2].at, width))),
        signed: false,
        sums: Some([sections[0].sum, sections[1].sum, sections[2].sum]),
    };
    let inverse = header.directed.then(|| layout(&header.sections[3..6]));
    let direction = if header.directed { Direction::With } else { Direction::Without };
    let made = rows::load(&layout(&header.sections[..3]), inverse.as_ref(), direction, options)?;
    let ids = if header.numbered { Some(ids(file, &header, options)?) } else { None };
    Ok(Made { ids, ..made })
}

/// Sections are as long as the numbers of vertices and edges make them, and follow each other.
fn check(file: &FileBlocks<'_>, header: &Header) -> Result<()> {
    let Some(lengths) = header.lengths() else {
        let what = format!(
            "{} vertices and {} edges take more than 2^64 bytes",
            header.vertices, header.edges
        );
        return Err(file.wrong(24, what));
    };
    let mut end = PAGE as u64;
    for (i, (section, wanted)) in header.sections.iter().zip(lengths).enumerate() {
        let byte = 40 + i as u64 * 24;
        if section.len != wanted {
            return Err(file.wrong(
                byte + 8,
                format!("a section of {} bytes, which takes {wanted}", section.len),
            ));
        }
        if wanted == 0 {
            continue;
        }
        let start = end.next_multiple_of(PAGE as u64);
        if section.at != start {
            return Err(file.wrong(
                byte,
                format!("a section at byte {}, which begins at {start}", section.at),
            ));
        }
        end = start.saturating_add(wanted);
        if end > file.len() {
            return Err(file
                .wrong(file.len(), format!("the file ends, but a section goes on to byte {end}")));
        }
    }
    if end != file.len() {
        return Err(
            file.wrong(end, format!("{} bytes more than there should be", file.len() - end))
        );
    }
    Ok(())
}

fn ids(file: &FileBlocks<'_>, header: &Header, options: &LoadOptions<'_>) -> Result<Ids> {
    let Section { at, sum, .. } = header.sections[IDS];
    let mut ids =
        HugeVec::zeroed(header.vertices as usize, Options::only(Backing::Base).named("ids")?)?;
    if Records::of(file, at, 8).read([&mut ids[..]], options.build.team)? != sum {
        return Err(file.wrong(
            at,
            "the numbers of vertices from here on are damaged: their checksum is another",
        ));
    }
    Ok(ids)
}
