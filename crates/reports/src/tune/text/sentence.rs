//! Sentences of `tune`: causes, warnings, and lines of the report.

use hugepilot_record::Stop;
use hugepilot_units::Bytes;

use super::metric::as_fast;
use crate::tune::{
    Certainty, Interval, NoMetric, NoTrial, Performance, TrialReport, TrialVerdict, TuneReport,
    TuneWarning,
};
pub(super) use hugepilot_record::sentence::whole_percent as percent;

use hugepilot_render::sentence::Sentence;
use hugepilot_render::table::{self, counted};

/// A size, or that it is unknown.
pub(super) fn size(bytes: Option<Bytes>) -> String {
    bytes.map_or_else(|| "unknown".to_owned(), |bytes| bytes.to_string())
}

/// The line about the speedup with all memory on huge pages, with the number of its values and its
/// certainty.
pub(super) fn all_huge(report: &TuneReport) -> Option<String> {
    let claim = as_fast(report, report.measured.all_huge_speedup?);
    let (before, after) = (values(report.measured.baseline), values(report.measured.all_huge));
    let by = match report.measured.all_huge_speedup_interval {
        Some(interval) => windows(interval, after),
        None => {
            format!("{before} untuned and {}", counted(after, "all-huge value", "all-huge values"))
        }
    };
    let (interval, certainty) =
        (report.measured.all_huge_speedup_interval, report.measured.all_huge_speedup_certainty);
    Some(format!("all huge: {}\n", with_certainty(claim, &by, interval, certainty)))
}

pub(super) fn values(performance: Option<Performance>) -> u64 {
    performance.map_or(0, |one| one.values)
}

/// An interval and the number of windows behind it.
pub(super) fn windows(Interval { low, high }: Interval, count: u64) -> String {
    format!("{low:.2}–{high:.2}, {}", counted(count, "window", "windows"))
}

/// A claim about a speedup with its evidence, and whether it can be chance. An interval shows that
/// by itself.
pub(super) fn with_certainty(
    claim: String,
    by: &str,
    interval: Option<Interval>,
    certainty: Option<Certainty>,
) -> String {
    let doubt = match certainty {
        Some(Certainty::Certain) if interval.is_some() => "",
        Some(Certainty::Certain) => "; certain: they do not overlap",
        Some(Certainty::Uncertain) => "; uncertain: it can be chance",
        Some(Certainty::LoadChanged) => "; uncertain: the load of the machine changed",
        Some(Certainty::LoadUnknown) => "; uncertain: the load of the machine is unknown",
        Some(Certainty::FewValues) => "; that proves nothing: five of each are needed",
        None => return claim,
    };
    format!("{claim} ({by}{doubt})")
}

/// The line about the share of the all-huge gain.
pub(super) fn gain_share(report: &TuneReport) -> Option<String> {
    let share = table::percent(report.measured.all_huge_gain_ratio?);
    let interval = report.measured.all_huge_gain_interval.map_or_else(String::new, |interval| {
        format!(" ({:.1}–{})", interval.low * 100.0, table::percent(interval.high))
    });
    Some(format!("share of the all-huge gain: {share}{interval}\n"))
}

/// The line about the trial, or why there was none; `None` if the question did not come up.
pub(crate) fn trial(no_trial: Option<NoTrial>, trial: Option<TrialReport>) -> Option<String> {
    if let Some(cause) = no_trial {
        let began = matches!(cause, NoTrial::NonePromoted { .. } | NoTrial::PairsChanged { .. });
        let lacking = if began { "trial without a result" } else { "no trial" };
        return Some(format!("{lacking}: {}", cause.text()));
    }
    let trial = trial?;
    let result = match (trial.verdict, trial.high_speedup) {
        (TrialVerdict::Gain, _) => "gain".to_owned(),
        (TrialVerdict::NoGain, _) => "no gain".to_owned(),
        (TrialVerdict::Open, Some(high)) => format!("open, at most {high:.2}x as fast"),
        (TrialVerdict::Open, None) if trial.samples.is_none() => {
            "ended before its first reading".to_owned()
        }
        (TrialVerdict::Open, None) => "open".to_owned(),
    };
    let ratio = match (trial.ratio, trial.low_ratio, trial.high_ratio) {
        (Some(ratio), Some(low), Some(high)) => format!(
            ": a stall on a huge page takes {ratio:.2} ({low:.2}–{high:.2}) of its time on base \
             pages"
        ),
        _ => String::new(),
    };
    let check = match trial.confirmed {
        Some(true) => "; confirmed with both halves on huge pages",
        Some(false) => "; void: the halves differed later, so the program changed its phase",
        None if is_unconfirmed(Some(trial)) => {
            "; not confirmed: no reading with both halves on huge pages"
        }
        None => "",
    };
    Some(format!("trial: {result}{ratio}; {}{check}", evidence(&trial)))
}

