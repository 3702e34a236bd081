use hugepilot_reports::compare::{DecidingTime, GainSource, Reach, SCHEMA, SameAllocator};
use hugepilot_reports::run::{Effect, EffectCause};
use hugepilot_stats::Spread;
use proptest::prelude::*;

use super::*;

mod simulated;

const HUGE: Bytes = Bytes::mib(256);

/// Ratio of five rounds.
fn ratio((low, median, high): (f64, f64, f64)) -> PairedRatio {
    let faster = [low, low, median, high, high].iter().filter(|&&ratio| ratio > 1.0).count();
    let faster_rounds = u32::try_from(faster).unwrap();
    PairedRatio { low, median, high, rounds: 5, faster_rounds }
}

fn effective() -> Effect {
    Effect::new(Some(true), EffectCause::Unknown)
}

fn mode(mode: Mode, huge: Bytes, (low, median, high): (f64, f64, f64)) -> ModeReport {
    ModeReport {
        runs: 5,
        effective_runs: 5,
        effect: effective(),
        wall_seconds: Some(Spread { median: 1.0 / median, min: 1.0 / high, max: 1.0 / low }),
        rss_peak_bytes: Some(Bytes::mib(300)),
        thp_peak_bytes: Some(huge),
        hugetlb_peak_bytes: Some(Bytes::ZERO),
        speedup_over_base: (mode != Mode::Base).then(|| ratio((low, median, high))),
        ..ModeReport::unavailable(mode, EffectCause::Unknown)
    }
}

fn report(others: &[ModeReport]) -> CompareReport {
    let base = mode(Mode::Base, Bytes::ZERO, (1.0, 1.0, 1.0));
    CompareReport {
        schema: SCHEMA.to_owned(),
        command: vec!["x".to_owned()],
        rounds: 5,
        modes: [&[base][..], others].concat(),
        confirmation: None,
        tlb_reach: Reach { base_bytes: Bytes::mib(8), huge_bytes: Bytes::gib(2), assumed: false },
        counters_unavailable: Some("no PMU".to_owned()),
        stalls_unavailable: None,
        decided_by: DecidingTime::Wall,
        interrupted: false,
        pays: false,
        verdict: Verdict::default(),
        warnings: Vec::new(),
    }
}

/// A report with confirmation rounds of `best` that are like its first ones.
fn confirmed_report(others: &[ModeReport], best: Mode) -> CompareReport {
    let speedup = others.iter().find(|mode| mode.mode == best).unwrap().speedup_over_base;
    let confirmation = Confirmation {
        mode: best,
        effect: effective(),
        failed_rounds: 0,
        speedup_over_base: speedup,
        cpu_speedup_over_base: None,
        same_allocator: None,
    };
    CompareReport { confirmation: Some(confirmation), ..report(others) }
}

#[test]
fn a_single_mode_pays_if_it_is_faster_in_more_rounds_than_chance_and_by_enough() {
    type Wrap = fn(BestMode) -> Conclusion;
    let table = [
        ((1.10, 1.20, 1.30), 5, 5, Conclusion::Pays as Wrap),
        ((0.99, 1.20, 1.30), 4, 5, Conclusion::WithinNoise),
        // With more rounds an outlier is more likely.
        ((0.80, 1.20, 1.30), 14, 15, Conclusion::Pays),
        ((0.80, 1.20, 1.30), 11, 15, Conclusion::WithinNoise),
        ((1.005, 1.01, 1.015), 5, 5, Conclusion::NoGain),
        ((0.80, 0.90, 0.95), 0, 5, Conclusion::Slower),
        ((0.80, 0.90, 1.05), 1, 15, Conclusion::Slower),
        ((0.98, 0.99, 0.999), 0, 5, Conclusion::NoGain),
    ];
    for ((low, median, high), faster_rounds, rounds, conclusion) in table {
        let mut only = mode(Mode::GlibcThp, HUGE, (low, median, high));
        let speedup = PairedRatio { low, median, high, rounds, faster_rounds };
        only.speedup_over_base = Some(speedup);
        let verdict = verdict(&report(&[only]));
        let best = BestMode { mode: Mode::GlibcThp, speedup, cpu_speedup: None };
        assert_eq!(verdict.conclusion, conclusion(best), "{median} {faster_rounds} of {rounds}");
        assert_eq!(verdict.gain, Some(GainSource::Pages));
    }
}

#[test]
fn a_gain_without_huge_pages_is_not_one_of_huge_pages() {
    let plain = mode(Mode::Mimalloc, Bytes::ZERO, (1.4, 1.5, 1.6));
    assert_eq!(verdict(&report(&[plain])).conclusion, Conclusion::NoHugePages);
}

/// A confirmed report: `best` is faster by its pages by this factor over its allocator alone, in
/// `faster_rounds` of five rounds.
fn beside_allocator(best: Mode, alone: f64, pages: f64, faster_rounds: u32) -> CompareReport {
    let control = best.without_huge_pages().unwrap();
    let speedup_over_same_allocator =
        Some(PairedRatio { faster_rounds, ..ratio((0.9, pages, 1.4)) });
    let modes = [
        mode(control, Bytes::ZERO, (alone - 0.1, alone, alone + 0.1)),
        ModeReport { speedup_over_same_allocator, ..mode(best, HUGE, (1.6, 1.8, 1.9)) },
    ];
    confirmed_report(&modes, best)
}

