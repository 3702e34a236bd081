//! Detection of reports without a verdict: nothing was promoted, and the gain is unknown.

use hugepilot_kernel::{Process, Target};
use hugepilot_policy::tune::MIN_SAMPLES;
use hugepilot_record::Obstacle;
use hugepilot_record::tune::{NoVerdict, TuneReport};
use hugepilot_units::Nanos;

use super::is_alive;

/// End of the addresses of 32-bit programs.
const END_OF_32_BITS: u64 = 1 << 32;

/// Life of a process from which a lack of samples means that it was idle: at 258 Hz it used
/// less than 1 % of a CPU.
const LONG_LIFE: Nanos = Nanos::seconds(1);
/// Time after which a decision that is due has begun: two drains of the sample rings.
const LATE: Nanos = Nanos::millis(100);

/// Sampling of a process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sampled {
    /// Time from its start to its end.
    pub(super) time: Nanos,
    /// Whether a process that ended was sampled until then.
    pub(super) is_whole_life: bool,
    /// Processes with samples.
    pub(super) processes: u64,
    /// Longest time from the first to the last sample of a program, in one process.
    pub(super) longest: Nanos,
    /// Time that a first decision requires.
    pub(super) required: Nanos,
    /// Whether there was a first decision.
    pub(super) is_judged: bool,
}

impl Sampled {
    /// The cause that the time was too short. A decision that was due begins late.
    fn too_short(&self) -> NoVerdict {
        let late = if self.time < self.required { Nanos::ZERO } else { LATE };
        let required_seconds = (self.required + late).as_seconds();
        NoVerdict::TooShort { sampled_seconds: self.time.as_seconds(), required_seconds }
    }
}

/// Cause why `report` on `process` has no verdict; `None` if it has one.
pub(super) fn no_verdict(
    report: &TuneReport,
    process: &Process,
    sampled: &Sampled,
) -> Option<NoVerdict> {
    if !report.selected.is_empty() || report.attempted_regions > 0 || report.stopped.is_some() {
        return None;
    }
    // Samples of the host show neither the work nor the stalls of the guest.
    if report.obstacles.contains(&Obstacle::KvmGuest) {
        return Some(NoVerdict::KvmGuest);
    }
    if report.sampler.samples == 0 {
        return Some(match process.stat() {
            Ok(stat) if stat.is_stopped() => NoVerdict::TargetStopped { pid: process.id().pid },
            Ok(_) if sampled.time < sampled.required => sampled.too_short(),
            Ok(_) => NoVerdict::TargetIdle,
            Err(_) => of_ended(sampled),
        });
    }
    let samples = report.sampler.samples;
    let [undecoded_ratio, unresolved_ratio] = report.sampler.unknown();
    match undecoded_ratio >= unresolved_ratio {
        _ if !report.sampler.is_mostly_unknown() => undecided(samples, sampled, is_alive(process)),
        true if is_32_bit(process) => Some(NoVerdict::Code32Bit { undecoded_ratio }),
        _ if samples < MIN_SAMPLES => undecided(samples, sampled, is_alive(process)),
        true => Some(NoVerdict::CodeNotDecoded { undecoded_ratio }),
        false => Some(NoVerdict::AddressesUnresolved { unresolved_ratio }),
    }
}

/// Cause if no decision was made for lack of samples, or of time.
fn undecided(samples: u64, sampled: &Sampled, is_alive: bool) -> Option<NoVerdict> {
    let &Sampled { time, processes, longest, required, is_judged, .. } = sampled;
    let is_few = samples < MIN_SAMPLES;
    if is_judged && !is_few {
        return None;
    }
    let (longest_seconds, required_seconds) = (longest.as_seconds(), required.as_seconds());
    Some(match () {
        () if is_alive && time < required => sampled.too_short(),
        () if is_few => NoVerdict::FewSamples { samples, required_samples: MIN_SAMPLES },
        () if is_alive && processes == 1 && time < required + LATE => sampled.too_short(),
        () if longest < required + LATE => {
            NoVerdict::ShortLived { processes, longest_seconds, required_seconds }
        }
        () => NoVerdict::Undecided { samples, longest_seconds },
    })
}

