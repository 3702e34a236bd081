//! `stream`: the four kernels of STREAM (J. McCalpin), by its rules.
//!
//! Each array has at least four times the size of the last-level cache. The bytes are those that
//! the kernel reads and writes, without write-allocation. The best round after the first counts.
//! The values of all elements are checked at the end.

use std::ops::Range;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use hugepilot_reports::lab::{PageKind, STREAM_SCHEMA, StreamKernel, StreamReport};
use hugepilot_stats::Spread;
use hugepilot_units::Bytes;

use super::{
    Progress, check_threads, collapse, describe, huge_bytes, in_cache, many_threads, map,
    require_available,
};
use crate::{MemoryLimits, Result, WorkloadError};

/// Most rounds: each makes the values 15 times larger.
pub const MAX_ROUNDS: u32 = 100;
const NAME: &str = "stream";
const SCALAR: f64 = 3.0;
/// Elements by which the low address bits of the arrays differ, one page of 4 KiB: STREAM's
/// `OFFSET`. Without an offset, the same elements of all arrays have the same low bits, and `scale`
/// gets 0.6 of the bandwidth on a Zen 4, more or less by how its loop is unrolled.
const OFFSET: usize = 512;
/// Elements between two addresses with the same low bits, 64 KiB.
const ALIGNMENT: usize = 8192;
/// Largest mean error of an element, relative to its value.
const MAX_ERROR: f64 = 1e-13;
/// Kernels in order, each with the words that it moves per element.
const KERNELS: [(&str, u64); 4] = [("copy", 2), ("scale", 2), ("add", 3), ("triad", 3)];

/// Arrays and threads of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamConfig {
    /// Length of each of the three arrays.
    pub array: Bytes,
    /// Pages of the memory.
    pub pages: PageKind,
    /// Threads.
    pub threads: u32,
    /// Rounds, including the first, which does not count: 2 to [`MAX_ROUNDS`].
    pub rounds: u32,
}

impl StreamConfig {
    /// Returns the array length by the rules on this machine, and as large as fits: four times the
    /// cache, at most a quarter of the memory that this process may take, at most 1 GiB.
    pub fn default_array(cache: Option<Bytes>, machine: &MemoryLimits) -> Bytes {
        let wanted = cache.map_or(Bytes::mib(256), |cache| cache.times(4)).max(Bytes::mib(64));
        wanted.min(Bytes::new(machine.memory.room().get() / 4)).min(Bytes::gib(1))
    }
}

/// Measures the four kernels.
///
/// # Errors
/// Invalid numbers, memory that is not available, [`WorkloadError::Damaged`] for wrong values.
pub fn stream(
    config: &StreamConfig,
    machine: &MemoryLimits,
    progress: Progress<'_>,
) -> Result<StreamReport> {
    let threads = check_threads(config.threads)?;
    if !(2..=MAX_ROUNDS).contains(&config.rounds) {
        return Err(WorkloadError::Rounds { rounds: config.rounds, min: 2, max: MAX_ROUNDS });
    }
    let count = config.array.as_usize() / size_of::<f64>();
    if count < threads {
        let min = Bytes::new((threads * size_of::<f64>()) as u64);
        return Err(WorkloadError::TooSmall { flag: "--array", value: config.array, min });
    }
    require_available([config.array; 3], config.pages, machine, "--array")?;
    let array = || map::<f64>(count + ALIGNMENT, config.pages);
    let (mut a, mut b, mut c) = (array()?, array()?, array()?);
    let [in_a, in_b, in_c] =
        [(&a, 0), (&b, 1), (&c, 2)].map(|(array, index)| range(array, index, count));
    progress("filling the arrays");
    fill([&mut a[in_a.clone()], &mut b[in_b.clone()], &mut c[in_c.clone()]], threads);
    for array in [&a, &b, &c] {
        collapse(array, config.pages);
    }
    let huge = [&a, &b, &c].map(huge_bytes).into_iter().sum::<Option<Bytes>>();
    let array_bytes = Bytes::new((count * size_of::<f64>()) as u64);
    let about = describe(config.pages, array_bytes.times(3), huge);
    progress("measuring");
    let arrays = [&mut a[in_a.clone()], &mut b[in_b.clone()], &mut c[in_c.clone()]];
    let times = run(arrays, threads, config.rounds);
    check([&a[in_a], &b[in_b], &c[in_c]], config.rounds)?;
    let mut warnings = about.warnings();
    warnings.extend(in_cache(array_bytes, 4, &about));
    warnings.extend(many_threads(config.threads));
    Ok(StreamReport {
        schema: STREAM_SCHEMA.to_owned(),
        memory: about,
        array_bytes,
        threads: config.threads,
        rounds: config.rounds,
        kernels: kernels(&times, array_bytes),
        warnings,
    })
}

