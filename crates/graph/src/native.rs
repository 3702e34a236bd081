//! Our own format: what the rows of a graph are in memory, each array on a page of its own, so that `O_DIRECT` reads it straight
//! into place.
//!
//! A page of header: 8 bytes that name it, version, bytes of a number, flags and a CRC-32C of this page with 0 in its place, of
//! 4 bytes each; vertices and edges of 8; and then for each section where it is, how long, and its CRC-32C, of 8 bytes each.
//! Sections: offsets, ends and weights, the same of the transpose, and the numbers that vertices had in the file they came from.
//! The lowest byte is first. Whoever changes this raises [`VERSION`].

use crc32c::crc32c;

use crate::format::MAGIC;

/// Of files written now.
pub(crate) const VERSION: u32 = 1;
/// Bytes of the header, and what sections are aligned to.
pub(crate) const PAGE: usize = 4096;
/// Flags: edges have directions; numbers of vertices are kept.
const DIRECTED: u32 = 1;
const WEIGHTED: u32 = 2;
const NUMBERED: u32 = 4;

/// Where an array is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) at: u64,
    pub(crate) len: u64,
    pub(crate) sum: u32,
}

/// What the first page says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Bytes of a number, 4 or 8.
    pub(crate) width: u32,
    pub(crate) directed: bool,
    pub(crate) weighted: bool,
    pub(crate) numbered: bool,
    pub(crate) vertices: u64,
    /// Of one direction; each of an undirected graph twice.
    pub(crate) edges: u64,
    pub(crate) sections: [Section; 7],
}

/// Which section the numbers of vertices are.
pub(crate) const IDS: usize = 6;

const SECTIONS: usize = 40;

impl Header {
    /// The page.
    pub(crate) fn page(&self) -> [u8; PAGE] {
        let mut page = [0; PAGE];
        let flags =
            [(self.directed, DIRECTED), (self.weighted, WEIGHTED), (self.numbered, NUMBERED)];
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

    /// What a page says, or at which byte it is wrong, and what.
    pub(crate) fn of_page(page: &[u8]) -> Result<Self, (u64, String)> {
        let small =
            |at: usize| page[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let large =
            |at: usize| page[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        if !page.starts_with(MAGIC) {
            return Err((0, "is not a graph of hugepilot".to_owned()));
        }
        if small(8) != VERSION {
            return Err((8, format!("version {}; this program reads version {VERSION}", small(8))));
        }
        let mut plain = page.to_vec();
        plain[20..24].fill(0);
        if small(20) != crc32c(&plain) {
            return Err((20, "the header is damaged: its checksum is another".to_owned()));
        }
        let (width, flags) = (small(12), small(16));
        if !matches!(width, 4 | 8) {
            return Err((12, format!("numbers of {width} bytes; there are such of 4 and 8")));
        }
        let section = |i: usize| {
            let at = SECTIONS + i * 24;
            Section { at: large(at), len: large(at + 8), sum: large(at + 16) as u32 }
        };
        let header = Self {
            width,
            directed: flags & DIRECTED != 0,
            weighted: flags & WEIGHTED != 0,
            numbered: flags & NUMBERED != 0,
            vertices: large(24),
            edges: large(32),
            sections: std::array::from_fn(section),
        };
        if header.vertices == 0 {
            return Err((24, "no vertices".to_owned()));
        }
        Ok(header)
    }

    /// How long each section should be; none where that is more than 2^64.
    pub(crate) fn lengths(&self) -> Option<[u64; 7]> {
        let width = u64::from(self.width);
        let offsets = self.vertices.checked_add(1)?.checked_mul(width)?;
        let edges = self.edges.checked_mul(width)?;
        let weights = if self.weighted { edges } else { 0 };
        let transpose = |len| if self.directed { len } else { 0 };
        let ids = if self.numbered { self.vertices.checked_mul(8)? } else { 0 };
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
    fn a_header_is_read_as_it_was_written_and_a_changed_bit_is_seen() {
        let section = |i: u64| Section { at: i * 4096, len: i + 5, sum: u32::MAX - i as u32 };
        let header = Header {
            width: 8,
            directed: true,
            weighted: false,
            numbered: true,
            vertices: 3,
            edges: 1 << 40,
            sections: std::array::from_fn(|i| section(i as u64 + 1)),
        };
        let mut page = header.page();
        assert_eq!(Header::of_page(&page), Ok(header));
        assert_eq!(header.lengths(), Some([32, 8 << 40, 0, 32, 8 << 40, 0, 24]));
        for bit in 0..8 * 256 {
            page[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::of_page(&page).is_err(), "bit {bit}");
            page[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
