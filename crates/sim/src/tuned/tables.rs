//! Candidate caches of a simulated process, as the window of a snapshot.

use std::collections::BTreeMap;

use hugepilot_record::Window;
use hugepilot_units::Region;

use super::TunedMachine;
use crate::machine::merge;
use crate::pcc::Ranked;
use crate::runs::{Footprint, RegionPages, count};

impl TunedMachine {
    /// Frequencies of the regions of a process as stalls. The samples of the window are as many as
    /// give each region the walks that it had since the last decision, by its part of all
    /// frequencies, over the accesses: counters are halved, so that they compare regions, but not
    /// times.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub(super) fn tables(&mut self, process: u16, footprint: &Footprint) -> Window {
        let (accesses, walks) = self.walked(process, footprint);
        let regions = footprint.regions();
        let is_own =
            |one: &&Ranked| one.frequency > 0 && regions[one.region as usize].process() == process;
        let own = |table: &[Ranked]| -> BTreeMap<Region, u32> {
            let own = table.iter().filter(is_own);
            own.map(|one| (regions[one.region as usize].region(), one.frequency)).collect()
        };
        let tables = self.machine.candidates();
        let stalls = own(&merge(&tables));
        let counted: u64 = stalls.values().map(|&count| u64::from(count)).sum();
        let samples = (counted as f64 * accesses as f64 / walks.max(1) as f64) as u64;
        let mut cores: Vec<_> = tables.iter().map(|table| own(table)).collect();
        cores.retain(|core| !core.is_empty());
        if !self.config.goal.policy.turns_by_core() || cores.len() < 2 {
            cores.clear();
        }
        // By the accessed bits, which the last decision cleared.
        let is_used = |one: &&RegionPages| one.process() == process && count(&one.covered) > 0;
        let used = regions.iter().filter(is_used).map(RegionPages::region);
        let accessed = Some(used.collect());
        let window = self.watched[&process].window.clone();
        Window { samples: samples.max(counted), stalls, cores, accessed, ..window }
    }

    /// Accesses and walks of a process since the last call.
    fn walked(&mut self, process: u16, footprint: &Footprint) -> (u64, u64) {
        let counts = footprint.regions().iter().zip(self.machine.counts_of_regions());
        let own = counts.filter(|(region, _)| region.process() == process);
        let sum =
            own.fold((0, 0), |sum, (_, counts)| (sum.0 + counts.accesses, sum.1 + counts.walks));
        let Some(watched) = self.watched.get_mut(&process) else { return (0, 0) };
        let before = std::mem::replace(&mut watched.walked, sum);
        (sum.0 - before.0, sum.1 - before.1)
    }
}
