//! `memcached`: random GETs from a memcached server, a child of this process.
//!
//! The benchmark Memcached of EMD (Gangar et al., ISMM 2025, figure 4a and table 4): a server that
//! takes 50 GB for 19 GB of data, with three kinds of huge pages: nearly all bloat, about half, and
//! none, towards the end of the address space. Here the server's flags alone produce this, in
//! address order:
//!
//! - Half of the memory is the pool of free slab pages. A server with a flash tier (extstore) takes
//!   all of its memory at its start and touches it once per MiB. With `-L`, which requests huge
//!   pages by `MADV_HUGEPAGE`, all of it is resident.
//! - A quarter has records of 4,060 bytes in a slab class with chunks of 8 KiB, made for the
//!   largest record. The server clears a slab page when a class gets it, so the other half of each
//!   chunk is zero.
//! - A quarter has items of 246 bytes in chunks of 256: none of its base pages is zero.
//!
//! So 62.5 % is bloat, as in the paper. Deleted keys add none: memcached does not clear freed
//! chunks. No item is evicted, written again, or moved to the flash tier, which is an unlinked
//! sparse file.
//!
//! All keys are equally likely: 97 % of the GETs are for small items. Each answer is checked. Half
//! of the time goes into system calls and copies, so a huge page gains less than elsewhere.

mod client;
mod server;

use std::collections::VecDeque;

use hugepilot_kernel::{Pages, Root, thp::ThpSettings};
use hugepilot_units::{AddrRange, Bytes};

use super::rng::Rng;
use super::{MemoryConfig, MemoryLimits, Worker, Workload};
use crate::{Result, WorkloadError};
use client::Client;
use server::{Connection, Server};

pub(super) const NAME: &str = "memcached";

/// Memory limit of the server with its tables and buffers, in percent.
const PEAK_PERCENT: u64 = 110;
/// Size of memcached's slab pages.
const SLAB_PAGE: Bytes = Bytes::mib(1);
/// Smallest limit: below it, the slab page that the server keeps for large items counts.
const MIN_LIMIT: Bytes = Bytes::mib(64);
/// Keys in a GET, and GETs under way per connection, so that server and client work at the same
/// time.
const KEYS_PER_GET: usize = 32;
const GETS_UNDER_WAY: usize = 4;

/// Items of one size. With its key and the server's header of 48 bytes, one fills a chunk, or the
/// first base page of a chunk of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Class {
    /// First letter of the keys.
    letter: u8,
    chunk: usize,
    value: usize,
}

const SMALL: Class = Class { letter: b's', chunk: 256, value: 184 };
const RECORD: Class = Class { letter: b'r', chunk: 8192, value: 4000 };

/// All stored items, by index: first the small ones, then the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Items {
    small: usize,
    records: usize,
    seed: u64,
}

impl Items {
    /// Returns items for a quarter of the slab pages of each class.
    fn filling(limit: Bytes, seed: u64) -> Self {
        let pages = (limit.get() / SLAB_PAGE.get()) as usize / 4;
        let in_pages = |class: Class| pages * (SLAB_PAGE.as_usize() / class.chunk);
        Self { small: in_pages(SMALL), records: in_pages(RECORD), seed }
    }

    fn count(self) -> usize {
        self.small + self.records
    }

    /// Returns the class of item `number`, and its index in it.
    fn of(self, number: usize) -> (Class, usize) {
        if number < self.small { (SMALL, number) } else { (RECORD, number - self.small) }
    }

    /// Returns the bloat: the pool, without its rest for large items, and half of each record's
    /// chunk.
    fn bloat(self, limit: Bytes) -> Bytes {
        let records = Bytes::new((self.records * RECORD.chunk) as u64);
        limit - records - records - SLAB_PAGE + Bytes::new(records.get() / 2)
    }
}

pub(super) struct Memcached {
    clients: Vec<Client<Connection>>,
    server: Server,
    items: Items,
    limit: Bytes,
}

