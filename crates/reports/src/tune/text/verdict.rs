//! Verdict of `tune` as a sentence: the first line of its report.

use hugepilot_record::PolicyName;
use hugepilot_render::sentence::Sentence;
use hugepilot_render::table::counted;

use super::lost::{freed_by_end, lost_since, none_left, on_base_pages};
use super::metric::as_fast;
use super::sentence::{is_unconfirmed, percent, size, values, windows, with_certainty};
use super::skipped::already_huge;
use crate::explain::text::regions;
use crate::tune::{
    Gain, GainSource, Metric, ScheduleReport, TrialVerdict, TuneReport, TuneVerdict,
};

/// The verdict of `report`: the answer in a word, and a sentence.
pub(crate) fn verdict(report: &TuneReport) -> String {
    format!("{}: {}", report.answer(), sentence(report))
}

fn sentence(report: &TuneReport) -> String {
    match report.verdict() {
        TuneVerdict::Unknown => {
            let cause = report.no_verdict.as_ref().map(Sentence::text).unwrap_or_default();
            format!("{cause}; nothing was changed")
        }
        TuneVerdict::WouldPromote => {
            format!(
                "would promote {}{}; nothing was changed",
                regions(report.plan.selected.len() as u64),
                gain(report)
            )
        }
        TuneVerdict::Stopped => stopped(report),
        TuneVerdict::BudgetTooSmall => match report.plan.budget_bytes {
            Some(budget) => {
                format!("the budget of {budget} is too small for a gain; nothing was changed")
            }
            None => "huge pages would add more memory than --max-added allows; nothing was \
                     changed"
                .to_owned(),
        },
        TuneVerdict::BudgetTaken => budget_taken(report),
        TuneVerdict::MemoryShort => {
            "too little memory is free for huge pages; nothing was changed".to_owned()
        }
        TuneVerdict::NoneSelected if report.schedule.is_some() => {
            report.schedule.as_ref().map(no_promotion).unwrap_or_default()
        }
        TuneVerdict::NoneSelected => format!(
            "policy `{}` selected no region; {} may be promoted{}; nothing was changed",
            report.policy,
            regions(report.plan.eligible_regions.unwrap_or(0)),
            gain(report)
        ),
        TuneVerdict::NothingToGain => nothing_to_gain(report),
        TuneVerdict::Blocked => blocked(report),
        TuneVerdict::Refused => format!(
            "none of {} got a huge page{}; nothing was changed",
            regions(report.acts.attempted_regions),
            report.stopped.map(|stop| format!(": {}", stop.text())).unwrap_or_default()
        ),
        TuneVerdict::NoGain => {
            let result = match report.forecast.trial.map(|trial| trial.verdict) {
                Some(TrialVerdict::NoGain) => "a trial showed none",
                Some(_) => "a trial showed no certain gain",
                None => "a trial had no result",
            };
            format!("{result}{}; {}", gain(report), on_base_pages(report))
        }
        TuneVerdict::Lost => none_left(report),
        TuneVerdict::Promoted => format!(
            "{} of {} verified on huge pages in {}{}{}",
            report.acts.verified_regions,
            regions(report.acts.attempted_regions),
            acts_time(report.acts.acts_seconds, report.acts.promotion_seconds),
            gain(report),
            lost_since(report)
        ),
    }
}

/// The verdict of a tune that stopped before or in its trial.
fn stopped(report: &TuneReport) -> String {
    let cause = report.stopped.map(|stop| stop.text()).unwrap_or_default();
    freed_by_end(report).unwrap_or_else(|| match report.acts.demoted_regions {
        0 => format!("stopped before the first promotion: {cause}"),
        _ => format!("stopped in the trial: {cause}; {}", on_base_pages(report)),
    })
}

/// The verdict that other processes got the budget.
fn budget_taken(report: &TuneReport) -> String {
    // The other policies do not compare gains.
    let why = if report.policy == PolicyName::Heat { ", which gain more," } else { "" };
    format!(
        "other processes{why} got {} of the budget of {}; nothing was changed",
        size(report.plan.budget_of_others_bytes),
        size(report.plan.budget_bytes)
    )
}

/// The verdict that nothing, or nothing more, is to gain.
fn nothing_to_gain(report: &TuneReport) -> String {
    let claim = already_huge(report).map_or_else(
        || "huge pages would not pay".to_owned(),
        |ratio| {
            let share = percent(ratio);
            format!("{share} of the stalls are on huge pages already")
        },
    );
    format!("{claim}{}; nothing was changed", gain(report))
}

