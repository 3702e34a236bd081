//! Text and JSON of `hugepilot run`.

mod effect;

use std::fmt::Write;

use hugepilot_record::Ending;
use hugepilot_units::Bytes;
use serde_json::Value;

use crate::run::{Peak, RunReport};

pub(crate) use effect::effect_text;
use hugepilot_render::Sentence;
use hugepilot_render::json::JsonReport;
use hugepilot_render::sentence::{explain, explain_all, lines};

/// Prints the effect, peak memory, times and warnings. Each line starts with `hugepilot:`, because
/// the program shares stderr.
pub fn run_text(report: &RunReport) -> String {
    let (mode, effect, run) = (report.mode, &report.effect, &report.run);
    let reason = effect_text(effect);
    let mut text = match effect.took_effect {
        Some(true) => format!("{mode}: {reason}\n"),
        Some(false) => format!("warning: {mode} took no effect: {reason}\n"),
        None => format!("the effect of {mode} is unknown: {reason}\n"),
    };
    for help in effect.cause.help() {
        let _ = writeln!(text, "help: {help}");
    }
    let _ = writeln!(text, "{}", peak(&run.peak));
    let _ = writeln!(
        text,
        "{:.2} s{}, {:.2} s of user and {:.2} s of system time, {} page faults{}",
        run.wall_seconds,
        if run.stopped { " including the time while it was stopped" } else { "" },
        run.user_seconds,
        run.system_seconds,
        run.page_faults,
        killed(run.ending)
    );
    for warning in &report.warnings {
        text.push_str(&lines("warning", warning));
    }
    text.lines().map(|line| format!("hugepilot: {line}\n")).collect()
}

impl JsonReport for RunReport {
    const EXPLAINS: bool = true;

    fn explain(&self, json: &mut Value) {
        explain(json, "/cause", &self.effect.cause);
        if let Some(owner) = &self.effect.owner {
            explain(json, "/owner", owner);
        }
        explain_all(json, "/warnings", &self.warnings);
    }
}

fn peak(peak: &Peak) -> String {
    if peak.rss_samples == 0 {
        return format!(
            "peak memory of one process: {} resident; it ended before the first sample of its \
             pages",
            peak.rss_peak_bytes
        );
    }
    let huge = match peak.all_huge() {
        Bytes::ZERO => String::new(),
        _ => format!(", {}", peak.huge_memory()),
    };
    format!("peak memory: {} resident{huge}", peak.rss_peak_bytes)
}

fn killed(ending: Ending) -> String {
    match ending {
        Ending::Exited(_) => String::new(),
        Ending::Killed(signal) => format!("; killed by signal {signal}"),
    }
}

#[cfg(test)]
mod tests {
    use hugepilot_record::Mode;
    use hugepilot_testkit::assert_golden;

    use super::*;
    use crate::run::{Effect, EffectCause, ProgramKind, Run, RunWarning, SCHEMA};

    fn report(mode: Mode, effect: Effect, peak: Peak) -> RunReport {
        let well = effect.took_effect == Some(true);
        let warning = RunWarning::TunableKept { tunable: "glibc.malloc.hugetlb=0".to_owned() };
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
            effect,
            warnings: if well { Vec::new() } else { vec![warning] },
        }
    }

    fn huge_pages() -> (Effect, Peak) {
        let peak = Peak {
            rss_peak_bytes: Bytes::mib(300),
            thp_peak_bytes: Bytes::mib(260),
            anonymous_thp_peak_bytes: Bytes::mib(256),
            hugetlb_peak_bytes: Bytes::mib(6),
            hugetlb_2m_peak_bytes: Bytes::mib(6),
            rss_samples: 9,
            ..Peak::default()
        };
        let cause = EffectCause::HugePages {
            pages: peak.huge_memory(),
            mode_bytes: Bytes::mib(256),
            memory_bytes: Bytes::mib(306),
        };
        (Effect::new(Some(true), cause), peak)
    }

    #[test]
    fn the_text_has_the_effect_or_the_cause_and_help() {
        let (effect, peak) = huge_pages();
        let short = Peak { rss_peak_bytes: Bytes::mib(1), ..Peak::default() };
        let without = EffectCause::LoaderBypassed { program: ProgramKind::Static };
        let reports = [
            report(Mode::GlibcThp, effect, peak),
            report(Mode::Hugetlb, Effect::new(Some(false), without), short.clone()),
            report(
                Mode::Thp,
                Effect::new(None, EffectCause::NotSampled { wall_seconds: 0.25 }),
                short,
            ),
        ];
        let text = reports.map(|report| run_text(&report));
        assert_golden("testdata/run.txt", &text.join("\n"));
        let unknown = Effect::new(None, EffectCause::Unreadable);
        let mut stopped = report(Mode::Thp, unknown, Peak::default());
        stopped.run.stopped = true;
        assert!(run_text(&stopped).contains("1.25 s including the time while it was stopped, "));
    }

    #[test]
    fn the_json_has_facts_and_sentences() {
        let (effect, peak) = huge_pages();
        let report = report(Mode::GlibcThp, effect, peak);
        let json: serde_json::Value =
            serde_json::from_str(&hugepilot_render::json(&report)).unwrap();
        assert_eq!((&json["mode"], &json["took_effect"]), (&"glibc-thp".into(), &true.into()));
        assert_eq!(json["cause"]["code"], "huge_pages");
        assert_eq!(json["cause"]["hugetlb_2m_bytes"], 6 << 20);
        assert_eq!(json["cause"]["text"], effect_text(&report.effect));
        for field in ["wall_seconds", "page_faults", "hugetlb_1g_peak_bytes", "environment"] {
            assert!(!json[field].is_null(), "{field}");
        }
        let back: RunReport = serde_json::from_value(json).unwrap();
        assert_eq!(back, report);
    }
}
