//! `gups`: random updates of a table, by the rules of HPCC `RandomAccess`.
//!
//! The table has a power of two of words, and each word its index at first. There are four times as
//! many updates as words: `table[r mod words] ^= r`, where `r` are the values of a shift register.
//! Threads update the whole table without locks, so they may lose updates; at most 1 % of the words
//! may be wrong. All updates are done a second time by one thread, which must restore the table.

use std::sync::Barrier;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Instant;

use hugepilot_alloc::HugeVec;
use hugepilot_reports::lab::{GUPS_SCHEMA, GupsReport, PageKind};
use hugepilot_units::Bytes;

use super::{
    Progress, allocate, bytes_of, check_threads, describe, huge_bytes, in_cache, many_threads,
};
use crate::{MemoryLimits, Result, WorkloadError};

/// Polynomial of the shift register.
const POLYNOMIAL: u64 = 7;
/// Period of the shift register.
const PERIOD: i64 = 1_317_624_576_693_539_401;
/// Independent streams of updates per thread. The rules allow to look ahead by up to 1024 updates.
const STREAMS: u64 = 128;
/// Smallest table.
const MIN_TABLE: Bytes = Bytes::kib(64);

/// Table and threads of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GupsConfig {
    /// Size of the table; rounded down to a power of two. The rules ask for half of the memory.
    pub footprint: Bytes,
    /// Pages of the memory.
    pub pages: PageKind,
    /// Threads.
    pub threads: u32,
}

/// Measures the updates, and checks the table.
///
/// # Errors
/// Invalid numbers, memory that is not available.
pub fn gups(
    config: &GupsConfig,
    machine: &MemoryLimits,
    progress: Progress<'_>,
) -> Result<GupsReport> {
    let threads = check_threads(config.threads)? as u64;
    if config.footprint < MIN_TABLE {
        let (flag, value) = ("--footprint", config.footprint);
        return Err(WorkloadError::TooSmall { flag, value, min: MIN_TABLE });
    }
    let words = 1_u64 << (config.footprint.get() / 8).ilog2();
    progress("filling the table");
    let table: HugeVec<AtomicU64> = allocate(words as usize, config.pages, machine, "--footprint")?;
    // ATOMICS: one thread, and the start of a thread publishes its writes.
    table.iter().zip(0..).for_each(|(word, index)| word.store(index, Relaxed));
    let about = describe(config.pages, bytes_of(&table), huge_bytes(&table));
    let updates = words * 4;
    progress("updating");
    let seconds = run(&table, updates, threads);
    progress("checking");
    let wrong_words = wrong_words(&table, updates);
    let mut warnings = about.warnings();
    warnings.extend(in_cache(bytes_of(&table), 4, &about));
    warnings.extend(many_threads(config.threads));
    Ok(GupsReport {
        schema: GUPS_SCHEMA.to_owned(),
        memory: about,
        words,
        threads: config.threads,
        updates,
        seconds,
        updates_per_second: updates as f64 / seconds,
        wrong_words,
        passed: wrong_words <= words / 100,
        warnings,
    })
}

/// Does all updates, divided among threads; returns the time.
fn run(table: &[AtomicU64], updates: u64, threads: u64) -> f64 {
    let streams = threads * STREAMS;
    let first = |stream: u64| u128::from(updates) * u128::from(stream) / u128::from(streams);
    let barrier = Barrier::new(threads as usize + 1);
    let mut start = Instant::now();
    thread::scope(|scope| {
        for thread in 0..threads {
            let barrier = &barrier;
            scope.spawn(move || {
                let own = thread * STREAMS..(thread + 1) * STREAMS;
                let mut values: Vec<(u64, u64)> = own
                    .map(|stream| {
                        let (from, to) = (first(stream) as u64, first(stream + 1) as u64);
                        (value_at(from.cast_signed()), to - from)
                    })
                    .collect();
                barrier.wait();
                update(table, &mut values);
            });
        }
        barrier.wait();
        start = Instant::now();
    });
    start.elapsed().as_secs_f64()
}

