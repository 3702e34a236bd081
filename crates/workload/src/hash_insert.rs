//! `hash-insert`: fills a hash table from the global allocator, entry by entry.
//!
//! The benchmark of Zheng, *Using Huge Pages on Linux*: a SwissTable of `u64` to `u64` whose hash is a CRC-32C, room for
//! all entries reserved first, then `entries` keys from 0 on. Neighbouring keys land far apart, so each insertion reads a
//! control group and writes a bucket somewhere in the table: on base pages a page walk for each, and a page fault for each
//! page once. It is fixed work, for comparing whole runs. The memory comes from the ordinary allocator on purpose: a
//! launcher that puts `malloc` on other pages must show an effect here.

use std::hash::{BuildHasherDefault, Hasher};
use std::hint::black_box;

use hashbrown::HashMap;
use hugepilot_kernel::Pages;
use hugepilot_units::{AddrRange, Bytes};

use super::crc32c;
use super::memory::{RESERVE, refuse_pages};
use super::rng::mix;
use super::{Machine, Worker, Workload};
use crate::{Result, WorkloadError};

pub(super) const NAME: &str = "hash-insert";

/// A key, a value and a control byte.
const BYTES_PER_BUCKET: u64 = 2 * size_of::<u64>() as u64 + 1;
/// The control bytes of the first group are repeated at the end.
const BYTES_MORE: u64 = 16;
/// More buckets than a CRC of 32 bits can tell apart.
const MOST_BUCKETS: u64 = 1 << 32;

/// Parameters of `hash-insert`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashInsertConfig {
    /// How many entries a table gets.
    pub entries: u64,
    /// Only [`Pages::Default`] can be had: the allocator chooses.
    pub pages: Pages,
}

impl HashInsertConfig {
    /// Ten million, as in the article: 272 MiB.
    pub const DEFAULT: Self = Self { entries: 10_000_000, pages: Pages::Default };

    /// Buckets of a table for so many entries: at most seven of eight are used, and their number is a power of two.
    const fn buckets(entries: u64) -> u128 {
        let buckets = (entries as u128 * 8).div_ceil(7).next_power_of_two();
        if buckets < 16 { 16 } else { buckets }
    }

    /// What that many tables take; [`Bytes::MAX`] for more.
    fn tables_bytes(entries: u64, tables: u64) -> Bytes {
        let one = Self::buckets(entries) * u128::from(BYTES_PER_BUCKET) + u128::from(BYTES_MORE);
        u64::try_from(one).map_or(Bytes::MAX, Bytes::new).times(tables)
    }

    /// The entries, checked: at least one, and a table of them for each thread can be spared.
    fn fitting(self, machine: &Machine, threads: usize) -> Result<usize> {
        if self.entries == 0 {
            return Err(WorkloadError::NoEntries);
        }
        let need = |entries| Self::tables_bytes(entries, threads as u64);
        let spare = machine.available - RESERVE;
        if need(self.entries) <= spare && Self::buckets(self.entries) <= u128::from(MOST_BUCKETS) {
            return usize::try_from(self.entries).map_err(|_| WorkloadError::NoEntries);
        }
        // Seven eighths of a power of two fill a table.
        let full = (4..=MOST_BUCKETS.ilog2()).map(|bits| (1_u64 << bits) / 8 * 7);
        let most = full.filter(|&entries| need(entries) <= spare).max().unwrap_or(0);
        let need = need(self.entries);
        Err(WorkloadError::TooManyEntries {
            workload: NAME,
            need,
            available: machine.available,
            reserve: RESERVE,
            most,
        })
    }
}

/// Spreads a CRC over 64 bits as Abseil's table reads it, for which the benchmark was written: the lowest seven bits tell
/// entries of a group apart, the bits above say where the group is. `hashbrown` takes the former from the upper end and
/// the latter from the lower. Beyond 2^25 buckets the seven bits serve twice, where Abseil's would run out.
#[derive(Default)]
struct CrcOfKey(u64);

