//! Distinction of streamed from scattered accesses by the steps between an instruction's sampled
//! addresses.
//!
//! Between two samples of one thread at one instruction, a stream advances by its speed times the
//! time between them; a random access may be anywhere. The number of steps that land just ahead
//! separates the two, if the memory is larger than the distance between samples. For smaller loops,
//! the instruction's stride decides.

use hugepilot_code::Stride;
use hugepilot_record::{Pattern, Pid, Tid};
use hugepilot_units::{Bytes, Nanos, VirtAddr};

/// Bytes per nanosecond, more than one core streams.
const MAX_BYTES_PER_NANO: u64 = 64;
/// Steps before the count decides.
const MIN_STEPS: u32 = 12;
/// Steps at which counts are halved, so that a program may change.
const MAX_STEPS: u32 = 512;
/// Slots of each table; a power of two. A collision costs evidence, not correctness.
const SLOTS: usize = 4096;

#[derive(Clone, Copy, Debug, Default)]
struct Last {
    thread: i32,
    ip: u64,
    address: u64,
    time: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Steps {
    ip: u64,
    all: u32,
    ahead: u32,
    behind: u32,
}

/// Steps of each instruction. Fixed in size.
#[derive(Debug)]
pub(crate) struct Streams {
    last: Vec<Last>,
    steps: Vec<Steps>,
    page: Bytes,
}

impl Streams {
    pub(crate) fn new(page: Bytes) -> Self {
        Self { last: vec![Last::default(); SLOTS], steps: vec![Steps::default(); SLOTS], page }
    }

    /// Adds one sample and returns the pattern of its instruction. Processes may have different
    /// code at the same `ip`.
    pub(crate) fn classify(
        &mut self,
        pid: Pid,
        thread: Tid,
        ip: VirtAddr,
        address: VirtAddr,
        time: Nanos,
        stride: Stride,
    ) -> Pattern {
        // Code addresses leave the upper 17 bits free.
        let ip = ip.get() ^ u64::from(pid.0.cast_unsigned()).rotate_right(17);
        let (address, time) = (address.get(), time.get());
        let last = &mut self.last[slot(ip ^ u64::from(thread.0.cast_unsigned()) << 40)];
        let previous = std::mem::replace(last, Last { thread: thread.0, ip, address, time });
        let steps = &mut self.steps[slot(ip)];
        if steps.ip != ip {
            *steps = Steps { ip, ..Steps::default() };
        }
        if previous.ip == ip && previous.thread == thread.0 {
            steps.count(previous.address, address, time.saturating_sub(previous.time));
        }
        steps.pattern(stride, self.page)
    }
}

impl Steps {
    fn count(&mut self, from: u64, to: u64, nanos: u64) {
        let reach = nanos.saturating_mul(MAX_BYTES_PER_NANO);
        self.all += 1;
        self.ahead += u32::from(to > from && to - from <= reach);
        self.behind += u32::from(from > to && from - to <= reach);
        if self.all == MAX_STEPS {
            (self.all, self.ahead, self.behind) = (self.all / 2, self.ahead / 2, self.behind / 2);
        }
    }

    fn pattern(&self, stride: Stride, page: Bytes) -> Pattern {
        // A constant step of half a page or more needs a new translation at every access or two,
        // however regular.
        let small_step = match stride {
            Stride::Bytes(step) if step.unsigned_abs() >= page.get() / 2 => {
                return Pattern::Scattered;
            }
            Stride::Bytes(_) => true,
            Stride::Constant | Stride::Unknown => false,
        };
        let near = f64::from(self.ahead.max(self.behind)) / f64::from(self.all.max(1));
        // Steps within a loop smaller than a stream's reach seem random; then a small constant
        // stride decides. Far fewer steps ahead mean short runs at random places, such as the edge
        // lists of a graph.
        let streamed = if self.all < MIN_STEPS {
            small_step
        } else {
            near >= if small_step { 0.4 } else { 0.8 }
        };
        if streamed { Pattern::Streamed } else { Pattern::Scattered }
    }
}

/// Spreads `key` over the table (Fibonacci hashing).
fn slot(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    /// Returns the pattern after `n` samples 2 ms apart, at addresses that depend on the time.
    fn after(n: u64, stride: Stride, mut address: impl FnMut(u64) -> u64) -> Pattern {
        let mut streams = Streams::new(Bytes::kib(4));
        let mut pattern = Pattern::Scattered;
        for i in 0..n {
            let nanos = i * 2_000_003;
            let at = VirtAddr::new((1 << 40) + address(nanos));
            pattern = streams.classify(
                Pid(7),
                Tid(7),
                VirtAddr::new(0x40_1000),
                at,
                Nanos::new(nanos),
                stride,
            );
        }
        pattern
    }
    fn random() -> impl FnMut(u64) -> u64 {
        let mut state = 88_172_645_463_325_252_u64;
        move |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        }
    }

    #[test]
    fn a_long_stream_is_detected_without_its_code() {
        for bytes_per_nano in [1, 8, 20] {
            let forward = |nanos: u64| nanos * bytes_per_nano % (2 * GIB);
            assert_eq!(after(200, Stride::Unknown, forward), Pattern::Streamed);
            let backward = |nanos: u64| 2 * GIB - nanos * bytes_per_nano % (2 * GIB);
            assert_eq!(after(200, Stride::Unknown, backward), Pattern::Streamed);
        }
    }

    #[test]
    fn random_accesses_are_scattered_whatever_the_size() {
        for size in [32 << 20, 256 << 20, 4 * GIB] {
            let mut random = random();
            assert_eq!(
                after(200, Stride::Unknown, |t| random(t) % size),
                Pattern::Scattered,
                "{size}"
            );
        }
    }

    #[test]
    fn a_small_array_streamed_repeatedly_is_detected_by_its_stride() {
        let size = 64 << 20;
        let walk = |nanos: u64| nanos * 11 % size;
        assert_eq!(after(200, Stride::Bytes(8), walk), Pattern::Streamed);
    }

    #[test]
    fn short_runs_at_random_places_are_scattered() {
        let mut random = random();
        assert_eq!(after(200, Stride::Bytes(4), |t| random(t) % (4 * GIB)), Pattern::Scattered);
    }

    #[test]
    fn a_stride_of_pages_is_not_a_stream() {
        assert_eq!(after(200, Stride::Bytes(8192), |nanos| nanos * 8), Pattern::Scattered);
    }

    #[test]
    fn the_first_samples_follow_the_code() {
        assert_eq!(after(1, Stride::Bytes(8), |_| 0), Pattern::Streamed);
        assert_eq!(after(1, Stride::Unknown, |_| 0), Pattern::Scattered);
    }
}
