//! Accesses, random and structured, in phases of some thousands.

/// Regions of a 1 GiB that are used, and the distance of their numbers.
const REGIONS: u64 = 16;
const APART: u64 = 3;
/// Most accesses of a phase.
const LONGEST: u64 = 3000;

/// Infinite stream of addresses in `pages` pages, of up to 16 regions in each 1 GiB.
pub(crate) struct Stream {
    state: u64,
    pages: u64,
    phase: Phase,
    left: u64,
}

/// Rule of the accesses of a phase. Numbers are those of pages, unless they are called bytes.
#[derive(Clone, Copy)]
enum Phase {
    /// Any page.
    Random,
    /// A page of a part.
    Window { first: u64, pages: u64 },
    /// A page of a part, the first ones more often.
    Skewed { first: u64, pages: u64 },
    /// Addresses in a row.
    Scan { next_bytes: u64, step_bytes: u64 },
    /// The columns of a matrix, whose rows are some pages long.
    Columns { first: u64, at: u64, rows: u64, row_pages: u64 },
    /// The same page of all regions in turn.
    Regions { at: u64 },
    /// Some pages again and again: one more or less than a set or a table holds.
    Cycle { first: u64, at: u64, pages: u64, step: u64 },
}

impl Stream {
    pub(crate) const fn new(seed: u64, pages: u64) -> Self {
        Self { state: seed | 1, pages, phase: Phase::Random, left: 0 }
    }

    /// Number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) % limit
    }

    fn begin(&mut self) {
        let (first, pages) = (self.below(self.pages), 1 << self.below(14));
        let at = self.below(64);
        self.phase = match self.below(7) {
            0 => Phase::Random,
            1 => Phase::Window { first, pages },
            2 => Phase::Skewed { first, pages },
            3 => Phase::Scan { next_bytes: first << 12, step_bytes: 64 << self.below(9) },
            4 => {
                let (rows, row_pages) = (1 + self.below(700), 1 + self.below(8));
                Phase::Columns { first, at, rows, row_pages }
            }
            5 => Phase::Regions { at: first },
            _ => {
                let (pages, step) = (4 + self.below(140), 1 << self.below(9));
                Phase::Cycle { first, at, pages, step }
            }
        };
        self.left = 1 + self.below(LONGEST);
    }

    /// Next address, as a byte among all pages.
    fn next_byte(&mut self) -> u64 {
        let near = self.below(4096);
        let page = match &mut self.phase {
            Phase::Random => self.below(self.pages),
            &mut Phase::Window { first, pages } => first + self.below(pages),
            &mut Phase::Skewed { first, pages } => {
                let page = self.below(pages);
                first + page * page / pages
            }
            Phase::Scan { next_bytes, step_bytes } => {
                *next_bytes += *step_bytes;
                return *next_bytes;
            }
            Phase::Columns { first, at, rows, row_pages } => {
                *at += 1;
                *first + *at % *rows * *row_pages
            }
            Phase::Regions { at } => {
                *at += 512;
                *at
            }
            Phase::Cycle { first, at, pages, step } => {
                *at += 1;
                *first + *at % *pages * *step
            }
        };
        page << 12 | near
    }
}

impl Iterator for Stream {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if self.left == 0 {
            self.begin();
        }
        self.left -= 1;
        let byte = self.next_byte();
        let (page, offset) = ((byte >> 12) % self.pages, byte % 4096);
        let region = page / 512;
        let (giant, region) = (region / REGIONS, region % REGIONS * APART);
        Some(giant << 30 | region << 21 | (page % 512) << 12 | offset)
    }
}
