use hugepilot_record::Mode;

use super::super::tests::{mode, report};
use super::*;
use crate::compare::Verdict;
use crate::run::{Effect, EffectCause};

fn ratio(median: f64, faster_rounds: u32) -> PairedRatio {
    PairedRatio { low: median - 0.1, median, high: median + 0.1, rounds: 5, faster_rounds }
}

fn best(mode: Mode) -> BestMode {
    BestMode { mode, speedup: ratio(1.2, 5), cpu_speedup: None }
}

fn with(conclusion: Conclusion, gain: GainSource) -> CompareReport {
    let verdict = Verdict { gain: Some(gain), ..Verdict::without_best(conclusion) };
    CompareReport { verdict, ..report() }
}

fn text(report: &CompareReport) -> String {
    VerdictText(report).text()
}

#[test]
fn each_conclusion_has_a_sentence_with_the_range() {
    let range = "1.20x as fast as base, 1.10 to 1.30, faster in 5 of 5 rounds";
    let best = best(Mode::Thp);
    let table = [
        (Conclusion::Pays(best), "Huge pages pay: thp is RANGE. "),
        (
            Conclusion::Confirmed(best),
            "Huge pages pay: thp, the best mode, was run again and is RANGE. ",
        ),
        (
            Conclusion::NotRepeated(best),
            "thp is RANGE, but with several modes noise alone can put one ahead, and it was not \
             run again. ",
        ),
        (
            Conclusion::TooFewRounds(best),
            "thp is RANGE, but the rounds are too few to say that it pays. ",
        ),
        (Conclusion::Slower(best), "Huge pages cost time: the best mode, thp, is RANGE. "),
        (
            Conclusion::WithinNoise(best),
            "Nothing pays: the differences are within the noise; the best mode, thp, is RANGE. ",
        ),
        (Conclusion::NoGain(best), "Nothing pays: the best mode, thp, is RANGE. "),
        (Conclusion::NoHugePages, "No verdict: no mode had huge pages; the table has the causes. "),
    ];
    for (conclusion, wanted) in table {
        let text = text(&with(conclusion, GainSource::Pages));
        assert!(text.starts_with(&wanted.replace("RANGE", range)), "{text}");
    }
}

#[test]
fn without_base_or_success_there_is_nothing_to_add() {
    let fails = text(&with(Conclusion::CommandFails, GainSource::Unknown));
    assert_eq!(fails, "No verdict: the command fails.");
    let mut no_base = with(Conclusion::NoBase, GainSource::Unknown);
    no_base.modes.clear();
    assert_eq!(text(&no_base), "No verdict: base was not run.");
}

#[test]
fn a_gain_is_attributed_to_pages_or_allocator() {
    let mut report = with(Conclusion::Pays(best(Mode::Hugepilot)), GainSource::Unknown);
    let unknown = text(&report);
    assert!(unknown.starts_with("It pays: "), "{unknown}");
    assert!(unknown.contains("its allocator is unknown without hugepilot-base."), "{unknown}");
    report.verdict.same_allocator = Some(SameAllocator {
        mode: Mode::HugepilotBase,
        speedup_over_base: ratio(1.5, 5),
        speedup_over_same_allocator: ratio(1.01, 3),
    });
    let share = "Of that, hugepilot-base (with no huge pages) gives 1.50x, and the pages 1.01x, \
                 faster in 3 of 5 rounds.";
    assert!(text(&report).contains(share), "{}", text(&report));
    report.verdict.gain = Some(GainSource::Allocator);
    let allocator = text(&report);
    assert!(allocator.starts_with("The allocator pays, and its huge pages add nothing: "));
    assert!(allocator.contains(&format!("{share} Run it with hugepilot-base.")), "{allocator}");
    report.verdict.conclusion = Conclusion::NoGain(best(Mode::Hugepilot));
    assert!(!text(&report).contains("Run it with"));
}

#[test]
fn a_mode_that_is_not_confirmed_has_both_ratios_and_the_cause() {
    let mut report = with(Conclusion::NotConfirmed(best(Mode::Thp)), GainSource::Pages);
    let mut confirmation = Confirmation {
        mode: Mode::Thp,
        effect: Effect::new(Some(true), EffectCause::NoHugePages),
        failed_rounds: 0,
        speedup_over_base: Some(ratio(1.05, 3)),
        cpu_speedup_over_base: None,
        same_allocator: None,
    };
    let first = "Nothing pays for certain: thp was the best mode with 1.20x, but again it was \
                 1.05x as fast as base, 0.95 to 1.15, faster in 3 of 5 rounds";
    report.confirmation = Some(confirmation.clone());
    assert!(text(&report).starts_with(&format!("{first}. ")), "{}", text(&report));
    confirmation.failed_rounds = 2;
    report.confirmation = Some(confirmation.clone());
    let failed = format!("{first}, and the program failed with it in 2 rounds.");
    assert!(text(&report).starts_with(&failed), "{}", text(&report));
    confirmation.failed_rounds = 0;
    confirmation.effect = Effect::new(None, EffectCause::NothingAdvised);
    report.confirmation = Some(confirmation);
    let idle = format!("{first}, without a visible effect: the program advised no memory.");
    assert!(text(&report).starts_with(&idle), "{}", text(&report));
}

#[test]
fn cpu_time_stands_beside_wall_time_or_decides() {
    let cpu_speedup = Some(ratio(1.4, 5));
    let best = BestMode { cpu_speedup, ..best(Mode::Thp) };
    let mut report = with(Conclusion::WithinNoise(best), GainSource::Pages);
    assert!(text(&report).contains("1.20x as fast as base (1.40x by CPU time), 1.10"));
    report.modes[0].processor_wait_ratio = Some(0.63);
    report.decided_by = DecidingTime::Cpu;
    let text = text(&report);
    assert!(text.contains("1.20x as fast as base by CPU time, 1.10"), "{text}");
    let decides = "CPU time decides, not wall time: base waited for a processor 63.0 %";
    assert!(text.contains(decides), "{text}");
}

#[test]
fn the_rule_of_thumb_uses_what_is_known() {
    let mut report = with(Conclusion::Pays(best(Mode::Thp)), GainSource::Pages);
    let base = text(&report);
    assert!(
        base.contains("(no PMU), but 50.0 % of its samples stall on scattered memory"),
        "{base}"
    );
    assert!(base.contains("its memory of 300MiB exceeds the TLB reach of 8MiB"), "{base}");
    for (ratio, expected) in
        [(0.93, "93.0 % of its loads miss the data TLB, above"), (0.07, "in the"), (0.01, "below")]
    {
        report.modes[0].dtlb_miss_ratio = Some(ratio);
        let text = text(&report);
        assert!(text.contains(expected) && !text.contains("no PMU"), "{text}");
    }
    report.modes[0].rss_peak_bytes = Some(Bytes::mib(5));
    assert!(text(&report).contains("is within the TLB reach of 8MiB"));
    report.modes[0].runs = 1;
    assert!(text(&report).ends_with("1 round cannot separate a gain from noise: use --rounds 5."));
    report.modes.push(ModeReport { failed_runs: 1, ..mode(Mode::Hugetlb1g, 1.0, 9, Bytes::ZERO) });
    assert!(text(&report).contains("The program fails with hugetlb-1g."));
}
