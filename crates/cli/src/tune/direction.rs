//! Hint at the direction of the progress metric: a time by default, a throughput by a flag.

use hugepilot_record::tune::{Certainty, TrialVerdict, TuneReport};

/// Words that name a throughput.
const RATES: [&str; 8] = ["iops", "mops", "ops", "qps", "rate", "rps", "throughput", "tps"];

/// Speedup below which a metric says slower even if chance is not excluded.
const FAR: f64 = 0.95;

/// Returns the hint if the user may have forgotten that a larger value is better. `pattern` is that
/// of a metric which is read as a time.
pub(super) fn hint(pattern: &str, report: &TuneReport) -> Option<String> {
    let cause = if names_a_rate(pattern) && report.speedup.is_some() {
        "its pattern names a rate"
    } else if !is_slower(report) {
        return None;
    } else if report.trial.as_ref().is_some_and(|trial| trial.verdict == TrialVerdict::Gain) {
        "it rose, although the trial showed a gain"
    } else {
        "it rose after the promotions"
    };
    Some(format!(
        "warning: the progress metric is read as a time, and {cause}\n\
         help: if a larger value is better: --progress-higher-is-better"
    ))
}

/// Whether the metric says that promoted regions are slower: certainly, or by far.
fn is_slower(report: &TuneReport) -> bool {
    let is_certain = report.speedup_certainty == Some(Certainty::Certain);
    let limit = if is_certain { 1.0 } else { FAR };
    report.verified_regions > 0 && report.speedup.is_some_and(|speedup| speedup < limit)
}

/// Whether a pattern has the name or the unit of a rate.
fn names_a_rate(pattern: &str) -> bool {
    let pattern = pattern.to_lowercase();
    let mut words = pattern.split(|c: char| !c.is_alphanumeric());
    if words.clone().any(|word| RATES.contains(&word)) {
        return true;
    }
    let has_unit = pattern.split('/').skip(1).any(|after| {
        let word: String = after.chars().take_while(|c| c.is_alphanumeric()).collect();
        ["s", "sec", "second"].contains(&&*word)
    });
    has_unit || (words.any(|word| word == "per") && words.any(|word| word.starts_with("sec")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_names_a_rate_by_a_word_or_a_unit() {
        for rate in [
            r"(\d+) ops",
            r"Throughput: ([\d.]+)",
            r"([\d.]+) MB/s",
            r"([\d.]+) requests per second",
        ] {
            assert!(names_a_rate(rate), "{rate}");
        }
        for time in [
            r"Trial Time:\s+([\d.]+)",
            r"([\d.]+) seconds per iteration",
            r"loops=(\d+)",
            r"Generated in\s(\S+)",
            r"(\d+)/(\d+)",
        ] {
            assert!(!names_a_rate(time), "{time}");
        }
    }

    #[test]
    fn the_hint_names_the_option_if_the_metric_rose_after_promotions() {
        let plain: TuneReport = crate::tune::tests::report();
        let trial = serde_json::from_value(serde_json::json!({
            "ratio": 0.5, "low_ratio": 0.4, "high_ratio": 0.6, "pairs": 30, "samples": 900,
            "seconds": 3.0, "verdict": "gain",
        }));
        let slower = TuneReport {
            trial: Some(trial.unwrap()),
            verified_regions: 30,
            speedup: Some(0.7),
            speedup_certainty: Some(Certainty::Certain),
            ..plain.clone()
        };
        let text = hint(r"work: (\d+)", &slower).unwrap();
        assert!(text.contains("the trial showed a gain"), "{text}");
        assert!(text.ends_with("--progress-higher-is-better"), "{text}");
        let uncertain = Some(Certainty::Uncertain);
        let far = TuneReport { speedup_certainty: uncertain, ..slower.clone() };
        assert_eq!(hint(r"work: (\d+)", &far), Some(text));
        let untried = TuneReport { trial: None, ..slower.clone() };
        let cause = hint(r"work: (\d+)", &untried).unwrap();
        assert!(cause.contains("it rose after the promotions"), "{cause}");
        let unchanged = TuneReport { verified_regions: 0, ..untried };
        let noisy = TuneReport { speedup: Some(0.97), ..far };
        let faster = TuneReport { speedup: Some(1.3), ..slower };
        for report in [&plain, &unchanged, &noisy, &faster] {
            assert_eq!(hint(r"work: (\d+)", report), None);
        }
        assert!(hint(r"(\d+) ops/s", &faster).unwrap().contains("its pattern names a rate"));
        assert_eq!(hint(r"(\d+) ops/s", &plain), None, "no metric was read");
    }
}
