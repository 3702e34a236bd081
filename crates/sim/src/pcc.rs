//! Promotion candidate cache: a small table of regions that counts their page walks (Manocha et
//! al., MICRO'23, section 3.2.1).
//!
//! A new region has frequency 0. If a counter reaches its maximum, all are halved, which keeps
//! their order. Each operation takes constant time but the halving, which sorts the table.

use serde::{Deserialize, Serialize};

use crate::memory::bytes_of;

/// No slot.
const NONE: u16 = u16::MAX;
/// Most entries of a table.
pub const MAX_PCC_ENTRIES: usize = 1 << 14;

/// Choice of the region that leaves a full table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PccReplacement {
    /// The one with the lowest frequency; among equals, the one used longest ago.
    #[default]
    Lfu,
    /// The one used longest ago.
    Lru,
}

/// Size and rules of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PccConfig {
    /// Regions, at most [`MAX_PCC_ENTRIES`].
    pub entries: usize,
    /// Bits of a counter, at most 16.
    pub counter_bits: u32,
    /// Replacement.
    pub replacement: PccReplacement,
}

impl PccConfig {
    /// The table of 2 MiB regions in the paper: 128 entries with 8 bits.
    pub const PAPER: Self =
        Self { entries: 128, counter_bits: 8, replacement: PccReplacement::Lfu };
    /// The table of 1 GiB regions in the paper: 8 entries with 8 bits.
    pub const PAPER_GIANT: Self = Self { entries: 8, ..Self::PAPER };
}

/// Region of a table, and its frequency. Regions are numbered from 0, with few gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranked {
    /// Number of the region.
    pub region: u32,
    /// Its page walks, halved as often as all were.
    pub frequency: u32,
}

/// Entry of the table, or the begin and end of the ring of the entries of a frequency.
#[derive(Clone, Copy, Debug)]
struct Node {
    region: u32,
    frequency: u32,
    /// Time of the last use.
    used: u64,
    /// Neighbours in the ring. That of a frequency has its newest entry as `older`.
    newer: u32,
    older: u32,
}

/// The table.
#[derive(Clone, Debug)]
pub struct Pcc {
    config: PccConfig,
    /// Slots, then a ring for each frequency. With LRU all are in the ring of frequency 0. One
    /// array, since an act uses all fields of a few nodes; separate ones, and single
    /// counts of 1 GiB, took 2 ns more.
    nodes: Vec<Node>,
    /// Slots in use: the first ones.
    len: usize,
    /// Slot of each region, or [`NONE`].
    slots: Vec<u16>,
    /// No ring below this frequency has entries.
    lowest: u32,
    time: u64,
}

impl Pcc {
    /// Creates an empty table. Sizes beyond the limits are cut to them.
    pub fn new(config: PccConfig) -> Self {
        let config = PccConfig {
            entries: config.entries.clamp(1, MAX_PCC_ENTRIES),
            counter_bits: config.counter_bits.clamp(1, 16),
            ..config
        };
        let rings = match config.replacement {
            PccReplacement::Lfu => 1 << config.counter_bits,
            PccReplacement::Lru => 1,
        };
        let alone = |at| Node { region: 0, frequency: 0, used: 0, newer: at, older: at };
        Self {
            config,
            nodes: (0..config.entries as u32 + rings).map(alone).collect(),
            len: 0,
            slots: Vec::new(),
            lowest: 0,
            time: 0,
        }
    }

    /// Counts a page walk of `region`.
    #[inline]
    pub fn touch(&mut self, region: u32) {
        match self.slot(region) {
            Some(slot) => self.count_below_maximum(slot, 1),
            None => _ = self.insert(region),
        }
    }

    /// Counts `times` page walks of `region`, with none of another one between them.
    pub fn touch_times(&mut self, region: u32, times: u32) {
        match self.slot(region) {
            Some(slot) => self.count(slot, times),
            None if times > 0 => {
                let slot = self.insert(region);
                self.count(slot, times - 1);
            }
            None => {}
        }
    }

