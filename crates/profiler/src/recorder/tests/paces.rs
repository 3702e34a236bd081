//! Pace of reading symbols.

use super::*;

thread_local! {
    /// Time that each reading of the clock takes.
    static STEP: Cell<Nanos> = const { Cell::new(Nanos::ZERO) };
}

#[test]
fn a_slow_first_reading_of_symbols_does_not_delay_the_next() {
    let folder = tree();
    let samples: Vec<_> = (0..4).map(|_| (sample(7, None), Vec::new())).collect();
    let source = Box::new(Repeated(samples));
    let chosen = SamplerChoice { source, samples_time: true, unavailable: Vec::new() };
    let mut recorder = recorder(&folder, Stalls::Sampled(chosen));
    recorder.clock = || {
        NOW.set(NOW.get() + STEP.get());
        NOW.get()
    };
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
