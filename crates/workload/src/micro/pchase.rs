//! `pchase`: independent pointer chains, several per thread.
//!
//! Each chain is a random cycle through the cache lines of its own part of the memory, so each load
//! depends on the one before. One chain shows the latency; more chains keep more loads in flight,
//! up to the line-fill buffers of the core. Models pChase, as Eisenman et al. use it (2016, Figure
//! 1).

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use hugepilot_alloc::HugeVec;
use hugepilot_reports::lab::{PCHASE_SCHEMA, PageKind, PchasePoint, PchaseReport};
use hugepilot_stats::Spread;
use hugepilot_units::{Bytes, Nanos};

use super::random::cycle_length;
use super::{
    LINE_BYTES, Progress, WORDS_PER_LINE, allocate, check_threads, describe, huge_bytes, in_cache,
    many_threads,
};
use crate::cycle::Lines;
use crate::rng::Rng;
use crate::{MemoryLimits, Result, WorkloadError};

/// Most chains of a thread; no core has as many line-fill buffers per chain beyond this.
pub const MAX_CHAINS: u32 = 16;
/// Steps between two reads of the clock: at most a millisecond.
const BATCH: u64 = 4096;
const NAME: &str = "pchase";

/// Chains, threads and memory of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PchaseConfig {
    /// Memory of all chains.
    pub footprint: Bytes,
    /// Pages of the memory.
    pub pages: PageKind,
    /// Seed of the random order.
    pub seed: u64,
    /// Numbers of threads.
    pub threads: Vec<u32>,
    /// Numbers of chains per thread: 1 to [`MAX_CHAINS`].
    pub chains: Vec<u32>,
    /// Rounds per point.
    pub rounds: u32,
    /// Time of a round.
    pub round_time: Nanos,
}

/// Measures each number of threads with each number of chains.
///
/// # Errors
/// Invalid numbers, memory that is not available, [`WorkloadError::Damaged`] if a chain is not a
/// single cycle through its lines.
pub fn pchase(
    config: &PchaseConfig,
    machine: &MemoryLimits,
    progress: Progress<'_>,
) -> Result<PchaseReport> {
    let required = config.check()?;
    let words = config.footprint.as_usize() / size_of::<u64>();
    let mut memory: HugeVec<u64> = allocate(words, config.pages, machine, "--footprint")?;
    let about = describe(config.pages, config.footprint, huge_bytes(&memory));
    let mut points = Vec::new();
    for &threads in &config.threads {
        for &chains in &config.chains {
            progress(&format!("threads {threads}, chains {chains}"));
            points.push(point(config, threads, chains, &mut memory)?);
        }
    }
    let mut warnings = about.warnings();
    warnings.extend(in_cache(config.footprint, 4, &about));
    warnings.extend(many_threads(required));
    Ok(PchaseReport {
        schema: PCHASE_SCHEMA.to_owned(),
        memory: about,
        seed: config.seed,
        line_bytes: LINE_BYTES,
        rounds: config.rounds,
        points,
        warnings,
    })
}

impl PchaseConfig {
    /// Checks the numbers, and returns the most threads.
    fn check(&self) -> Result<u32> {
        let mut most = 1;
        for &threads in &self.threads {
            check_threads(threads)?;
            most = most.max(threads);
        }
        for &chains in &self.chains {
            if !(1..=MAX_CHAINS).contains(&chains) {
                return Err(WorkloadError::Chains { chains, max: MAX_CHAINS });
            }
        }
        // A chain of two lines is the shortest cycle.
        let all = u64::from(most) * u64::from(MAX_CHAINS);
        let min = Bytes::new(LINE_BYTES * 2).times(all);
        if self.footprint < min {
            let (flag, value) = ("--footprint", self.footprint);
            return Err(WorkloadError::TooSmall { flag, value, min });
        }
        Ok(most)
    }
}

/// Chains of a thread: its part of the memory, and the place of each chain in it.
struct Chains<'a> {
    memory: &'a mut [u64],
    at: Vec<usize>,
}

impl<'a> Chains<'a> {
    /// Links `count` chains of equal length in `memory`, and checks each.
    fn link(memory: &'a mut [u64], count: usize, rng: &mut Rng) -> Result<Self> {
        let lines = memory.len() / WORDS_PER_LINE / count;
        let starts = (0..count).map(|chain| chain * lines * WORDS_PER_LINE);
        for start in starts.clone() {
            Lines { starts: vec![start], words: lines * WORDS_PER_LINE }.link(memory, rng);
            // Also brings into the caches what a run would find there.
            if cycle_length(start, lines as u64 + 1, |at| memory[at] as usize) != lines as u64 {
                return Err(WorkloadError::Damaged { workload: NAME });
            }
        }
        Ok(Self { memory, at: starts.collect() })
    }

