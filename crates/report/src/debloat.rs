//! Text and JSON of `hugepilot debloat`.

use std::collections::BTreeMap;

use hugepilot_record::debloat::{DebloatReport, ProcessDebloat};
use hugepilot_units::Bytes;
use serde_json::Value;

use crate::json::JsonReport;
use crate::sentence::{explain_all, warning_lines};
use crate::table::{Width, counted, grouped, more_processes, percent, table};

/// Limit on the rows of the table of processes; `--json` has all.
const SHOWN: usize = 30;

impl JsonReport for DebloatReport {
    const EXPLAINS: bool = true;

    fn explain(&self, json: &mut Value) {
        explain_all(json, "/warnings", &self.warnings);
    }
}

/// Prints the verdict, the table of processes, the method, and the warnings.
pub fn debloat_text(report: &DebloatReport, width: Width) -> String {
    let mut text = format!("{}\n", verdict(report));
    text.push_str(&processes(report, width));
    text.push_str(&method(report));
    text.push_str(&counts("skipped", &report.skipped));
    text.push_str(&counts("failed", &report.failed));
    text + &warning_lines(&report.warnings)
}

fn verdict(report: &DebloatReport) -> String {
    let error = report.bloat_error_bytes;
    let margin = if error.get() > 0 { format!(" ± {error}") } else { String::new() };
    let huge_pages = counted(report.huge_pages_before, "huge page", "huge pages");
    let bloat_bytes = report.bloat_bytes;
    // The table has the bloat of protected processes, too.
    let all: Bytes = report.processes.iter().map(|one| one.bloat_bytes_before).sum();
    let bloat = match all - bloat_bytes {
        Bytes::ZERO => format!("{bloat_bytes}{margin} of bloat in {huge_pages}"),
        protected => format!(
            "{all} of bloat in {huge_pages}: {protected} protected, {bloat_bytes}{margin} that may \
             be freed"
        ),
    };
    let bloat = match report.stranded_bytes.filter(|bytes| !bytes.is_zero()) {
        Some(bytes) => format!("{bytes} held and not mapped, {bloat}"),
        None => bloat,
    };
    let bounded = match report.unread_huge_pages {
        0 => bloat.clone(),
        _ => format!("at least {bloat}"),
    };
    let slowdown = report.predicted_slowdown.map_or_else(String::new, |p| {
        format!(", predicted slowdown {:.3}x ({:.3}–{:.3})", p.median, p.low, p.high)
    });
    let split = counted(report.huge_pages_split, "split", "splits");
    let (freed, seconds) = (report.freed_bytes, report.split_seconds);
    match report.stopped {
        Some(stop) if report.dry_run || report.huge_pages_split == 0 => {
            format!("{stop} before all huge pages were read; at least {bloat}; nothing was split")
        }
        _ if report.dry_run => {
            let about = if error.get() > 0 { "about " } else { "" };
            format!(
                "{bounded}; would free {about}{freed} by {about}{split}{slowdown}; nothing was \
                 changed"
            )
        }
        Some(stop) => {
            format!("{bounded}; freed {freed} by {split}, then: {stop}")
        }
        None if report.huge_pages_split == 0 => format!("{bounded}; nothing was split"),
        None => format!("{bounded}; freed {freed} by {split} in {seconds:.2} s{slowdown}"),
    }
}

fn processes(report: &DebloatReport, width: Width) -> String {
    let header = [
        "PID",
        "COMMAND",
        "STRANDED",
        "BLOAT",
        "FREED",
        "SPLIT",
        "THP_BEFORE",
        "THP_AFTER",
        "SPLIT_HEAT",
    ];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    let row = |one: &ProcessDebloat| {
        vec![
            one.pid.to_string(),
            one.command.clone(),
            one.stranded_bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string()),
            one.bloat_bytes_before.to_string(),
            one.freed_bytes.to_string(),
            grouped_count(one.huge_pages_split),
            grouped_count(one.huge_pages_before),
            grouped_count(one.huge_pages_after),
            one.split_heat_ratio.map_or_else(|| "-".to_owned(), percent),
        ]
    };
    rows.extend(report.processes.iter().take(SHOWN).map(row));
    let mut text = format!("\n{}", table(rows, &[0, 2, 3, 4, 5, 6, 7, 8], width));
    if report.processes.len() > SHOWN {
        text.push_str(&more_processes(report.processes.len() - SHOWN));
    }
    text
}

fn method(report: &DebloatReport) -> String {
    let rate = report.scanned_bytes.as_f64() / f64::from(1 << 30) / report.scan_seconds.max(1e-9);
    let quantum = match report.fairness.as_str() {
        "round-robin" => format!(", quantum {}", report.quantum),
        _ => String::new(),
    };
    format!(
        "\norder {}, fairness {}{quantum}; read {} in {:.2} s ({rate:.1} GiB/s)\n",
        report.order, report.fairness, report.scanned_bytes, report.scan_seconds
    )
}

fn counts(what: &str, counts: &BTreeMap<String, u64>) -> String {
    let some: Vec<String> =
        counts.iter().filter(|&(_, &n)| n > 0).map(|(why, n)| format!("{why} {n}")).collect();
    if some.is_empty() { String::new() } else { format!("{what}: {}\n", some.join(", ")) }
}