impl Memcached {
    /// Starts the server with a connection for each thread, and fills it.
    pub(super) fn prepare(
        config: MemoryConfig,
        machine: &MemoryLimits,
        threads: usize,
    ) -> Result<Self> {
        let limit = config.fitting(NAME, PEAK_PERCENT, machine)?;
        if limit < MIN_LIMIT {
            return Err(WorkloadError::TooSmall {
                flag: "--footprint",
                value: config.footprint,
                min: MIN_LIMIT,
            });
        }
        let always = ThpSettings::read(&Root::live()).chosen("enabled") == Some("always");
        if config.pages == Pages::Base && always {
            return Err(WorkloadError::PagesUnsupported { workload: NAME });
        }
        let items = Items::filling(limit, config.seed);
        let (server, connections) =
            Server::start(limit, items.count(), config.pages == Pages::Huge, threads)?;
        let mut clients: Vec<_> = connections.into_iter().map(Client::new).collect();
        if let Some(client) = clients.first_mut() {
            client.fill(items)?;
        }
        Ok(Self { clients, server, items, limit })
    }
}

impl Workload for Memcached {
    /// No region: the server's addresses are unknown.
    fn hot(&self) -> Vec<AddrRange> {
        Vec::new()
    }

    fn footprint_bytes(&self) -> u64 {
        self.limit.get()
    }

    fn bloat_bytes(&self) -> Option<u64> {
        Some(self.items.bloat(self.limit).get())
    }

    fn pid(&self) -> u32 {
        self.server.pid()
    }

    fn workers(&mut self, _threads: usize) -> Vec<Box<dyn Worker + '_>> {
        let items = self.items;
        let getter = |(thread, client)| {
            Box::new(Getter { client, items, rng: Rng::new(items.seed, thread), sum: 0 }) as Box<_>
        };
        self.clients.iter_mut().enumerate().map(getter).collect()
    }
}

/// A thread's GETs.
struct Getter<'a> {
    client: &'a mut Client<Connection>,
    items: Items,
    rng: Rng,
    sum: u64,
}

impl Worker for Getter<'_> {
    /// Gets `ops` keys.
    fn step(&mut self, ops: u64) -> Result<()> {
        let (mut left, mut under_way) = (ops as usize, VecDeque::with_capacity(GETS_UNDER_WAY));
        while left > 0 || !under_way.is_empty() {
            while left > 0 && under_way.len() < GETS_UNDER_WAY {
                let count = left.min(KEYS_PER_GET);
                let numbers: Vec<usize> =
                    (0..count).map(|_| self.rng.below(self.items.count())).collect();
                self.client.request(self.items, &numbers)?;
                under_way.push_back(numbers);
                left -= count;
            }
            if let Some(numbers) = under_way.pop_front() {
                self.sum = self.sum.wrapping_add(self.client.answer(self.items, &numbers)?);
            }
        }
        Ok(())
    }

    fn checksum(&self) -> Result<u64> {
        Ok(self.sum)
    }

    fn batch(&self) -> u64 {
        1 << 9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_is_small_items_and_a_quarter_records() {
        let items = Items::filling(Bytes::mib(256), 1);
        assert_eq!((items.small, items.records), (64 * 4096, 64 * 128));
        assert_eq!(items.of(0), (SMALL, 0));
        assert_eq!(items.of(items.small), (RECORD, 0));
        assert_eq!(items.bloat(Bytes::mib(256)), Bytes::mib(128 + 32 - 1));
    }

    #[test]
    fn items_fit_into_their_chunks() {
        const HEADER: usize = 48;
        let size = |class: Class| HEADER + client::KEY_LEN + 1 + class.value + 2;
        assert!((SMALL.chunk - 16..=SMALL.chunk).contains(&size(SMALL)));
        assert!((4000..4096).contains(&size(RECORD)));
    }

    #[test]
    fn too_little_memory_is_refused() {
        use super::super::memory::tests::ROOMY;
        let config = MemoryConfig { footprint: Bytes::mib(32), ..MemoryConfig::DEFAULT };
        assert!(matches!(
            Memcached::prepare(config, &ROOMY, 1),
            Err(WorkloadError::TooSmall { .. })
        ));
    }
}