    /// Counts `times` page walks of the region in `slot`.
    fn count(&mut self, slot: u16, mut times: u32) {
        while times > 0 {
            let left = self.maximum() - self.nodes[usize::from(slot)].frequency;
            let step = times.min(left);
            times -= step;
            self.count_below_maximum(slot, step);
        }
    }

    /// Counts page walks of the region in `slot`, at most as many as its counter has left. No
    /// counter stays at the maximum.
    #[inline]
    fn count_below_maximum(&mut self, slot: u16, times: u32) {
        let node = self.unlink(slot);
        let frequency = node.frequency + times;
        self.time += u64::from(times);
        self.link(slot, Node { frequency, used: self.time, ..node });
        if frequency == self.maximum() {
            self.halve();
        }
    }

    /// Returns the bytes of the table, without those of [`Self::REGION_BYTES`].
    pub(crate) const fn bytes(&self) -> u64 {
        bytes_of(self.nodes.as_slice())
    }
    /// Bytes of the slot of each region, whose number is rounded up to a power of two.
    pub(crate) const REGION_BYTES: u64 = 2 * size_of::<u16>() as u64;

    #[inline]
    const fn maximum(&self) -> u32 {
        (1 << self.config.counter_bits) - 1
    }

    /// Removes a region, as when it is promoted. Returns its frequency.
    pub fn remove(&mut self, region: u32) -> Option<u32> {
        let slot = self.slot(region)?;
        let frequency = self.nodes[usize::from(slot)].frequency;
        self.take_out(slot);
        Some(frequency)
    }

    /// Returns the frequency of a region in the table.
    pub fn frequency(&self, region: u32) -> Option<u32> {
        let slot = self.slot(region)?;
        Some(self.nodes[usize::from(slot)].frequency)
    }

    /// Returns all regions: highest frequency first, among equals the one used last.
    pub fn ranked(&self) -> Vec<Ranked> {
        let mut nodes = self.nodes[..self.len].to_vec();
        nodes.sort_by_key(|node| std::cmp::Reverse((node.frequency, node.used)));
        let ranked = |&Node { region, frequency, .. }: &Node| Ranked { region, frequency };
        nodes.iter().map(ranked).collect()
    }

    /// Adds a region that the table has not, with frequency 0. Returns its slot.
    #[allow(clippy::cast_possible_truncation)]
    #[inline]
    fn insert(&mut self, region: u32) -> u16 {
        let at = region as usize;
        let first = &self.nodes[self.config.entries];
        let slot = first.newer;
        let is_alone = slot == first.older && self.len == self.config.entries;
        if is_alone && at < self.slots.len() && slot as usize != self.config.entries {
            // The victim is the only one with frequency 0, and stays in its ring. Else each
            // insertion would wait for the links that the one before stored, 3 ns on average.
            self.time += 1;
            let node = &mut self.nodes[slot as usize];
            let victim = std::mem::replace(&mut node.region, region);
            (node.frequency, node.used) = (0, self.time);
            self.slots[victim as usize] = NONE;
            self.slots[at] = slot as u16;
            return slot as u16;
        }
        self.insert_linked(region)
    }

    #[allow(clippy::cast_possible_truncation)]
    #[inline(never)]
    fn insert_linked(&mut self, region: u32) -> u16 {
        self.time += 1;
        let at = region as usize;
        if at >= self.slots.len() {
            self.slots.resize((at + 1).next_power_of_two(), NONE);
        }
        let slot = if self.len < self.config.entries {
            self.len += 1;
            (self.len - 1) as u16
        } else {
            let victim = self.victim();
            let node = self.unlink(victim);
            self.slots[node.region as usize] = NONE;
            victim
        };
        self.slots[at] = slot;
        self.link(slot, Node { region, frequency: 0, used: self.time, newer: 0, older: 0 });
        slot
    }

