use hugepilot_record::compare::{Reach, SCHEMA, SameAllocator};
use hugepilot_stats::Spread;
use proptest::prelude::*;

use super::*;

mod simulated;

/// Of five rounds.
fn ratio((low, median, high): (f64, f64, f64)) -> PairedRatio {
    let faster = [low, low, median, high, high].iter().filter(|&&ratio| ratio > 1.0).count();
    let faster_rounds = u32::try_from(faster).unwrap();
    PairedRatio { low, median, high, rounds: 5, faster_rounds }
}

fn mode(mode: Mode, huge: Bytes, (low, median, high): (f64, f64, f64)) -> ModeReport {
    ModeReport {
        runs: 5,
        took_effect: Some(true),
        wall_seconds: Some(Spread { median: 1.0 / median, min: 1.0 / high, max: 1.0 / low }),
        rss_peak_bytes: Some(Bytes::mib(300)),
        thp_peak_bytes: Some(huge),
        hugetlb_peak_bytes: Some(Bytes::ZERO),
        speedup_over_base: (mode != Mode::Base).then(|| ratio((low, median, high))),
        ..ModeReport::unavailable(mode, "seen".to_owned(), None)
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
        verdict: String::new(),
        warnings: Vec::new(),
    }
}

const HUGE: Bytes = Bytes::mib(256);

#[test]
fn a_single_mode_pays_when_it_is_faster_in_more_rounds_than_chance_gives_and_by_enough() {
    let table = [
        ((1.10, 1.20, 1.30), 5, 5, true, "Huge pages pay: with glibc-thp it is 1.20x"),
        ((0.99, 1.20, 1.30), 4, 5, false, "within the noise"),
        // The larger the sample, the surer is an outlier in it.
        ((0.80, 1.20, 1.30), 14, 15, true, "0.80 to 1.30, faster in 14 of 15 rounds"),
        ((0.80, 1.20, 1.30), 11, 15, false, "within the noise"),
        ((1.005, 1.01, 1.015), 5, 5, false, "Nothing pays: the best is"),
        ((0.80, 0.90, 0.95), 0, 5, false, "they cost"),
        ((0.80, 0.90, 1.05), 1, 15, false, "they cost"),
        ((0.98, 0.99, 0.999), 0, 5, false, "Nothing pays: the best is"),
    ];
    for ((low, median, high), faster_rounds, rounds, pays, says) in table {
        let mut only = mode(Mode::GlibcThp, HUGE, (low, median, high));
        only.speedup_over_base = Some(PairedRatio { low, median, high, rounds, faster_rounds });
        let (found, text) = verdict(&report(&[only]));
        assert_eq!(found, pays, "{median} {faster_rounds} of {rounds}: {text}");
        assert!(text.contains(says), "{median} {faster_rounds} of {rounds}: {text}");
    }
}

#[test]
fn what_is_no_gain_of_huge_pages_is_not_called_so() {
    let plain = mode(Mode::Mimalloc, Bytes::ZERO, (1.4, 1.5, 1.6));
    let (pays, text) = verdict(&report(&[plain]));
    assert!(!pays && text.starts_with("No mode gave it huge pages"), "{text}");
}

/// `best`, which its pages make that much faster than its allocator alone is, in so many of five rounds.
fn beside(best: Mode, alone: f64, pages: f64, faster_rounds: u32) -> CompareReport {
    let control = best.without_huge_pages().unwrap();
    let speedup_over_same_allocator =
        Some(PairedRatio { faster_rounds, ..ratio((0.9, pages, 1.4)) });
    let modes = [
        mode(control, Bytes::ZERO, (alone - 0.1, alone, alone + 0.1)),
        ModeReport { speedup_over_same_allocator, ..mode(best, HUGE, (1.6, 1.8, 1.9)) },
    ];
    again(&modes, best)
}