/// Range of `count` elements that begins `index` offsets after an address with low bits of zero.
fn range(array: &[f64], index: usize, count: usize) -> Range<usize> {
    let lead = array.as_ptr().addr() / size_of::<f64>() % ALIGNMENT;
    let start = (ALIGNMENT + index * OFFSET - lead) % ALIGNMENT;
    start..start + count
}

/// Part of the three arrays, of one thread.
struct Part<'a> {
    a: &'a mut [f64],
    b: &'a mut [f64],
    c: &'a mut [f64],
}

/// Divides the arrays among the threads.
fn parts(arrays: [&mut [f64]; 3], threads: usize) -> Vec<Part<'_>> {
    let part = arrays[0].len().div_ceil(threads);
    let [a, b, c] = arrays.map(|array| array.chunks_mut(part));
    a.zip(b).zip(c).map(|((a, b), c)| Part { a, b, c }).collect()
}

/// Touches the arrays first, each thread its part and all three in turn, as STREAM does.
fn fill(arrays: [&mut [f64]; 3], threads: usize) {
    let fill_part = |Part { a, b, c }: Part<'_>| {
        a.iter_mut().zip(b).zip(c).for_each(|((a, b), c)| (*a, *b, *c) = (1.0, 2.0, 0.0));
    };
    thread::scope(|scope| {
        for part in parts(arrays, threads) {
            scope.spawn(move || fill_part(part));
        }
    });
}

/// Runs the rounds; returns the times of the kernels in each.
fn run(arrays: [&mut [f64]; 3], threads: usize, rounds: u32) -> Vec<[f64; 4]> {
    let parts = parts(arrays, threads);
    let barrier = &Barrier::new(parts.len());
    thread::scope(|scope| {
        let work = |mut part| scope.spawn(move || rounds_of(&mut part, rounds, barrier));
        let running: Vec<_> = parts.into_iter().map(work).collect();
        let mut times: Vec<Vec<[f64; 4]>> =
            running.into_iter().map(|one| one.join().expect("no panic in a kernel")).collect();
        // All threads meet at both ends of a kernel, so each has the time of the slowest.
        times.swap_remove(0)
    })
}

fn rounds_of(part: &mut Part<'_>, rounds: u32, barrier: &Barrier) -> Vec<[f64; 4]> {
    // As STREAM does to estimate the resolution of its clock; its expected values include it.
    part.a.iter_mut().for_each(|a| *a *= 2.0);
    let mut timed = |kernel: fn(&mut Part<'_>)| {
        barrier.wait();
        let start = Instant::now();
        kernel(part);
        barrier.wait();
        start.elapsed().as_secs_f64()
    };
    (0..rounds).map(|_| [copy, scale, add, triad].map(&mut timed)).collect()
}

#[inline(never)]
fn copy(part: &mut Part<'_>) {
    part.c.copy_from_slice(part.a);
}

#[inline(never)]
fn scale(part: &mut Part<'_>) {
    part.b.iter_mut().zip(&*part.c).for_each(|(b, c)| *b = SCALAR * c);
}

#[inline(never)]
fn add(part: &mut Part<'_>) {
    let sources = part.a.iter().zip(&*part.b);
    part.c.iter_mut().zip(sources).for_each(|(c, (a, b))| *c = a + b);
}

#[inline(never)]
fn triad(part: &mut Part<'_>) {
    let sources = part.b.iter().zip(&*part.c);
    part.a.iter_mut().zip(sources).for_each(|(a, (b, c))| *a = b + SCALAR * c);
}