#[allow(clippy::cast_precision_loss)]
fn grouped_count(count: u64) -> String {
    grouped(count as f64)
}

#[cfg(test)]
pub(crate) mod tests {
    use hugepilot_record::debloat::{DebloatWarning, SCHEMA};
    use hugepilot_record::tune::Prediction;
    use hugepilot_record::{Pid, Stop};
    use hugepilot_testkit::assert_golden;

    use super::*;

    pub(crate) fn report() -> DebloatReport {
        let process = |pid, command: &str, split| ProcessDebloat {
            pid: Pid(pid),
            command: command.to_owned(),
            bloat_bytes_before: Bytes::gib(2),
            bloat_bytes_after: Bytes::gib(1),
            stranded_bytes: Some(Bytes::mib(12)),
            freed_bytes: Bytes::gib(1),
            huge_pages_split: split,
            huge_pages_before: 4096,
            huge_pages_after: 4096 - split,
            split_heat_ratio: Some(0.031),
        };
        DebloatReport {
            schema: SCHEMA.to_owned(),
            order: "heat".to_owned(),
            fairness: "round-robin".to_owned(),
            quantum: 8,
            bloat_bytes: Bytes::gib(4),
            requested_bytes: Bytes::gib(2),
            freed_bytes: Bytes::gib(2),
            huge_pages_split: 1380,
            huge_pages_before: 8192,
            huge_pages_after: 6812,
            scanned_bytes: Bytes::gib(16),
            scan_seconds: 1.0,
            split_seconds: 0.25,
            predicted_slowdown: Some(Prediction { low: 1.001, median: 1.01, high: 1.02 }),
            skipped: BTreeMap::from([("mlocked".into(), 3), ("protected".into(), 0)]),
            failed: BTreeMap::from([("EINVAL".into(), 1)]),
            processes: vec![process(4711, "btree", 690), process(4712, "memcached", 690)],
            warnings: vec![DebloatWarning::Unread { huge_pages: 32 }],
            ..DebloatReport::default()
        }
    }

    #[test]
    fn the_text_of_a_whole_report() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/debloat.txt");
        assert_golden(path, &debloat_text(&report(), Width::UNLIMITED));
    }

    #[test]
    fn a_dry_run_states_that_nothing_changed() {
        let text = debloat_text(&DebloatReport { dry_run: true, ..report() }, Width::UNLIMITED);
        assert!(text.lines().next().unwrap().ends_with("nothing was changed"), "{text}");
        assert!(text.contains("would free 2GiB"), "{text}");
    }

    #[test]
    fn the_bloat_of_protected_processes_is_in_the_sentence_as_in_the_table() {
        let first = |bloat_bytes, bloat_error_bytes| {
            let report = DebloatReport {
                bloat_bytes,
                bloat_error_bytes,
                freed_bytes: Bytes::ZERO,
                huge_pages_split: 0,
                predicted_slowdown: None,
                dry_run: true,
                ..report()
            };
            debloat_text(&report, Width::UNLIMITED).lines().next().unwrap().to_owned()
        };
        assert_eq!(
            first(Bytes::ZERO, Bytes::ZERO),
            "4GiB of bloat in 8,192 huge pages: 4GiB protected, 0B that may be freed; would free \
             0B by 0 splits; nothing was changed"
        );
        let one = first(Bytes::gib(2), Bytes::mib(512));
        let expected = "4GiB of bloat in 8,192 huge pages: 2GiB protected, 2GiB ± 512MiB that may";
        assert!(one.starts_with(expected), "{one}");
    }

    #[test]
    fn unread_huge_pages_make_the_bloat_a_lower_bound() {
        let text =
            debloat_text(&DebloatReport { unread_huge_pages: 32, ..report() }, Width::UNLIMITED);
        assert!(text.starts_with("at least 4GiB of bloat in"), "{text}");
        let stopped = Some(Stop::Interrupted);
        let text = debloat_text(
            &DebloatReport { unread_huge_pages: 32, stopped, dry_run: true, ..report() },
            Width::UNLIMITED,
        );
        assert_eq!(text.lines().next().unwrap().matches("at least").count(), 1, "{text}");
    }

    #[test]
    fn json_has_codes_facts_and_sentences_of_warnings() {
        let value: Value = serde_json::from_str(&crate::json(&report())).unwrap();
        assert_eq!(value["warnings"][0]["code"], "unread");
        assert_eq!(value["warnings"][0]["huge_pages"], 32);
        assert!(value["warnings"][0]["text"].as_str().unwrap().contains("PROT_NONE"));
        let read: DebloatReport = serde_json::from_value(value).unwrap();
        assert_eq!(read, report());
    }

    #[test]
    fn an_estimate_shows_its_error() {
        let text = debloat_text(
            &DebloatReport { bloat_error_bytes: Bytes::mib(512), ..report() },
            Width::UNLIMITED,
        );
        assert!(text.contains("4GiB ± 512MiB of bloat"), "{text}");
        let bloat_error_bytes = Bytes::mib(512);
        let text = debloat_text(
            &DebloatReport { bloat_error_bytes, dry_run: true, ..report() },
            Width::UNLIMITED,
        );
        assert!(text.contains("would free about 2GiB by about 1,380 splits"), "{text}");
    }
}
