//! Mixer: accesses of all sources, in turn, on their way to the simulators.

use std::collections::BTreeSet;

use hugepilot_sim::{Batch, Footprint, Layout, MAX_LAYOUT, MAX_REGIONS};
use hugepilot_units::Bytes;

use super::feed::{Feeds, NewMappings};
use super::pipeline::Work;
use super::{FullLayout, MemoryLimit, Simulated, TICKS, TURN};
use crate::TraceError;

/// Accesses on their way to the simulators, and the state that they lead to.
pub(super) struct Mixer<'a> {
    names: &'a [String],
    footprint: Footprint,
    layout: Layout,
    /// Program that ends the simulation.
    pub(super) full: Option<FullLayout>,
    /// Runs that were taken and not executed.
    pub(super) work: Work,
    pub(super) accesses: u64,
    /// Accesses of each source before the newest ones, in the mean.
    fit: u64,
    stores: u64,
    cores: Cores,
    /// Accesses of a tick; `u64::MAX` without ticks.
    tick: u64,
    ticks: u64,
}

impl<'a> Mixer<'a> {
    pub(super) fn new(interval: Option<u64>, names: &'a [String]) -> Self {
        Self {
            names,
            footprint: if interval.is_some() { Footprint::followed() } else { Footprint::new() },
            layout: Layout::default(),
            full: None,
            work: Work::default(),
            accesses: 0,
            fit: 0,
            stores: 0,
            cores: Cores { of: vec![Vec::new(); names.len()], ..Cores::default() },
            tick: interval.map_or(u64::MAX, |interval| (interval / TICKS).max(1)),
            ticks: 0,
        }
    }

    /// Takes what is next of a process: at most a turn, and not beyond the next tick.
    ///
    /// # Errors
    /// [`TraceError::TooManyMappings`].
    pub(super) fn take(&mut self, process: u16, feeds: &mut Feeds<'_>) -> Result<(), TraceError> {
        self.fit = self.accesses / self.names.len() as u64;
        let due = self.tick.saturating_mul(self.ticks + 1) - self.accesses;
        #[allow(clippy::cast_possible_truncation)]
        let most = due.min(TURN as u64) as usize;
        let Some(feed) = feeds.of(process) else { return Ok(()) };
        if let Some(mappings) = feed.mappings() {
            self.set_mappings(process, mappings)?;
            if self.full.is_some() {
                return Ok(());
            }
        }
        feed.ended().into_iter().for_each(|thread| self.cores.end(process, thread));
        let Some((thread, accesses)) = feed.accesses(most) else { return Ok(()) };
        let thread = self.cores.of(process, thread, &mut self.work.batch);
        let (count, mut stores) = (accesses.len() as u64, 0);
        let addresses = accesses.iter().map(|access| {
            stores += u64::from(access.store);
            access.address
        });
        self.footprint.add(process, thread, addresses, &mut self.work.batch);
        self.stores += stores;
        self.accesses += count;
        if count == due {
            self.ticks += 1;
            self.work.tick = Some(self.accesses);
        }
        Ok(())
    }

    /// Notes the mappings of a process. If they and the former ones need too much memory, a
    /// program ends there, and a stored trace is refused.
    fn set_mappings(&mut self, process: u16, mappings: NewMappings) -> Result<(), TraceError> {
        let NewMappings { all, at, accesses } = mappings;
        if self.has_ticks() {
            self.work.mappings = Some((process, all.clone()));
        }
        self.layout.set(process, all);
        let (needed, most) = (self.layout.bytes(process), MAX_LAYOUT);
        if needed <= most {
            return Ok(());
        }
        let Some(at) = at else {
            self.full = Some(FullLayout { process, accesses });
            return Ok(());
        };
        let origin = self.names.get(usize::from(process)).cloned().unwrap_or_default();
        Err(TraceError::TooManyMappings { origin, at, accesses, needed, most })
    }

    const fn has_ticks(&self) -> bool {
        self.tick < u64::MAX
    }

    /// Returns what was simulated, without the ends of the sources. `follower` has the footprint,
    /// if there are ticks.
    pub(super) fn finish(self, follower: Option<Footprint>) -> Simulated {
        let Self { footprint, layout, full, accesses, stores, cores, .. } = self;
        let footprint = follower.unwrap_or(footprint);
        Simulated {
            footprint,
            layout,
            accesses,
            stores,
            threads: cores.threads,
            ends: Vec::new(),
            full,
        }
    }

    /// Tests that the simulators can execute what was taken.
    pub(super) fn check(&self, memory: &MemoryLimit) -> Result<(), TraceError> {
        let fit = self.fit;
        if self.footprint.is_full() {
            let most = Bytes::new((MAX_REGIONS as u64) << 21);
            return Err(TraceError::TooMuchMemory { fit, most });
        }
        if self.cores.used == u16::MAX {
            return Err(TraceError::TooManyThreads { fit, most: u16::MAX - 1 });
        }
        memory.check(self.cores.used.into(), self.footprint.regions().len() as u64, fit)
    }
}

/// Cores of the threads.
#[derive(Default)]
struct Cores {
    /// Core of each thread of each process.
    of: Vec<Vec<Option<u16>>>,
    used: u16,
    /// Cores whose threads have ended.
    free: BTreeSet<u16>,
    /// Threads so far.
    threads: u64,
}

impl Cores {
    /// Returns the core of a thread: at its first access one whose thread has ended, else the next.
    fn of(&mut self, process: u16, thread: u16, batch: &mut Batch) -> u16 {
        let Self { of, used, free, threads } = self;
        let own = &mut of[usize::from(process)];
        if own.len() <= usize::from(thread) {
            own.resize(usize::from(thread) + 1, None);
        }
        *own[usize::from(thread)].get_or_insert_with(|| {
            *threads += 1;
            if let Some(core) = free.pop_first() {
                batch.begin_thread(core);
                return core;
            }
            let core = *used;
            *used = used.saturating_add(1);
            core
        })
    }

    /// Frees the core of a thread that has ended.
    fn end(&mut self, process: u16, thread: u16) {
        let own = &mut self.of[usize::from(process)];
        let core = own.get_mut(usize::from(thread)).and_then(Option::take);
        self.free.extend(core);
    }
}

#[cfg(test)]
mod tests {
    use hugepilot_record::trace::TraceMapping;
    use hugepilot_units::{AddrRange, VirtAddr};

    use super::*;

    /// 17 MiB of names each time.
    #[test]
    fn mappings_of_a_program_beyond_the_memory_end_it() {
        let names = ["a", "b"].map(str::to_owned);
        let mut mixer = Mixer::new(None, &names);
        for block in 0..4u64 {
            assert_eq!(mixer.full, None, "{block}");
            let mapping = |at: u64| {
                let range = AddrRange::at(VirtAddr::new(at << 13), Bytes::kib(4));
                TraceMapping { range, name: "a".repeat(1 << 20) }
            };
            let all = (block * 17..(block + 1) * 17).map(mapping).collect();
            mixer.set_mappings(1, NewMappings { all, at: None, accesses: block }).unwrap();
        }
        assert_eq!(mixer.full, Some(FullLayout { process: 1, accesses: 3 }));
    }
}
