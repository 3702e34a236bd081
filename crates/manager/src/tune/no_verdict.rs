//! Cause of a missing verdict: nothing was promoted, and the gain is unknown. Pure.

use hugepilot_policy::tune::MIN_SAMPLES;
use hugepilot_record::Pid;
use hugepilot_reports::tune::{NoVerdict, SamplerReport};
use hugepilot_units::Nanos;

/// Life of a process from which a lack of samples means that it was idle: at 258 Hz it used
/// less than 1 % of a CPU.
const LONG_LIFE: Nanos = Nanos::seconds(1);
/// Time after which a decision that is due has begun: two drains of the sample rings.
const LATE: Nanos = Nanos::millis(100);

/// Sampling of a process until its end, or that of the session.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sampled {
    /// Time from its start to its end.
    pub(super) time: Nanos,
    /// Processes with samples.
    pub(super) processes: u64,
    /// Longest time from the first to the last sample of a program, in one process.
    pub(super) longest: Nanos,
    /// Whether the process has ended. One that cannot be read has not.
    pub(super) has_ended: bool,
    /// Whether a signal or a debugger has stopped it; `None` if it has no entry any more.
    pub(super) is_stopped: Option<bool>,
    /// Whether all its addresses are those of 32-bit programs.
    pub(super) is_32_bit: bool,
    /// Whether a process that ended was sampled until then.
    pub(super) is_whole_life: bool,
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

/// Cause why process `pid` has no verdict, by its samples; `None` if it has one.
pub(super) fn no_verdict(
    pid: Pid,
    sampler: &SamplerReport,
    sampled: &Sampled,
) -> Option<NoVerdict> {
    let samples = sampler.samples;
    if samples == 0 {
        return Some(match sampled.is_stopped {
            Some(true) => NoVerdict::TargetStopped { pid },
            Some(false) if sampled.time < sampled.required => sampled.too_short(),
            Some(false) => NoVerdict::TargetIdle,
            None if sampled.is_whole_life && sampled.time >= LONG_LIFE => NoVerdict::TargetIdle,
            None => NoVerdict::EndedTooSoon,
        });
    }
    let [undecoded_ratio, unresolved_ratio] = sampler.unknown();
    match undecoded_ratio >= unresolved_ratio {
        _ if !sampler.is_mostly_unknown() => undecided(samples, sampled),
        true if sampled.is_32_bit => Some(NoVerdict::Code32Bit { undecoded_ratio }),
        _ if samples < MIN_SAMPLES => undecided(samples, sampled),
        true => Some(NoVerdict::CodeNotDecoded { undecoded_ratio }),
        false => Some(NoVerdict::AddressesUnresolved { unresolved_ratio }),
    }
}

