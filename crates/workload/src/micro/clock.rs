//! The processor's clock, from a chain of dependent instructions.

use std::hint::black_box;
use std::time::Instant;

/// Steps of a round: about 2 ms.
const STEPS: u32 = 1 << 21;
const ROUNDS: u32 = 5;
/// Cycles of a step: a multiplication takes 3 and an exclusive or 1 on Intel processors since
/// Nehalem and on AMD Zen (Fog, "Instruction tables").
const CYCLES_PER_STEP: f64 = 4.0;

/// Measures the clock in GHz; `None` on other processors than x86-64.
///
/// The time-stamp counter has another rate than the core, and virtual machines have no counter of
/// cycles. The fastest round counts, as an interrupt can only slow one down.
pub(super) fn clock_ghz() -> Option<f64> {
    if !cfg!(target_arch = "x86_64") {
        return None;
    }
    let round = |_| {
        let start = Instant::now();
        black_box(chain(black_box(0x9e37_79b9_7f4a_7c15)));
        start.elapsed().as_secs_f64()
    };
    let fastest = (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min);
    let ghz = f64::from(STEPS) * CYCLES_PER_STEP / fastest / 1e9;
    (0.1..20.0).contains(&ghz).then_some(ghz)
}

#[inline(never)]
fn chain(factor: u64) -> u64 {
    (0..STEPS).fold(factor, |product, _| product.wrapping_mul(factor) ^ factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_clock_is_plausible() {
        let ghz = clock_ghz().unwrap();
        assert!((0.3..8.0).contains(&ghz), "{ghz}");
    }
}
