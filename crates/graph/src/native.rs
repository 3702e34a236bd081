//! Native file format: the arrays of a graph, each aligned to a page, so that `O_DIRECT` reads them
//! in place.
//!
//! The file starts with a header of one page: 8 magic bytes; version, bytes of a number, flags and
//! the CRC-32C of this page with 0 in its place, of 4 bytes each; vertices and edges, of 8 bytes
//! each; then position, length and CRC-32C of each section, of 8 bytes each. The sections are
//! offsets, edges and weights, the same of the transpose, and the vertex IDs of the file that the
//! graph came from. Numbers are little-endian. A change of the layout must raise [`VERSION`].

use crc32c::crc32c;

use crate::error::LoadFault;
use crate::format::MAGIC;

/// Version of files written. Files of version 1 lack the last flag.
pub(crate) const VERSION: u32 = 2;
/// Bytes of the header, and alignment of sections.
pub(crate) const PAGE: usize = 4096;
/// Flag: edges have a direction.
const DIRECTED: u32 = 1;
/// Flag: edges have weights.
const WEIGHTED: u32 = 2;
/// Flag: the file has vertex IDs.
const HAS_IDS: u32 = 4;
/// Flag: vertex IDs count from 1.
const FROM_1: u32 = 8;

/// Location and checksum of an array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) at: u64,
    pub(crate) len: u64,
    pub(crate) sum: u32,
}

/// Content of the first page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Bytes of a number: 4 or 8.
    pub(crate) width: u32,
    pub(crate) directed: bool,
    pub(crate) weighted: bool,
    pub(crate) has_ids: bool,
    pub(crate) from_1: bool,
    pub(crate) vertices: u64,
    /// Edges of one direction. An undirected edge counts twice.
    pub(crate) edges: u64,
    pub(crate) sections: [Section; 7],
}

/// Index of the section with the vertex IDs.
pub(crate) const IDS: usize = 6;

/// Byte of the section table.
const SECTIONS: usize = 40;

impl Header {
    /// Encodes the header as a page.
    pub(crate) fn page(&self) -> [u8; PAGE] {
        let mut page = [0; PAGE];
        let flags = [
            (self.directed, DIRECTED),
            (self.weighted, WEIGHTED),
            (self.has_ids, HAS_IDS),
            (self.from_1, FROM_1),
        ];
        let flags = flags.iter().filter(|(is, _)| *is).map(|(_, flag)| flag).sum::<u32>();
        page[..8].copy_from_slice(MAGIC);
        for (at, value) in [(8, VERSION), (12, self.width), (16, flags)] {
            page[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        let sections =
            self.sections.iter().flat_map(|section| [section.at, section.len, section.sum.into()]);
        for (i, value) in [self.vertices, self.edges].into_iter().chain(sections).enumerate() {
            page[24 + i * 8..][..8].copy_from_slice(&value.to_le_bytes());
        }
        let sum = crc32c(&page);
        page[20..24].copy_from_slice(&sum.to_le_bytes());
        page
    }

    /// Decodes a page. An error carries the byte of the fault.
    pub(crate) fn of_page(page: &[u8]) -> Result<Self, (u64, LoadFault)> {
        let small =
            |at: usize| page[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let large =
            |at: usize| page[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        if !page.starts_with(MAGIC) {
            return Err((0, LoadFault::NotNative));
        }
        if !(1..=VERSION).contains(&small(8)) {
            let (what, found) = ("version", small(8).into());
            let fault = LoadFault::UnsupportedNumber { what, found, expected: "1 or 2" };
            return Err((8, fault));
        }
        let mut plain = page.to_vec();
        plain[20..24].fill(0);
        if small(20) != crc32c(&plain) {
            return Err((20, LoadFault::Checksum("bytes of the header")));
        }
        let (width, flags) = (small(12), small(16));
        if !matches!(width, 4 | 8) {
            let (what, found) = ("bytes of a number", width.into());
            let fault = LoadFault::UnsupportedNumber { what, found, expected: "4 or 8" };
            return Err((12, fault));
        }
        let section = |i: usize| {
            let at = SECTIONS + i * 24;
            Section { at: large(at), len: large(at + 8), sum: large(at + 16) as u32 }
        };
        let header = Self {
            width,
            directed: flags & DIRECTED != 0,
            weighted: flags & WEIGHTED != 0,
            has_ids: flags & HAS_IDS != 0,
            from_1: flags & FROM_1 != 0,
            vertices: large(24),
            edges: large(32),
            sections: std::array::from_fn(section),
        };
        if header.vertices == 0 {
            return Err((24, LoadFault::NoVertices));
        }
        Ok(header)
    }

    /// Returns the length of each section in bytes; `None` if one exceeds 2^64.
    pub(crate) fn lengths(&self) -> Option<[u64; 7]> {
        let width = u64::from(self.width);
        let offsets = self.vertices.checked_add(1)?.checked_mul(width)?;
        let edges = self.edges.checked_mul(width)?;
        let weights = if self.weighted { edges } else { 0 };
        let transpose = |len| if self.directed { len } else { 0 };
        let ids = if self.has_ids { self.vertices.checked_mul(8)? } else { 0 };
        Some([
            offsets,
            edges,
            weights,
            transpose(offsets),
            transpose(edges),
            transpose(weights),
            ids,
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_round_trips_and_a_changed_bit_is_detected() {
        let section = |i: u64| Section { at: i * 4096, len: i + 5, sum: u32::MAX - i as u32 };
        let header = Header {
            width: 8,
            directed: true,
            weighted: false,
            has_ids: true,
            from_1: false,
            vertices: 3,
            edges: 1 << 40,
            sections: std::array::from_fn(|i| section(i as u64 + 1)),
        };
        let mut page = header.page();
        assert_eq!(Header::of_page(&page).ok(), Some(header));
        assert_eq!(header.lengths(), Some([32, 8 << 40, 0, 32, 8 << 40, 0, 24]));
        for bit in 0..8 * 256 {
            page[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::of_page(&page).is_err(), "bit {bit}");
            page[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