#[test]
fn a_gain_is_called_that_of_huge_pages_or_of_the_allocator_by_their_quotient_within_rounds() {
    // The medians' own quotient is 1.2 in each.
    for (pages, faster_rounds, says, advice) in [
        (1.2, 5, "Huge pages pay: ", false),
        (1.2, 4, "It pays: ", false),
        (1.01, 5, "The allocator pays, and its huge pages add nothing: ", true),
        (0.9, 0, "The allocator pays, and its huge pages add nothing: ", true),
    ] {
        for best in [Mode::Hugepilot, Mode::Mimalloc2m] {
            let (pays, text) = verdict(&beside(best, 1.5, pages, faster_rounds));
            let control = best.without_huge_pages().unwrap();
            let share = format!(
                "Of that, {control} (with none on huge pages) gives 1.50x, and the pages {pages:.2}x, faster in {faster_rounds} of 5"
            );
            assert!(pays && text.starts_with(says) && text.contains(&share), "{text}");
            assert_eq!(text.contains(&format!("Run it with {control}.")), advice, "{text}");
        }
    }
    let text = verdict(&beside(Mode::Hugepilot, 1.0, 1.01, 3)).1;
    assert!(text.starts_with("It pays: "), "neither is sure: {text}");
}

#[test]
fn the_further_rounds_say_whose_the_gain_is_where_they_can() {
    let mut report = beside(Mode::Hugepilot, 1.5, 1.2, 5);
    assert_eq!(to_confirm(&report), [Mode::Base, Mode::Hugepilot, Mode::HugepilotBase]);
    let found = report.confirmation.as_mut().unwrap();
    let plain = SameAllocator {
        mode: Mode::HugepilotBase,
        speedup_over_base: ratio((1.7, 1.8, 1.9)),
        speedup_over_same_allocator: ratio((0.9, 1.0, 1.1)),
    };
    found.same_allocator = Some(plain);
    let text = verdict(&report).1;
    assert!(
        text.starts_with("The allocator pays") && text.contains("gives 1.80x, and the pages 1.00x"),
        "{text}"
    );
    report.modes[1].took_effect = Some(false);
    report.confirmation.as_mut().unwrap().same_allocator = None;
    assert!(
        verdict(&report).1.contains("not known without hugepilot-base"),
        "what did not serve it says nothing"
    );
    assert_eq!(to_confirm(&report), [Mode::Base, Mode::Hugepilot]);
}

#[test]
fn further_rounds_without_effect_confirm_nothing() {
    let mut report = again(
        &[mode(Mode::Thp, HUGE, (1.1, 1.2, 1.3)), mode(Mode::Advised, HUGE, (1.0, 1.1, 1.2))],
        Mode::Thp,
    );
    for took_effect in [Some(false), None] {
        let found = report.confirmation.as_mut().unwrap();
        (found.took_effect, found.reason) = (took_effect, "memory is full".to_owned());
        let (pays, text) = verdict(&report);
        assert!(
            !pays
                && text.contains(
                    "faster in 5 of 5 rounds, and took no effect that could be seen: memory is full."
                ),
            "{text}"
        );
    }
}

#[test]
fn a_gain_that_may_be_the_allocators_is_not_called_that_of_huge_pages() {
    for (best, control) in [(Mode::Hugepilot, "hugepilot-base"), (Mode::Mimalloc2m, "mimalloc")] {
        let modes = [mode(best, HUGE, (2.5, 2.8, 3.6)), mode(Mode::Thp, HUGE, (0.9, 1.0, 1.1))];
        for report in [report(&modes[..1]), again(&modes, best)] {
            let (pays, text) = verdict(&report);
            let unknown = format!("its allocator's is not known without {control}.");
            assert!(pays && text.starts_with("It pays: ") && text.contains(&unknown), "{text}");
        }
    }
    let text = verdict(&report(&[mode(Mode::Hugepilot, HUGE, (0.9, 1.0, 1.1))])).1;
    assert!(!text.contains("not known without"), "{text}");
}

