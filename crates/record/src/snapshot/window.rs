//! Window: the samples of a process since a moment.

use std::collections::{BTreeMap, BTreeSet};

use hugepilot_units::{Nanos, Region};
use serde::{Deserialize, Serialize};

/// Samples of one process since a moment.
///
/// A stall counts for its region if the sample has an address, and the access is not part of a
/// stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// Start, on the monotonic clock.
    pub since: Nanos,
    /// End.
    pub until: Nanos,
    /// CPU time that the samples represent; `None` if each represents an event, not a time.
    pub cpu: Option<Nanos>,
    /// Samples of all kinds.
    pub samples: u64,
    /// Samples without an address.
    pub unknown: u64,
    /// Stalls whose sampled address is that of the access that stalled, by region.
    pub stalls: BTreeMap<Region, u32>,
    /// Stalls of pointer chases, by region: the sampled address is that of the next access.
    pub chases: BTreeMap<Region, u32>,
    /// Stalls of each core, where a simulation counts them apart and its policy reads them; else
    /// empty. `stalls` has their sums.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cores: Vec<BTreeMap<Region, u32>>,
    /// Regions that were used in the last observation, by accessed bits; `None` where these are not
    /// read, as on a live process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accessed: Option<BTreeSet<Region>>,
}

impl Window {
    /// Length at which a window is halved, so that old phases of a program fade.
    pub const MAX_LENGTH: Nanos = Nanos::seconds(20);

    /// Makes an empty window that starts at `since`.
    pub fn starting(since: Nanos) -> Self {
        Self { since, until: since, ..Self::default() }
    }
    /// Returns the length.
    pub fn length(&self) -> Nanos {
        self.until - self.since
    }
    /// Returns the stalls of both kinds on `region`.
    pub fn of(&self, region: Region) -> u32 {
        let count = |counts: &BTreeMap<Region, u32>| counts.get(&region).copied().unwrap_or(0);
        count(&self.stalls).saturating_add(count(&self.chases))
    }
    /// Returns the stalls of both kinds, by region.
    pub fn all_stalls(&self) -> BTreeMap<Region, u32> {
        let mut all = self.stalls.clone();
        for (&region, &count) in &self.chases {
            *all.entry(region).or_insert(0) += count;
        }
        all
    }
    /// Returns the number of stalls with the address of the access that stalled.
    pub fn stalled(&self) -> u64 {
        sum(&self.stalls)
    }
    /// Returns the number of stalls of pointer chases.
    pub fn chased(&self) -> u64 {
        sum(&self.chases)
    }
    /// Returns the mean number of CPUs that the process used; 1 if that is unknown.
    pub fn cpus(&self) -> f64 {
        let length = self.length().as_seconds();
        self.cpu.filter(|_| length > 0.0).map_or(1.0, |cpu| cpu.as_seconds() / length)
    }

    /// Adds the samples and the length of a later window. The time between both does not count.
    pub fn extend(&mut self, later: &Self) {
        let length = self.length() + later.length();
        (self.since, self.until) = (later.until - length, later.until);
        self.cpu = self.cpu.zip(later.cpu).map(|(cpu, more)| cpu + more);
        self.samples += later.samples;
        self.unknown += later.unknown;
        for (counts, more) in [(&mut self.stalls, &later.stalls), (&mut self.chases, &later.chases)]
        {
            for (&region, &count) in more {
                *counts.entry(region).or_insert(0) += count;
            }
        }
    }

    /// Halves the length and all counts, so that old phases of the program fade. Regions with a
    /// single stall leave the window.
    pub fn fade(&mut self) {
        self.since = Nanos::new(self.since.get().midpoint(self.until.get()));
        self.cpu = self.cpu.map(|cpu| Nanos::new(cpu.get() / 2));
        (self.samples, self.unknown) = (self.samples / 2, self.unknown / 2);
        for counts in [&mut self.stalls, &mut self.chases] {
            counts.retain(|_, count| {
                *count /= 2;
                *count > 0
            });
        }
    }
}

fn sum(counts: &BTreeMap<Region, u32>) -> u64 {
    counts.values().map(|&count| u64::from(count)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window() -> Window {
        Window {
            since: Nanos::seconds(10),
            until: Nanos::seconds(14),
            cpu: Some(Nanos::seconds(6)),
            samples: 3001,
            unknown: 100,
            stalls: [(Region::new(1), 7), (Region::new(2), 1)].into(),
            chases: [(Region::new(1), 3), (Region::new(4), 2)].into(),
            ..Window::default()
        }
    }

    #[test]
    fn both_kinds_of_stalls_count_for_a_region() {
        let window = window();
        assert_eq!([1, 2, 3, 4].map(|region| window.of(Region::new(region))), [10, 1, 0, 2]);
        let all: Vec<_> = window.all_stalls().into_values().collect();
        assert_eq!((all, window.stalled(), window.chased()), (vec![10, 1, 2], 8, 5));
        assert_eq!((window.cpus(), Window::default().cpus()), (1.5, 1.0));
    }

    #[test]
    fn shares_survive_fading_and_extension() {
        let mut window = window();
        window.fade();
        assert_eq!((window.length(), window.cpu), (Nanos::seconds(2), Some(Nanos::seconds(3))));
        assert_eq!((window.samples, window.unknown), (1500, 50));
        assert_eq!((window.of(Region::new(1)), window.of(Region::new(2))), (4, 0));
        let later = self::window();
        window.extend(&later);
        assert_eq!((window.samples, window.of(Region::new(1))), (4501, 14));
        assert_eq!(window.cpu, Some(Nanos::seconds(9)));
        assert_eq!((window.length(), window.cpus()), (Nanos::seconds(6), 1.5));
        let gap = Nanos::seconds(100);
        let later = Window { since: later.since + gap, until: later.until + gap, ..later };
        window.extend(&later);
        assert_eq!((window.length(), window.cpus()), (Nanos::seconds(10), 1.5));
    }
}
