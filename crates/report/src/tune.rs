//! `tune` as text.

use std::collections::BTreeMap;
use std::fmt::Write;

use hugepilot_record::Stop;
use hugepilot_record::tune::{Figure, TuneReport};
use hugepilot_stats::Spread;
use hugepilot_units::Bytes;

use crate::table::{grouped, percent, table};

/// Picks shown.
const SHOWN: usize = 8;

/// The report for people: the verdict first, then the figures, what was picked and passed over, and how it was measured.
pub fn tune_text(report: &TuneReport) -> String {
    let mut text =
        format!("{} (pid {}): {}\n", report.target.command, report.target.pid, verdict(report));
    text.push_str(&figures(report));
    text.push_str(&picks(report));
    text.push_str(&passed_over(report));
    text.push_str(&method(report));
    for warning in &report.warnings {
        let _ = writeln!(text, "note: {warning}");
    }
    text
}

fn verdict(report: &TuneReport) -> String {
    let expected = report.predicted_speedup.map_or_else(String::new, |p| {
        format!(", predicted {:.2}x ({:.2}–{:.2})", p.median, p.low, p.high)
    });
    if let Some(unknown) = &report.cannot_tell {
        return format!("cannot tell: {}; nothing was changed", unknown.reason);
    }
    if report.dry_run {
        let count = report.selected.len();
        return format!("would promote {count} regions{expected}; nothing was changed");
    }
    if let Some(stop) = report.stopped.filter(|_| report.attempted_regions == 0) {
        return format!("stopped before anything was done: {stop}");
    }
    if report.attempted_regions == 0 && report.skipped.contains_key("over_budget") {
        return format!(
            "the budget of {} allows nothing; nothing was changed",
            known(report.budget_bytes)
        );
    }
    if report.attempted_regions == 0 {
        return format!("nothing to gain from huge pages here{expected}; nothing was changed");
    }
    let done = format!(
        "{} of {} regions verified on huge pages in {:.2} s",
        report.verified_regions, report.attempted_regions, report.promotion_seconds
    );
    let gain = match (report.speedup, report.sampled_speedup) {
        (Some(speedup), _) => format!(", {speedup:.2}x as fast"),
        (None, Some(sampled)) if sampled.low < 1.0 => {
            format!(
                ", a gain is not certain by the samples ({:.2}–{:.2})",
                sampled.low, sampled.high
            )
        }
        (None, Some(sampled)) => {
            format!(
                ", {:.2}x as fast by the samples ({:.2}–{:.2})",
                sampled.median, sampled.low, sampled.high
            )
        }
        (None, None) => String::new(),
    };
    format!("{done}{gain}{expected}")
}

/// A share, or that it cannot be told.
fn share(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "unknown".to_owned(), percent)
}

/// A size, or that it cannot be told.
fn known(bytes: Option<Bytes>) -> String {
    bytes.map_or_else(|| "unknown".to_owned(), |bytes| bytes.to_string())
}

fn figures(report: &TuneReport) -> String {
    let mut rows = Vec::new();
    let named = [
        ("baseline", report.baseline, None),
        ("tuned", report.tuned, report.speedup),
        ("all huge", report.all_huge, report.all_huge_speedup),
    ];
    for (name, figure, speedup) in named {
        let Some((unit, spread)) = figure.and_then(|figure| unit(&figure)) else { continue };
        if rows.is_empty() {
            rows.push(
                ["", &format!("MEDIAN_{unit}"), "MIN", "MAX", "SPEEDUP"]
                    .map(str::to_owned)
                    .to_vec(),
            );
        }
        rows.push(vec![
            name.to_owned(),
            figure_text(spread.median),
            figure_text(spread.min),
            figure_text(spread.max),
            match speedup {
                Some(speedup) => format!("{speedup:.2}x"),
                None if name == "baseline" => "1.00x".to_owned(),
                None => "-".to_owned(),
            },
        ]);
    }
    if rows.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{}", table(rows, &[1, 2, 3, 4]));
    if let Some(share) = report.all_huge_gain_ratio {
        let _ = writeln!(text, "share of the all-huge gain: {}", percent(share));
    }
    text
}

