//! Promotion of 1 GiB regions: the second design of section 3.2.3.
//!
//! The tables of 1 GiB regions count walks of huge pages only. A region in a table walks although
//! it is on huge pages, which is what a region of 2 MiB in a table does on base pages. So it is
//! promoted as that: at the end of an interval, highest frequency first, as many as a table holds,
//! with all its parts on base pages.

use super::{Footprint, TunedMachine, merge};
use crate::pages::PageClass;

impl TunedMachine {
    pub(super) fn promote_giants(&mut self, footprint: &Footprint) {
        let most = self.config.machine.candidates.giant.entries;
        let candidates = merge(&self.machine.giant_candidates());
        for candidate in candidates.iter().filter(|one| one.frequency > 0).take(most) {
            let is_own = |region: &crate::RegionPages| region.giant == candidate.region;
            let Some(first) = footprint.regions().iter().position(is_own) else { continue };
            #[allow(clippy::cast_possible_truncation)]
            self.machine.set_class(first as u32, PageClass::Giant);
            self.giants += 1;
        }
    }
}