    /// Steps until `time` is over; returns the steps of each chain and their time.
    fn run(&mut self, time: Duration) -> (u64, Duration) {
        let (start, mut steps) = (Instant::now(), 0);
        loop {
            step(self.memory, &mut self.at, BATCH);
            steps += BATCH;
            let passed = start.elapsed();
            if passed >= time {
                return (steps, passed);
            }
        }
    }
}

#[allow(clippy::cast_precision_loss)]
fn point(
    config: &PchaseConfig,
    threads: u32,
    chains: u32,
    memory: &mut [u64],
) -> Result<PchasePoint> {
    let lines = memory.len() / WORDS_PER_LINE / threads as usize;
    let parts = memory.chunks_exact_mut(lines * WORDS_PER_LINE).take(threads as usize);
    let time = Duration::from_nanos(config.round_time.get());
    let barrier = Barrier::new(threads as usize);
    let rounds = config.rounds.max(1);
    let results: Vec<Vec<(u64, Duration)>> = thread::scope(|scope| {
        let work = |(index, part)| {
            let barrier = &barrier;
            scope.spawn(move || {
                let mut rng = Rng::new(config.seed, index);
                let mut linked = Chains::link(part, chains as usize, &mut rng);
                let round = |_| {
                    barrier.wait();
                    linked.as_mut().map(|chains| chains.run(time)).unwrap_or_default()
                };
                let results: Vec<_> = (0..rounds).map(round).collect();
                linked.map(|_| results)
            })
        };
        let running: Vec<_> = parts.enumerate().map(work).collect();
        let ended = running.into_iter().map(|one| one.join().expect("no panic in a chain"));
        ended.collect::<Result<_>>()
    })?;
    let (mut latencies, mut rates) = (Vec::new(), Vec::new());
    for round in 0..rounds as usize {
        let parts = results.iter().map(|rounds| rounds[round]);
        let step_ns = parts.clone().map(|(steps, time)| time.as_secs_f64() * 1e9 / steps as f64);
        latencies.push(step_ns.sum::<f64>() / f64::from(threads));
        let bytes = (u64::from(chains) * LINE_BYTES) as f64;
        rates.push(parts.map(|(steps, time)| steps as f64 * bytes / time.as_secs_f64()).sum());
    }
    let spread = |values: &[f64]| Spread::of(values).expect("at least one round");
    let (latency_ns, bytes_per_second) = (spread(&latencies), spread(&rates));
    Ok(PchasePoint { threads, chains, latency_ns, bytes_per_second })
}

/// Steps every chain `steps` times.
fn step(memory: &[u64], at: &mut [usize], steps: u64) {
    macro_rules! by_count {
        ($($count:literal)*) => {
            match at.len() {
                $($count => step_all::<$count>(memory, at, steps),)*
                _ => unreachable!("chains are 1 to MAX_CHAINS"),
            }
        };
    }
    by_count!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
}

/// Steps `K` chains in turn. Their number is constant, so that the places stay in registers.
#[inline(never)]
fn step_all<const K: usize>(memory: &[u64], at: &mut [usize], steps: u64) {
    let mut places = [0; K];
    places.copy_from_slice(at);
    for _ in 0..steps {
        for place in &mut places {
            *place = memory[*place] as usize;
        }
    }
    at.copy_from_slice(&places);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chain_walks_its_own_part_and_no_other() {
        for count in 1..=MAX_CHAINS as usize {
            let lines = 50;
            let mut memory = vec![0; count * lines * WORDS_PER_LINE];
            let mut chains = Chains::link(&mut memory, count, &mut Rng::new(9, 0)).unwrap();
            let starts = chains.at.clone();
            let mut visited = vec![Vec::new(); count];
            for _ in 0..lines {
                step(chains.memory, &mut chains.at, 1);
                for (chain, &at) in chains.at.iter().enumerate() {
                    visited[chain].push(at);
                }
            }
            assert_eq!(chains.at, starts, "back after one walk");
            for (chain, places) in visited.iter_mut().enumerate() {
                places.sort_unstable();
                let first = chain * lines * WORDS_PER_LINE;
                let own: Vec<usize> =
                    (0..lines).map(|line| first + line * WORDS_PER_LINE).collect();
                assert_eq!(*places, own);
            }
        }
    }

    #[test]
    fn many_steps_at_once_are_the_same_as_single_steps() {
        let mut memory = vec![0; 3 * 128 * WORDS_PER_LINE];
        let chains = Chains::link(&mut memory, 3, &mut Rng::new(1, 0)).unwrap();
        let (mut single, mut many) = (chains.at.clone(), chains.at.clone());
        (0..1000).for_each(|_| step(chains.memory, &mut single, 1));
        step(chains.memory, &mut many, 1000);
        assert_eq!(single, many);
    }
}