/// Whether the gain of a trial was not checked.
pub(super) fn is_unconfirmed(trial: Option<TrialReport>) -> bool {
    trial.is_some_and(|trial| trial.verdict == TrialVerdict::Gain && trial.confirmed.is_none())
}

/// The help for a trial without its check; `None` if a cause that has its own line ended the tune.
pub(super) fn confirm_help(report: &TuneReport) -> Option<&'static str> {
    let is_run = report.measured.tuned.is_some_and(|tuned| tuned.seconds.is_some())
        || matches!(report.measured.no_metric, Some(NoMetric::OfProgram { .. }));
    match () {
        () if !is_unconfirmed(report.forecast.trial) => None,
        () if report.target_ended || is_run => Some("help: give the program more work\n"),
        () if report.stopped.is_some() => None,
        () => Some("help: give the tune more time: --for 60s\n"),
    }
}

/// The pairs, samples and time of a trial, as far as they are known.
fn evidence(trial: &TrialReport) -> String {
    let pairs = trial.pairs.map(|pairs| counted(pairs, "pair", "pairs") + ", ");
    let samples = trial.samples.map(|samples| counted(samples, "sample", "samples") + ", ");
    let [pairs, samples] = [pairs, samples].map(Option::unwrap_or_default);
    format!("{pairs}{samples}{:.1} s", trial.seconds)
}

/// The cause, if regions were promoted and neither a metric nor runs gave their gain.
pub(super) fn unmeasured(report: &TuneReport) -> Option<String> {
    if report.acts.verified_regions == 0 || report.measured.speedup.is_some() {
        return None;
    }
    if report.measured.tuned.is_some_and(|tuned| tuned.seconds.is_some()) {
        // With a baseline, failed runs have warnings.
        let is_alone = report.measured.baseline.is_none();
        return is_alone.then(|| "no untuned run; use --baseline".to_owned());
    }
    if let Some(cause @ NoMetric::OfProgram { .. }) = &report.measured.no_metric {
        return Some(cause.text());
    }
    let has_no_values =
        |warning: &TuneWarning| matches!(warning, TuneWarning::NoProgressValues { .. });
    let cause = match () {
        () if report.target_ended => "the process ended too soon after the last promotion",
        () if report.warnings.iter().any(has_no_values) => "the progress metric has no value",
        () if lacks_time(report) => "the tune was interrupted",
        () => "no progress metric; use --progress-regex (with -p also --progress-file)",
    };
    Some(cause.to_owned())
}

/// Whether an interruption is the only known cause of a missing gain.
pub(super) fn lacks_time(report: &TuneReport) -> bool {
    let is_cut = matches!(report.measured.no_metric, None | Some(NoMetric::FewWindows { .. }));
    is_cut && report.stopped == Some(Stop::Interrupted)
}

#[cfg(test)]
mod tests {
    use hugepilot_render::table::Width;
    use hugepilot_stats::Spread;

    use super::*;
    use crate::tune::text::tests::stopped;
    use crate::tune::text::tune_text;
    use crate::tune::{Performance, RateSign};

    #[test]
    fn a_share_of_the_gain_has_its_interval_and_its_doubt() {
        let mut report = stopped();
        report.measured.tuned =
            Some(Performance { ops_per_second: Spread::of(&[4.0]), ..Performance::default() });
        report.measured.all_huge_gain_ratio = Some(0.97);
        let interval = Some(Interval { low: 0.6, high: 1.234 });
        report.measured.all_huge_gain_interval = interval;
        let misread = TuneWarning::MetricReadAsTime { sign: RateSign::Pattern };
        report.warnings = vec![TuneWarning::UncertainShare { interval }, misread];
        let text = tune_text(&report, Width::UNLIMITED, false);
        assert!(text.contains("share of the all-huge gain: 97.0 % (60.0–123.4 %)\n"), "{text}");
        assert!(text.contains("all-huge gain is uncertain: 60 to 123 %\n"), "{text}");
        let help = "as a time, and its pattern names a rate\nhelp: if a larger value is better: \
                    --progress-higher-is-better\n";
        assert!(text.contains(help), "{text}");
    }
}
