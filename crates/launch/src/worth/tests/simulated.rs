//! Simulated comparisons of modes that differ by noise, or by a gain: the rate of positive
//! verdicts.

use hugepilot_record::Ending;
use hugepilot_reports::compare::{Confirmation, DecidingTime, speedup};
use hugepilot_reports::run::{Peak, Run};
use hugepilot_testkit::Rng;

use super::*;

const RIVALS: [Mode; 9] = [
    Mode::Thp,
    Mode::Advised,
    Mode::GlibcThp,
    Mode::Hugetlb,
    Mode::Hugetlb1g,
    Mode::Mimalloc,
    Mode::Mimalloc2m,
    Mode::Mimalloc1g,
    Mode::Hugepilot,
];
const COMPARISONS: u32 = 1000;
const ROUNDS: u32 = 5;

/// Runs of programs with noise.
struct Noise(Rng);

impl Noise {
    /// Runs of a program that takes a second, with noise of that share, and the speedup.
    fn runs(&mut self, rounds: u32, share: f64, speedup: f64) -> Vec<Run> {
        let run = |wall_seconds| Run {
            ending: Ending::Exited(0),
            wall_seconds,
            stopped: false,
            user_seconds: 0.0,
            system_seconds: 0.0,
            processor_wait_seconds: None,
            page_faults: 1,
            peak: Peak { thp_peak_bytes: HUGE, rss_samples: 1, ..Peak::default() },
        };
        (0..rounds).map(|_| run((share * self.0.normal()).exp() / speedup)).collect()
    }
}

/// The verdict of one comparison in which only the first rival is faster.
fn compared(noise: &mut Noise, share: f64, faster: f64) -> bool {
    let base = noise.runs(ROUNDS, share, 1.0);
    let speedups = RIVALS.iter().enumerate().map(|(at, _)| if at == 0 { faster } else { 1.0 });
    let rivals: Vec<ModeReport> = RIVALS
        .iter()
        .zip(speedups)
        .map(|(&name, gain)| {
            let runs = noise.runs(ROUNDS, share, gain);
            ModeReport {
                speedup_over_base: speedup(DecidingTime::Wall, &base, &runs),
                ..mode(name, HUGE, (1.0, 1.0, 1.0))
            }
        })
        .collect();
    let mut report = report(&rivals);
    if let [_, best, ..] = to_confirm(&report)[..] {
        let rounds = confirming_rounds(ROUNDS);
        let gain = if best == RIVALS[0] { faster } else { 1.0 };
        let base = noise.runs(rounds, share, 1.0);
        let again = noise.runs(rounds, share, gain);
        report.confirmation = Some(Confirmation::of(
            DecidingTime::Wall,
            &mode(best, HUGE, (1.0, 1.0, 1.0)),
            None,
            &base,
            &again,
        ));
    }
    verdict(&report).pays()
}

fn yes_of_a_thousand(seed: u64, share: f64, faster: f64) -> usize {
    let mut noise = Noise(Rng::new(seed));
    (0..COMPARISONS).filter(|_| compared(&mut noise, share, faster)).count()
}

#[test]
fn noise_alone_pays_in_at_most_a_twentieth_of_comparisons() {
    for (seed, share) in [(1, 0.05), (2, 0.10), (3, 0.15)] {
        let yes = yes_of_a_thousand(seed, share, 1.0);
        assert!(yes <= 50, "{yes} of {COMPARISONS} with {share} of noise");
    }
}

#[test]
fn a_gain_of_a_fifth_is_found_in_nine_of_ten_comparisons() {
    let yes = yes_of_a_thousand(4, 0.05, 1.2);
    assert!(yes >= 900, "{yes} of {COMPARISONS}");
}