fn unit(figure: &Figure) -> Option<(&'static str, Spread)> {
    let found = [
        ("FIGURE", figure.progress),
        ("OPS_PER_SECOND", figure.ops_per_second),
        ("SECONDS", figure.seconds),
    ];
    found.into_iter().find_map(|(unit, spread)| Some((unit, spread?)))
}

fn figure_text(value: f64) -> String {
    if value.abs() >= 1000.0 { grouped(value) } else { format!("{value:.4}") }
}

fn picks(report: &TuneReport) -> String {
    if report.selected.is_empty() {
        return String::new();
    }
    let mut rows =
        vec![["REGION", "STALL_%", "SAMPLED_PAGES", "DONE", "MAPPING"].map(str::to_owned).to_vec()];
    rows.extend(report.selected.iter().take(SHOWN).map(|pick| {
        let done = match pick.verified {
            None => "-",
            Some(true) => "yes",
            Some(false) => "no",
        };
        vec![
            pick.start.to_string(),
            format!("{:.2}", pick.heat_ratio * 100.0),
            pick.sampled_pages.to_string(),
            done.to_owned(),
            pick.mapping.clone(),
        ]
    }));
    let mut text = format!(
        "\n{} picks held {} of the target's stalls; the hottest:\n{}",
        report.selected.len(),
        share(report.coverage_ratio),
        table(rows, &[1, 2])
    );
    if let Some(truth) = report.ground_truth {
        let _ = writeln!(
            text,
            "against the truth: {} of {} hot regions picked, {} of the picks are hot",
            truth.picked_hot_regions,
            truth.hot_regions,
            percent(truth.precision_ratio)
        );
    }
    text
}

fn passed_over(report: &TuneReport) -> String {
    let list = |map: &BTreeMap<String, u64>| {
        map.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
    };
    let mut text = String::new();
    if !report.skipped.is_empty() {
        let _ = writeln!(text, "passed over: {}", list(&report.skipped));
    }
    if !report.failed.is_empty() {
        let _ = writeln!(text, "failed: {}", list(&report.failed));
    }
    if let Some(stop) = report.stopped {
        let _ = writeln!(text, "stopped early: {stop}");
        if stop == Stop::NoHugePages {
            text.push_str("fix: free memory is in pieces; to put it together: echo 1 | sudo tee /proc/sys/vm/compact_memory\n");
        }
    }
    text
}