/// With further rounds of that mode, as the first ones.
fn again(others: &[ModeReport], best: Mode) -> CompareReport {
    let ratio = others.iter().find(|mode| mode.mode == best).unwrap().speedup_over_base;
    let confirmation = Confirmation {
        mode: best,
        took_effect: Some(true),
        reason: "seen".to_owned(),
        failed_rounds: 0,
        speedup_over_base: ratio,
        cpu_speedup_over_base: None,
        same_allocator: None,
    };
    CompareReport { confirmation: Some(confirmation), ..report(others) }
}

#[test]
fn the_best_of_several_is_judged_by_its_further_rounds_alone() {
    let modes =
        [mode(Mode::Thp, HUGE, (1.1, 1.2, 1.3)), mode(Mode::GlibcThp, HUGE, (1.0, 1.1, 1.2))];
    let first = report(&modes);
    assert_eq!(to_confirm(&first), [Mode::Base, Mode::Thp]);
    let (pays, text) = verdict(&first);
    assert!(!pays && text.contains("best of several may be so by luck"), "{text}");
    let mut second = again(&modes, Mode::Thp);
    assert!(verdict(&second).0);
    let ratios =
        [((1.1, 1.2, 1.3), 4, false), ((1.0, 1.01, 1.2), 5, false), ((1.01, 1.03, 1.2), 5, true)];
    for ((low, median, high), faster_rounds, pays) in ratios {
        let found = second.confirmation.as_mut().unwrap();
        found.speedup_over_base = Some(PairedRatio { low, median, high, rounds: 5, faster_rounds });
        let (found, text) = verdict(&second);
        assert_eq!(found, pays, "{text}");
        assert!(text.contains(&format!("faster in {faster_rounds} of 5 rounds")), "{text}");
        assert_eq!(text.contains("thp looked best with 1.20x, but run again"), !pays, "{text}");
    }
    let found = second.confirmation.as_mut().unwrap();
    found.failed_rounds = 2;
    let (pays, text) = verdict(&second);
    assert!(
        !pays
            && text.contains("faster in 5 of 5 rounds, and the program failed with it in 2 more."),
        "{text}"
    );
    assert_eq!(to_confirm(&report(&modes[..1])), [], "its own rounds tell");
    assert_eq!(
        to_confirm(&report(&[mode(Mode::Thp, HUGE, (0.9, 1.0, 1.1)), modes[0].clone()])),
        [Mode::Base, Mode::Thp]
    );
    let slow = mode(Mode::Thp, HUGE, (0.9, 1.01, 1.1));
    assert_eq!(to_confirm(&report(&[slow.clone(), slow])), [], "nothing to confirm");
}

#[test]
fn a_mode_without_effect_is_not_the_best_whatever_its_time() {
    let idle = ModeReport {
        took_effect: Some(false),
        ..mode(Mode::Hugetlb, Bytes::ZERO, (2.0, 2.0, 2.0))
    };
    let report = report(&[idle, mode(Mode::Thp, HUGE, (1.1, 1.1, 1.2))]);
    assert_eq!(to_confirm(&report), [Mode::Base, Mode::Thp]);
}

#[test]
fn four_rounds_are_too_few_to_say_yes() {
    let mut few = report(&[mode(Mode::Thp, HUGE, (1.5, 1.6, 1.7))]);
    few.modes[0].runs = 4;
    few.modes[1].speedup_over_base =
        Some(PairedRatio { rounds: 4, faster_rounds: 4, ..ratio((1.5, 1.6, 1.7)) });
    let (pays, text) = verdict(&few);
    assert!(
        !pays && text.starts_with("With thp it is 1.60x") && text.contains("too little"),
        "{text}"
    );
}

#[test]
fn a_mode_with_which_the_program_fails_is_not_the_best() {
    let failing = ModeReport { failed_runs: 1, ..mode(Mode::Hugetlb1g, HUGE, (5.0, 5.0, 5.0)) };
    let report = report(&[failing, mode(Mode::Thp, HUGE, (1.1, 1.1, 1.2))]);
    assert_eq!(to_confirm(&report), [Mode::Base, Mode::Thp]);
    assert!(verdict(&report).1.contains("The program fails with hugetlb-1g."));
}

