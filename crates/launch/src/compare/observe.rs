//! What the processor counts, and where samples wait, in one run.

use hugepilot_kernel::perf::counters::Counters;
use hugepilot_kernel::{KernelError, Process, Root, Started, Target};
use hugepilot_profiler::{SamplerChoice, choose};
use hugepilot_record::compare::Counts;
use hugepilot_record::{Pattern, Sample};
use hugepilot_units::Nanos;

use crate::run::Observer;

/// Samples a second of each thread's CPU time, in a run that is not timed. One costs some 15 µs, so this changes little of where
/// the program waits, and gives enough of a program that takes a second.
const RATE_HZ: u32 = 1000;
/// Of fewer samples no share is told.
const MIN_SAMPLES: u64 = 100;
/// Threads that no event was inherited by are looked for so often.
const RESCAN_EVERY: Nanos = Nanos::seconds(1);

/// Counts data TLB loads, misses and walks of a run, its children included.
#[derive(Default)]
pub(super) struct Counting {
    counters: Option<Counters>,
    /// Why it does not.
    pub(super) unavailable: Option<String>,
}

impl Counting {
    /// What was counted up to now.
    pub(super) fn counts(&self) -> Option<Counts> {
        let reading = self.counters.as_ref()?.read().ok()?;
        Some(Counts {
            loads: reading.tlb_loads,
            load_misses: reading.tlb_load_misses,
            walks: reading.walks,
        })
    }
}

impl Observer for Counting {
    fn attach(&mut self, child: &Started) {
        match process(child)
            .map_err(|error| error.to_string())
            .and_then(|process| Counters::of_tlb(&process).map_err(|refusal| refusal.to_string()))
        {
            Ok(counters) => self.counters = Some(counters),
            Err(why) => self.unavailable = Some(why),
        }
    }
}

/// Samples where a run waits.
#[derive(Default)]
pub(super) struct Sampling {
    source: Option<(SamplerChoice, Process)>,
    rescanned: Nanos,
    samples: u64,
    scattered: u64,
    /// Why it does not.
    pub(super) unavailable: Option<String>,
}

impl Sampling {
    /// The share of samples that waited for scattered memory.
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn ratio(&mut self) -> Option<f64> {
        self.drain();
        if self.source.is_some() && self.samples < MIN_SAMPLES {
            self.unavailable = Some(format!(
                "there were only {} samples: it takes too little CPU time",
                self.samples
            ));
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
            // It may have ended, and then there is nothing to attach to.
            let _ = chosen.source.rescan(process);
        }
    }
}

impl Observer for Sampling {
    fn attach(&mut self, child: &Started) {
        match process(child).and_then(|process| Ok((choose(&process, RATE_HZ)?, process))) {
            Ok((chosen, process)) if chosen.samples_time => {
                self.rescanned = process.now();
                self.source = Some((chosen, process));
            }
            Ok((chosen, _)) => {
                self.unavailable =
                    Some(format!("{} samples page walks, and not time", chosen.source.name()));
            }
            Err(error) => self.unavailable = Some(error.to_string()),
        }
    }
    fn meanwhile(&mut self) {
        self.drain();
    }
}

fn process(child: &Started) -> Result<Process, KernelError> {
    Process::open(&Root::live(), child.pid())
}
