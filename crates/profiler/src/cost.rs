//! Cost of one sample for the sampled thread, measured on this process.

use std::hint::black_box;
use std::time::Instant;

use hugepilot_kernel::perf::{Event, PerfSampler, Record, SamplerOptions};
use hugepilot_kernel::{KernelError, Process, Root, Target};
use hugepilot_record::Pid;
use hugepilot_stats::{Orders, in_order, lower_median};
use hugepilot_units::Nanos;

const PAIRS: usize = 11;
/// Ten times the usual rate, so that the cost exceeds the noise.
const PERIOD: Nanos = Nanos::new(200_003);
const SPINS: u64 = 12_000_000;

/// Measures the median cost of one sample: an interrupt, on a virtual machine some exits to the
/// host, and a record. Takes about half a second.
///
/// # Errors
/// If this process may not be sampled.
pub fn sample_cost() -> Result<Nanos, KernelError> {
    let own = Process::open(&Root::live(), Pid(std::process::id().cast_signed()))?;
    let options = SamplerOptions::new(Event::cpu_clock(PERIOD));
    let mut perf = PerfSampler::attach(&own, options)?;
    let mut costs = Vec::new();
    spin(&own);
    for order in Orders::rotated(2).take(PAIRS) {
        let mut samples = 0_u64;
        let times = in_order(order, |sampled| -> Result<Nanos, KernelError> {
            if sampled == 0 {
                return Ok(spin(&own));
            }
            perf.enable()?;
            let time = spin(&own);
            perf.disable()?;
            perf.drain(Nanos::ZERO, |record| {
                samples += u64::from(matches!(record, Record::Sample { .. }));
            });
            Ok(time)
        })?;
        costs.extend((times[1] - times[0]).get().checked_div(samples));
    }
    Ok(lower_median(costs).map_or(Nanos::ZERO, Nanos::new))
}

/// Does a fixed amount of work without memory accesses. Returns its time, less the time for which
/// `own` waited for a processor: a busy machine would otherwise seem to be the cost of the samples.
fn spin(own: &Process) -> Nanos {
    let (start, queued) = (Instant::now(), own.queued());
    let mut state = black_box(1_u64);
    for _ in 0..SPINS {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    }
    black_box(state);
    Nanos::from(start.elapsed()) - (own.queued() - queued)
}