fn method(report: &TuneReport) -> String {
    let sampler = &report.sampler;
    let mut text = format!(
        "\nmemory: {} resident, {} huge before, {} after, budget {}\n",
        known(report.footprint_bytes),
        known(report.huge_bytes_before),
        known(report.huge_bytes_after),
        known(report.budget_bytes)
    );
    let after = report
        .after
        .map_or_else(String::new, |after| format!(", {} after", share(after.stall_ratio)));
    let before = report.before.stall_ratio.map_or_else(
        || "unknown".to_owned(),
        |ratio| format!("{} of samples before", percent(ratio)),
    );
    let _ = writeln!(text, "stalls on scattered memory: {before}{after}");
    if let Some(sampled) = report.sampled_speedup {
        let _ = writeln!(
            text,
            "gain by the samples alone: {:.2}x ({:.2}–{:.2})",
            sampled.median, sampled.low, sampled.high
        );
    }
    let addresses = sampler.exact_ratio.map_or_else(String::new, |exact| {
        format!(
            "; address exact {}, recomputed {}, next {}, none {}",
            percent(exact),
            share(sampler.recomputed_ratio),
            share(sampler.next_ratio),
            share(sampler.none_ratio)
        )
    });
    let _ = writeln!(
        text,
        "samples: {} by {}{addresses}; lost {}; cost to the target {}",
        sampler.samples,
        sampler.source,
        sampler.lost,
        sampler.overhead_ratio.map_or_else(|| "not measured".to_owned(), percent),
    );
    let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (source, why) in &sampler.unavailable {
        by_reason.entry(why).or_default().push(source);
    }
    for (why, sources) in by_reason {
        let _ = writeln!(text, "not available: {}, because {why}", sources.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use hugepilot_record::tune::Unknown;

    use super::*;

    /// A run that found no free huge page after three, in the fields that a reader looks for first.
    const STOPPED: &str = r#"{
        "schema": "hugepilot.tune/3", "target": {"pid": 4711, "command": "db"},
        "sampler": {"source": "cpu-clock", "samples": 3217, "exact_ratio": 0.975, "recomputed_ratio": 0.0,
            "next_ratio": 0.0, "none_ratio": 0.025, "undecoded_ratio": 0.001, "lost": 0, "throttled": 0, "overhead_ratio": null,
            "sample_cost_ns": null, "unavailable": {}},
        "ground_truth": null, "dry_run": false, "footprint_bytes": 4294967296, "budget_bytes": 645004492,
        "selected": [{"start": 139643766964224, "mapping": "[anon]", "heat_ratio": 0.0127, "sampled_pages": 19,
            "verified": true}],
        "skipped": {"too_cold": 8}, "eligible_regions": 4, "attempted_regions": 4, "verified_regions": 3,
        "failed": {"ENOMEM": 1}, "huge_bytes_before": 0, "huge_bytes_after": 6291456, "promotion_seconds": 0.01,
        "last_promotion_seconds": 3.0, "coverage_ratio": 0.957, "predicted_speedup": null, "sampled_speedup": null,
        "before": {"stall_ratio": 0.979, "instructions_per_cycle": null, "walks_per_kiloinstruction": null},
        "after": null, "baseline": null, "tuned": null, "all_huge": null, "speedup": null,
        "all_huge_speedup": null, "all_huge_gain_ratio": null, "stopped": "no_huge_pages", "cannot_tell": null,
        "target_ended": false, "warnings": []
    }"#;

    #[test]
    fn a_run_that_stopped_early_says_why_and_what_to_do() {
        let text = tune_text(&serde_json::from_str(STOPPED).unwrap());
        for part in [
            "0x7f0159200000",
            "95.7 %",
            "failed: ENOMEM 1\nstopped early: no free huge pages\nfix: free memory",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let finished = STOPPED.replace("\"no_huge_pages\"", "null");
        let text = tune_text(&serde_json::from_str(&finished).unwrap());
        assert!(!text.contains("stopped") && !text.contains("fix:"), "{text}");
    }

    /// A report on a process that was stopped: its memory was looked at, and nothing was sampled.
    #[test]
    fn what_is_not_known_is_neither_zero_nor_nothing_to_gain() {
        let mut report: TuneReport = serde_json::from_str(STOPPED).unwrap();
        report.sampler = hugepilot_record::tune::SamplerReport::default();
        (report.selected, report.attempted_regions, report.verified_regions) = (Vec::new(), 0, 0);
        (report.eligible_regions, report.coverage_ratio, report.before.stall_ratio) =
            (None, None, None);
        (report.stopped, report.huge_bytes_after, report.budget_bytes) = (None, None, None);
        report.cannot_tell =
            Some(Unknown { reason: "no samples: stopped".into(), fix: "kill -CONT 4711".into() });
        let text = tune_text(&report);
        let first = text.lines().next().unwrap();
        assert!(first.contains("cannot tell: no samples: stopped"), "{first}");
        assert!(
            text.contains("memory: 4GiB resident, 0B huge before, unknown after, budget unknown"),
            "{text}"
        );
        assert!(text.contains("scattered memory: unknown\n") && !text.contains("exact"), "{text}");
        assert!(!text.contains("nothing to gain") && !text.contains("0.0 %"), "{text}");
    }
}