#[test]
fn a_gain_is_attributed_by_the_quotient_within_rounds() {
    // The quotient of the medians is 1.2 in each case.
    for (pages, faster_rounds, gain) in [
        (1.2, 5, GainSource::Pages),
        (1.2, 4, GainSource::Unknown),
        (1.01, 5, GainSource::Allocator),
        (0.9, 0, GainSource::Allocator),
    ] {
        for best in [Mode::Hugepilot, Mode::Mimalloc2m] {
            let verdict = verdict(&beside_allocator(best, 1.5, pages, faster_rounds));
            let plain = verdict.same_allocator.unwrap();
            assert_eq!(Some(plain.mode), best.without_huge_pages());
            let medians = [plain.speedup_over_base, plain.speedup_over_same_allocator];
            assert_eq!(medians.map(|ratio| ratio.median), [1.5, pages]);
            assert!(verdict.pays() && verdict.gain == Some(gain), "{verdict:?}");
        }
    }
    let neither = verdict(&beside_allocator(Mode::Hugepilot, 1.0, 1.01, 3));
    assert_eq!(neither.gain, Some(GainSource::Unknown));
}

#[test]
fn confirmation_rounds_outrank_the_first_ones_in_attribution() {
    let mut report = beside_allocator(Mode::Hugepilot, 1.5, 1.2, 5);
    assert_eq!(to_confirm(&report), [Mode::Base, Mode::Hugepilot, Mode::HugepilotBase]);
    let plain = SameAllocator {
        mode: Mode::HugepilotBase,
        speedup_over_base: ratio((1.7, 1.8, 1.9)),
        speedup_over_same_allocator: ratio((0.9, 1.0, 1.1)),
    };
    report.confirmation.as_mut().unwrap().same_allocator = Some(plain);
    let again = verdict(&report);
    assert_eq!((again.gain, again.same_allocator), (Some(GainSource::Allocator), Some(plain)));
    // An allocator that did not serve the program shows nothing.
    report.modes[1].effect.took_effect = Some(false);
    report.confirmation.as_mut().unwrap().same_allocator = None;
    let unknown = verdict(&report);
    assert_eq!((unknown.gain, unknown.same_allocator), (Some(GainSource::Unknown), None));
    assert_eq!(to_confirm(&report), [Mode::Base, Mode::Hugepilot]);
}

#[test]
fn confirmation_rounds_without_effect_confirm_nothing() {
    let modes =
        [mode(Mode::Thp, HUGE, (1.1, 1.2, 1.3)), mode(Mode::Advised, HUGE, (1.0, 1.1, 1.2))];
    let mut report = confirmed_report(&modes, Mode::Thp);
    for took_effect in [Some(false), None] {
        report.confirmation.as_mut().unwrap().effect.took_effect = took_effect;
        let conclusion = verdict(&report).conclusion;
        assert!(matches!(conclusion, Conclusion::NotConfirmed(_)), "{conclusion:?}");
    }
}

#[test]
fn a_gain_that_the_allocator_may_cause_is_of_unknown_source() {
    for best in [Mode::Hugepilot, Mode::Mimalloc2m] {
        let modes = [mode(best, HUGE, (2.5, 2.8, 3.6)), mode(Mode::Thp, HUGE, (0.9, 1.0, 1.1))];
        for report in [report(&modes[..1]), confirmed_report(&modes, best)] {
            let verdict = verdict(&report);
            assert!(verdict.pays() && verdict.same_allocator.is_none(), "{verdict:?}");
            assert_eq!(verdict.gain, Some(GainSource::Unknown));
        }
    }
}

#[test]
fn the_best_of_several_is_judged_by_its_confirmation_rounds_alone() {
    let modes =
        [mode(Mode::Thp, HUGE, (1.1, 1.2, 1.3)), mode(Mode::GlibcThp, HUGE, (1.0, 1.1, 1.2))];
    let first = report(&modes);
    assert_eq!(to_confirm(&first), [Mode::Base, Mode::Thp]);
    let speedup = modes[0].speedup_over_base.unwrap();
    let best = BestMode { mode: Mode::Thp, speedup, cpu_speedup: None };
    assert_eq!(verdict(&first).conclusion, Conclusion::NotRepeated(best));
    let mut second = confirmed_report(&modes, Mode::Thp);
    assert!(verdict(&second).pays());
    let ratios =
        [((1.1, 1.2, 1.3), 4, false), ((1.0, 1.01, 1.2), 5, false), ((1.01, 1.03, 1.2), 5, true)];
    for ((low, median, high), faster_rounds, pays) in ratios {
        let again = PairedRatio { low, median, high, rounds: 5, faster_rounds };
        second.confirmation.as_mut().unwrap().speedup_over_base = Some(again);
        let wanted = match pays {
            true => Conclusion::Confirmed(BestMode { speedup: again, ..best }),
            false => Conclusion::NotConfirmed(best),
        };
        assert_eq!(verdict(&second).conclusion, wanted);
    }
    second.confirmation.as_mut().unwrap().failed_rounds = 2;
    assert_eq!(verdict(&second).conclusion, Conclusion::NotConfirmed(best));
}

