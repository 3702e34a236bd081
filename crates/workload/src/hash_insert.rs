//! `hash-insert`: filling of a hash table from the global allocator.
//!
//! The benchmark of Zheng, *Using Huge Pages on Linux*: a SwissTable of `u64` to `u64`, hashed by
//! CRC-32C. It reserves room for all entries, then inserts `entries` keys, starting at 0. Adjacent
//! keys land far apart, so each insertion reads a control group and writes a bucket elsewhere in
//! the table: on base pages one page walk each, and one page fault per page. The work is fixed, to
//! compare whole runs. The memory comes from the ordinary allocator on purpose: a launcher that
//! puts `malloc` on other pages must have an effect here.

use std::hash::{BuildHasherDefault, Hasher};
use std::hint::black_box;

use hashbrown::HashMap;
use hugepilot_kernel::Pages;
use hugepilot_units::{AddrRange, Bytes};

use super::crc32c;
use super::memory::refuse_pages;
use super::rng::mix;
use super::{MemoryLimits, Worker, Workload};
use crate::{Result, WorkloadError};

pub(super) const NAME: &str = "hash-insert";

/// A key, a value and a control byte.
const BYTES_PER_BUCKET: u64 = 2 * size_of::<u64>() as u64 + 1;
/// Copy of the control bytes of the first group, at the end.
const EXTRA_BYTES: u64 = 16;
/// More buckets than a CRC of 32 bits distinguishes.
const MAX_BUCKETS: u64 = 1 << 32;

/// Parameters of `hash-insert`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashInsertConfig {
    /// Entries of each table.
    pub entries: u64,
    /// Only [`Pages::Default`] is accepted: the allocator chooses.
    pub pages: Pages,
}

impl HashInsertConfig {
    /// Ten million entries as in the article: 272 MiB.
    pub const DEFAULT: Self = Self { entries: 10_000_000, pages: Pages::Default };

    /// Returns the buckets of a table of `entries`: a power of two, of which at most seven eighths
    /// are used.
    const fn buckets(entries: u64) -> u128 {
        let buckets = (entries as u128 * 8).div_ceil(7).next_power_of_two();
        if buckets < 16 { 16 } else { buckets }
    }

    /// Returns the size of `tables` tables; [`Bytes::MAX`] on overflow.
    fn tables_bytes(entries: u64, tables: u64) -> Bytes {
        let one = Self::buckets(entries) * u128::from(BYTES_PER_BUCKET) + u128::from(EXTRA_BYTES);
        u64::try_from(one).map_or(Bytes::MAX, Bytes::new).times(tables)
    }

    /// Returns the entries, checked: at least one, with memory for a table of each thread.
    fn fitting(self, machine: &MemoryLimits, threads: usize) -> Result<usize> {
        if self.entries == 0 {
            return Err(WorkloadError::NoEntries);
        }
        let required = |entries| Self::tables_bytes(entries, threads as u64);
        let spare = machine.memory.room();
        let fits = required(self.entries) <= spare;
        if fits && Self::buckets(self.entries) <= u128::from(MAX_BUCKETS) {
            return usize::try_from(self.entries).map_err(|_| WorkloadError::NoEntries);
        }
        // Seven eighths of a power of two fill a table.
        let full = (4..=MAX_BUCKETS.ilog2()).map(|bits| (1_u64 << bits) / 8 * 7);
        let max_entries = full.filter(|&entries| required(entries) <= spare).max().unwrap_or(0);
        Err(WorkloadError::TooManyEntries {
            workload: NAME,
            required: required(self.entries),
            memory: machine.memory,
            max_entries,
        })
    }
}

/// Hash that spreads a CRC over 64 bits as Abseil's table reads it, for which the benchmark was
/// written. The lowest seven bits distinguish entries of a group, the bits above select the group.
/// `hashbrown` takes the former from the upper end and the latter from the lower. Above 2^25
/// buckets the seven bits are used for both, where Abseil would lack bits.
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

/// Returns a table with room for `entries`; only its control bytes are touched.
fn reserved(entries: usize) -> Result<Map> {
    let mut map = Map::default();
    match map.try_reserve(entries) {
        Ok(()) => Ok(map),
        Err(_) => Err(WorkloadError::NoMemory { workload: NAME }),
    }
}

pub(super) struct HashInsert {
    entries: usize,
    /// Tables, one for each thread.
    tables: Vec<Map>,
}

impl HashInsert {
    pub(super) fn prepare(
        config: HashInsertConfig,
        machine: &MemoryLimits,
        threads: usize,
    ) -> Result<Self> {
        refuse_pages(config.pages, NAME)?;
        let entries = config.fitting(machine, threads)?;
        let tables = (0..threads).map(|_| reserved(entries)).collect::<Result<_>>()?;
        Ok(Self { entries, tables })
    }
}

impl Workload for HashInsert {
    /// No region: the address of an empty table is unknown.
    fn hot(&self) -> Vec<AddrRange> {
        Vec::new()
    }

