//! Reach of promotion from outside: how much of the memory of a program was on huge pages.

use hugepilot_reports::run::{CompareWarning, PartialReach, Run, RunWarning};
use hugepilot_units::Bytes;

use crate::effect::Obstacles;

/// Memory below which stacks and libraries, which no huge page can cover, are a large part.
const SMALL: Bytes = Bytes::mib(32);

/// Returns a warning if hugepilot promoted memory of the program from outside, and less than half
/// of it was on huge pages.
pub fn reach_warning(run: &Run, obstacles: &Obstacles) -> Option<RunWarning> {
    let promotions = obstacles.promotions?;
    let reached_bytes = run.peak.anonymous_thp_peak_bytes;
    let memory_bytes = run.peak.rss_peak_bytes;
    let is_little = memory_bytes >= SMALL && reached_bytes.times(2) < memory_bytes;
    (run.peak.is_sampled() && is_little).then_some(RunWarning::ReachedLittle(PartialReach {
        reached_bytes,
        memory_bytes,
        promoted_regions: promotions.regions,
        promotion_seconds: promotions.time.as_secs_f64(),
        wall_seconds: run.wall_seconds,
        stopped: promotions.stopped,
    }))
}

/// Adds a warning of a run that reached little, unless another run of its mode reached less.
pub(crate) fn note_reach(warnings: &mut Vec<CompareWarning>, warning: CompareWarning) {
    let ratio = |one: &CompareWarning| match &one.warning {
        RunWarning::ReachedLittle(reach) => {
            Some(reach.reached_bytes.as_f64() / reach.memory_bytes.as_f64())
        }
        _ => None,
    };
    let is_same = |one: &&mut CompareWarning| one.mode == warning.mode && ratio(one).is_some();
    match warnings.iter_mut().find(is_same) {
        Some(known) if ratio(known) <= ratio(&warning) => {}
        Some(known) => *known = warning,
        None => warnings.push(warning),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hugepilot_record::{Ending, Mode};
    use hugepilot_reports::run::Peak;

    use super::*;
    use crate::Promotions;

    fn warned(promotions: Option<Promotions>, reached: u64, memory: u64) -> Option<RunWarning> {
        let peak = Peak {
            anonymous_thp_peak_bytes: Bytes::mib(reached),
            rss_peak_bytes: Bytes::mib(memory),
            rss_samples: 3,
            ..Peak::default()
        };
        let run = Run {
            ending: Ending::Exited(0),
            wall_seconds: 3.0,
            stopped: false,
            user_seconds: 1.0,
            system_seconds: 0.0,
            processor_wait_seconds: None,
            page_faults: 1,
            peak,
        };
        reach_warning(&run, &Obstacles { promotions, ..Obstacles::default() })
    }

    #[test]
    fn only_promotion_that_reached_less_than_half_of_much_memory_is_a_warning() {
        let some =
            Some(Promotions { regions: 14, time: Duration::from_millis(1250), stopped: None });
        let expected = RunWarning::ReachedLittle(PartialReach {
            reached_bytes: Bytes::mib(28),
            memory_bytes: Bytes::mib(600),
            promoted_regions: 14,
            promotion_seconds: 1.25,
            wall_seconds: 3.0,
            stopped: None,
        });
        assert_eq!(warned(some, 28, 600), Some(expected));
        assert!(warned(some, 0, 600).is_some(), "nothing is little, too");
        assert_eq!(warned(some, 300, 600), None);
        assert_eq!(warned(some, 2, 31), None);
        assert_eq!(warned(None, 28, 600), None, "another mode, or always");
    }
    #[test]
    fn a_comparison_keeps_the_run_that_reached_least() {
        let of = |mode, reached| {
            let some = Some(Promotions::default());
            let warning = warned(some, reached, 600).unwrap();
            CompareWarning { mode: Some(mode), warning }
        };
        let failed = CompareWarning { mode: Some(Mode::Thp), warning: RunWarning::RunStopped };
        let mut warnings = vec![failed.clone()];
        for reached in [96, 28, 40] {
            note_reach(&mut warnings, of(Mode::Thp, reached));
        }
        note_reach(&mut warnings, of(Mode::GlibcThp, 90));
        assert_eq!(warnings, [failed, of(Mode::Thp, 28), of(Mode::GlibcThp, 90)]);
    }
}
