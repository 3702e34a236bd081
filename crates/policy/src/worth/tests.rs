use hugepilot_record::compare::{Reach, SCHEMA};
use hugepilot_record::tune::Spread;
use proptest::prelude::*;

use super::*;

mod simulated;

fn mode(mode: Mode, huge: Bytes, (low, median, high): (f64, f64, f64)) -> ModeReport {
    ModeReport {
        runs: 5,
        took_effect: Some(true),
        wall_seconds: Some(Spread { median: 1.0 / median, min: 1.0 / high, max: 1.0 / low }),
        rss_peak_bytes: Some(Bytes::mib(300)),
        huge_peak_bytes: Some(huge),
        hugetlb_peak_bytes: Some(Bytes::ZERO),
        speedup_over_base: (mode != Mode::Base).then_some(Ratio { low, median, high }),
        ..ModeReport::not_here(mode, "seen".to_owned(), None)
    }
}

fn report(others: &[ModeReport]) -> CompareReport {
    let base = mode(Mode::Base, Bytes::ZERO, (1.0, 1.0, 1.0));
    CompareReport {
        schema: SCHEMA.to_owned(),
        command: vec!["x".to_owned()],
        runs: 5,
        modes: [&[base][..], others].concat(),
        confirmation: None,
        tlb_reach: Reach { base_bytes: Bytes::mib(8), huge_bytes: Bytes::gib(2), assumed: false },
        counters_unavailable: Some("no PMU".to_owned()),
        stalls_unavailable: None,
        interrupted: false,
        pays: false,
        verdict: String::new(),
        warnings: Vec::new(),
    }
}

const HUGE: Bytes = Bytes::mib(256);

#[test]
fn only_what_is_faster_in_every_round_and_by_enough_pays() {
    let table = [
        ((1.10, 1.20, 1.30), true, "Huge pages pay: with glibc-thp it is 1.20x"),
        ((0.99, 1.20, 1.30), false, "within the noise"),
        ((1.005, 1.01, 1.015), false, "Nothing pays: the best is"),
        ((0.80, 0.90, 0.95), false, "they cost"),
        ((0.98, 0.99, 0.999), false, "Nothing pays: the best is"),
    ];
    for (ratio, pays, says) in table {
        let (found, text) = verdict(&report(&[mode(Mode::GlibcThp, HUGE, ratio)]));
        assert_eq!(found, pays, "{ratio:?}: {text}");
        assert!(text.contains(says), "{ratio:?}: {text}");
    }
}

#[test]
fn an_allocator_that_is_faster_without_huge_pages_is_no_gain_of_theirs() {
    let plain = mode(Mode::Mimalloc, Bytes::ZERO, (1.4, 1.5, 1.6));
    let (pays, text) = verdict(&report(std::slice::from_ref(&plain)));
    assert!(!pays && text.starts_with("No mode gave it huge pages"), "{text}");
    let (pays, text) =
        verdict(&again(&[plain, mode(Mode::Mimalloc2m, HUGE, (1.6, 1.8, 1.9))], Mode::Mimalloc2m));
    assert!(pays && text.starts_with("Huge pages pay: mimalloc-2m"), "{text}");
    assert!(
        text.contains(
            "Of that, mimalloc (with none on huge pages) gives 1.50x, so that the pages give 1.20x."
        ),
        "{text}"
    );
    let ours = |gain| mode(Mode::OursBase, Bytes::ZERO, (gain - 0.1, gain, gain + 0.1));
    for (alone, says) in [(1.5, "Huge pages pay: ours"), (1.79, "It pays: ours")] {
        let modes = [ours(alone), mode(Mode::Ours, HUGE, (1.6, 1.8, 1.9))];
        let (pays, text) = verdict(&again(&modes, Mode::Ours));
        assert!(
            pays && text.starts_with(says)
                && text.contains(&format!("ours-base (with none on huge pages) gives {alone:.2}x")),
            "{text}"
        );
    }
}

#[test]
fn a_gain_that_may_be_the_allocators_is_not_called_that_of_huge_pages() {
    for (best, control) in [(Mode::Ours, "ours-base"), (Mode::Mimalloc2m, "mimalloc")] {
        let modes = [mode(best, HUGE, (2.5, 2.8, 3.6)), mode(Mode::Thp, HUGE, (0.9, 1.0, 1.1))];
        for report in [report(&modes[..1]), again(&modes, best)] {
            let (pays, text) = verdict(&report);
            let unknown = format!("its allocator's is not known without {control}.");
            assert!(pays && text.starts_with("It pays: ") && text.contains(&unknown), "{text}");
        }
    }
    let text = verdict(&report(&[mode(Mode::Ours, HUGE, (0.9, 1.0, 1.1))])).1;
    assert!(!text.contains("not known without"), "{text}");
}

/// With further rounds of that mode, as the first ones.
fn again(others: &[ModeReport], best: Mode) -> CompareReport {
    let ratio = others.iter().find(|mode| mode.mode == best).unwrap().speedup_over_base;
    let confirmation =
        Confirmation { mode: best, rounds: 5, faster_rounds: 5, failed_rounds: 0, speedup_over_base: ratio };
    CompareReport { confirmation: Some(confirmation), ..report(others) }
}

