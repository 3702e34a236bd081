//! Prediction for all eligible memory.

use hugepilot_record::tune::{PredictedBy, Prediction, TuneReport, TuneVerdict};

/// The prediction of the model for all eligible memory, and how far it holds.
pub(super) fn eligible(report: &TuneReport) -> String {
    let Some(Prediction { low, median, high }) = report.eligible_speedup else {
        return String::new();
    };
    let contradicted =
        if contradicts(report, median) { ", which the trial contradicts" } else { "" };
    let mut text = format!(
        "all eligible memory on huge pages: {median:.2}x ({low:.2}–{high:.2}) by the \
         model{contradicted}\n"
    );
    if report.dry_run && report.verdict() == TuneVerdict::WouldPromote {
        text.push_str(
            "note: the model can be far off; a trial decides, which tune makes without --dry-run\n",
        );
    }
    text
}

/// Whether a trial excludes that all eligible memory gains this: the selected part alone gains
/// more, or all of it gains less.
fn contradicts(report: &TuneReport, speedup: f64) -> bool {
    let by_trial = report.predicted_by == Some(PredictedBy::Trial);
    let low = report.predicted_speedup.filter(|_| by_trial).map(|one| one.low);
    let high = report.trial.and_then(|trial| trial.high_speedup).filter(|_| by_trial);
    low.is_some_and(|low| speedup < low) || high.is_some_and(|high| speedup > high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::tests::stopped;

    #[test]
    fn a_trial_that_excludes_the_model_is_named_and_a_dry_run_has_none() {
        let mut report = stopped();
        assert_eq!(eligible(&report), "");
        report.eligible_speedup = Some(Prediction { low: 1.02, median: 1.13, high: 1.45 });
        let line = "all eligible memory on huge pages: 1.13x (1.02–1.45) by the model";
        let trial = |low, high| Some(Prediction { low, median: 2.49, high });
        for (by, predicted, end) in [
            (PredictedBy::Trial, trial(1.33, 4.16), ", which the trial contradicts\n"),
            (PredictedBy::Trial, trial(1.1, 4.16), "\n"),
            (PredictedBy::Model, trial(1.33, 4.16), "\n"),
        ] {
            (report.predicted_by, report.predicted_speedup) = (Some(by), predicted);
            assert_eq!(eligible(&report), format!("{line}{end}"));
        }
        (report.dry_run, report.attempted_regions) = (true, 0);
        let note = "note: the model can be far off; a trial decides, which tune makes without \
                    --dry-run\n";
        assert_eq!(eligible(&report), format!("{line}\n{note}"));
        report.selected.clear();
        assert_eq!(eligible(&report), format!("{line}\n"), "it would promote nothing");
    }
}
