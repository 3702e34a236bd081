//! Pace of reading symbols.

use super::*;

thread_local! {
    /// Time that each reading of the clock takes.
    static STEP: Cell<Nanos> = const { Cell::new(Nanos::ZERO) };
}

fn step() -> Nanos {
    NOW.set(NOW.get() + STEP.get());
    NOW.get()
}

/// Seconds at which the mappings are read, if each reading of the CPU clock adds `step`.
fn mapping_reads(step: Nanos, cpu: fn() -> Nanos) -> Vec<u64> {
    let folder = tree();
    let mut recorder = recorder(&folder, missing());
    let head = recorder.head(Vec::new(), 1.0);
    recorder.clock.cpu = cpu;
    STEP.set(step);
    let mut is_read = |second: &u64| {
        NOW.set(Nanos::seconds(*second));
        let lines = recorder.slice();
        slices(&lines).iter().any(|one| value(&head, &[*one], "swapped").is_some())
    };
    (11..=20).filter(|second| is_read(second)).collect()
}

#[test]
fn a_preempted_measurement_rests_little() {
    // The time passes within the measurement, and only the first CPU clock counts it.
    let preempted = || {
        step();
        Nanos::millis(1)
    };
    let busy = mapping_reads(Nanos::millis(20), step);
    let waiting = mapping_reads(Nanos::millis(20), preempted);
    assert_eq!((busy, waiting), (vec![11, 19], (11..=20).collect()));
}

#[test]
fn a_slow_first_reading_of_symbols_does_not_delay_the_next() {
    let folder = tree();
    let samples: Vec<_> = (0..4).map(|_| (sample(7, None), Vec::new())).collect();
    let source = Box::new(Repeated(samples));
    let chosen = SamplerChoice { source, samples_time: true, unavailable: Vec::new() };
    let mut recorder = recorder(&folder, Stalls::Sampled(chosen));
    recorder.clock = Clocks { now: step, cpu: step };
    let mut is_read = |seconds| {
        NOW.set(Nanos::seconds(seconds));
        recorder.sample(Nanos::ZERO);
        recorder.slice().iter().any(|line| matches!(line, Line::Code(_)))
    };
    STEP.set(Nanos::millis(350));
    assert!(is_read(21), "the first");
    STEP.set(Nanos::ZERO);
    assert_eq!([24, 36].map(&mut is_read), [false, true]);
}

/// Sampler with the same samples each time.
struct Repeated(Vec<(Sample, Vec<VirtAddr>)>);

impl AddressSource for Repeated {
    fn name(&self) -> &str {
        "repeated"
    }
    fn drain(&mut self, _: Nanos, each: &mut dyn FnMut(Sample)) {
        self.0.iter().for_each(|(sample, _)| each(*sample));
    }
    fn rescan(&mut self, _: &Process) -> Result<(), hugepilot_kernel::KernelError> {
        Ok(())
    }
    fn counts(&self) -> ProvenanceCounts {
        ProvenanceCounts::default()
    }
    fn counts_of(&self, _: Pid) -> Option<ProvenanceCounts> {
        None
    }
    fn execs(&mut self) -> Vec<Pid> {
        Vec::new()
    }
}
