//! Stack of at most 16 pages: a word that lists them, the one used last in the lowest bits.

use crate::set::{FRESH_LIST, place_in_list, to_front};

/// Pages of a word.
pub(super) const FEW: usize = 16;

/// The pages in the order of their last use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Few {
    order: u64,
    /// Pages that were used, as bits.
    used: u32,
}

impl Few {
    pub(super) const fn new() -> Self {
        Self { order: FRESH_LIST, used: 0 }
    }

    /// Uses a page below [`FEW`]. Returns the distinct pages since its last use. No branch depends
    /// on the page, except at its first use.
    #[inline]
    pub(super) fn touch(&mut self, page: u32) -> Option<u32> {
        let distance = place_in_list(self.order, u64::from(page));
        self.order = to_front(self.order, u64::from(page));
        let is_known = self.used >> page & 1 == 1;
        self.used |= 1 << page;
        is_known.then_some(distance)
    }

    /// Returns the used pages, the one used longest ago first.
    #[allow(clippy::cast_possible_truncation)]
    pub(super) fn oldest_first(self) -> impl Iterator<Item = u32> {
        let pages = (0..FEW).rev().map(move |place| (self.order >> (place * 4) & 0xf) as u32);
        pages.filter(move |page| self.used >> page & 1 == 1)
    }
}
