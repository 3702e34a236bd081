//! `run` as text: what is said when the program has ended.

use std::fmt::Write;

use hugepilot_record::run::{Ending, Peak, RunReport};
use hugepilot_units::Bytes;

/// What took effect, what it took, and a warning with the reason where nothing did.
pub fn run_text(report: &RunReport) -> String {
    let mut text = String::new();
    let (mode, effect, run) = (report.mode, &report.effect, &report.run);
    let _ = match effect.took_effect {
        Some(true) => writeln!(text, "hugepilot: {mode}: {}", effect.reason),
        Some(false) => {
            writeln!(text, "hugepilot: warning: {mode} took no effect: {}", effect.reason)
        }
        None => {
            writeln!(text, "hugepilot: whether {mode} took effect is not known: {}", effect.reason)
        }
    };
    if let Some(fix) = effect.fix.as_ref().filter(|_| effect.took_effect == Some(false)) {
        let _ = writeln!(text, "fix: {fix}");
    }
    let _ = writeln!(text, "hugepilot: {}", peak(&run.peak));
    let _ = writeln!(
        text,
        "hugepilot: {:.2} s{}, {:.2} s of user and {:.2} s of system time, {} page faults{}",
        run.wall_seconds,
        if run.stopped { " with the time that it was stopped" } else { "" },
        run.user_seconds,
        run.system_seconds,
        run.page_faults,
        killed(run.ending)
    );
    for warning in &report.warnings {
        let _ = writeln!(text, "hugepilot: warning: {warning}");
    }
    text
}

fn peak(peak: &Peak) -> String {
    if peak.rss_samples == 0 {
        return format!(
            "at most {} resident in one process; it ended too soon to look at its pages",
            peak.rss_peak_bytes
        );
    }
    let of = |bytes: Bytes, kind: &str| format!(", {bytes} {kind}");
    let shared = peak.thp_peak_bytes - peak.anonymous_thp_peak_bytes;
    format!(
        "at the peak {} resident{}{}{}{}",
        peak.rss_peak_bytes,
        of(peak.anonymous_thp_peak_bytes, "on transparent huge pages"),
        if shared > Bytes::ZERO {
            of(shared, "more of files and shared memory")
        } else {
            String::new()
        },
        of(peak.hugetlb_2m_peak_bytes, "on 2MiB pages of the pool"),
        of(peak.hugetlb_1g_peak_bytes, "on 1GiB pages"),
    )
}

fn killed(ending: Ending) -> String {
    match ending {
        Ending::Exited(_) => String::new(),
        Ending::Killed(signal) => format!("; signal {signal} killed it"),
    }
}

#[cfg(test)]
mod tests {
    use hugepilot_record::run::{Effect, Mode, Run, SCHEMA};
    use hugepilot_testkit::assert_golden;

    use super::*;

    fn report(mode: Mode, took_effect: Option<bool>, peak: Peak) -> RunReport {
        let well = took_effect == Some(true);
        let fix = (!well).then(|| "--pages thp".to_owned());
        RunReport {
            schema: SCHEMA.to_owned(),
            command: vec!["a".to_owned(), "b c".to_owned()],
            mode,
            environment: vec!["GLIBC_TUNABLES=glibc.malloc.hugetlb=1".to_owned()],
            run: Run {
                ending: if well { Ending::Exited(0) } else { Ending::Killed(15) },
                wall_seconds: 1.25,
                stopped: false,
                user_seconds: 1.0,
                system_seconds: 0.125,
                processor_wait_seconds: None,
                page_faults: 1234,
                peak,
            },
            effect: Effect { took_effect, reason: "the reason".to_owned(), fix },
            warnings: if well { Vec::new() } else { vec!["something".to_owned()] },
        }
    }

    #[test]
    fn the_text_says_what_took_effect_and_what_did_not() {
        let seen = Peak {
            rss_peak_bytes: Bytes::mib(300),
            thp_peak_bytes: Bytes::mib(260),
            anonymous_thp_peak_bytes: Bytes::mib(256),
            hugetlb_peak_bytes: Bytes::mib(6),
            hugetlb_2m_peak_bytes: Bytes::mib(6),
            rss_samples: 9,
            ..Peak::default()
        };
        let short = Peak { rss_peak_bytes: Bytes::mib(1), ..Peak::default() };
        let modes = [
            (Mode::GlibcThp, Some(true), seen),
            (Mode::Hugetlb, Some(false), short.clone()),
            (Mode::Thp, None, short),
        ];
        let text = modes.map(|(mode, took, peak)| run_text(&report(mode, took, peak)));
        assert_golden("testdata/run.txt", &text.join("\n"));
        let mut stopped = report(Mode::Thp, None, Peak::default());
        stopped.run.stopped = true;
        assert!(run_text(&stopped).contains("1.25 s with the time that it was stopped, "));
    }

    #[test]
    fn the_json_has_the_fields_it_promises() {
        let report = report(Mode::GlibcThp, Some(true), Peak::default());
        let json: serde_json::Value = serde_json::from_str(&crate::json(&report)).unwrap();
        assert_eq!((&json["mode"], &json["took_effect"]), (&"glibc-thp".into(), &true.into()));
        for field in [
            "wall_seconds",
            "page_faults",
            "rss_peak_bytes",
            "hugetlb_1g_peak_bytes",
            "reason",
            "environment",
        ] {
            assert!(!json[field].is_null(), "{field}");
        }
        let back: RunReport = serde_json::from_value(json).unwrap();
        assert_eq!(back, report);
    }
}
