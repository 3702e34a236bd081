//! Measurement of a calibration. Base pages and huge pages are measured interleaved, so that the
//! noise of a shared machine affects both.

use std::hint::black_box;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use hugepilot_kernel::memory::page_sizes;
use hugepilot_kernel::schedstat::own_processor_wait;
use hugepilot_kernel::system::{CpuTimes, SystemMeter, load_average};
use hugepilot_kernel::{AnonMap, KernelError, OwnMemory, Pages, Root};
use hugepilot_profiler::calibrate::{LeftOut, LeftOutCause, Measurement, Point, SIZES, fits};
use hugepilot_stats::{Orders, Rounds};
use hugepilot_units::{Bytes, Nanos, PageSizes};

const PAIRS: usize = 7;
/// Measurements before a flawed one is accepted as the answer.
const ATTEMPTS: usize = 3;
/// Words per cache line. One is used, so that every access can miss.
const WORDS_PER_LINE: usize = 8;
const STEPS: usize = 400_000;

/// Measures every size that this process may take memory for, calling `progress` before each. A
/// measurement with a [flaw](Measurement::flaw) is repeated twice; the last one is returned.
///
/// # Errors
/// If `/sys` cannot be read.
pub fn measure(progress: &dyn Fn(Bytes)) -> Result<Measurement, KernelError> {
    let root = Root::live();
    let sizes = page_sizes(&root)?;
    let mut measured = once(&root, sizes, progress);
    for _ in 1..ATTEMPTS {
        if measured.flaw().is_none() {
            break;
        }
        measured = once(&root, sizes, progress);
    }
    Ok(measured)
}

fn once(root: &Root, sizes: PageSizes, progress: &dyn Fn(Bytes)) -> Measurement {
    let mut meter = SystemMeter::open(root);
    let before = meter.read().cpu;
    let (mut points, mut left_out) = (Vec::new(), Vec::new());
    for hot_bytes in SIZES {
        let memory = OwnMemory::read(root);
        if !fits(hot_bytes, memory) {
            let cause = LeftOutCause::Memory { available: memory.to_string() };
            left_out.push(LeftOut { hot_bytes, cause });
            continue;
        }
        progress(hot_bytes);
        match point(root, hot_bytes, sizes) {
            Ok(point) => points.push(point),
            Err(cause) => left_out.push(LeftOut { hot_bytes, cause }),
        }
    }
    let steal_ratio = before.zip(meter.read().cpu).map_or(0.0, |(from, to)| steal(from, to));
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    Measurement {
        points,
        left_out,
        measured_unix_seconds: now.map_or(0, |time| time.as_secs()),
        load_average: load_average(root).unwrap_or(0.0),
        steal_ratio,
    }
}

/// Returns the share that the hypervisor took of the time that was used or wanted.
fn steal(from: CpuTimes, to: CpuTimes) -> f64 {
    let used = |times: CpuTimes| times.user + times.system;
    let (stolen, used) = (to.steal - from.steal, used(to) - used(from));
    let all = (stolen + used).as_seconds();
    if all > 0.0 { stolen.as_seconds() / all } else { 0.0 }
}

/// Measures one size.
///
/// # Errors
/// The cause why it cannot be measured.
fn point(root: &Root, hot_bytes: Bytes, sizes: PageSizes) -> Result<Point, LeftOutCause> {
    let map = |pages| {
        AnonMap::new(hot_bytes, pages, sizes)
            .map_err(|error| LeftOutCause::Memory { available: error.to_string() })
    };
    let (mut base, mut huge) = (map(Pages::Base)?, map(Pages::Huge)?);
    link(base.words_mut());
    link(huge.words_mut());
    // Collapse works also if THP is off; without free huge pages there is nothing to compare.
    huge.collapse(huge.range()).map_err(|_| LeftOutCause::NoHugePages)?;
    let both = [base.words(), huge.words()];
    let ratio = |walk: fn(&[u64]) -> u64| {
        let mut pairs = Rounds::default();
        for order in Orders::rotated(both.len()).take(PAIRS) {
            let seconds = |which: usize| time(root, walk, both[which]).as_seconds();
            pairs.measure(order, |which| Ok::<_, LeftOutCause>(seconds(which)))?;
        }
        // There are pairs, and their times are not zero, so the ratio is known.
        pairs.ratios(1, 0).spread().ok_or(LeftOutCause::NoHugePages)
    };
    Ok(Point { hot_bytes, chase_ratio: ratio(chase)?, gather_ratio: ratio(gather)? })
}

/// Links all lines into one cycle of full length (a linear congruential sequence modulo a power of
/// two, Knuth 3.2.1.2), in one pass in address order, as fast as the first touch.
fn link(words: &mut [u64]) {
    let lines = (words.len() / WORDS_PER_LINE) as u64;
    debug_assert!(lines.is_power_of_two());
    for line in 0..lines {
        let next = line.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f)
            & (lines - 1);
        words[usize::try_from(line).unwrap_or(0) * WORDS_PER_LINE] = next * WORDS_PER_LINE as u64;
    }
}

/// Returns the time of `walk`, less the time for which this thread waited for a processor.
fn time(root: &Root, walk: fn(&[u64]) -> u64, words: &[u64]) -> Nanos {
    let queued = || own_processor_wait(root).unwrap_or_default();
    let (start, before) = (Instant::now(), queued());
    black_box(walk(words));
    let (took, after) = (Nanos::from(start.elapsed()), queued());
    (took - (after - before)).max(Nanos::new(1))
}

/// Walks the cycle: each load yields the address of the next.
#[allow(clippy::cast_possible_truncation)]
fn chase(words: &[u64]) -> u64 {
    let mut at = 0;
    for _ in 0..STEPS {
        at = words[at as usize];
    }
    at
}

/// Sums words at computed addresses, so that many loads overlap.
#[allow(clippy::cast_possible_truncation)]
fn gather(words: &[u64]) -> u64 {
    let mask = words.len() - 1;
    let (mut state, mut sum) = (88_172_645_463_325_252_u64, 0_u64);
    for _ in 0..STEPS * 4 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        sum = sum.wrapping_add(words[state as usize & mask]);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cycle_visits_every_line_once() {
        let mut words = vec![0_u64; 1024 * WORDS_PER_LINE];
        link(&mut words);
        let mut visited = vec![false; 1024];
        let mut at = 0;
        for _ in 0..1024 {
            at = usize::try_from(words[at]).unwrap();
            assert!(!std::mem::replace(&mut visited[at / WORDS_PER_LINE], true));
        }
        assert_eq!(at, 0, "the cycle closes");
    }

    #[test]
    fn stolen_time_is_a_share_of_the_time_that_was_wanted() {
        let times = |user, system, idle, steal| {
            let [user, system, idle, steal] = [user, system, idle, steal].map(Nanos::seconds);
            CpuTimes { user, system, idle, steal }
        };
        let (from, to) = (times(10, 10, 100, 10), times(16, 11, 200, 13));
        assert_eq!(steal(from, to), 0.3);
        assert_eq!(steal(from, from), 0.0);
    }
}
