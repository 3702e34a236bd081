//! Cost of one sample for the sampled thread, measured on this process.

use std::hint::black_box;
use std::time::Instant;

use hugepilot_kernel::perf::{Event, PerfSampler, SamplerOptions};
use hugepilot_kernel::{KernelError, Process, Root, Target};
use hugepilot_record::Pid;
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
    for _ in 0..PAIRS {
        let without = spin(&own);
        perf.enable()?;
        let with = spin(&own);
        perf.disable()?;
        let mut samples = 0_u64;
        perf.drain(Nanos::ZERO, |record| {
            samples += u64::from(matches!(record, hugepilot_kernel::perf::Record::Sample { .. }));
        });
        costs.extend(with.get().saturating_sub(without.get()).checked_div(samples));
    }
    costs.sort_unstable();
    Ok(costs.get(costs.len() / 2).copied().map_or(Nanos::ZERO, Nanos::new))
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
