//! Text and JSON of `hugepilot compare`: a row per mode, the effects, the verdict.

mod verdict;

use std::fmt::Write;

use hugepilot_record::compare::{CompareReport, ModeReport};
use hugepilot_stats::Spread;
use hugepilot_units::Bytes;
use serde_json::Value;

use crate::Sentence;
use crate::json::JsonReport;
use crate::run::effect_text;
use crate::sentence::{explain, explain_all, warning_lines};
use crate::table::{Width, grouped, percent, table};
pub(crate) use verdict::VerdictText;

/// Prints the table, the effect of each mode, warnings and the verdict.
pub fn compare_text(report: &CompareReport, width: Width) -> String {
    let counted = report.modes.iter().any(|mode| mode.dtlb_miss_ratio.is_some());
    let stalls = if counted { "TLB_MISSES" } else { "STALLS" };
    let header = [
        "MODE",
        "WALL_S",
        "MIN_S",
        "MAX_S",
        "USER_S",
        "SYSTEM_S",
        "FAULTS",
        stalls,
        "RSS",
        "THP",
        "HUGETLB",
        "SPEEDUP",
        "LOW",
        "HIGH",
        "CPU_SPEEDUP",
    ];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    let ran = report.modes.iter().filter(|mode| mode.runs > 0);
    rows.extend(ran.map(|mode| row(mode, counted)));
    let mut text = table(rows, &(1..header.len()).collect::<Vec<_>>(), width);
    text.push('\n');
    for mode in &report.modes {
        text.push_str(&effect(mode));
    }
    text.push('\n');
    text.push_str(&warning_lines(&report.warnings));
    if report.interrupted {
        text.push_str("warning: interrupted before all rounds were complete\n");
    }
    if let Some(cause) = report.stalls_unavailable.as_ref().filter(|_| !counted) {
        let _ = writeln!(text, "note: stalls were not sampled: {}", cause.text());
    }
    let _ = writeln!(text, "{}", VerdictText(report).text());
    text
}

impl JsonReport for CompareReport {
    const EXPLAINS: bool = true;

    fn explain(&self, json: &mut Value) {
        for (index, mode) in self.modes.iter().enumerate() {
            explain(json, &format!("/modes/{index}/cause"), &mode.effect.cause);
            if let Some(owner) = &mode.effect.owner {
                explain(json, &format!("/modes/{index}/owner"), owner);
            }
        }
        if let Some(confirmation) = &self.confirmation {
            explain(json, "/confirmation/cause", &confirmation.effect.cause);
        }
        if let Some(cause) = &self.stalls_unavailable {
            explain(json, "/stalls_unavailable", cause);
        }
        explain(json, "/verdict", &VerdictText(self));
        explain_all(json, "/warnings", &self.warnings);
    }
}

fn row(mode: &ModeReport, counted: bool) -> Vec<String> {
    let median = |spread: Option<Spread>| seconds(spread.map(|spread| spread.median));
    let ratio = |ratio: Option<f64>| ratio.map_or_else(unknown, |ratio| format!("{ratio:.2}x"));
    let size = |bytes: Option<Bytes>| bytes.map_or_else(unknown, |bytes| bytes.to_string());
    let stalls = if counted { mode.dtlb_miss_ratio } else { mode.stall_ratio };
    let over = mode.speedup_over_base;
    #[allow(clippy::cast_precision_loss)]
    let faults = mode.page_faults.map_or_else(unknown, |count| grouped(count as f64));
    vec![
        mode.mode.to_string(),
        median(mode.wall_seconds),
        seconds(mode.wall_seconds.map(|spread| spread.min)),
        seconds(mode.wall_seconds.map(|spread| spread.max)),
        median(mode.user_seconds),
        median(mode.system_seconds),
        faults,
        stalls.map_or_else(unknown, percent),
        size(mode.rss_peak_bytes),
        size(mode.thp_peak_bytes),
        size(mode.hugetlb_peak_bytes),
        ratio(over.map(|over| over.median)),
        ratio(over.map(|over| over.low)),
        ratio(over.map(|over| over.high)),
        ratio(mode.cpu_speedup_over_base.map(|over| over.median)),
    ]
}

fn seconds(seconds: Option<f64>) -> String {
    seconds.map_or_else(unknown, |seconds| format!("{seconds:.3}"))
}

fn unknown() -> String {
    "-".to_owned()
}

