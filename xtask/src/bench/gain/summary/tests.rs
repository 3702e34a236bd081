use serde_json::json;

use super::super::record::tests::{pair, run};
use super::*;

/// Rounds with the given gains: untouched, tuned and all huge.
fn rounds(ratios: &[(f64, f64, f64)]) -> Vec<Run> {
    let states = |(round, &(base, gain, all)): (usize, &(f64, f64, f64))| {
        let [tuned, all] = pair("redis", round, gain, all);
        [run("redis", State::Base, round, base), tuned, all]
    };
    ratios.iter().enumerate().flat_map(states).collect()
}

fn summary(runs: &[Run]) -> Summary {
    Summary::of(&runs.iter().collect::<Vec<_>>())
}

/// The tuned runs of `runs` report `tune`.
fn reported(mut runs: Vec<Run>, tune: &Value) -> Vec<Run> {
    for run in runs.iter_mut().filter(|run| run.state == State::Tuned) {
        run.tune = Some(tune.clone());
    }
    runs
}

#[test]
fn the_share_is_taken_within_each_run() {
    let found = summary(&rounds(&[(0.99, 1.2, 1.25), (1.01, 1.1, 1.2), (1.0, 1.36, 1.3)]));
    let near = |value: f64, wanted: f64| assert!((value - wanted).abs() < 1e-9, "{found:?}");
    near(found.all.unwrap().median, 1.25);
    near(found.tuned.unwrap().median, 1.2);
    let share = found.share.unwrap();
    near(share.median, 0.8);
    near(share.min, 0.5);
    near(share.max, 1.2);
    assert_eq!((found.truth, found.runs), (Some(Truth::Gain), 3));
}

#[test]
fn the_place_of_the_pages_does_not_count() {
    let [mut tuned, mut all] = pair("redis", 0, 1.27, 1.3);
    // The huge pages of the other one lie better: 1.44 instead of 1.2, in both windows.
    for window in [&mut all.after, &mut all.all.as_mut().unwrap().window] {
        window.ratio = 2.0 * 1.44;
    }
    tuned.all.as_mut().unwrap().window.ratio = 2.0 * 1.2;
    tuned.after.ratio = 2.0 * 1.18;
    let found = Summary::of(&[&all, &tuned]);
    assert!((found.all.unwrap().median - 1.2).abs() < 1e-9, "{found:?}");
    assert!((found.share.unwrap().median - 0.9).abs() < 1e-9, "{found:?}");
    // A run of another round does not count. Without any, the last window does.
    all.round = 1;
    assert_eq!(Summary::of(&[&all, &tuned]).share, None);
    tuned.all.as_mut().unwrap().window.ratio = 2.0 * 1.24;
    let share = Summary::of(&[&tuned]).share.unwrap().median;
    assert!((share - 0.75).abs() < 1e-9, "{share}");
}

#[test]
fn a_share_needs_a_gain_on_huge_pages() {
    let small = summary(&rounds(&[(1.0, 1.02, 1.04)]));
    assert_eq!((small.share, small.truth), (None, Some(Truth::Small)));
    let found = summary(&[run("redis", State::Tuned, 0, 1.3)]);
    assert_eq!((found.share, found.truth), (None, None));
}

#[test]
fn the_bracket_is_compared_with_the_achieved_gain() {
    let ratios = [(1.0, 1.1, 1.2), (1.02, 1.2, 1.2), (0.98, 1.31, 1.2)];
    let bracket = json!({"low": 1.15, "median": 1.2, "high": 1.3});
    let tune = json!({
        "predicted_speedup": bracket, "predicted_by": "model", "eligible_speedup": bracket
    });
    let found = summary(&reported(rounds(&ratios), &tune));
    assert_eq!(found.inside, Count { events: 1, of: 3 });
    // Noise of 2 % makes room for 1.31, not for 1.1.
    assert_eq!(found.inside_noise, Some(Count { events: 2, of: 3 }));
    assert_eq!(found.model, Some(Bracket { low: 1.15, median: 1.2, high: 1.3 }));
    assert_eq!((found.trial, found.achieved), (None, None));
}

