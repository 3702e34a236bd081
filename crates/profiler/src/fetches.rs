//! Samples on which the fetch of code stalled.
//!
//! At the start of a block of code, no access of data can have stalled. The processor waited for
//! the code if the program runs code on more pages than the TLB holds: uniform use of `T` pages
//! gives `T (1 - e^(-n/T))` distinct pages in `n` samples, and code with more exceeds `T`.

use hashbrown::HashMap;
use hugepilot_units::{Bytes, VirtAddr};

/// Pages of code that the TLB holds: fewer than its last level has entries (1536 and more since
/// 2015), because data needs some of them.
const TLB_PAGES: f64 = 1024.0;
/// Samples below which nothing new is known.
const MIN_SAMPLES: u64 = 256;
/// Samples after which the counts start again, so that old phases of the program do not count.
const MAX_SAMPLES: u64 = 2048;
/// A page with more than this part of the samples is certainly held.
const HOT_PART: u64 = 64;
/// Samples of a page from which the TLB may hold it.
const HELD: u64 = 3;

/// Pages of code with samples at the start of a block, of one process.
#[derive(Debug, Default)]
pub(crate) struct Fetches {
    pages: HashMap<u64, u64>,
    samples: u64,
    exceeds_tlb: bool,
}

impl Fetches {
    /// Counts a sample at the start of a block, and returns whether the fetch of its code stalled.
    pub(crate) fn add(&mut self, ip: VirtAddr, base: Bytes) -> bool {
        if self.samples >= MAX_SAMPLES {
            *self = Self { exceeds_tlb: self.exceeds_tlb, ..Self::default() };
        }
        let of_page = self.pages.entry(ip.get() / base.get()).or_insert(0);
        (*of_page, self.samples) = (*of_page + 1, self.samples + 1);
        let of_page = *of_page;
        if self.samples.is_multiple_of(MIN_SAMPLES / 4) {
            self.judge();
        }
        self.exceeds_tlb && of_page < HELD
    }

    /// Judges whether the pages exceed the TLB.
    #[allow(clippy::cast_precision_loss)]
    fn judge(&mut self) {
        let is_cold = |&&of: &&u64| of == 1 || of * HOT_PART <= self.samples;
        let cold = self.pages.values().filter(is_cold);
        let (distinct, samples) = cold.fold((0_u64, 0), |(n, sum), of| (n + 1, sum + of));
        let of_tlb = TLB_PAGES * (1.0 - (-(samples as f64) / TLB_PAGES).exp());
        let margin = 2.0 * (samples as f64 - of_tlb).max(0.0).sqrt(); // twice its deviation
        if samples >= MIN_SAMPLES {
            self.exceeds_tlb = distinct as f64 > of_tlb + margin;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Share of 4,000 samples that are fetches, if `next` yields their pages from a random number.
    fn share(next: impl Fn(u64) -> u64) -> f64 {
        let (mut fetches, mut state, mut count) = (Fetches::default(), 7_u64, 0);
        for _ in 0..4000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let ip = VirtAddr::new((1 << 40) + next(state >> 33) * 4096);
            count += u32::from(fetches.add(ip, Bytes::kib(4)));
        }
        f64::from(count) / 4000.0
    }

    #[test]
    fn code_that_the_tlb_holds_has_no_fetches_and_larger_code_has() {
        for pages in [1, 20, 300, 900] {
            assert!(share(|random| random % pages) < 0.02, "{pages}");
        }
        for pages in [3000, 12_000, 1 << 20] {
            assert!(share(|random| random % pages) > 0.7, "{pages}");
        }
    }

    #[test]
    fn hot_pages_beside_wide_code_are_held() {
        // Half of the samples are on three pages.
        let wide = share(|random| if random % 2 == 0 { random % 3 } else { 10 + random % 20_000 });
        assert!((0.4..0.51).contains(&wide), "{wide}");
        let narrow = share(|random| if random % 2 == 0 { random % 3 } else { 10 + random % 400 });
        assert!(narrow < 0.02, "{narrow}");
    }
}