impl Hasher for CrcOfKey {
    #[inline]
    fn write_u64(&mut self, key: u64) {
        let crc = u64::from(crc32c::of_word(key).rotate_right(7));
        self.0 = crc << 32 | crc;
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(self.0 ^ u64::from(byte)));
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

type Map = HashMap<u64, u64, BuildHasherDefault<CrcOfKey>>;

/// Room for `entries`; of it, only the control bytes are touched.
fn reserved(entries: usize) -> Result<Map> {
    let mut map = Map::default();
    match map.try_reserve(entries) {
        Ok(()) => Ok(map),
        Err(_) => Err(WorkloadError::Refused { workload: NAME }),
    }
}

pub(super) struct HashInsert {
    entries: usize,
    /// One for each thread.
    tables: Vec<Map>,
}

impl HashInsert {
    pub(super) fn prepare(
        config: HashInsertConfig,
        machine: &Machine,
        threads: usize,
    ) -> Result<Self> {
        refuse_pages(config.pages, NAME)?;
        let entries = config.fitting(machine, threads)?;
        let tables = (0..threads).map(|_| reserved(entries)).collect::<Result<_>>()?;
        Ok(Self { entries, tables })
    }
}

impl Workload for HashInsert {
    /// None: an empty table does not tell where it is.
    fn hot(&self) -> Vec<AddrRange> {
        Vec::new()
    }

    fn footprint_bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.allocation_size() as u64).sum()
    }

    /// Each fills a table of its own; as many as there were threads in [`HashInsert::prepare`].
    fn workers(&mut self, _threads: usize) -> Vec<Box<dyn Worker + '_>> {
        let entries = self.entries;
        let inserter = |map| Box::new(Inserter { map, entries, next: 0 }) as Box<dyn Worker + '_>;
        self.tables.iter_mut().map(inserter).collect()
    }
}

struct Inserter<'a> {
    map: &'a mut Map,
    entries: usize,
    /// The key that comes next: all below are in the table.
    next: usize,
}

impl Worker for Inserter<'_> {
    /// Once the table is full, begins with a new one: its memory is got and touched anew.
    fn step(&mut self, ops: u64) -> Result<()> {
        let mut left = ops;
        while left > 0 {
            if self.next == self.entries {
                self.begin_anew()?;
            }
            let now = (self.entries - self.next).min(usize::try_from(left).unwrap_or(usize::MAX));
            insert(black_box(self.map), self.next, now);
            self.next += now;
            left -= now as u64;
        }
        Ok(())
    }

    /// Goes through the whole table: each key from 0 on must be there once, with its value. That takes a small part of the
    /// time of filling it, because it goes in the order of memory, and no part of the time reported.
    fn checksum(&self) -> Result<u64> {
        let damaged = Err(WorkloadError::Damaged { workload: NAME });
        let mut sum = 0_u64;
        for (&key, &value) in &*self.map {
            if key != value || key >= self.next as u64 {
                return damaged;
            }
            sum = sum.wrapping_add(mix(key));
        }
        // A key that is there twice leaves another one out, and that shows in the sum.
        let expected = (0..self.next as u64).map(mix).fold(0, u64::wrapping_add);
        if self.map.len() == self.next && sum == expected { Ok(sum) } else { damaged }
    }
}

impl Inserter<'_> {
    fn begin_anew(&mut self) -> Result<()> {
        if self.map.len() != self.next {
            return Err(WorkloadError::Damaged { workload: NAME });
        }
        // The old one goes first: there is memory for one.
        *self.map = Map::default();
        *self.map = reserved(self.entries)?;
        self.next = 0;
        Ok(())
    }
}