    #[inline]
    fn slot(&self, region: u32) -> Option<u16> {
        self.slots.get(region as usize).copied().filter(|&slot| slot != NONE)
    }

    #[allow(clippy::cast_possible_truncation)]
    #[inline]
    fn victim(&mut self) -> u16 {
        loop {
            let ring = self.config.entries as u32 + self.lowest;
            let oldest = self.nodes[ring as usize].newer;
            if oldest != ring {
                return oldest as u16;
            }
            self.lowest += 1;
        }
    }

    /// Removes the entry in `slot`; the last one moves there.
    #[allow(clippy::cast_possible_truncation)]
    fn take_out(&mut self, slot: u16) {
        let node = self.unlink(slot);
        self.slots[node.region as usize] = NONE;
        self.len -= 1;
        if usize::from(slot) != self.len {
            let last = self.nodes[self.len];
            self.slots[last.region as usize] = slot;
            self.nodes[usize::from(slot)] = last;
            self.nodes[last.newer as usize].older = u32::from(slot);
            self.nodes[last.older as usize].newer = u32::from(slot);
        }
    }

    /// Takes the entry in `slot` out of its ring.
    #[inline]
    fn unlink(&mut self, slot: u16) -> Node {
        let node = self.nodes[usize::from(slot)];
        self.nodes[node.newer as usize].older = node.older;
        self.nodes[node.older as usize].newer = node.newer;
        node
    }

    /// Puts an entry into `slot`, as the newest of its frequency.
    #[allow(clippy::cast_possible_truncation)]
    #[inline]
    fn link(&mut self, slot: u16, node: Node) {
        let newer = self.config.entries as u32
            + match self.config.replacement {
                PccReplacement::Lfu => node.frequency,
                PccReplacement::Lru => 0,
            };
        let ring = &mut self.nodes[newer as usize];
        let older = std::mem::replace(&mut ring.older, u32::from(slot));
        self.nodes[older as usize].newer = u32::from(slot);
        self.nodes[usize::from(slot)] = Node { newer, older, ..node };
        self.lowest = self.lowest.min(node.frequency);
    }

    #[allow(clippy::cast_possible_truncation)]
    fn halve(&mut self) {
        let mut order: Vec<_> = (0..self.len as u16).collect();
        order.sort_by_key(|&slot| self.nodes[usize::from(slot)].used);
        for slot in order {
            let node = self.unlink(slot);
            self.link(slot, Node { frequency: node.frequency / 2, ..node });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::oracle::PccList;

    proptest! {
        #[test]
        fn it_behaves_as_a_list(
            entries in 1usize..12,
            counter_bits in 1u32..5,
            lru in prop::bool::ANY,
            acts in prop::collection::vec((0u32..20, 0u8..25), 1..800),
        ) {
            let replacement = if lru { PccReplacement::Lru } else { PccReplacement::Lfu };
            let config = PccConfig { entries, counter_bits, replacement };
            let (mut pcc, mut list) = (Pcc::new(config), PccList::new(config));
            for (region, act) in acts {
                if act == 0 {
                    prop_assert_eq!(pcc.remove(region), list.remove(region));
                } else {
                    pcc.touch(region);
                    list.touch(region);
                }
                let ranked: Vec<_> =
                    pcc.ranked().iter().map(|entry| (entry.region, entry.frequency)).collect();
                prop_assert_eq!(ranked, list.ranked());
            }
        }
    }

    /// A counter of 8 bits saturates at its 255th hit, after the access that inserts the region.
    #[test]
    fn all_counters_are_halved_when_one_saturates() {
        let mut pcc = Pcc::new(PccConfig::PAPER);
        (0..101).for_each(|_| pcc.touch(7));
        (0..255).for_each(|_| pcc.touch(3));
        assert_eq!((pcc.frequency(3), pcc.frequency(7)), (Some(254), Some(100)));
        pcc.touch(3);
        assert_eq!((pcc.frequency(3), pcc.frequency(7)), (Some(127), Some(50)));
    }
}
