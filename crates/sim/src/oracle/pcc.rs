//! Candidate cache as a list.

use crate::pcc::{PccConfig, PccReplacement};

pub(crate) struct PccList {
    config: PccConfig,
    /// Region, frequency, and time of the last use.
    entries: Vec<(u32, u32, u64)>,
    time: u64,
}

impl PccList {
    pub(crate) const fn new(config: PccConfig) -> Self {
        Self { config, entries: Vec::new(), time: 0 }
    }

    pub(crate) fn touch(&mut self, region: u32) {
        self.time += 1;
        let maximum = (1 << self.config.counter_bits) - 1;
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.0 == region) {
            *entry = (region, entry.1 + 1, self.time);
            if entry.1 == maximum {
                self.entries.iter_mut().for_each(|entry| entry.1 /= 2);
            }
            return;
        }
        if self.entries.len() == self.config.entries {
            let lru = self.config.replacement == PccReplacement::Lru;
            let key = |entry: &(u32, u32, u64)| (if lru { 0 } else { entry.1 }, entry.2);
            let victim = (0..self.entries.len()).min_by_key(|&at| key(&self.entries[at]));
            self.entries.remove(victim.unwrap());
        }
        self.entries.push((region, 0, self.time));
    }

    pub(crate) fn remove(&mut self, region: u32) -> Option<u32> {
        let at = self.entries.iter().position(|entry| entry.0 == region)?;
        Some(self.entries.remove(at).1)
    }

    /// Regions with their frequency, in the order of [`crate::Pcc::ranked`].
    pub(crate) fn ranked(&self) -> Vec<(u32, u32)> {
        let mut entries = self.entries.clone();
        entries.sort_by_key(|&(_, frequency, used)| std::cmp::Reverse((frequency, used)));
        entries.into_iter().map(|(region, frequency, _)| (region, frequency)).collect()
    }
}
