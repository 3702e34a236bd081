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
    assert_eq!(found.sign, Count { events: 0, of: 1 }, "the verdict denies a gain");
}

#[test]
fn without_a_verdict_kept_huge_pages_are_the_sign() {
    let gain = summary(&rounds(&[(1.0, 1.2, 1.2)]));
    assert_eq!(gain.sign, Count { events: 1, of: 1 });
    let mut runs = rounds(&[(1.0, 1.0, 1.0), (1.0, 1.0, 1.0)]);
    let kept = summary(&runs);
    assert_eq!((kept.sign, kept.kept), (Count { events: 0, of: 2 }, Count { events: 2, of: 2 }));
    runs[1].huge_after_bytes = 0;
    assert_eq!(summary(&runs).sign, Count { events: 1, of: 2 });
    let small = summary(&rounds(&[(1.0, 1.0, 1.03)]));
    assert_eq!(small.sign, Count { events: 0, of: 0 }, "small gains have no right sign");
}