#[test]
fn the_best_of_several_is_judged_by_its_further_rounds_alone() {
    let modes = [mode(Mode::Thp, HUGE, (1.1, 1.2, 1.3)), mode(Mode::GlibcThp, HUGE, (1.0, 1.1, 1.2))];
    let first = report(&modes);
    assert_eq!(to_confirm(&first), Some(Mode::Thp));
    let (pays, text) = verdict(&first);
    assert!(!pays && text.contains("best of several may be so by luck"), "{text}");
    let mut second = again(&modes, Mode::Thp);
    assert!(verdict(&second).0);
    let ratios = [((1.1, 1.2, 1.3), 4, false), ((1.0, 1.01, 1.2), 5, false), ((1.01, 1.03, 1.2), 5, true)];
    for ((low, median, high), faster_rounds, pays) in ratios {
        let found = second.confirmation.as_mut().unwrap();
        (found.faster_rounds, found.speedup_over_base) = (faster_rounds, Some(Ratio { low, median, high }));
        let (found, text) = verdict(&second);
        assert_eq!(found, pays, "{text}");
        assert!(text.contains(&format!("faster in {faster_rounds} of them")), "{text}");
        assert_eq!(text.contains("thp looked best with 1.20x, but run again"), !pays, "{text}");
    }
    let found = second.confirmation.as_mut().unwrap();
    (found.faster_rounds, found.failed_rounds) = (5, 2);
    let (pays, text) = verdict(&second);
    assert!(
        !pays && text.contains("faster in 5 of them, and the program failed with it in 2 more."),
        "{text}"
    );
    assert_eq!(to_confirm(&report(&modes[..1])), None, "its own rounds tell");
    assert_eq!(
        to_confirm(&report(&[mode(Mode::Thp, HUGE, (0.9, 1.0, 1.1)), modes[0].clone()])),
        Some(Mode::Thp)
    );
    let slow = mode(Mode::Thp, HUGE, (0.9, 1.01, 1.1));
    assert_eq!(to_confirm(&report(&[slow.clone(), slow])), None, "nothing to confirm");
}

#[test]
fn a_mode_without_effect_is_not_the_best_whatever_its_time() {
    let idle = ModeReport { took_effect: Some(false), ..mode(Mode::Hugetlb, Bytes::ZERO, (2.0, 2.0, 2.0)) };
    let report = report(&[idle, mode(Mode::Thp, HUGE, (1.1, 1.1, 1.2))]);
    assert_eq!(to_confirm(&report), Some(Mode::Thp));
}

#[test]
fn four_rounds_are_too_few_to_say_yes() {
    let mut few = report(&[mode(Mode::Thp, HUGE, (1.5, 1.6, 1.7))]);
    few.modes[0].runs = 4;
    let (pays, text) = verdict(&few);
    assert!(!pays && text.starts_with("With thp it is 1.60x") && text.contains("too little"), "{text}");
}

#[test]
fn a_mode_with_which_the_program_fails_is_not_the_best() {
    let failing = ModeReport { failed_runs: 1, ..mode(Mode::Hugetlb1g, HUGE, (5.0, 5.0, 5.0)) };
    let report = report(&[failing, mode(Mode::Thp, HUGE, (1.1, 1.1, 1.2))]);
    assert_eq!(to_confirm(&report), Some(Mode::Thp));
    assert!(verdict(&report).1.contains("The program fails with hugetlb-1g."));
}

#[test]
fn a_command_that_fails_and_a_missing_base_give_no_verdict() {
    let mut failing = report(&[mode(Mode::Thp, HUGE, (1.1, 1.1, 1.2))]);
    failing.modes[0].failed_runs = 5;
    assert_eq!(verdict(&failing), (false, "The command fails, so its times say nothing.".to_owned()));
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
    for (ratio, says) in [(0.93, "93.0 % miss the data TLB, above"), (0.07, "just where"), (0.01, "below")] {
        seen.modes[0].dtlb_miss_ratio = Some(ratio);
        let text = verdict(&seen).1;
        assert!(text.contains(says) && !text.contains("no PMU"), "{text}");
    }
    seen.modes[0].rss_peak_bytes = Some(Bytes::mib(5));
    assert!(verdict(&seen).1.contains("are within the 8MiB"));
    seen.modes[0].runs = 1;
    assert!(verdict(&seen).1.ends_with("Of 1 round noise cannot be told from gain: use --runs 5."));
}

proptest! {
    #[test]
    fn the_order_of_modes_changes_nothing(ratios in prop::collection::vec((0.5_f64..2.0, 0.0_f64..0.3), 1..6), turn in 0_usize..6) {
        let names = [Mode::Thp, Mode::Advised, Mode::GlibcThp, Mode::Hugetlb, Mode::Mimalloc2m, Mode::Ours];
        let modes: Vec<ModeReport> = ratios.iter().zip(names)
            .map(|(&(median, spread), name)| mode(name, HUGE, (median - spread, median, median + spread))).collect();
        let mut turned = modes.clone();
        turned.rotate_left(turn % modes.len());
        let both = [&modes, &turned].map(|modes| (to_confirm(&report(modes)), verdict(&report(modes))));
        prop_assert_eq!(&both[0], &both[1]);
        let wins = |(median, spread): &(f64, f64)| median - spread > 1.0 && *median >= MIN_GAIN;
        if ratios.iter().any(wins) {
            prop_assert_eq!(both[0].0.is_some(), modes.len() > 1);
            prop_assert_eq!(both[0].1.0, modes.len() == 1);
        }
    }
}