/// Cause why a process that ended has no sample.
fn of_ended(sampled: &Sampled) -> NoVerdict {
    match sampled.is_whole_life && sampled.time >= LONG_LIFE {
        true => NoVerdict::TargetIdle,
        false => NoVerdict::EndedTooSoon,
    }
}

fn is_32_bit(process: &Process) -> bool {
    let ends =
        process.layout().unwrap_or_default().into_iter().map(|mapping| mapping.range.end.get());
    ends.max().is_some_and(|end| end <= END_OF_32_BITS)
}

#[cfg(test)]
mod tests {
    use hugepilot_record::Pid;
    use hugepilot_record::tune::{NoTrial, PredictedBy, Prediction, SamplerReport};

    use super::*;
    use crate::tune::session::empty_report;
    use crate::tune::{TuneOptions, open};

    /// A process that was sampled for a time, of which a first decision requires 500 ms.
    fn sampled(time: Nanos, is_judged: bool) -> Sampled {
        let (is_whole_life, required) = (true, Nanos::millis(500));
        Sampled { time, is_whole_life, processes: 1, longest: time, required, is_judged }
    }

    #[test]
    fn accesses_without_an_address_are_no_verdict_and_a_program_that_computes_has_one() {
        let own = open(Pid(std::process::id().cast_signed())).unwrap();
        let cause = |samples, undecoded, unresolved| {
            let mut report = empty_report(&own, &TuneOptions::default());
            report.sampler = SamplerReport {
                samples,
                none_ratio: Some(0.99),
                undecoded_ratio: Some(undecoded),
                unresolved_ratio: Some(unresolved),
                ..SamplerReport::default()
            };
            no_verdict(&report, &own, &sampled(Nanos::seconds(9), true))
        };
        let unresolved = NoVerdict::AddressesUnresolved { unresolved_ratio: 0.98 };
        assert_eq!(cause(900, 0.01, 0.98), Some(unresolved));
        let undecoded = NoVerdict::CodeNotDecoded { undecoded_ratio: 0.98 };
        assert_eq!(cause(900, 0.98, 0.01), Some(undecoded));
        let mut report = empty_report(&own, &TuneOptions::default());
        report.obstacles = vec![Obstacle::KvmGuest];
        let of_guest = no_verdict(&report, &own, &sampled(Nanos::seconds(9), true));
        assert_eq!(of_guest, Some(NoVerdict::KvmGuest));
        // Of the unknown samples together, the larger cause.
        let unresolved = NoVerdict::AddressesUnresolved { unresolved_ratio: 0.46 };
        assert_eq!(cause(900, 0.45, 0.46), Some(unresolved));
        let undecoded = NoVerdict::CodeNotDecoded { undecoded_ratio: 0.45 };
        assert_eq!(cause(900, 0.45, 0.3), Some(undecoded));
        assert_eq!(cause(900, 0.01, 0.01), None, "it computes");
        for (undecoded, unresolved) in [(0.0, 0.98), (0.98, 0.0)] {
            let few = cause(49, undecoded, unresolved);
            assert!(matches!(few, Some(NoVerdict::FewSamples { .. })), "{few:?}");
        }
    }