fn effect(mode: &ModeReport) -> String {
    let (runs, effective) = (mode.runs, mode.effective_runs);
    let outcome = match (runs, mode.effect.took_effect) {
        (0, _) => "unavailable".to_owned(),
        (_, Some(_)) if effective > 0 && effective < runs => {
            format!("took effect in {effective} of {runs} runs")
        }
        (_, Some(true)) => "took effect".to_owned(),
        (_, Some(false)) => "took no effect".to_owned(),
        (_, None) => "effect unknown".to_owned(),
    };
    let mut text = format!("{:<14}  {outcome}: {}\n", mode.mode.name(), effect_text(&mode.effect));
    for help in mode.effect.cause.help() {
        let _ = writeln!(text, "{:<14}  help: {help}", "");
    }
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use hugepilot_record::compare::{
        BestMode, Conclusion, DecidingTime, GainSource, Reach, SCHEMA, Verdict,
    };
    use hugepilot_record::run::{CompareWarning, EffectCause, HugeMemory, Mode, RunWarning};
    use hugepilot_stats::PairedRatio;
    use hugepilot_testkit::assert_golden;

    use super::*;

    pub(super) fn mode(mode: Mode, seconds: f64, faults: u64, huge: Bytes) -> ModeReport {
        let pages = HugeMemory { anonymous_thp_bytes: huge, ..HugeMemory::default() };
        let cause = match huge {
            Bytes::ZERO => EffectCause::NoHugePages,
            _ => EffectCause::HugePages { pages, mode_bytes: huge, memory_bytes: Bytes::mib(300) },
        };
        let mut report = ModeReport {
            runs: 5,
            effective_runs: 5,
            wall_seconds: Some(Spread { median: seconds, min: seconds * 0.9, max: seconds * 1.1 }),
            user_seconds: Some(Spread { median: seconds / 2.0, min: 0.0, max: 1.0 }),
            system_seconds: Some(Spread { median: 0.25, min: 0.0, max: 1.0 }),
            page_faults: Some(faults),
            rss_peak_bytes: Some(Bytes::mib(300)),
            thp_peak_bytes: Some(huge),
            hugetlb_peak_bytes: Some(Bytes::ZERO),
            stall_ratio: Some(0.5),
            ..ModeReport::unavailable(mode, cause)
        };
        report.effect.took_effect = Some(true);
        report
    }

    pub(crate) fn report() -> CompareReport {
        let speedup = PairedRatio { low: 1.5, median: 2.0, high: 2.5, rounds: 5, faster_rounds: 5 };
        let thp = ModeReport {
            speedup_over_base: Some(speedup),
            cpu_speedup_over_base: Some(speedup),
            ..mode(Mode::GlibcThp, 0.5, 642, Bytes::mib(256))
        };
        let best = BestMode { mode: Mode::GlibcThp, speedup, cpu_speedup: Some(speedup) };
        let empty = EffectCause::EmptyPool { page_bytes: Bytes::mib(2) };
        let warning = RunWarning::RunsFailed { failed_runs: 1, runs: 5 };
        CompareReport {
            schema: SCHEMA.to_owned(),
            command: vec!["x".to_owned()],
            rounds: 5,
            modes: vec![
                mode(Mode::Base, 1.0, 70_080, Bytes::ZERO),
                thp,
                ModeReport::unavailable(Mode::Hugetlb, empty),
            ],
            confirmation: None,
            tlb_reach: Reach {
                base_bytes: Bytes::mib(8),
                huge_bytes: Bytes::gib(2),
                assumed: false,
            },
            counters_unavailable: Some("no PMU".to_owned()),
            stalls_unavailable: None,
            decided_by: DecidingTime::Wall,
            interrupted: false,
            pays: true,
            verdict: Verdict {
                gain: Some(GainSource::Pages),
                ..Verdict::without_best(Conclusion::Pays(best))
            },
            warnings: vec![CompareWarning { mode: Some(Mode::GlibcThp), warning }],
        }
    }

    #[test]
    fn the_text_has_a_row_for_each_run_mode_and_an_effect_for_all() {
        assert_golden("testdata/compare.txt", &compare_text(&report(), Width::UNLIMITED));
        let mut counted = report();
        counted.modes[0].dtlb_miss_ratio = Some(0.93);
        let text = compare_text(&counted, Width::UNLIMITED);
        assert!(
            text.contains("TLB_MISSES") && text.contains("93.0 %") && !text.contains("STALLS"),
            "{text}"
        );
        counted.modes[1].effective_runs = 3;
        let text = compare_text(&counted, Width::UNLIMITED);
        assert!(text.contains("glibc-thp       took effect in 3 of 5 runs: 256MiB"), "{text}");
    }

    #[test]
    fn the_json_has_facts_and_sentences() {
        let json: serde_json::Value = serde_json::from_str(&crate::json(&report())).unwrap();
        let thp = &json["modes"][1];
        assert_eq!(
            (&thp["mode"], &thp["speedup_over_base"]["median"]),
            (&"glibc-thp".into(), &2.0.into())
        );
        assert!(thp["dtlb_miss_ratio"].is_null() && thp["stall_ratio"] == 0.5);
        assert_eq!(thp["wall_seconds"]["min"], 0.45);
        for field in ["took_effect", "page_faults", "rss_peak_bytes", "thp_peak_bytes"] {
            assert!(!thp[field].is_null(), "{field}");
        }
        let empty = &json["modes"][2]["cause"];
        assert_eq!(
            (&empty["code"], &empty["page_bytes"]),
            (&"empty_pool".into(), &(2 << 20).into())
        );
        let command = "sudo hugepilot pool set --size 2MiB --count N";
        assert_eq!(
            (&empty["help"][0], json["verdict"]["code"].as_str()),
            (&command.into(), Some("pays"))
        );
        assert!(json["verdict"]["text"].as_str().unwrap().starts_with("Huge pages pay: glibc-thp"));
        assert_eq!(json["warnings"][0]["code"], "runs_failed");
        assert_eq!((&json["schema"], &json["rounds"]), (&SCHEMA.into(), &5.into()));
        assert_eq!(serde_json::from_value::<CompareReport>(json).unwrap(), report());
    }
}
