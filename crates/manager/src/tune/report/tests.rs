use hugepilot_policy::tune::State;
use hugepilot_policy::{Calibration, CalibrationPoint};
use hugepilot_record::{AccessError, Expected, Pid, ProcessSnapshot};
use hugepilot_reports::tune::{Certainty, FoundMetric, NoMetric, NoTrial};
use hugepilot_units::{Amount, Region, Share};

use super::*;
use crate::fold::Fold;
use crate::fold::tests::{HUGE, round, seen, undoing};
use crate::tune::TuneOptions;
use crate::tune::finished::Program;
use crate::tune::no_verdict::Sampled;

/// A target that was sampled, with 10 MiB of memory when it was first read.
fn target(pid: i32, fold: Fold) -> TargetFacts {
    TargetFacts {
        named: TargetInfo { pid: Pid(pid), command: "db".to_owned() },
        first: Some((Bytes::mib(10), Bytes::mib(2))),
        fold,
        end: Some(TargetEnd { share: 1.0, ..TargetEnd::default() }),
        ..TargetFacts::default()
    }
}

fn ended(end: TargetEnd) -> Finished {
    finished(vec![TargetFacts { end: Some(end), ..target(1, Fold::default()) }])
}

fn finished(targets: Vec<TargetFacts>) -> Finished {
    Finished { huge: HUGE, samples_time: true, targets, ..Finished::default() }
}

fn excluded(target: TargetFacts) -> TargetFacts {
    let unreadable = Some(AccessError { error: "denied".to_owned(), help: Vec::new() });
    TargetFacts { unreadable, end: None, ..target }
}

fn process() -> Vec<ProcessSnapshot> {
    vec![seen(1, Nanos::seconds(1))]
}

fn measured(metric: Result<FoundMetric, NoMetric>) -> Measured {
    ended(TargetEnd { metric: Some(metric), ..TargetEnd::default() }).reports().remove(0).measured
}

#[test]
fn a_found_metric_gives_the_speedup_and_its_certainty() {
    let speedup = |before: [f64; 5], after: [f64; 5]| {
        let (before, after) = (before.to_vec(), after.to_vec());
        let measured = measured(Ok(FoundMetric { metric: Metric::IoCalls, before, after }));
        assert_eq!((measured.metric, measured.no_metric), (Some(Metric::IoCalls), None));
        (measured.speedup.unwrap(), measured.speedup_certainty.unwrap())
    };
    let before = [10.0, 11.0, 10.0, 9.0, 10.0];
    // The flag is about given metrics: more work is better.
    assert_eq!(speedup(before, [12.0; 5]), (1.2, Certainty::Certain));
    assert_eq!(speedup(before, [12.0, 12.0, 12.0, 11.0, 12.0]), (1.2, Certainty::Uncertain));
    let none = measured(Err(NoMetric::FewEvents));
    assert_eq!((none.metric, none.speedup), (None, None));
    assert_eq!(none.no_metric, Some(NoMetric::FewEvents));
}

#[test]
fn the_performance_of_a_program_is_reported_once() {
    let elsewhere = |parts: i32, has_metric| -> Vec<bool> {
        let mut parts: Vec<_> = (1..=parts).map(|pid| target(pid, Fold::default())).collect();
        let mut all: Vec<_> = parts.iter_mut().collect();
        TargetFacts::note_program(&mut all, &Fold::default().acts(), has_metric);
        parts.iter().map(|part| part.program.unwrap().measured_in == Some(Pid(1))).collect()
    };
    assert_eq!(elsewhere(3, true), [false, true, true]);
    assert_eq!(elsewhere(2, false), [false, false]);
}

#[test]
fn only_a_process_that_was_given_running_can_end_before_its_tune() {
    let has_ended = |launched, program| {
        let sampled = Sampled { has_ended: true, ..Sampled::default() };
        let end = Some(TargetEnd { sampled, ..TargetEnd::default() });
        let target = TargetFacts { launched, program, end, ..target(1, Fold::default()) };
        finished(vec![target]).reports().remove(0).target_ended
    };
    assert!(has_ended(false, None));
    assert!(!has_ended(true, None), "its end is that of the tune");
    assert!(!has_ended(false, Some(Program::default())), "a worker of the process that was given");
}

#[test]
fn memory_on_huge_pages_after_a_tune_is_that_at_its_end_or_else_the_last_that_was_read() {
    let after = |huge, fold| {
        let end = Some(TargetEnd { huge, ..TargetEnd::default() });
        let target = TargetFacts { end, ..target(1, fold) };
        finished(vec![target]).reports().remove(0).acts.huge_bytes_after
    };
    let decided = || {
        let mut fold = Fold::default();
        fold.add(&round(process(), 9, Nanos::seconds(2)), &State::default(), None, false);
        fold
    };
    let last = decided().shown().unwrap().huge_after;
    assert_ne!(last, Bytes::mib(2));
    assert_eq!(after(Some(Bytes::mib(6)), decided()), Some(Bytes::mib(6)));
    assert_eq!(after(None, decided()), Some(last), "it ended");
    assert_eq!(after(None, Fold::default()), Some(Bytes::mib(2)), "when it was first read");
}

