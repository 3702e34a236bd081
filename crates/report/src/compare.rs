//! `compare` as text: a row for each mode, why each did or did not take effect, and what to make of it.

use std::fmt::Write;

use hugepilot_record::compare::{CompareReport, ModeReport};
use hugepilot_stats::Spread;
use hugepilot_units::Bytes;

use crate::table::{Width, grouped, percent, table};

/// The table, the reasons and the verdict.
pub fn compare_text(report: &CompareReport, width: Width) -> String {
    let counted = report.modes.iter().any(|mode| mode.dtlb_miss_ratio.is_some());
    let waits = if counted { "TLB_MISSES" } else { "STALLS" };
    let header = [
        "MODE",
        "WALL",
        "MIN",
        "MAX",
        "USER",
        "SYSTEM",
        "FAULTS",
        waits,
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
    for warning in &report.warnings {
        let _ = writeln!(text, "warning: {warning}");
    }
    if report.interrupted {
        text.push_str("warning: interrupted before all rounds were run\n");
    }
    if let Some(why) = report.stalls_unavailable.as_ref().filter(|_| !counted) {
        let _ = writeln!(text, "stalls are not known: {why}");
    }
    let _ = writeln!(text, "{}", report.verdict);
    text
}

fn row(mode: &ModeReport, counted: bool) -> Vec<String> {
    let median = |spread: Option<Spread>| seconds(spread.map(|spread| spread.median));
    let ratio = |ratio: Option<f64>| ratio.map_or_else(unknown, |ratio| format!("{ratio:.2}x"));
    let size = |bytes: Option<Bytes>| bytes.map_or_else(unknown, |bytes| bytes.to_string());
    let waits = if counted { mode.dtlb_miss_ratio } else { mode.stall_ratio };
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
        waits.map_or_else(unknown, percent),
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
    let took = match (mode.runs, mode.took_effect) {
        (0, _) => "was not run",
        (_, Some(true)) => "took effect",
        (_, Some(false)) => "took no effect",
        (_, None) => "not known whether it took effect",
    };
    let mut text = format!("{:<11}  {took}: {}\n", mode.mode.name(), mode.reason);
    if let Some(fix) = &mode.fix {
        let _ = writeln!(text, "{:<11}  fix: {fix}", "");
    }
    text
}

#[cfg(test)]
mod tests {
    use hugepilot_record::compare::{DecidingTime, Reach, SCHEMA};
    use hugepilot_record::run::Mode;
    use hugepilot_stats::PairedRatio;
    use hugepilot_testkit::assert_golden;

    use super::*;

    fn report() -> CompareReport {
        let mode = |mode, seconds: f64, faults, huge| ModeReport {
            runs: 5,
            took_effect: Some(true),
            wall_seconds: Some(Spread { median: seconds, min: seconds * 0.9, max: seconds * 1.1 }),
            user_seconds: Some(Spread { median: seconds / 2.0, min: 0.0, max: 1.0 }),
            system_seconds: Some(Spread { median: 0.25, min: 0.0, max: 1.0 }),
            page_faults: Some(faults),
            rss_peak_bytes: Some(Bytes::mib(300)),
            thp_peak_bytes: Some(huge),
            hugetlb_peak_bytes: Some(Bytes::ZERO),
            stall_ratio: Some(0.5),
            ..ModeReport::unavailable(mode, "what was seen".to_owned(), None)
        };
        let ratio =
            Some(PairedRatio { low: 1.5, median: 2.0, high: 2.5, rounds: 5, faster_rounds: 5 });
        let thp = ModeReport {
            speedup_over_base: ratio,
            cpu_speedup_over_base: ratio,
            ..mode(Mode::GlibcThp, 0.5, 642, Bytes::mib(256))
        };
        let fix = Some("sudo hugepilot pool set --size 2MiB --count N".to_owned());
        CompareReport {
            schema: SCHEMA.to_owned(),
            command: vec!["x".to_owned()],
            rounds: 5,
            modes: vec![
                mode(Mode::Base, 1.0, 70_080, Bytes::ZERO),
                thp,
                ModeReport::unavailable(Mode::Hugetlb, "the pool is empty".to_owned(), fix),
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
            verdict: "Huge pages pay.".to_owned(),
            warnings: vec!["something".to_owned()],
        }
    }

    #[test]
    fn the_text_has_a_row_for_each_that_ran_and_a_reason_for_all() {
        assert_golden("testdata/compare.txt", &compare_text(&report(), Width::UNLIMITED));
        let mut counted = report();
        counted.modes[0].dtlb_miss_ratio = Some(0.93);
        let text = compare_text(&counted, Width::UNLIMITED);
        assert!(
            text.contains("TLB_MISSES") && text.contains("93.0 %") && !text.contains("STALLS"),
            "{text}"
        );
    }

    #[test]
    fn the_json_has_the_fields_it_promises() {
        let json: serde_json::Value = serde_json::from_str(&crate::json(&report())).unwrap();
        let thp = &json["modes"][1];
        assert_eq!(
            (&thp["mode"], &thp["speedup_over_base"]["median"]),
            (&"glibc-thp".into(), &2.0.into())
        );
        assert!(
            thp["dtlb_miss_ratio"].is_null()
                && thp["stall_ratio"] == 0.5
                && thp["wall_seconds"]["min"] == 0.45
        );
        for field in [
            "took_effect",
            "reason",
            "page_faults",
            "rss_peak_bytes",
            "thp_peak_bytes",
            "hugetlb_peak_bytes",
        ] {
            assert!(!thp[field].is_null(), "{field}");
        }
        assert_eq!((&json["schema"], &json["rounds"]), (&SCHEMA.into(), &5.into()));
    }
}
