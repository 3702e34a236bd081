//! Direction of the progress metric: a time by default, a throughput by a flag.

use hugepilot_reports::tune::{RateSign, TrialVerdict, TuneReport, TuneWarning};

/// Words that name a throughput.
const RATES: [&str; 8] = ["iops", "mops", "ops", "qps", "rate", "rps", "throughput", "tps"];

/// Speedup below which a metric says slower even if chance is not excluded.
const FAR: f64 = 0.95;

/// Returns the warning if the user may have forgotten that a larger value is better. `pattern` is
/// that of a metric which is read as a time.
pub fn read_as_time(pattern: &str, report: &TuneReport) -> Option<TuneWarning> {
    let sign = if names_a_rate(pattern) && report.measured.speedup.is_some() {
        RateSign::Pattern
    } else if !is_slower(report) {
        return None;
    } else if report
        .forecast
        .trial
        .as_ref()
        .is_some_and(|trial| trial.verdict == TrialVerdict::Gain)
    {
        RateSign::RoseDespiteGain
    } else {
        RateSign::Rose
    };
    Some(TuneWarning::MetricReadAsTime { sign })
}

/// Whether the metric says that promoted regions are slower: certainly, or by far.
fn is_slower(report: &TuneReport) -> bool {
    let is_far = report.measured.speedup.is_some_and(|speedup| speedup < FAR);
    report.acts.verified_regions > 0 && (is_far || report.is_certainly_slower())
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
    use hugepilot_reports::tune::{Certainty, Forecast, Measured, TuneActs};

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
    fn a_metric_that_rose_after_promotions_may_be_a_rate() {
        let plain = TuneReport::default();
        let trial = serde_json::from_value(serde_json::json!({
            "ratio": 0.5, "low_ratio": 0.4, "high_ratio": 0.6, "pairs": 30, "samples": 900,
            "seconds": 3.0, "verdict": "gain",
        }));
        let of = |speedup, certainty| Measured {
            speedup: Some(speedup),
            speedup_certainty: Some(certainty),
            ..Measured::default()
        };
        let slower = TuneReport {
            forecast: Forecast { trial: Some(trial.unwrap()), ..Forecast::default() },
            acts: TuneActs { verified_regions: 30, ..TuneActs::default() },
            measured: of(0.7, Certainty::Certain),
            ..plain.clone()
        };
        let sign = |pattern, report: &TuneReport| match read_as_time(pattern, report) {
            Some(TuneWarning::MetricReadAsTime { sign }) => Some(sign),
            _ => None,
        };
        let work = r"work: (\d+)";
        assert_eq!(sign(work, &slower), Some(RateSign::RoseDespiteGain));
        let far = TuneReport { measured: of(0.7, Certainty::Uncertain), ..slower.clone() };
        assert_eq!(sign(work, &far), Some(RateSign::RoseDespiteGain));
        let untried = TuneReport { forecast: Forecast::default(), ..slower.clone() };
        assert_eq!(sign(work, &untried), Some(RateSign::Rose));
        let unchanged = TuneReport { acts: TuneActs::default(), ..untried };
        let noisy = TuneReport { measured: of(0.97, Certainty::Uncertain), ..far };
        let faster = TuneReport { measured: of(1.3, Certainty::Certain), ..slower };
        for report in [&plain, &unchanged, &noisy, &faster] {
            assert_eq!(sign(work, report), None);
        }
        assert_eq!(sign(r"(\d+) ops/s", &faster), Some(RateSign::Pattern));
        assert_eq!(sign(r"(\d+) ops/s", &plain), None, "no metric was read");
    }
}