    #[test]
    fn the_model_predicts_nothing_from_unknown_samples() {
        let own = open(Pid(std::process::id().cast_signed())).unwrap();
        let shown = |unresolved, no_verdict| {
            let mut report = empty_report(&own, &TuneOptions::default());
            report.sampler.unresolved_ratio = Some(unresolved);
            report.eligible_speedup = Some(Prediction { low: 1.0, median: 1.0, high: 1.0 });
            report.predicted_speedup = report.eligible_speedup;
            report.predicted_by = Some(PredictedBy::Model);
            (report.before.stall_ratio, report.coverage_ratio) = (Some(0.0), Some(0.0));
            report.no_trial = Some(NoTrial::FewStalls { ratio: 0.0, required_ratio: 0.05 });
            report.no_verdict = no_verdict;
            report.remove_unknown();
            let predicted = (report.eligible_speedup.or(report.predicted_speedup)).is_some();
            let stalls = report.before.stall_ratio.is_some();
            [predicted, report.predicted_by.is_some(), stalls, report.no_trial.is_some()]
        };
        assert_eq!(shown(0.4, None), [true; 4]);
        assert_eq!(shown(0.6, None), [false, false, false, true], "a policy without samples");
        assert_eq!(shown(0.4, Some(NoVerdict::TargetIdle)), [false; 4]);
    }

    #[test]
    fn fewer_samples_than_a_decision_requires_are_no_verdict() {
        let few = NoVerdict::FewSamples { samples: 49, required_samples: 50 };
        let long = sampled(Nanos::millis(500), true);
        assert_eq!(undecided(49, &long, true), Some(few.clone()));
        assert_eq!(undecided(50, &long, true), None);
        let short = sampled(Nanos::millis(400), true);
        assert_eq!(undecided(49, &short, false), Some(few), "the process ended");
    }

    #[test]
    fn a_time_too_short_for_a_decision_is_the_cause_not_the_process() {
        let (sampled_seconds, required_seconds) = (0.4, 0.5);
        let too_short = Some(NoVerdict::TooShort { sampled_seconds, required_seconds });
        let short = |is_judged| sampled(Nanos::millis(400), is_judged);
        assert_eq!(undecided(49, &short(true), true), too_short);
        assert_eq!(undecided(900, &short(false), true), too_short);
        assert_eq!(undecided(900, &short(true), true), None, "decided early");
        // The decision was due, and had not begun.
        let (sampled_seconds, required_seconds) = (0.55, 0.6);
        let due = sampled(Nanos::millis(550), false);
        let too_short = Some(NoVerdict::TooShort { sampled_seconds, required_seconds });
        assert_eq!(undecided(900, &due, true), too_short);
    }

    #[test]
    fn programs_that_end_before_their_first_decision_are_counted_with_the_longest() {
        let cause = |time, is_judged| undecided(900, &sampled(time, is_judged), false);
        let short_lived = |processes, longest_seconds| {
            Some(NoVerdict::ShortLived { processes, longest_seconds, required_seconds: 0.5 })
        };
        assert_eq!(cause(Nanos::millis(400), false), short_lived(1, 0.4));
        assert_eq!(cause(Nanos::millis(510), false), short_lived(1, 0.51), "ended just then");
        assert_eq!(cause(Nanos::millis(400), true), None);
        assert_eq!(cause(Nanos::seconds(9), true), None);
        // Make, or a shell: it runs on, and each of its children ends early.
        let children = Sampled {
            processes: 41,
            longest: Nanos::millis(90),
            ..sampled(Nanos::seconds(3), false)
        };
        for is_alive in [true, false] {
            assert_eq!(undecided(900, &children, is_alive), short_lived(41, 0.09));
        }
    }

    #[test]
    fn a_process_without_a_decision_within_its_time_has_no_verdict() {
        let cause = NoVerdict::Undecided { samples: 60, longest_seconds: 9.0 };
        for is_alive in [true, false] {
            let long = sampled(Nanos::seconds(9), false);
            assert_eq!(undecided(60, &long, is_alive), Some(cause.clone()));
        }
    }

    #[test]
    fn a_process_that_lived_without_a_sample_was_idle() {
        let ended =
            |time, is_whole_life| of_ended(&Sampled { is_whole_life, ..sampled(time, false) });
        assert_eq!(ended(Nanos::seconds(6), true), NoVerdict::TargetIdle);
        assert_eq!(ended(Nanos::millis(50), true), NoVerdict::EndedTooSoon);
        assert_eq!(ended(Nanos::seconds(6), false), NoVerdict::EndedTooSoon);
    }
}
