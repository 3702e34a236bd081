//! Detection of reports without a verdict: nothing was promoted, and the gain is unknown.

use hugepilot_kernel::{Process, Target};
use hugepilot_policy::tune::MIN_SAMPLES;
use hugepilot_record::tune::{NoVerdict, TuneReport};
use hugepilot_units::Nanos;

/// Largest share of samples without decoded code that still allows a verdict.
const MAX_UNDECODED: f64 = 0.5;
/// End of the addresses of 32-bit programs.
const END_OF_32_BITS: u64 = 1 << 32;

/// Life of a process from which a lack of samples means that it was idle: at 258 Hz it used
/// less than 1 % of a CPU.
const LONG_LIFE: Nanos = Nanos::seconds(1);

/// Cause why `report` on `process` has no verdict; `None` if it has one. `sampled` is the time for
/// which the process was sampled, if it is known.
pub(super) fn no_verdict(
    report: &TuneReport,
    process: &Process,
    sampled: Option<Nanos>,
) -> Option<NoVerdict> {
    if !report.selected.is_empty() || report.attempted_regions > 0 || report.stopped.is_some() {
        return None;
    }
    if report.sampler.samples == 0 {
        return Some(match process.stat() {
            Ok(stat) if stat.is_stopped() => NoVerdict::TargetStopped { pid: process.id().pid },
            Ok(_) => NoVerdict::TargetIdle,
            Err(_) => of_ended(sampled),
        });
    }
    let undecoded = report.sampler.undecoded_ratio.filter(|&undecoded| undecoded > MAX_UNDECODED);
    let Some(undecoded_ratio) = undecoded else {
        return few_samples(report.sampler.samples);
    };
    Some(if is_32_bit(process) {
        NoVerdict::Code32Bit { undecoded_ratio }
    } else {
        NoVerdict::CodeNotDecoded { undecoded_ratio }
    })
}

/// Cause if no decision was made for lack of samples.
fn few_samples(samples: u64) -> Option<NoVerdict> {
    let few = NoVerdict::FewSamples { samples, required_samples: MIN_SAMPLES };
    (samples < MIN_SAMPLES).then_some(few)
}

/// Cause why a process that ended has no sample.
fn of_ended(sampled: Option<Nanos>) -> NoVerdict {
    match sampled {
        Some(sampled) if sampled >= LONG_LIFE => NoVerdict::TargetIdle,
        _ => NoVerdict::EndedTooSoon,
    }
}

fn is_32_bit(process: &Process) -> bool {
    let ends =
        process.layout().unwrap_or_default().into_iter().map(|mapping| mapping.range.end.get());
    ends.max().is_some_and(|end| end <= END_OF_32_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_samples_than_a_decision_requires_are_no_verdict() {
        let few = NoVerdict::FewSamples { samples: 49, required_samples: 50 };
        assert_eq!(few_samples(49), Some(few));
        assert_eq!(few_samples(50), None);
    }

    #[test]
    fn a_process_that_lived_without_a_sample_was_idle() {
        assert_eq!(of_ended(Some(Nanos::seconds(6))), NoVerdict::TargetIdle);
        assert_eq!(of_ended(Some(Nanos::millis(50))), NoVerdict::EndedTooSoon);
        assert_eq!(of_ended(None), NoVerdict::EndedTooSoon);
    }
}