#[test]
fn a_command_that_fails_and_a_missing_base_give_no_verdict() {
    let mut failing = report(&[mode(Mode::Thp, HUGE, (1.1, 1.1, 1.2))]);
    failing.modes[0].failed_runs = 5;
    assert_eq!(
        verdict(&failing),
        (false, "The command fails, so its times say nothing.".to_owned())
    );
    failing.modes.remove(0);
    assert!(verdict(&failing).1.contains("base was not run"));
}

#[test]
fn the_rule_of_thumb_is_told_by_what_is_known() {
    let mut seen = report(&[mode(Mode::Thp, HUGE, (1.1, 1.1, 1.2))]);
    seen.modes[0].stall_ratio = Some(0.82);
    let text = verdict(&seen).1;
    assert!(text.contains("(no PMU), but 82.0 % of its samples wait"), "{text}");
    assert!(text.contains("its 300MiB of memory go beyond the 8MiB"), "{text}");
    for (ratio, says) in
        [(0.93, "93.0 % miss the data TLB, above"), (0.07, "just where"), (0.01, "below")]
    {
        seen.modes[0].dtlb_miss_ratio = Some(ratio);
        let text = verdict(&seen).1;
        assert!(text.contains(says) && !text.contains("no PMU"), "{text}");
    }
    seen.modes[0].rss_peak_bytes = Some(Bytes::mib(5));
    assert!(verdict(&seen).1.contains("are within the 8MiB"));
    seen.modes[0].runs = 1;
    assert!(
        verdict(&seen).1.ends_with("Of 1 round noise cannot be told from gain: use --rounds 5.")
    );
}

#[test]
fn where_base_waits_for_a_processor_cpu_time_decides_and_that_is_said() {
    let mut report = report(&[mode(Mode::Thp, HUGE, (0.5, 0.9, 1.6))]);
    report.modes[1].cpu_speedup_over_base = Some(ratio((1.1, 1.2, 1.3)));
    report.modes[0].processor_wait_ratio = Some(0.63);
    let (pays, text) = verdict(&report);
    assert!(!pays && !text.contains("decides"), "{text}");
    assert!(text.contains("0.90x as fast as base (1.20x by CPU time)"), "{text}");
    report.decided_by = DecidingTime::of(&report.modes[0]);
    let (pays, text) = verdict(&report);
    assert!(pays && text.contains("1.20x as fast as base by CPU time, 1.10 to 1.30"), "{text}");
    let says = "CPU time decides, not wall time: base waited for a processor 63.0 %";
    assert!(text.contains(says), "{text}");
    report.modes[0].processor_wait_ratio = Some(0.1);
    assert_eq!(DecidingTime::of(&report.modes[0]), DecidingTime::Wall);
}

proptest! {
    #[test]
    fn the_order_of_modes_changes_nothing(ratios in prop::collection::vec((0.5_f64..2.0, 0.0_f64..0.3), 1..6), turn in 0_usize..6) {
        let names = [Mode::Thp, Mode::Advised, Mode::GlibcThp, Mode::Hugetlb, Mode::Mimalloc2m, Mode::Hugepilot];
        let modes: Vec<ModeReport> = ratios.iter().zip(names)
            .map(|(&(median, spread), name)| mode(name, HUGE, (median - spread, median, median + spread))).collect();
        let mut turned = modes.clone();
        turned.rotate_left(turn % modes.len());
        let both = [&modes, &turned].map(|modes| (to_confirm(&report(modes)), verdict(&report(modes))));
        prop_assert_eq!(&both[0], &both[1]);
        let wins = |(median, spread): &(f64, f64)| median - spread > 1.0 && *median >= MIN_GAIN;
        if ratios.iter().any(wins) {
            prop_assert_eq!(!both[0].0.is_empty(), modes.len() > 1);
            prop_assert_eq!(both[0].1.0, modes.len() == 1);
        }
    }
}