/// Does the updates of all streams, one of each at a time: each has its value and its count.
#[inline(never)]
fn update(table: &[AtomicU64], streams: &mut [(u64, u64)]) {
    let mask = table.len() - 1;
    let all = streams.iter().map(|(_, count)| *count).min().unwrap_or(0);
    let one = |value: &mut u64| {
        *value = next(*value);
        let word = &table[*value as usize & mask];
        // ATOMICS: an update that another thread overwrites is lost, as the rules permit.
        word.store(word.load(Relaxed) ^ *value, Relaxed);
    };
    for _ in 0..all {
        streams.iter_mut().for_each(|(value, _)| one(value));
    }
    for (value, count) in streams {
        (all..*count).for_each(|_| one(value));
    }
}

/// Repeats the updates in one thread, and counts the words that do not have their index again.
fn wrong_words(table: &[AtomicU64], updates: u64) -> u64 {
    update(table, &mut [(value_at(0), updates)]);
    // ATOMICS: one thread.
    table.iter().zip(0..).filter(|(word, index)| word.load(Relaxed) != *index).count() as u64
}

/// Returns the value of the shift register after `value`.
#[inline]
const fn next(value: u64) -> u64 {
    (value << 1) ^ (if value >> 63 == 1 { POLYNOMIAL } else { 0 })
}

/// Returns value number `n` of the shift register, which begins with 1 (`HPCC_starts`).
fn value_at(n: i64) -> u64 {
    let n = n.rem_euclid(PERIOD);
    if n == 0 {
        return 1;
    }
    // powers[i] is x^2i modulo the polynomial: the square of a value is the sum over its bits.
    let mut powers = [0_u64; 64];
    let mut value = 1;
    for power in &mut powers {
        *power = value;
        value = next(next(value));
    }
    let square = |value: u64| {
        (0..64).filter(|bit| value >> bit & 1 == 1).fold(0, |sum, bit| sum ^ powers[bit])
    };
    let top = n.ilog2();
    (0..top).rev().fold(2, |value, bit| {
        let squared = square(value);
        if n >> bit & 1 == 1 { next(squared) } else { squared }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(words: u64) -> Vec<AtomicU64> {
        (0..words).map(AtomicU64::new).collect()
    }

    #[test]
    fn the_register_can_be_entered_anywhere() {
        let mut value = 1;
        for n in 0..5000 {
            assert_eq!(value_at(n), value, "{n}");
            value = next(value);
        }
        assert_eq!(value_at(PERIOD), 1);
        assert_eq!(next(value_at(1 << 40)), value_at((1 << 40) + 1));
    }

    #[test]
    fn the_streams_of_any_number_of_threads_are_the_whole_sequence() {
        for threads in [1, 3] {
            let (one, many) = (table(1 << 10), table(1 << 10));
            update(&one, &mut [(1, 4000)]);
            // One thread after the other, so that no update is lost.
            let streams = threads * STREAMS;
            let first = |stream: u64| 4000 * stream / streams;
            for stream in 0..streams {
                let count = first(stream + 1) - first(stream);
                update(&many, &mut [(value_at(first(stream).cast_signed()), count)]);
            }
            let values = |table: &[AtomicU64]| -> Vec<u64> {
                table.iter().map(|word| word.load(Relaxed)).collect()
            };
            assert_eq!(values(&one), values(&many));
        }
    }

    #[test]
    fn the_same_updates_twice_restore_the_table_and_a_lost_one_shows() {
        let words = table(1 << 10);
        assert!(run(&words, 4 << 10, 1) > 0.0);
        assert_eq!(wrong_words(&words, 4 << 10), 0);
        run(&words, 4 << 10, 1);
        words[17].fetch_xor(1, Relaxed);
        assert_eq!(wrong_words(&words, 4 << 10), 1);
    }
}