#[test]
fn each_of_several_processes_knows_what_the_others_got_of_the_budget() {
    let others = |dry_run, budget: Option<Amount>| {
        let mut fold = Fold::default();
        fold.add(&round(process(), 9, Nanos::seconds(2)), &State::default(), None, dry_run);
        if !dry_run {
            let undone = undoing(process(), 4, Nanos::seconds(3));
            fold.add(&undone, &State::default(), None, dry_run);
        }
        let untuned = |pid| target(pid, Fold::default());
        let mut facts = finished(vec![target(1, fold), untuned(2), excluded(untuned(3))]);
        (facts.options.dry_run, facts.options.goal.budget) = (dry_run, budget);
        facts.reports().into_iter().map(|one| one.plan.budget_of_others_bytes).collect::<Vec<_>>()
    };
    let mib = |size| Some(Bytes::mib(size));
    let budget = Some(Amount::Share(Share::ratio(0.5)));
    assert_eq!(others(false, budget), [mib(0), mib(10), mib(10)]);
    assert_eq!(others(true, budget), [mib(0), mib(18), mib(18)], "those selected");
    assert_eq!(others(false, None), [None; 3]);
}

#[test]
fn several_targets_share_a_budget_of_the_memory_of_those_that_are_not_excluded() {
    let new = |pid| target(pid, Fold::default());
    let budgets = |targets| {
        let mut facts = finished(targets);
        facts.options.goal.budget = Some(Amount::Share(Share::ratio(0.5)));
        facts.reports().into_iter().map(|one| one.plan.budget_bytes).collect::<Vec<_>>()
    };
    let mib = |size| Some(Bytes::mib(size));
    assert_eq!(budgets(vec![new(1)]), [mib(5)]);
    assert_eq!(budgets(vec![new(1), new(2), excluded(new(3))]), [mib(10); 3]);
    let report = finished(vec![excluded(new(1))]).reports().remove(0);
    assert!(matches!(report.no_verdict, Some(NoVerdict::Excluded(_))));
    assert_eq!((report.plan.footprint_bytes, report.acts.huge_bytes_after), (mib(10), mib(2)));
    let program = Some(Program { resident: Bytes::mib(40), ..Program::default() });
    let part = |pid| TargetFacts { program, ..new(pid) };
    assert_eq!(budgets(vec![part(1), part(2)]), [mib(20); 2], "of the program");
}

#[test]
fn the_work_of_a_virtual_machine_is_unknown_to_policies_that_need_samples() {
    let of = |policy: Policy| {
        let mut facts = ended(TargetEnd::default());
        facts.targets[0].obstacles = vec![Obstacle::KvmGuest];
        facts.options.goal.policy = policy;
        let report = facts.reports().remove(0);
        (report.no_verdict, report.obstacles.len())
    };
    assert_eq!(of(Policy::Heat), (Some(NoVerdict::KvmGuest), 1));
    assert_eq!(of(Policy::All), (None, 0));
}

#[test]
fn the_model_predicts_nothing_from_unknown_samples() {
    let some = Prediction { low: 1.0, median: 1.1, high: 1.2 };
    let shown = |unresolved, regions| {
        let mut first = round(process(), regions, Nanos::seconds(2));
        let window = &mut first.rows[0].seen.window;
        (window.samples, window.cpu) = (1000, Some(Nanos::seconds(1)));
        window.stalls = (0..40).map(|number| (Region::new(number), 10)).collect();
        first.rows[0].decision.expected = Some(Expected { eligible: some, chosen: some });
        let (mut state, mut fold) = (State::default(), Fold::default());
        let no_trial = NoTrial::FewStalls { ratio: 0.0, required_ratio: 0.05 };
        state.of_mut(&first.rows[0].seen.id).no_trial = Some(no_trial);
        fold.add(&first, &state, None, false);
        let mut facts = finished(vec![target(1, fold)]);
        let point = CalibrationPoint { hot: Bytes::gib(1), chase_ratio: 0.5, gather_ratio: 0.5 };
        facts.options.goal.calibration = Calibration(vec![point]);
        facts.targets[0].after = Some(Activity { stall_ratio: Some(0.1), ..Activity::default() });
        facts.targets[0].end.as_mut().unwrap().sampler.unresolved_ratio = Some(unresolved);
        let TuneReport { forecast, measured, .. } = facts.reports().remove(0);
        let stalls = [forecast.before, measured.after.unwrap()].map(|one| one.stall_ratio);
        assert_eq!(stalls[0].is_some(), stalls[1].is_some());
        assert_eq!(forecast.coverage_ratio.is_some(), forecast.no_trial.is_some());
        let by_model = forecast.predicted_by == Some(PredictedBy::Model);
        assert_eq!(forecast.predicted_speedup.is_some(), by_model);
        let eligible = forecast.eligible_speedup.is_some();
        [eligible, by_model, stalls[0].is_some(), forecast.no_trial.is_some()]
    };
    assert_eq!(shown(0.4, 2), [true; 4]);
    assert_eq!(shown(0.6, 2), [false, false, false, true], "there is a verdict");
    assert_eq!(shown(0.4, 0), [false; 4], "there is none without a sample or an act");
}

#[test]
fn a_trial_without_a_reading_has_its_pairs_and_no_samples() {
    let trial = TrialResult {
        verdict: TrialVerdict::Open,
        estimate: None,
        shares: StallShares::default(),
        pairs: Some(64),
        took: Nanos::millis(400),
        confirmed: None,
    };
    let report = trial_report(&trial, &TuneOptions::default().goal.trial);
    assert_eq!((report.pairs, report.samples, report.ratio), (Some(64), None, None));
}