/// Cause if no decision was made for lack of samples, or of time.
fn undecided(samples: u64, sampled: &Sampled) -> Option<NoVerdict> {
    let &Sampled { time, processes, longest, required, is_judged, .. } = sampled;
    let (is_alive, is_few) = (!sampled.has_ended, samples < MIN_SAMPLES);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that was sampled for a time, of which a first decision requires 500 ms.
    fn sampled(time: Nanos, is_judged: bool) -> Sampled {
        Sampled {
            time,
            processes: 1,
            longest: time,
            is_stopped: Some(false),
            is_whole_life: true,
            required: Nanos::millis(500),
            is_judged,
            ..Sampled::default()
        }
    }

    fn undecided(samples: u64, sampled: Sampled, is_alive: bool) -> Option<NoVerdict> {
        super::undecided(samples, &Sampled { has_ended: !is_alive, ..sampled })
    }

    #[test]
    fn accesses_without_an_address_are_no_verdict_and_a_program_that_computes_has_one() {
        let cause = |samples, undecoded, unresolved, is_32_bit| {
            let sampler = SamplerReport {
                samples,
                none_ratio: Some(0.99),
                undecoded_ratio: Some(undecoded),
                unresolved_ratio: Some(unresolved),
                ..SamplerReport::default()
            };
            let long = Sampled { is_32_bit, ..sampled(Nanos::seconds(9), true) };
            no_verdict(Pid(7), &sampler, &long)
        };
        let of_64_bit =
            |samples, undecoded, unresolved| cause(samples, undecoded, unresolved, false);
        let unresolved = NoVerdict::AddressesUnresolved { unresolved_ratio: 0.98 };
        assert_eq!(of_64_bit(900, 0.01, 0.98), Some(unresolved));
        let undecoded = NoVerdict::CodeNotDecoded { undecoded_ratio: 0.98 };
        assert_eq!(of_64_bit(900, 0.98, 0.01), Some(undecoded));
        let code_32_bit = NoVerdict::Code32Bit { undecoded_ratio: 0.98 };
        assert_eq!(cause(49, 0.98, 0.01, true), Some(code_32_bit));
        // Of the unknown samples together, the larger cause.
        let unresolved = NoVerdict::AddressesUnresolved { unresolved_ratio: 0.46 };
        assert_eq!(of_64_bit(900, 0.45, 0.46), Some(unresolved));
        let undecoded = NoVerdict::CodeNotDecoded { undecoded_ratio: 0.45 };
        assert_eq!(of_64_bit(900, 0.45, 0.3), Some(undecoded));
        assert_eq!(of_64_bit(900, 0.01, 0.01), None, "it computes");
        for (undecoded, unresolved) in [(0.0, 0.98), (0.98, 0.0)] {
            let few = of_64_bit(49, undecoded, unresolved);
            assert!(matches!(few, Some(NoVerdict::FewSamples { .. })), "{few:?}");
        }
    }

    #[test]
    fn without_a_sample_the_state_of_the_process_is_the_cause() {
        let of = |is_stopped, time, is_whole_life| {
            let sampled = Sampled { is_stopped, is_whole_life, ..sampled(time, false) };
            no_verdict(Pid(7), &SamplerReport::default(), &sampled).unwrap()
        };
        let (long, short) = (Nanos::seconds(6), Nanos::millis(50));
        assert_eq!(of(Some(true), long, true), NoVerdict::TargetStopped { pid: Pid(7) });
        assert_eq!(of(Some(false), long, true), NoVerdict::TargetIdle);
        assert!(matches!(of(Some(false), short, true), NoVerdict::TooShort { .. }));
        assert_eq!(of(None, long, true), NoVerdict::TargetIdle, "it lived without a sample");
        assert_eq!(of(None, short, true), NoVerdict::EndedTooSoon);
        assert_eq!(of(None, long, false), NoVerdict::EndedTooSoon);
    }

    #[test]
    fn fewer_samples_than_a_decision_requires_are_no_verdict() {
        let few = NoVerdict::FewSamples { samples: 49, required_samples: 50 };
        let long = sampled(Nanos::millis(500), true);
        assert_eq!(undecided(49, long, true), Some(few.clone()));
        assert_eq!(undecided(50, long, true), None);
        let short = sampled(Nanos::millis(400), true);
        assert_eq!(undecided(49, short, false), Some(few), "the process ended");
    }

    #[test]
    fn a_time_too_short_for_a_decision_is_the_cause_not_the_process() {
        let (sampled_seconds, required_seconds) = (0.4, 0.5);
        let too_short = Some(NoVerdict::TooShort { sampled_seconds, required_seconds });
        let short = |is_judged| sampled(Nanos::millis(400), is_judged);
        assert_eq!(undecided(49, short(true), true), too_short);
        assert_eq!(undecided(900, short(false), true), too_short);
        assert_eq!(undecided(900, short(true), true), None, "decided early");
        // The decision was due, and had not begun.
        let (sampled_seconds, required_seconds) = (0.55, 0.6);
        let due = sampled(Nanos::millis(550), false);
        let too_short = Some(NoVerdict::TooShort { sampled_seconds, required_seconds });
        assert_eq!(undecided(900, due, true), too_short);
    }

    #[test]
    fn programs_that_end_before_their_first_decision_are_counted_with_the_longest() {
        let cause = |time, is_judged| undecided(900, sampled(time, is_judged), false);
        let short_lived = |processes, longest_seconds| {
            Some(NoVerdict::ShortLived { processes, longest_seconds, required_seconds: 0.5 })
        };
        assert_eq!(cause(Nanos::millis(400), false), short_lived(1, 0.4));
        assert_eq!(cause(Nanos::millis(510), false), short_lived(1, 0.51), "ended just then");
        assert_eq!(cause(Nanos::millis(400), true), None);
        assert_eq!(cause(Nanos::seconds(9), true), None);
        // Make, or a shell: it runs on, and each of its children ends early.
        let longest = Nanos::millis(90);
        let children = Sampled { processes: 41, longest, ..sampled(Nanos::seconds(3), false) };
        for is_alive in [true, false] {
            assert_eq!(undecided(900, children, is_alive), short_lived(41, 0.09));
        }
    }

    #[test]
    fn a_process_without_a_decision_within_its_time_has_no_verdict() {
        let cause = NoVerdict::Undecided { samples: 60, longest_seconds: 9.0 };
        for is_alive in [true, false] {
            let long = sampled(Nanos::seconds(9), false);
            assert_eq!(undecided(60, long, is_alive), Some(cause.clone()));
        }
    }
}
