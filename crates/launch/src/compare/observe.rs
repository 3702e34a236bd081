//! Observers of one run: counters of the processor, and stall samples.

use hugepilot_kernel::perf::counters::Counters;
use hugepilot_kernel::{KernelError, Process, Root, StartedProgram, Target};
use hugepilot_profiler::{SamplerChoice, choose};
use hugepilot_record::{Pattern, Sample};
use hugepilot_reports::compare::{Counts, StallsUnavailable};
use hugepilot_units::Nanos;

use crate::run::Observer;

/// Samples per second of CPU time of each thread, in an untimed run. A sample costs about 15 µs, so
/// the stalls hardly change, and a program that takes a second gets enough of them.
const RATE_HZ: u32 = 1000;
/// Samples required for a share.
const MIN_SAMPLES: u64 = 100;
/// Interval of searches for threads that inherited no event.
const RESCAN_EVERY: Nanos = Nanos::seconds(1);

/// Counters of data-TLB loads, misses and walks of a run, its children included.
#[derive(Default)]
pub(super) struct Counting {
    counters: Option<Counters>,
    /// Error of opening the counters.
    pub(super) unavailable: Option<String>,
}

impl Counting {
    /// Returns the counts up to now.
    pub(super) fn counts(&self) -> Option<Counts> {
        let reading = self.counters.as_ref()?.read();
        Some(Counts {
            loads: reading.tlb_loads,
            load_misses: reading.tlb_load_misses,
            walks: reading.walks,
        })
    }
}

impl Observer for Counting {
    fn attach(&mut self, child: &StartedProgram) {
        let counters = process(child)
            .map_err(|error| error.to_string())
            .and_then(|process| Counters::of_tlb(&process).map_err(|error| error.to_string()));
        match counters {
            Ok(counters) => self.counters = Some(counters),
            Err(error) => self.unavailable = Some(error),
        }
    }
}

/// Sampler of the stalls of a run.
#[derive(Default)]
pub(super) struct Sampling {
    source: Option<(SamplerChoice, Process)>,
    rescanned: Nanos,
    samples: u64,
    scattered: u64,
    /// Cause of missing samples.
    pub(super) unavailable: Option<StallsUnavailable>,
}

impl Sampling {
    /// Returns the share of samples that stalled on scattered memory; `None` if there are too few.
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn ratio(&mut self) -> Option<f64> {
        self.drain();
        if self.source.is_some() && self.samples < MIN_SAMPLES {
            self.unavailable = Some(StallsUnavailable::FewSamples { samples: self.samples });
        }
        (self.samples >= MIN_SAMPLES).then(|| self.scattered as f64 / self.samples as f64)
    }

    fn drain(&mut self) {
        let Some((chosen, process)) = &mut self.source else { return };
        let (samples, scattered) = (&mut self.samples, &mut self.scattered);
        chosen.source.drain(Nanos::ZERO, &mut |sample: Sample| {
            *samples += 1;
            *scattered +=
                u64::from(sample.address.is_some() && sample.pattern == Pattern::Scattered);
        });
        let now = process.now();
        if now > self.rescanned + RESCAN_EVERY {
            self.rescanned = now;
            // If the program has ended, there is nothing to attach to.
            let _ = chosen.source.rescan(process);
        }
    }
}

impl Observer for Sampling {
    fn attach(&mut self, child: &StartedProgram) {
        match process(child).and_then(|process| Ok((choose(&process, RATE_HZ)?, process))) {
            Ok((chosen, process)) if chosen.samples_time => {
                self.rescanned = process.now();
                self.source = Some((chosen, process));
            }
            Ok((chosen, _)) => {
                let sampler = chosen.source.name().to_owned();
                self.unavailable = Some(StallsUnavailable::SamplesPageWalks { sampler });
            }
            Err(error) => {
                self.unavailable = Some(StallsUnavailable::Failed { error: error.to_string() });
            }
        }
    }
    fn meanwhile(&mut self) {
        self.drain();
    }
}

fn process(child: &StartedProgram) -> Result<Process, KernelError> {
    Process::open(&Root::live(), child.pid())
}