/// Compares all elements with the values that the kernels give.
#[allow(clippy::cast_precision_loss)]
fn check(arrays: [&[f64]; 3], rounds: u32) -> Result<()> {
    let (mut a, mut b, mut c) = (2.0, 2.0, 0.0);
    for _ in 0..rounds {
        c = a;
        b = SCALAR * c;
        c = a + b;
        a = b + SCALAR * c;
    }
    let is_right = |(array, expected): (&[f64], f64)| {
        let error: f64 = array.iter().map(|value| (value - expected).abs()).sum();
        error / array.len() as f64 <= MAX_ERROR * expected
    };
    if arrays.into_iter().zip([a, b, c]).all(is_right) {
        return Ok(());
    }
    Err(WorkloadError::Damaged { workload: NAME })
}

fn kernels(times: &[[f64; 4]], array: Bytes) -> Vec<StreamKernel> {
    let kernel = |(index, (name, words)): (usize, &(&str, u64))| {
        let after_first: Vec<f64> = times.iter().skip(1).map(|round| round[index]).collect();
        let seconds = Spread::of(&after_first).expect("at least two rounds");
        let counted_bytes = array.times(*words);
        let best_bytes_per_second = counted_bytes.get() as f64 / seconds.min;
        StreamKernel { kernel: (*name).to_owned(), counted_bytes, best_bytes_per_second, seconds }
    };
    KERNELS.iter().enumerate().map(kernel).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_the_best_round_are_counted_as_in_stream() {
        let times = [[0.001; 4], [2.0, 1.0, 3.0, 1.5], [1.0, 2.0, 1.5, 3.0]];
        let kernels = kernels(&times, Bytes::new(600));
        let rates: Vec<f64> = kernels.iter().map(|kernel| kernel.best_bytes_per_second).collect();
        assert_eq!(rates, [1200.0, 1200.0, 1200.0, 1200.0]);
        assert_eq!(kernels[3].counted_bytes, Bytes::new(1800));
        assert!((kernels[0].seconds.median - 1.5).abs() < 1e-12, "the first round is dropped");
    }

    #[test]
    fn a_wrong_element_is_found() {
        let mut arrays = [vec![2.0; 8], vec![2.0; 8], vec![0.0; 8]];
        let check_all = |arrays: &[Vec<f64>; 3]| check([&arrays[0], &arrays[1], &arrays[2]], 1);
        let [a, b, c] = &mut arrays;
        let mut part = Part { a, b, c };
        let kernels: [fn(&mut Part<'_>); 4] = [copy, scale, add, triad];
        kernels.iter().for_each(|kernel| kernel(&mut part));
        assert_eq!(arrays.each_ref().map(|array| array[5]), [30.0, 6.0, 8.0]);
        assert!(check_all(&arrays).is_ok());
        arrays[1][7] += 1e-6;
        assert!(matches!(check_all(&arrays), Err(WorkloadError::Damaged { .. })));
    }

    #[test]
    fn the_arrays_begin_a_page_apart_wherever_they_are_mapped() {
        let items = vec![0.0; 100 + 3 * ALIGNMENT];
        for lead in [0, OFFSET, 5 * OFFSET, ALIGNMENT - OFFSET] {
            for index in 0..3 {
                let array = &items[lead..][..100 + ALIGNMENT];
                let range = range(array, index, 100);
                assert_eq!(range.len(), 100);
                let address = array[range].as_ptr().addr();
                assert_eq!(address % (ALIGNMENT * 8), index * OFFSET * 8);
            }
        }
    }

    #[test]
    fn the_default_follows_the_cache_as_far_as_memory_reaches() {
        let machine = |gib| crate::memory::tests::with(Bytes::gib(gib));
        let array = |cache, gib| StreamConfig::default_array(cache, &machine(gib));
        assert_eq!(array(Some(Bytes::mib(32)), 64), Bytes::mib(128));
        assert_eq!(array(Some(Bytes::mib(480)), 64), Bytes::gib(1));
        assert_eq!(array(Some(Bytes::mib(480)), 2), Bytes::mib(256));
        assert_eq!(array(None, 64), Bytes::mib(256));
    }
}
