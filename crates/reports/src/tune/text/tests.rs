use hugepilot_record::{Pid, PolicyName, Prediction, SkipReason, Stop};
use hugepilot_render::json;
use hugepilot_stats::Spread;
use hugepilot_units::Bytes;

use super::*;
use crate::tune::{
    Interval, NoMetric, NoTrial, NoVerdict, Performance, PredictedBy, Runs, SamplerReport,
    SpeedRatio, TrialReport, TrialVerdict, TuneVerdict, TuneWarning,
};

/// A run without a free huge page after the third.
const STOPPED: &str = r#"{
    "schema": "hugepilot.tune/4", "target": {"pid": 4711, "command": "db"},
    "sampler": {"source": "cpu-clock", "samples": 3217, "exact_ratio": 0.975,
        "recomputed_ratio": 0.0, "next_ratio": 0.0, "none_ratio": 0.025,
        "undecoded_ratio": 0.001, "lost": 0, "throttled": 0, "unavailable": {}},
    "dry_run": false, "policy": "heat", "footprint_bytes": 4294967296, "budget_bytes": 645004492,
    "selected": [{"start": 139643766964224, "mapping": "[anon]", "heat_ratio": 0.0127,
        "sampled_pages": 19, "verified": true}],
    "skipped": {"too_cold": 8}, "eligible_regions": 4, "attempted_regions": 4,
    "verified_regions": 3, "demoted_regions": 0, "skipped_stall_ratio": {"too_cold": 0.02},
    "failed": {"ENOMEM": 1}, "huge_bytes_before": 0, "huge_bytes_after": 6291456,
    "promotion_seconds": 0.01, "acts_seconds": 0.3, "last_promotion_seconds": 3.0,
    "most_promoted_seconds": 2.5, "coverage_ratio": 0.957, "before": {"stall_ratio": 0.979},
    "stopped": "no_huge_pages", "target_ended": false, "warnings": []
}"#;

pub(crate) fn stopped() -> TuneReport {
    serde_json::from_str(STOPPED).unwrap()
}