#[test]
fn only_the_best_of_several_that_seems_to_pay_is_confirmed() {
    let thp = mode(Mode::Thp, HUGE, (1.1, 1.2, 1.3));
    assert_eq!(to_confirm(&report(std::slice::from_ref(&thp))), [], "its own rounds decide");
    let slow = mode(Mode::Advised, HUGE, (0.9, 1.0, 1.1));
    assert_eq!(to_confirm(&report(&[slow, thp])), [Mode::Base, Mode::Thp]);
    let slow = mode(Mode::Thp, HUGE, (0.9, 1.01, 1.1));
    assert_eq!(to_confirm(&report(&[slow.clone(), slow])), [], "nothing to confirm");
}

#[test]
fn a_mode_without_effect_is_not_the_best_whatever_its_time() {
    let mut idle = mode(Mode::Hugetlb, Bytes::ZERO, (2.0, 2.0, 2.0));
    idle.effect.took_effect = Some(false);
    let report = report(&[idle, mode(Mode::Thp, HUGE, (1.1, 1.1, 1.2))]);
    assert_eq!(to_confirm(&report), [Mode::Base, Mode::Thp]);
}

#[test]
fn four_rounds_are_too_few_for_a_yes() {
    let mut few = report(&[mode(Mode::Thp, HUGE, (1.5, 1.6, 1.7))]);
    few.modes[0].runs = 4;
    few.modes[1].speedup_over_base =
        Some(PairedRatio { rounds: 4, faster_rounds: 4, ..ratio((1.5, 1.6, 1.7)) });
    let conclusion = verdict(&few).conclusion;
    assert!(matches!(conclusion, Conclusion::TooFewRounds(_)), "{conclusion:?}");
}

#[test]
fn a_mode_with_which_the_program_fails_is_not_the_best() {
    let failing = ModeReport { failed_runs: 1, ..mode(Mode::Hugetlb1g, HUGE, (5.0, 5.0, 5.0)) };
    let report = report(&[failing, mode(Mode::Thp, HUGE, (1.1, 1.1, 1.2))]);
    assert_eq!(to_confirm(&report), [Mode::Base, Mode::Thp]);
}

#[test]
fn a_command_that_fails_and_a_missing_base_give_no_verdict() {
    let mut failing = report(&[mode(Mode::Thp, HUGE, (1.1, 1.1, 1.2))]);
    failing.modes[0].failed_runs = 5;
    assert_eq!(verdict(&failing), Verdict::without_best(Conclusion::CommandFails));
    failing.modes.remove(0);
    assert_eq!(verdict(&failing), Verdict::without_best(Conclusion::NoBase));
}

#[test]
fn if_base_waits_for_a_processor_cpu_time_decides() {
    let mut report = report(&[mode(Mode::Thp, HUGE, (0.5, 0.9, 1.6))]);
    let cpu = ratio((1.1, 1.2, 1.3));
    report.modes[1].cpu_speedup_over_base = Some(cpu);
    report.modes[0].processor_wait_ratio = Some(0.63);
    assert!(!verdict(&report).pays());
    report.decided_by = DecidingTime::of(&report.modes[0]);
    let best = BestMode { mode: Mode::Thp, speedup: cpu, cpu_speedup: Some(cpu) };
    assert_eq!(verdict(&report).conclusion, Conclusion::Pays(best));
    report.modes[0].processor_wait_ratio = Some(0.1);
    assert_eq!(DecidingTime::of(&report.modes[0]), DecidingTime::Wall);
}

proptest! {
    #[test]
    fn the_order_of_modes_changes_nothing(
        ratios in prop::collection::vec((0.5_f64..2.0, 0.0_f64..0.3), 1..6),
        shift in 0_usize..6,
    ) {
        let names =
            [Mode::Thp, Mode::Advised, Mode::GlibcThp, Mode::Hugetlb, Mode::Mimalloc2m];
        let modes: Vec<ModeReport> = ratios
            .iter()
            .zip(names)
            .map(|(&(median, spread), name)| {
                mode(name, HUGE, (median - spread, median, median + spread))
            })
            .collect();
        let mut rotated = modes.clone();
        rotated.rotate_left(shift % modes.len());
        let both =
            [&modes, &rotated].map(|modes| (to_confirm(&report(modes)), verdict(&report(modes))));
        prop_assert_eq!(&both[0], &both[1]);
        let wins = |(median, spread): &(f64, f64)| median - spread > 1.0 && *median >= MIN_GAIN;
        if ratios.iter().any(wins) {
            prop_assert_eq!(!both[0].0.is_empty(), modes.len() > 1);
            prop_assert_eq!(both[0].1.pays(), modes.len() == 1);
        }
    }
}
