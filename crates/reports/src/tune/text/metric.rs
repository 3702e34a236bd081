//! Sentences about the metric of a tune.

use crate::tune::{Metric, TuneReport, TuneWarning};

/// The line about a found metric.
pub(super) fn found_metric(metric: Metric) -> Option<String> {
    let unit = metric.unit()?;
    Some(format!(
        "metric: {unit}, which the kernel counts; it holds as far as the program's requests stay \
         alike\nhelp: let the program report its speed: --progress-file, --progress-regex\n"
    ))
}

/// The claim of a speedup, with its condition if the metric may be a rate that is read as a time.
pub(super) fn as_fast(report: &TuneReport, speedup: f64) -> String {
    let may_be_rate = |one: &TuneWarning| matches!(one, TuneWarning::MetricReadAsTime { .. });
    let is_open = report.warnings.iter().any(may_be_rate);
    let condition = if is_open { " if the metric is a time" } else { "" };
    format!("{speedup:.2}x as fast{condition}")
}

#[cfg(test)]
mod tests {
    use hugepilot_record::AccessError;
    use hugepilot_render::json;
    use hugepilot_render::table::Width;
    use hugepilot_stats::Spread;
    use serde_json::Value;

    use super::*;
    use crate::tune::text::sentence::all_huge;
    use crate::tune::text::tests::stopped;
    use crate::tune::text::{tune_text, verdict};
    use crate::tune::{NoMetric, Performance, RateSign, Runs};

    #[test]
    fn a_found_metric_is_named_and_does_not_claim_to_be_the_speed() {
        let performance = |values: &[f64]| Performance {
            work_per_cpu_second: Spread::of(values),
            values: values.len() as u64,
            ..Performance::default()
        };
        let both = [&[30_000.0; 7][..], &[36_000.0; 20]].map(|values| Some(performance(values)));
        let mut report = stopped().with_runs(Runs::by_medians(both[0], both[1], None, false), []);
        report.measured.metric = Some(Metric::IoCalls);
        let text = tune_text(&report, Width::UNLIMITED, false);
        let first = text.lines().next().unwrap();
        let gain = ", 1.20x the read and write calls per CPU second (7 untuned and 20 tuned \
                    windows; certain: they do not overlap)";
        assert!(first.ends_with(gain) && !text.contains("as fast"), "{text}");
        assert!(text.contains("MEDIAN_PER_CPU_SECOND"), "{text}");
        assert!(text.contains("\nmetric: read and write calls per CPU second, which"), "{text}");
        assert!(text.contains("\nhelp: let the program report its speed: --prog"), "{text}");
        report.measured.metric = Some(Metric::Given);
        assert_eq!(report.measured.metric.and_then(found_metric), None);
    }

    #[test]
    fn a_speedup_by_a_metric_that_may_be_a_rate_has_its_condition() {
        let mut report = stopped();
        (report.measured.speedup, report.measured.all_huge_speedup) = (Some(0.8), Some(0.75));
        let speed = |report: &TuneReport| {
            let line = verdict(report) + &all_huge(report).unwrap();
            line.matches("x as fast if the metric is a time").count()
        };
        assert_eq!(speed(&report), 0);
        report.warnings = vec![TuneWarning::MetricReadAsTime { sign: RateSign::Rose }];
        assert_eq!(speed(&report), 2, "{}", verdict(&report));
    }

    #[test]
    fn without_a_metric_the_text_and_json_have_the_cause() {
        let cause = |no_metric: NoMetric| {
            let mut report = stopped();
            report.measured.no_metric = Some(no_metric);
            let value: Value = serde_json::from_str(&json(&report)).unwrap();
            assert!(value["no_metric"]["code"].is_string(), "{value}");
            let text = tune_text(&report, Width::UNLIMITED, false);
            let line = text.lines().find_map(|line| line.strip_prefix("no metric found: "));
            let line = line.unwrap_or_else(|| panic!("{text}")).to_owned();
            assert_eq!(value["no_metric"]["text"], line, "{value}");
            (line, text)
        };
        let (line, _) = cause(NoMetric::Unsteady { metric: Metric::IoCalls, spread_ratio: 0.32 });
        assert_eq!(line, "read and write calls per CPU second vary by 32 % within seconds");
        let (line, _) = cause(NoMetric::Changed { change_ratio: 0.12 });
        assert!(line.contains("changed by 12 %"), "{line}");
        let (line, _) = cause(NoMetric::FewWindows { windows: 3, required: 5 });
        assert!(line.contains("3 windows") && line.ends_with("5 are needed"), "{line}");
        let (error, help) = ("no permission".to_owned(), vec!["be root".to_owned()]);
        let (line, text) = cause(NoMetric::Unreadable(AccessError { error, help }));
        assert!(line == "no permission" && text.contains("help: be root\n"), "{text}");
        for plain in [NoMetric::FewEvents, NoMetric::OtherProcess] {
            assert!(!cause(plain).0.is_empty());
        }
    }
}