#[test]
fn a_run_that_stopped_early_has_its_cause_and_help() {
    let mut report = stopped();
    let text = tune_text(&report, Width::UNLIMITED, false);
    for part in [
        "0x7f0159200000",
        "95.7 %",
        "\n2 % of the stalls are in regions whose huge pages would save less than they cost \
         (--horizon, --min-gain)\nfailed: ENOMEM 1: no free block is large enough",
        "\nstopped early: no free huge pages\nhelp: compact",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    report.stopped = None;
    let text = tune_text(&report, Width::UNLIMITED, false);
    assert!(!text.contains("stopped") && !text.contains("help:"), "{text}");
}

#[test]
fn an_interrupted_trial_says_that_its_regions_were_returned() {
    let mut report = stopped();
    report.stopped = Some(Stop::Interrupted);
    report.acts.demoted_regions = report.acts.verified_regions;
    let text = tune_text(&report, Width::UNLIMITED, false);
    let first = text.lines().next().unwrap();
    let returned = format!("its {} regions are on base pages again", report.acts.verified_regions);
    assert!(first.contains("stopped in the trial: interrupted; "), "{first}");
    assert!(first.ends_with(&returned) && !first.contains("predicted"), "{first}");
    // A returned region has no share of the samples.
    assert!(text.contains("\nRegions. 1 selected region, the hottest first.\n"), "{text}");
    // Some could not be returned.
    report.acts.demoted_regions -= 1;
    let text = tune_text(&report, Width::UNLIMITED, false);
    assert!(text.lines().next().unwrap().contains("regions verified on huge pages"), "{text}");
}

#[test]
fn zeros_are_not_printed() {
    let text = tune_text(&stopped(), Width::UNLIMITED, false);
    assert!(text.contains("address exact 97.5 %, none 2.5 %\n"), "{text}");
    let text = tune_text(&stopped(), Width::UNLIMITED, true);
    assert!(text.contains("none 2.5 %; overhead not measured\n"), "{text}");
}

const NO_METRIC: &str = "no progress metric; use --progress-regex (with -p also --progress-file)";

#[test]
fn an_unmeasured_gain_has_its_cause() {
    let mut report = stopped();
    let cause = |report: &TuneReport| {
        let text = tune_text(report, Width::UNLIMITED, false);
        let line = text.lines().find_map(|line| line.strip_prefix("gain: not measured: "));
        line.map(str::to_owned)
    };
    assert_eq!(cause(&report).unwrap(), NO_METRIC);
    report.stopped = Some(Stop::Interrupted);
    assert_eq!(cause(&report).unwrap(), "the tune was interrupted");
    report.measured.no_metric = Some(NoMetric::FewWindows { windows: 2, required: 5 });
    assert_eq!(cause(&report).unwrap(), "the tune was interrupted");
    let text = tune_text(&report, Width::UNLIMITED, false);
    assert!(!text.contains("no metric found"), "it follows from the interruption: {text}");
    report.measured.no_metric = Some(NoMetric::FewEvents);
    assert_eq!(cause(&report).unwrap(), NO_METRIC);
    (report.stopped, report.measured.no_metric) = (None, None);
    report.target_ended = true;
    assert!(cause(&report).unwrap().starts_with("the process ended too soon"));
    report.measured.speedup = Some(1.2);
    assert_eq!(cause(&report), None);
    report.measured.speedup = None;
    let seconds = Spread::of(&[4.0]);
    report.measured.tuned = Some(Performance { seconds, ..Performance::default() });
    assert_eq!(cause(&report).unwrap(), "no untuned run; use --baseline");
    (report.measured.tuned, report.acts.verified_regions) = (None, 0);
    assert_eq!(cause(&report), None, "nothing was promoted");
}

/// A trial on 128 pairs.
const TRIAL: TrialReport = TrialReport {
    verdict: TrialVerdict::Gain,
    ratio: Some(0.741),
    low_ratio: Some(0.724),
    high_ratio: Some(0.759),
    high_speedup: Some(1.34),
    pairs: Some(128),
    samples: Some(3012),
    seconds: 1.25,
    confirmed: Some(true),
};

#[test]
fn a_trial_is_reported_with_its_interval_and_its_check() {
    let line = |report: &TuneReport| {
        let text = tune_text(report, Width::UNLIMITED, false);
        text.lines().find(|line| line.contains("trial: ")).map(str::to_owned)
    };
    let mut report = stopped();
    assert_eq!(line(&report), None);
    report.forecast.trial = Some(TRIAL);
    assert_eq!(
        line(&report).unwrap(),
        "trial: gain: a stall on a huge page takes 0.74 (0.72–0.76) of its time on base pages; 128 \
         pairs, 3,012 samples, 1.2 s; confirmed with both halves on huge pages"
    );
    report.forecast.trial = Some(TrialReport { confirmed: Some(false), ..TRIAL });
    assert!(line(&report).unwrap().contains("; void: "));
    report.forecast.trial = Some(TrialReport { confirmed: None, ..TRIAL });
    let cut = "1.2 s; not confirmed: no reading with both halves on huge pages";
    assert!(line(&report).unwrap().ends_with(cut), "{report:?}");
    for verdict in [TrialVerdict::Open, TrialVerdict::NoGain] {
        report.forecast.trial = Some(TrialReport { verdict, confirmed: None, ..TRIAL });
        assert!(line(&report).unwrap().ends_with("3,012 samples, 1.2 s"), "{report:?}");
    }
    report.forecast.trial = Some(TrialReport { verdict: TrialVerdict::Open, ..TRIAL });
    assert!(line(&report).unwrap().starts_with("trial: open, at most 1.34x as fast: a stall"));
    report.forecast.trial = None;
    report.forecast.no_trial = Some(NoTrial::PointerChases { ratio: 0.98 });
    assert!(line(&report).unwrap().starts_with("no trial: 98 % of the stalls are pointer"));
    report.forecast.no_trial = Some(NoTrial::FewStalls { ratio: 0.02, required_ratio: 0.07 });
    assert!(line(&report).unwrap().starts_with("no trial: 2 % of the samples"), "{report:?}");
    assert!(line(&report).unwrap().ends_with("; a trial requires 7 %"), "{report:?}");
}

#[test]
fn a_trial_without_a_reading_has_no_zeros() {
    let mut report = stopped();
    let (verdict, unread) = (TrialVerdict::Open, None);
    let (ratio, low_ratio, high_ratio, high_speedup) = (unread, unread, unread, unread);
    let (samples, confirmed) = (None, None);
    report.forecast.trial = Some(TrialReport {
        verdict,
        ratio,
        low_ratio,
        high_ratio,
        high_speedup,
        pairs: Some(64),
        samples,
        seconds: 0.4,
        confirmed,
    });
    let text = tune_text(&report, Width::UNLIMITED, false);
    assert!(text.contains("\ntrial: ended before its first reading; 64 pairs, 0.4 s\n"), "{text}");
    let value: Value = serde_json::from_str(&json(&report)).unwrap();
    assert_eq!((&value["trial"]["samples"], &value["trial"]["pairs"]), (&Value::Null, &64.into()));
}

#[test]
fn a_stopped_tune_names_its_cause_once() {
    let mut report = stopped();
    (report.acts.attempted_regions, report.acts.verified_regions) = (0, 0);
    let text = tune_text(&report, Width::UNLIMITED, false);
    assert_eq!(text.matches("no free huge pages").count(), 1, "{text}");
    assert!(text.contains("stopped before the first promotion: no free huge pages\n"), "{text}");
    assert!(text.contains("\nhelp: compact free memory"), "{text}");
}

#[test]
fn the_time_of_promotions_has_their_checks() {
    let mut report = stopped();
    let first = |report: &TuneReport| {
        tune_text(report, Width::UNLIMITED, false).lines().next().unwrap().to_owned()
    };
    let text = first(&report);
    assert!(text.ends_with("in 0.30 s (0.01 s in calls, the rest in checks and pauses)"), "{text}");
    report.acts.acts_seconds = None;
    assert!(first(&report).ends_with("on huge pages in 0.01 s of calls"), "an older report");
}

#[test]
fn a_second_tune_has_nothing_more_to_gain() {
    let mut report = stopped();
    (report.plan.selected, report.acts.attempted_regions, report.acts.verified_regions) =
        (Vec::new(), 0, 0);
    report.stopped = None;
    report.forecast.eligible_speedup = Some(Prediction { low: 1.0, median: 1.0, high: 1.01 });
    let first = |huge_ratio: f64| {
        let mut report = report.clone();
        let stalls = report.forecast.before.stall_ratio.unwrap() * huge_ratio;
        report.plan.skipped = [(SkipReason::AlreadyHuge, 9)].into();
        report.plan.skipped_stall_ratio = [(SkipReason::AlreadyHuge, stalls)].into();
        tune_text(&report, Width::UNLIMITED, false).lines().next().unwrap().to_owned()
    };
    assert_eq!(
        first(0.97),
        "db (pid 4711): no gain: 97 % of the stalls are on huge pages already, \
         predicted 1.00x (1.00–1.01) by the model; nothing was changed"
    );
    assert!(first(0.4).contains("no gain: huge pages would not pay"), "most stalls are elsewhere");
}

#[test]
fn the_source_of_a_prediction_is_named() {
    let mut report = stopped();
    let first = |report: &TuneReport| {
        tune_text(report, Width::UNLIMITED, false).lines().next().unwrap().to_owned()
    };
    report.forecast.predicted_speedup = Some(Prediction { low: 1.15, median: 1.29, high: 1.34 });
    report.forecast.predicted_by = Some(PredictedBy::Trial);
    assert!(first(&report).ends_with(", 1.15x to 1.34x as fast by the trial"), "{report:?}");
    report.forecast.predicted_by = Some(PredictedBy::Model);
    assert!(first(&report).ends_with(", predicted 1.29x (1.15–1.34) by the model"));
    report.forecast.trial = Some(TrialReport { verdict: TrialVerdict::NoGain, ..TRIAL });
    (report.acts.verified_regions, report.acts.demoted_regions) = (128, 128);
    assert!(first(&report).contains("no gain: a trial showed none"), "{report:?}");
    assert!(first(&report).ends_with("its 128 regions are on base pages again"));
    report.acts.demoted_regions = 100;
    assert!(first(&report).ends_with("on base pages again; 28 are still huge"));
}

#[test]
fn a_measured_gain_has_its_count_and_its_certainty() {
    let gain = |base: &[f64], tuned: &[f64], interval| {
        let performance = |values: &[f64]| Performance {
            seconds: Spread::of(values),
            values: values.len() as u64,
            ..Performance::default()
        };
        let [base, tuned] = [base, tuned].map(|values| Some(performance(values)));
        let runs = Runs::by_medians(base, tuned, None, false);
        let speedup = runs.speedup.map(|one| SpeedRatio { interval, ..one });
        let report = stopped().with_runs(Runs { speedup, ..runs }, []);
        tune_text(&report, Width::UNLIMITED, false).lines().next().unwrap().to_owned()
    };
    let (slow, fast) = ([2.0; 5], [1.6; 6]);
    let end = ", 1.25x as fast (5 untuned and 6 tuned values; certain: they do not overlap)";
    assert!(gain(&slow, &fast, None).ends_with(end));
    let text = gain(&slow, &[1.0, 1.6, 1.6, 1.6, 2.0], None);
    assert!(text.ends_with("5 tuned values; uncertain: it can be chance)"), "{text}");
    let text = gain(&[2.0], &[1.0], None);
    assert!(text.ends_with("; that proves nothing: five of each are needed)"), "{text}");
    let text = gain(&slow, &fast, Some(Interval { low: 1.2, high: 1.3 }));
    assert!(text.ends_with(", 1.25x as fast (1.20–1.30, 6 windows)"), "{text}");
    let text = gain(&slow, &fast, Some(Interval { low: 0.9, high: 1.3 }));
    assert!(text.ends_with("6 windows; uncertain: it can be chance)"), "{text}");
}

#[test]
fn the_all_huge_speedup_has_its_count_and_its_certainty() {
    let line = |base: &[f64], all_huge: &[f64], interval| {
        let performance = |values: &[f64]| Performance {
            ops_per_second: Spread::of(values),
            values: values.len() as u64,
            ..Performance::default()
        };
        let [base, all_huge] = [base, all_huge].map(|values| Some(performance(values)));
        let runs = Runs::by_medians(base, None, all_huge, false);
        let all_huge_speedup = runs.all_huge_speedup.map(|one| SpeedRatio { interval, ..one });
        let report = stopped().with_runs(Runs { all_huge_speedup, ..runs }, []);
        let text = tune_text(&report, Width::UNLIMITED, false);
        text.lines().find_map(|line| line.strip_prefix("all huge: ").map(str::to_owned)).unwrap()
    };
    let (slow, fast) = ([2.0; 5], [2.5; 6]);
    let certain = "1.25x as fast (5 untuned and 6 all-huge values; certain: they do not overlap)";
    assert_eq!(line(&slow, &fast, None), certain);
    let interval = Some(Interval { low: 1.2, high: 1.3 });
    assert_eq!(line(&slow, &fast, interval), "1.25x as fast (1.20–1.30, 6 windows)");
    let text = tune_text(&stopped(), Width::UNLIMITED, false);
    assert!(!text.contains("all huge"), "{text}");
}

#[test]
fn an_interruption_after_promotions_is_reported() {
    let report = TuneReport { stopped: None, ..stopped() }.with_interruption(true);
    let text = tune_text(&report, Width::UNLIMITED, false);
    assert!(text.starts_with("db (pid 4711): cannot tell: 3 of 4 regions verified"), "{text}");
    assert!(text.contains("\nstopped early: interrupted\n"), "{text}");
    assert!(text.contains("\ngain: not measured: the tune was interrupted\n"), "{text}");
}

#[test]
fn a_table_of_the_performance_has_one_unit() {
    let mut report = stopped();
    let lines = |report: &TuneReport| {
        let text = tune_text(report, Width::UNLIMITED, false);
        let table = text.split("\n\n").nth(1).unwrap().lines().skip(1);
        table.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
    };
    let of = |values: &[f64], seconds: &[f64]| {
        let (progress, seconds) = (Spread::of(values), Spread::of(seconds));
        Some(Performance { progress, seconds, ..Performance::default() })
    };
    (report.measured.baseline, report.measured.tuned) = (of(&[19.5], &[]), of(&[], &[14.4]));
    let header = "RUN MEDIAN_METRIC MIN MAX SPEEDUP";
    assert_eq!(lines(&report), [header, "baseline 19.50 19.50 19.50 1.00"]);
    let runs = Runs::by_medians(of(&[19.5], &[16.0]), of(&[], &[14.0]), None, false);
    let report = report.with_runs(runs, []);
    let header = "RUN MEDIAN_SECONDS MIN MAX SPEEDUP";
    let rows = ["baseline 16.000s 16.000s 16.000s 1.00", "tuned 14.000s 14.000s 14.000s 1.14"];
    assert_eq!(lines(&report), [header, rows[0], rows[1]]);
}

/// A report on a process that was stopped: its memory was read, and nothing was sampled.
#[test]
fn unknown_values_are_neither_zero_nor_nothing_to_gain() {
    let mut report = stopped();
    report.sampler = SamplerReport::default();
    (report.plan.selected, report.acts.attempted_regions, report.acts.verified_regions) =
        (Vec::new(), 0, 0);
    (
        report.plan.eligible_regions,
        report.forecast.coverage_ratio,
        report.forecast.before.stall_ratio,
    ) = (None, None, None);
    (report.stopped, report.acts.huge_bytes_after, report.plan.budget_bytes) = (None, None, None);
    report.no_verdict = Some(NoVerdict::TargetStopped { pid: Pid(4711) });
    let text = tune_text(&report, Width::UNLIMITED, false);
    let first = text.lines().next().unwrap();
    assert!(first.contains("cannot tell: no samples: the process is stopped"), "{first}");
    assert!(text.contains("memory: 4GiB resident, 0B huge before, unknown after\n"), "{text}");
    assert!(text.contains("scattered memory: unknown\n") && !text.contains("exact"), "{text}");
    assert!(!text.contains("no gain") && !text.contains("0.0 %"), "{text}");
    assert!(text.contains("help: continue it: kill -CONT 4711\n"), "{text}");
}

#[test]
fn processes_that_end_before_a_decision_are_counted_with_the_longest_time() {
    let text = |processes, longest_seconds| {
        NoVerdict::ShortLived { processes, longest_seconds, required_seconds: 3.0 }.text()
    };
    assert!(text(41, 0.42).ends_with("41 processes were sampled, for at most 0.42 s"));
    assert!(text(1, 2.0).ends_with("first sample: 1 process was sampled, for at most 2.00 s"));
}

#[test]
fn unavailable_samplers_are_shown_on_request() {
    let mut report = stopped();
    report.sampler.unavailable.insert("ibs_op".to_owned(), "no such device".to_owned());
    let text = |verbose| tune_text(&report, Width::UNLIMITED, verbose);
    assert!(text(true).contains("not available: ibs_op: no such device\n"), "{}", text(true));
    assert!(!text(false).contains("not available"), "{}", text(false));
}

#[test]
fn json_has_the_verdict_and_the_sentences_of_warnings() {
    let mut report = stopped();
    report.warnings = vec![TuneWarning::FewSamples { samples: 12 }];
    let value: Value = serde_json::from_str(&json(&report)).unwrap();
    assert_eq!(value["verdict"]["code"], "promoted");
    let text = value["verdict"]["text"].as_str().unwrap();
    assert!(text.starts_with("cannot tell: 3 of 4 regions verified"), "{text}");
    let warning = &value["warnings"][0];
    assert_eq!((&warning["code"], &warning["samples"]), (&"few_samples".into(), &12.into()));
    assert!(warning["text"].is_string() && warning["help"][0].is_string(), "{warning}");
    assert_eq!(serde_json::from_value::<TuneReport>(value.clone()).unwrap(), report);
    assert_eq!(value["stopped"], serde_json::to_value(Stop::NoHugePages).unwrap());
}

#[test]
fn a_policy_that_selects_nothing_does_not_say_that_nothing_is_to_gain() {
    let first = |report: &TuneReport| {
        tune_text(report, Width::UNLIMITED, false).lines().next().unwrap().to_owned()
    };
    let mut report = stopped();
    (report.plan.selected, report.acts.attempted_regions, report.acts.verified_regions) =
        (Vec::new(), 0, 0);
    (report.stopped, report.plan.eligible_regions) = (None, Some(40));
    report.forecast.eligible_speedup = Some(Prediction { low: 1.1, median: 1.2, high: 1.3 });
    report.plan.skipped.clear();
    report.policy = PolicyName::Never;
    assert!(
        first(&report).contains(
            "policy `never` selected no region; 40 regions may be promoted, predicted 1.20x \
             (1.10–1.30) by the model; nothing was changed"
        ),
        "{}",
        first(&report)
    );
    report.policy = PolicyName::Heat;
    assert!(first(&report).contains("no gain: huge pages would not pay"), "{}", first(&report));
    report.plan.skipped.insert(SkipReason::SystemHeadroom, 3);
    assert!(first(&report).contains("too little memory is free"), "{}", first(&report));
    report.plan.skipped.insert(SkipReason::OverBudget, 3);
    assert_eq!(report.verdict(), TuneVerdict::BudgetTooSmall);
    assert!(first(&report).contains("the budget of 615.12MiB is too small"), "{}", first(&report));
    report.plan.budget_of_others_bytes = Some(Bytes::mib(612));
    let taken = "other processes, which gain more, got 612MiB of the budget of 615.12MiB; nothing";
    assert!(first(&report).contains(taken), "{}", first(&report));
}

#[test]
fn an_open_trial_whose_regions_were_returned_claims_no_promotion() {
    let mut report = stopped();
    report.stopped = None;
    (report.acts.attempted_regions, report.acts.verified_regions, report.acts.demoted_regions) =
        (9, 9, 9);
    report.forecast.trial = Some(TrialReport { verdict: TrialVerdict::Open, ..TRIAL });
    assert_eq!(report.verdict(), TuneVerdict::NoGain);
    let text = tune_text(&report, Width::UNLIMITED, false);
    assert!(text.contains("cannot tell: a trial showed no certain gain"), "{text}");
    assert!(text.contains("its 9 regions are on base pages again"), "{text}");
}

#[test]
fn regions_that_were_not_tried_have_a_cause() {
    let mut report = stopped();
    (report.acts.untried_regions, report.stopped) = (7, None);
    let text = |report: &TuneReport| tune_text(report, Width::UNLIMITED, false);
    let line = "not tried: 7 selected regions: the time for promotions (--for) was over\n";
    assert!(text(&report).contains(line), "{}", text(&report));
    report.stopped = Some(Stop::MemoryPressure);
    assert!(text(&report).contains("not tried: 7 selected regions: the tune stopped early\n"));
}
