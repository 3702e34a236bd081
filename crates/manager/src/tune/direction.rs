//! Direction of the progress metric: a time by default, a throughput by a flag.

use hugepilot_record::tune::{RateSign, TrialVerdict, TuneReport, TuneWarning};

/// Words that name a throughput.
const RATES: [&str; 8] = ["iops", "mops", "ops", "qps", "rate", "rps", "throughput", "tps"];

/// Speedup below which a metric says slower even if chance is not excluded.
const FAR: f64 = 0.95;

/// Returns the warning if the user may have forgotten that a larger value is better. `pattern` is
/// that of a metric which is read as a time.
pub fn read_as_time(pattern: &str, report: &TuneReport) -> Option<TuneWarning> {
    let sign = if names_a_rate(pattern) && report.speedup.is_some() {
        RateSign::Pattern
    } else if !is_slower(report) {
        return None;
    } else if report.trial.as_ref().is_some_and(|trial| trial.verdict == TrialVerdict::Gain) {
        RateSign::RoseDespiteGain
    } else {
        RateSign::Rose
    };
    Some(TuneWarning::MetricReadAsTime { sign })
}

/// Whether the metric says that promoted regions are slower: certainly, or by far.
fn is_slower(report: &TuneReport) -> bool {
    let is_far = report.speedup.is_some_and(|speedup| speedup < FAR);
    report.verified_regions > 0 && (is_far || report.is_certainly_slower())
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
    use hugepilot_record::Pid;
    use hugepilot_record::tune::Certainty;

    use super::*;
    use crate::tune::session::empty_report;
    use crate::tune::{TuneOptions, open};

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
    fn a_metric_that_rose_after_promotions_may_be_a_rate() {
        let own = open(Pid(std::process::id().cast_signed())).unwrap();
        let plain = empty_report(&own, &TuneOptions::default());
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
        let sign = |pattern, report: &TuneReport| match read_as_time(pattern, report) {
            Some(TuneWarning::MetricReadAsTime { sign }) => Some(sign),
            _ => None,
        };
        let work = r"work: (\d+)";
        assert_eq!(sign(work, &slower), Some(RateSign::RoseDespiteGain));
        let uncertain = Some(Certainty::Uncertain);
        let far = TuneReport { speedup_certainty: uncertain, ..slower.clone() };
        assert_eq!(sign(work, &far), Some(RateSign::RoseDespiteGain));
        let untried = TuneReport { trial: None, ..slower.clone() };
        assert_eq!(sign(work, &untried), Some(RateSign::Rose));
        let unchanged = TuneReport { verified_regions: 0, ..untried };
        let noisy = TuneReport { speedup: Some(0.97), ..far };
        let faster = TuneReport { speedup: Some(1.3), ..slower };
        for report in [&plain, &unchanged, &noisy, &faster] {
            assert_eq!(sign(work, report), None);
        }
        assert_eq!(sign(r"(\d+) ops/s", &faster), Some(RateSign::Pattern));
        assert_eq!(sign(r"(\d+) ops/s", &plain), None, "no metric was read");
    }
}