/// Inserts `count` keys from `first` on where they are not there yet.
#[inline(never)]
fn insert(map: &mut Map, first: usize, count: usize) {
    for key in first as u64..(first + count) as u64 {
        map.entry(key).or_insert(key);
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use super::super::memory::tests::ROOMY;
    use super::*;

    const SMALL: HashInsertConfig =
        HashInsertConfig { entries: 50_000, ..HashInsertConfig::DEFAULT };

    fn filled(entries: u64, ops: u64) -> Map {
        let mut workload =
            HashInsert::prepare(HashInsertConfig { entries, ..SMALL }, &ROOMY, 1).unwrap();
        let mut worker = workload.workers(1).pop().unwrap();
        worker.step(ops).unwrap();
        worker.checksum().unwrap();
        drop(worker);
        workload.tables.pop().unwrap()
    }

    #[test]
    fn every_key_is_there_with_its_value_and_the_table_never_grew() {
        let map = filled(50_000, 50_000);
        assert!((0..50_000).all(|key| map.get(&key) == Some(&key)) && map.len() == 50_000);
        let size = HashInsertConfig::tables_bytes(50_000, 1);
        assert_eq!(map.allocation_size() as u64, size.get());
    }

    #[test]
    fn a_full_table_is_followed_by_an_empty_one() {
        let map = filled(1000, 2300);
        assert!((0..300).all(|key| map.get(&key) == Some(&key)) && map.len() == 300);
    }

    #[test]
    fn the_size_is_known_beforehand() {
        for entries in [1, 2, 7, 14, 15, 28, 29, 56, 57, 112, 113, 1000, 7 << 10, (7 << 10) + 1] {
            let size = reserved(entries).unwrap().allocation_size() as u64;
            let computed = HashInsertConfig::tables_bytes(entries as u64, 1).get();
            // Tables of less than 16 buckets are counted as one of 16.
            assert!(
                size == computed || entries <= 14 && size < computed,
                "{entries}: {size}, {computed}"
            );
        }
        assert_eq!(
            HashInsertConfig::tables_bytes(10_000_000, 1),
            Bytes::mib(16 * 17) + Bytes::new(16)
        );
        assert_eq!(HashInsertConfig::tables_bytes(u64::MAX, 1), Bytes::MAX);
    }

    #[test]
    fn a_lost_a_changed_and_a_doubled_entry_are_each_found() {
        let damages: [fn(&mut Map); 4] = [
            |map| {
                map.remove(&17);
            },
            |map| {
                map.insert(17, 18);
            },
            |map| {
                map.remove(&17);
                map.insert(1_000_000, 1_000_000);
            },
            |map| {
                map.insert(1_000_000, 1_000_000);
            },
        ];
        for (number, damage) in damages.into_iter().enumerate() {
            let mut map = filled(1000, 1000);
            damage(&mut map);
            let worker = Inserter { map: &mut map, entries: 1000, next: 1000 };
            assert!(
                matches!(worker.checksum(), Err(WorkloadError::Damaged { workload: NAME })),
                "{number}"
            );
        }
        let mut map = filled(1000, 1000);
        map.remove(&17);
        let mut worker = Inserter { map: &mut map, entries: 1000, next: 1000 };
        assert!(
            matches!(worker.step(1), Err(WorkloadError::Damaged { .. })),
            "before it is thrown away, too"
        );
    }

    #[test]
    fn keys_spread_over_groups_and_within_them() {
        let hashes: Vec<u64> =
            (0..1_u64 << 16).map(|key| Map::default().hasher().hash_one(key)).collect();
        let (mut groups, mut tags) = (vec![0_u32; 1 << 12], vec![0_u32; 128]);
        for hash in hashes {
            groups[(hash & 0xfff) as usize] += 1;
            tags[(hash >> 57) as usize] += 1;
        }
        assert!(groups.iter().all(|&count| count == 16), "a CRC of so few keys is even");
        assert!(tags.iter().all(|&count| count == 512));
    }

    #[test]
    fn what_does_not_fit_is_refused_with_what_would() {
        let refused = |entries, machine: &Machine, threads| {
            let config = HashInsertConfig { entries, ..SMALL };
            HashInsert::prepare(config, machine, threads).err().unwrap().to_string()
        };
        assert!(refused(0, &ROOMY, 1).contains("--entries"));
        let tight = Machine { available: Bytes::mib(1024 + 300), ..ROOMY };
        let refusal = refused(100_000_000, &tight, 1);
        assert!(
            refusal.contains("at most 14680064") && refusal.contains("needs 2.13GiB"),
            "{refusal}"
        );
        assert!(
            refused(14_680_064, &tight, 2).contains("at most 7340032"),
            "a table for each thread"
        );
        let much = refused(99_999_999_999, &tight, 1);
        assert!(much.contains("needs 2.13TiB") && much.contains("at most 14680064"), "{much}");
        assert!(refused(u64::MAX, &ROOMY, 1).contains("needs more than 16777215TiB"));
        assert_eq!(
            HashInsertConfig { entries: 14_680_064, ..SMALL }.fitting(&tight, 1).unwrap(),
            14_680_064
        );
    }

    #[test]
    fn pages_cannot_be_chosen() {
        for pages in [Pages::Huge, Pages::Base] {
            let refused = HashInsert::prepare(HashInsertConfig { pages, ..SMALL }, &ROOMY, 1);
            assert!(matches!(refused, Err(WorkloadError::PagesNotOurs { workload: NAME })));
        }
    }
}