#[test]
fn a_trial_outranks_the_model() {
    let tune = json!({
        "eligible_speedup": {"low": 1.0, "median": 1.0, "high": 1.01},
        "trial": {"ratio": 0.7, "low_ratio": 0.6, "high_ratio": 0.8, "verdict": "no_gain"},
        "predicted_speedup": {"low": 1.15, "median": 1.2, "high": 1.25},
        "predicted_by": "trial",
        "achieved": 1.19,
    });
    let found = summary(&reported(rounds(&[(1.0, 1.2, 1.2)]), &tune));
    assert_eq!(found.inside, Count { events: 1, of: 1 });
    assert_eq!(found.trial, Some(Bracket { low: 1.15, median: 1.2, high: 1.25 }));
    assert_eq!((found.trial_ratio, found.achieved), (Some(0.7), Some(1.19)));
    assert_eq!(found.signs, Signs { wrong: 1, ..Signs::default() }, "the verdict denies a gain");
}

#[test]
fn without_a_trial_kept_huge_pages_are_the_sign() {
    let plain = json!({});
    let of = |runs: &[Run]| summary(runs).signs;
    let gain = reported(rounds(&[(1.0, 1.2, 1.2)]), &plain);
    assert_eq!(of(&gain), Signs { right: 1, ..Signs::default() });
    let mut runs = reported(rounds(&[(1.0, 1.0, 1.0), (1.0, 1.0, 1.0)]), &plain);
    assert_eq!(of(&runs), Signs { wrong: 2, ..Signs::default() });
    assert_eq!(summary(&runs).kept, Count { events: 2, of: 2 });
    runs[1].huge_after_bytes = 0;
    assert_eq!(of(&runs), Signs { right: 1, wrong: 1, ..Signs::default() });
}

#[test]
fn each_run_is_in_one_class_of_signs() {
    let of = |gain, tune: Value| summary(&reported(rounds(&[(1.0, gain, gain)]), &tune)).signs;
    let class = |set: fn(&mut Signs)| {
        let mut signs = Signs::default();
        set(&mut signs);
        signs
    };
    let open = class(|signs| signs.open = 1);
    let cannot_tell = class(|signs| signs.cannot_tell = 1);
    assert_eq!(of(1.2, json!({"trial": {"verdict": "open"}})), open);
    assert_eq!(of(1.0, json!({"trial": {"verdict": "open"}})), open);
    assert_eq!(of(1.2, json!({"no_verdict": {"code": "target_idle"}})), cannot_tell);
    let void = json!({"trial": {"verdict": "gain", "confirmed": false}});
    assert_eq!(of(1.2, void), cannot_tell);
    let small = of(1.03, json!({"trial": {"verdict": "open"}}));
    assert_eq!(small, class(|signs| signs.small = 1), "small gains have no right sign");
    assert_eq!(small.count(), Count { events: 0, of: 0 });
    let alone = summary(&[run("redis", State::Tuned, 0, 1.3)]).signs;
    assert_eq!(alone, class(|signs| signs.unknown = 1));
    assert_eq!(open.count(), Count { events: 0, of: 1 }, "an open one is not right");
}

#[test]
fn a_bracket_has_a_width_and_a_run_without_one_is_counted() {
    let tune = json!({"predicted_speedup": {"low": 1.0, "median": 1.2, "high": 1.5}});
    let mut runs = reported(rounds(&[(1.0, 1.25, 1.2), (1.0, 1.2, 1.2)]), &tune);
    let last = runs.iter_mut().rfind(|run| run.state == State::Tuned).unwrap();
    last.tune = Some(json!({}));
    let found = summary(&runs);
    assert_eq!((found.widths.len(), found.without_bracket), (1, 1));
    let (width, ratio) = found.widths[0];
    assert!((width - 0.5).abs() < 1e-9 && (ratio - 2.0).abs() < 1e-9, "{found:?}");
}