/// The verdict that the stalls are on memory that cannot get huge pages, or must not.
fn blocked(report: &TuneReport) -> String {
    let stalls = report.forecast.before.stall_ratio.filter(|&ratio| ratio > 0.0);
    let top = report.block().zip(stalls).map(|((reason, ratio), stalls)| {
        format!("{} of the stalls are {}", percent((ratio / stalls).min(1.0)), reason.place())
    });
    let gain = report.gain().map(|Gain { speedup, low, high, .. }| {
        let (low, high) = (low.unwrap_or(speedup), high.unwrap_or(speedup));
        format!("; on huge pages, predicted {speedup:.2}x ({low:.2}–{high:.2}) by the model")
    });
    let (top, gain) = (top.unwrap_or_default(), gain.unwrap_or_default());
    format!("{top}{gain}; nothing was changed")
}

/// The time of promotions with their checks, and that of the calls alone.
pub(super) fn acts_time(acts_seconds: Option<f64>, promotion_seconds: f64) -> String {
    acts_seconds.map_or_else(
        || format!("{promotion_seconds:.2} s of calls"),
        |seconds| {
            format!(
                "{seconds:.2} s ({promotion_seconds:.2} s in calls, the rest in checks and pauses)"
            )
        },
    )
}

/// The verdict on a schedule of which no promotion was applied.
fn no_promotion(schedule: &ScheduleReport) -> String {
    let changed = match schedule.demoted_events {
        0 => "nothing was changed".to_owned(),
        demoted => {
            let regions = counted(demoted, "region was", "regions were");
            format!("{regions} returned to base pages")
        }
    };
    format!(
        "the schedule promoted no region, {} of its {} due; {changed}",
        schedule.due_events,
        counted(schedule.events, "event was", "events were")
    )
}

/// The gain, after a claim, with its source: the only one that the first line has.
fn gain(report: &TuneReport) -> String {
    let Some(gain) = report.gain() else { return String::new() };
    let (low, high) = (gain.low.unwrap_or(gain.speedup), gain.high.unwrap_or(gain.speedup));
    match gain.source {
        GainSource::Measured => measured(report, gain.speedup),
        GainSource::Trial => {
            let doubt = if is_unconfirmed(report.forecast.trial) { ", not confirmed" } else { "" };
            format!(", {low:.2}x to {high:.2}x as fast by the trial{doubt}")
        }
        GainSource::Model => {
            format!(", predicted {:.2}x ({low:.2}–{high:.2}) by the model", gain.speedup)
        }
    }
}

/// The measured gain, with the number of its values and its certainty.
fn measured(report: &TuneReport, speedup: f64) -> String {
    let measured = &report.measured;
    let (before, after) = (values(measured.baseline), values(measured.tuned));
    let found = measured.metric.and_then(Metric::unit);
    let by = match measured.speedup_interval {
        Some(interval) => windows(interval, after),
        None => {
            let [one, several] = match found {
                Some(_) => ["tuned window", "tuned windows"],
                None => ["tuned value", "tuned values"],
            };
            format!("{before} untuned and {}", counted(after, one, several))
        }
    };
    let claim = match found {
        Some(unit) => format!("{speedup:.2}x the {unit}"),
        None => as_fast(report, speedup),
    };
    format!(
        ", {}",
        with_certainty(claim, &by, measured.speedup_interval, measured.speedup_certainty)
    )
}

#[cfg(test)]
mod tests {
    use hugepilot_record::{Prediction, Stop};
    use hugepilot_render::table::Width;

    use super::*;
    use crate::tune::text::tests::stopped;
    use crate::tune::text::tune_text;
    use crate::tune::{PredictedBy, TrialReport};

    #[test]
    fn a_trial_without_its_check_is_doubted_in_the_first_line_and_has_help() {
        let mut report = stopped();
        report.stopped = None;
        report.forecast.predicted_by = Some(PredictedBy::Trial);
        report.forecast.predicted_speedup = Some(Prediction { low: 1.33, median: 2.0, high: 4.16 });
        let trial = |confirmed| TrialReport {
            verdict: TrialVerdict::Gain,
            ratio: Some(0.5),
            low_ratio: Some(0.4),
            high_ratio: Some(0.6),
            high_speedup: None,
            pairs: Some(64),
            samples: Some(900),
            seconds: 1.2,
            confirmed,
        };
        report.forecast.trial = Some(trial(Some(true)));
        assert!(verdict(&report).ends_with("4.16x as fast by the trial"), "{report:?}");
        report.forecast.trial = Some(trial(None));
        assert!(verdict(&report).ends_with("as fast by the trial, not confirmed"), "{report:?}");
        let help = |report: &TuneReport| {
            let text = tune_text(report, Width::UNLIMITED, false);
            text.lines().find_map(|line| line.strip_prefix("help: ").map(str::to_owned))
        };
        assert_eq!(help(&report).unwrap(), "give the tune more time: --for 60s");
        report.target_ended = true;
        assert_eq!(help(&report).unwrap(), "give the program more work");
        (report.target_ended, report.stopped) = (false, Some(Stop::Interrupted));
        assert_eq!(help(&report), None);
    }
}
