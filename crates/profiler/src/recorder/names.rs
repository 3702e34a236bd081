//! Names of the regions with samples, each mapping once.

use std::collections::BTreeMap;

use hashbrown::HashSet;
use hugepilot_recording::NamedMapping;
use hugepilot_units::{Region, VirtAddr};

use super::layouts::Layouts;

/// Regions without a name at most, and regions and mappings that are known.
const MAX_UNNAMED: usize = 4096;
const MAX_NAMED: usize = 65_536;

/// Regions by whether their mapping is known.
#[derive(Default)]
pub(super) struct RegionNames {
    /// An address with a sample in each region.
    unnamed: BTreeMap<Region, VirtAddr>,
    named: HashSet<Region>,
    mappings: HashSet<NamedMapping>,
}

impl RegionNames {
    /// Adds a region with a sample.
    pub(super) fn add(&mut self, region: Region, address: VirtAddr) {
        if self.unnamed.len() < MAX_UNNAMED && !self.named.contains(&region) {
            self.unnamed.insert(region, address);
        }
    }

    /// Forgets what is known: another program has other mappings.
    pub(super) fn forget(&mut self) {
        self.named.clear();
        self.mappings.clear();
    }

    /// Returns the mappings of regions with samples that it has not returned before.
    pub(super) fn take(&mut self, layouts: &Layouts) -> Vec<NamedMapping> {
        if self.named.len() >= MAX_NAMED || self.mappings.len() >= MAX_NAMED {
            self.forget();
        }
        let mut found = Vec::new();
        self.unnamed.retain(|&region, &mut address| {
            let Some(mapping) = layouts.find(address) else { return true };
            let name = NamedMapping(mapping.range, mapping.label().to_owned());
            if self.mappings.insert(name.clone()) {
                found.push(name);
            }
            self.named.insert(region);
            false
        });
        found
    }
}
