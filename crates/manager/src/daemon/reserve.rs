//! Reserve of huge pages: memory of the daemon that it frees when a hot region lacks a huge page.
//!
//! In fragmented memory, a free block does not stay: any allocation breaks it up. A huge page of
//! the daemon stays, and the collapse that follows its release takes its place.

use hugepilot_kernel::{AnonMap, Pages};
use hugepilot_units::{Bytes, Nanos, PageSizes};

/// Huge pages freed when a region lacks one. A round that lacks more asks again.
const RELEASED: usize = 16;
/// Time without another attempt after one without a free huge page: each makes the kernel compact
/// memory.
const REST: Nanos = Nanos::seconds(60);

/// The reserve.
#[derive(Debug, Default)]
pub(crate) struct Reserve {
    held: Vec<AnonMap>,
    next: Nanos,
}

impl Reserve {
    /// Frees what is beyond `size`, or adds a huge page if less is held.
    pub(crate) fn keep(&mut self, size: Bytes, sizes: PageSizes, now: Nanos) {
        let wanted = (size.get() / sizes.huge.get().max(1)) as usize;
        self.held.truncate(wanted);
        if self.held.len() == wanted || now < self.next {
            return;
        }
        match huge_page(sizes) {
            Some(page) => self.held.push(page),
            None => self.next = now + REST,
        }
    }

    /// Frees some huge pages, which a region lacks now. Returns whether there were any.
    pub(crate) fn release(&mut self, now: Nanos) -> bool {
        if self.held.is_empty() {
            return false;
        }
        self.held.truncate(self.held.len().saturating_sub(RELEASED));
        self.next = now + REST;
        true
    }
}

/// A huge page of this process; `None` if none is free.
fn huge_page(sizes: PageSizes) -> Option<AnonMap> {
    let mut map = AnonMap::new(sizes.huge, Pages::Default, sizes).ok()?;
    map.name("hugepilot reserve");
    map.words_mut()[0] = 1;
    // Also succeeds if the first touch got a huge page.
    map.collapse(map.range()).ok()?;
    Some(map)
}

#[cfg(test)]
mod tests {
    use hugepilot_kernel::{Root, memory};

    use super::*;

    #[test]
    fn it_grows_by_a_huge_page_and_frees_what_is_asked_for() {
        let sizes = memory::page_sizes(&Root::live()).unwrap();
        let mut reserve = Reserve::default();
        for second in 1..=20 {
            let before = reserve.held.len();
            reserve.keep(sizes.huge.times(18), sizes, Nanos::seconds(second));
            assert!(reserve.held.len() <= before + 1);
        }
        if reserve.held.len() < 18 {
            // No huge page is free here: the next attempt comes later.
            assert!(reserve.next >= Nanos::seconds(60));
            return;
        }
        assert!(reserve.release(Nanos::seconds(21)));
        assert_eq!(reserve.held.len(), 2);
        reserve.keep(sizes.huge.times(18), sizes, Nanos::seconds(22));
        assert_eq!(reserve.held.len(), 2, "the released pages have another user now");
        reserve.keep(Bytes::ZERO, sizes, Nanos::seconds(23));
        assert!(reserve.held.is_empty());
    }
}
