//! Document and JSON of `hugepilot compare`: the verdict, a row per mode, the effects.

mod verdict;

use hugepilot_render::Sentence;
use hugepilot_render::json::JsonReport;
use hugepilot_render::model::{
    Bar, Cell, Document, Notice, NoticeLevel, Plot, Report, Section, Table, Unit,
};
use hugepilot_render::sentence::{explain, explain_all};
use hugepilot_stats::Spread;
use hugepilot_units::Bytes;
use serde_json::Value;

use verdict::VerdictText;

use crate::compare::{CompareReport, ModeReport};
use crate::run::text::effect_text;

impl Document for CompareReport {
    fn document(&self) -> Report {
        let mut all = Report::new(format!("Page modes of {}", self.command.join(" ")));
        all.summary.push(VerdictText(self).text());
        let ran = || self.modes.iter().filter(|mode| mode.runs > 0);
        let bars = ran().filter_map(|mode| {
            let Spread { median, min, max } = mode.wall_seconds?;
            Some(Bar { range: Some((min, max)), ..Bar::new(mode.mode.name(), Some(median)) })
        });
        let text = "Bars are medians; the line in each is from the fastest to the slowest run.";
        let plot = Plot::bars("", "wall-clock time", Unit::Seconds, bars);
        all.add(Section::detail("Time by mode", text).with_plot(plot));
        let is_counted = self.modes.iter().any(|mode| mode.dtlb_miss_ratio.is_some());
        let stalls = if is_counted { "TLB misses" } else { "stalls" };
        let columns = [
            "mode",
            "wall",
            "min",
            "max",
            "user",
            "system",
            "faults",
            stalls,
            "RSS",
            "THP",
            "hugetlb",
            "speedup",
            "low",
            "high",
            "CPU speedup",
        ];
        let table = Table::of("", columns, ran().map(|mode| row(mode, is_counted)));
        all.add(Section::new("Page modes", "").with(table));
        all.add(Section::new("Effects", "").with_all(self.modes.iter().map(effect)));
        let interrupted = "interrupted before all rounds were complete";
        let interrupted = self.interrupted.then(|| Notice::warning(interrupted));
        let unknown = self.stalls_unavailable.as_ref().filter(|_| !is_counted);
        let unknown =
            unknown.map(|cause| Notice::note(format!("stalls were not sampled: {}", cause.text())));
        let warnings = Notice::warnings(&self.warnings).chain(interrupted).chain(unknown);
        all.add(Section::new("Warnings", "").with_all(warnings));
        all
    }
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

fn row(mode: &ModeReport, is_counted: bool) -> [Cell; 15] {
    let seconds = |value| Cell::of(value, Unit::Seconds, "not measured");
    let speedup = |value| Cell::of(value, Unit::Number, "no run of base in the same rounds");
    let size = |bytes: Option<Bytes>| Cell::of(bytes.map(Bytes::as_f64), Unit::Bytes, "not seen");
    let median = |spread: Option<Spread>| seconds(spread.map(|spread| spread.median));
    let stalls = if is_counted { mode.dtlb_miss_ratio } else { mode.stall_ratio };
    let over = mode.speedup_over_base;
    [
        mode.mode.name().into(),
        median(mode.wall_seconds),
        seconds(mode.wall_seconds.map(|spread| spread.min)),
        seconds(mode.wall_seconds.map(|spread| spread.max)),
        median(mode.user_seconds),
        median(mode.system_seconds),
        Cell::of(mode.page_faults.map(|faults| faults as f64), Unit::Count, "not measured"),
        Cell::of(stalls, Unit::Ratio, "not measured"),
        size(mode.rss_peak_bytes),
        size(mode.thp_peak_bytes),
        size(mode.hugetlb_peak_bytes),
        speedup(over.map(|over| over.median)),
        speedup(over.map(|over| over.low)),
        speedup(over.map(|over| over.high)),
        speedup(mode.cpu_speedup_over_base.map(|over| over.median)),
    ]
}

fn effect(mode: &ModeReport) -> Notice {
    let (runs, effective) = (mode.runs, mode.effective_runs);
    let outcome = match (runs, mode.effect.took_effect) {
        (0, _) => "is unavailable".to_owned(),
        (_, Some(_)) if effective > 0 && effective < runs => {
            format!("took effect in {effective} of {runs} runs")
        }
        (_, Some(true)) => "took effect".to_owned(),
        (_, Some(false)) => "took no effect".to_owned(),
        (_, None) => "has an unknown effect".to_owned(),
    };
    let text = format!("{} {outcome}: {}", mode.mode, effect_text(&mode.effect));
    Notice { text, ..Notice::of(NoticeLevel::Note, &mode.effect.cause) }
}

#[cfg(test)]
pub(crate) mod tests {
    use hugepilot_record::Mode;
    use hugepilot_render::{Width, command_text};
    use hugepilot_stats::PairedRatio;
    use hugepilot_testkit::assert_golden;

    use super::*;
    use crate::compare::{BestMode, Conclusion, DecidingTime, GainSource, Reach, SCHEMA, Verdict};
    use crate::run::{CompareWarning, EffectCause, HugeMemory, RunWarning};

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
        assert_golden("testdata/compare.txt", &command_text(&report(), Width::UNLIMITED));
        let mut counted = report();
        counted.modes[0].dtlb_miss_ratio = Some(0.93);
        let text = command_text(&counted, Width::UNLIMITED);
        assert!(
            text.contains("TLB_MISSES") && text.contains("93.0 %") && !text.contains("STALLS"),
            "{text}"
        );
        counted.modes[1].effective_runs = 3;
        let text = command_text(&counted, Width::UNLIMITED);
        assert!(text.contains("note: glibc-thp took effect in 3 of 5 runs: 256MiB"), "{text}");
    }

    #[test]
    fn the_json_has_facts_and_sentences() {
        let json: serde_json::Value =
            serde_json::from_str(&hugepilot_render::json(&report())).unwrap();
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
        assert_eq!(json["verdict"]["gain"], "pages");
        assert_eq!(serde_json::from_value::<CompareReport>(json).unwrap(), report());
        assert!(report().verdict.pays() && !Verdict::default().pays());
    }
}
