//! Prediction for all eligible memory.

use hugepilot_record::Prediction;

use crate::tune::{TuneReport, TuneVerdict};

/// The prediction of the model for all eligible memory; empty beside a gain from a better source.
pub(super) fn eligible(report: &TuneReport) -> String {
    let Some(Prediction { low, median, high }) = report.eligible_gain() else {
        return String::new();
    };
    let mut text = format!(
        "all eligible memory on huge pages: {median:.2}x ({low:.2}–{high:.2}) by the model\n"
    );
    if report.dry_run && report.verdict() == TuneVerdict::WouldPromote {
        text.push_str(
            "note: the model can be far off; a trial decides, which tune makes without --dry-run\n",
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::PredictedBy;
    use crate::tune::text::tests::stopped;

    #[test]
    fn a_figure_of_the_model_stands_beside_no_better_one_and_a_dry_run_has_a_note() {
        let mut report = stopped();
        assert_eq!(eligible(&report), "");
        report.forecast.eligible_speedup = Some(Prediction { low: 1.02, median: 1.13, high: 1.45 });
        let line = "all eligible memory on huge pages: 1.13x (1.02–1.45) by the model\n";
        report.forecast.predicted_speedup = Some(Prediction { low: 1.1, median: 1.2, high: 1.3 });
        report.forecast.predicted_by = Some(PredictedBy::Trial);
        assert_eq!(eligible(&report), "");
        report.forecast.predicted_by = Some(PredictedBy::Model);
        assert_eq!(eligible(&report), line);
        (report.dry_run, report.acts.attempted_regions) = (true, 0);
        let note = "note: the model can be far off; a trial decides, which tune makes without \
                    --dry-run\n";
        assert_eq!(eligible(&report), format!("{line}{note}"));
        report.plan.selected.clear();
        assert_eq!(eligible(&report), line, "it would promote nothing");
        report.measured.speedup = Some(1.15);
        assert_eq!(eligible(&report), "", "it was measured");
    }
}