    fn footprint_bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.allocation_size() as u64).sum()
    }

    /// Returns one worker for each table, as many as threads in [`HashInsert::prepare`].
    fn workers(&mut self, _threads: usize) -> Vec<Box<dyn Worker + '_>> {
        let entries = self.entries;
        let inserter = |map| Box::new(Inserter { map, entries, next: 0 }) as Box<dyn Worker + '_>;
        self.tables.iter_mut().map(inserter).collect()
    }
}

struct Inserter<'a> {
    map: &'a mut Map,
    entries: usize,
    /// Next key; all smaller ones are in the table.
    next: usize,
}

impl Worker for Inserter<'_> {
    /// Inserts keys. A full table is replaced by a new one, whose memory is allocated and touched
    /// again.
    fn step(&mut self, ops: u64) -> Result<()> {
        let mut left = ops;
        while left > 0 {
            if self.next == self.entries {
                self.restart()?;
            }
            let now = (self.entries - self.next).min(usize::try_from(left).unwrap_or(usize::MAX));
            insert(black_box(self.map), self.next, now);
            self.next += now;
            left -= now as u64;
        }
        Ok(())
    }

    /// Checks the whole table: every key from 0 must be present once, with its value. It follows
    /// the order of memory, so it takes a small part of the time of filling, and none of the
    /// reported time.
    fn checksum(&self) -> Result<u64> {
        let damaged = Err(WorkloadError::Damaged { workload: NAME });
        let mut sum = 0_u64;
        for (&key, &value) in &*self.map {
            if key != value || key >= self.next as u64 {
                return damaged;
            }
            sum = sum.wrapping_add(mix(key));
        }
        // A duplicate key displaces another one, which shows in the sum.
        let expected = (0..self.next as u64).map(mix).fold(0, u64::wrapping_add);
        if self.map.len() == self.next && sum == expected { Ok(sum) } else { damaged }
    }
}

impl Inserter<'_> {
    fn restart(&mut self) -> Result<()> {
        if self.map.len() != self.next {
            return Err(WorkloadError::Damaged { workload: NAME });
        }
        // Frees the old table first: there is memory for one.
        *self.map = Map::default();
        *self.map = reserved(self.entries)?;
        self.next = 0;
        Ok(())
    }
}

/// Inserts `count` keys from `first` unless present.
#[inline(never)]
fn insert(map: &mut Map, first: usize, count: usize) {
    for key in first as u64..(first + count) as u64 {
        map.entry(key).or_insert(key);
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use super::super::memory::tests::{ROOMY, with};
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
    fn the_size_is_computed_exactly() {
        for entries in [1, 2, 7, 14, 15, 28, 29, 56, 57, 112, 113, 1000, 7 << 10, (7 << 10) + 1] {
            let size = reserved(entries).unwrap().allocation_size() as u64;
            let computed = HashInsertConfig::tables_bytes(entries as u64, 1).get();
            // Smaller tables count as tables of 16 buckets.
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
    fn a_lost_a_changed_and_a_doubled_entry_are_each_detected() {
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
            "also before it is replaced"
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
        assert!(groups.iter().all(|&count| count == 16), "a CRC of few keys is even");
        assert!(tags.iter().all(|&count| count == 512));
    }

    #[test]
    fn too_many_entries_are_an_error_with_the_largest_possible() {
        let of = |entries| HashInsertConfig { entries, ..SMALL };
        let refused = |entries, machine: &MemoryLimits, threads| {
            let error = HashInsert::prepare(of(entries), machine, threads).err().unwrap();
            let WorkloadError::TooManyEntries { max_entries, .. } = error else {
                panic!("{error}")
            };
            (error.to_string().split(", ").next().unwrap().to_owned(), max_entries)
        };
        let none = HashInsert::prepare(of(0), &ROOMY, 1).err();
        assert!(matches!(none, Some(WorkloadError::NoEntries)));
        let tight = with(Bytes::mib(1024 + 300));
        let with = |size, most| (format!("cannot run hash-insert: {size} required"), most);
        assert_eq!(refused(100_000_000, &tight, 1), with("2.13GiB", 14_680_064));
        assert_eq!(refused(14_680_064, &tight, 2).1, 7_340_032, "a table for each thread");
        assert_eq!(refused(99_999_999_999, &tight, 1), with("2.13TiB", 14_680_064));
        assert_eq!(refused(u64::MAX, &ROOMY, 1).0, with("more than 16777215TiB", 0).0);
        assert_eq!(of(14_680_064).fitting(&tight, 1).unwrap(), 14_680_064);
    }

    #[test]
    fn pages_cannot_be_chosen() {
        for pages in [Pages::Huge, Pages::Base] {
            let refused = HashInsert::prepare(HashInsertConfig { pages, ..SMALL }, &ROOMY, 1);
            assert!(matches!(refused, Err(WorkloadError::PagesUnsupported { workload: NAME })));
        }
    }
}
