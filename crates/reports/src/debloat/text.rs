//! Document and JSON of `hugepilot debloat`.

use std::collections::BTreeMap;

use hugepilot_render::json::JsonReport;
use hugepilot_render::model::{Bar, Cell, Document, Notice, Plot, Report, Section, Table, Unit};
use hugepilot_render::sentence::explain_all;
use hugepilot_render::table::counted;
use hugepilot_units::Bytes;
use serde_json::Value;

use crate::debloat::{DebloatReport, ProcessDebloat};

/// Limit on the rows of the table of processes; `--json` has all.
const SHOWN: usize = 30;

impl JsonReport for DebloatReport {
    const EXPLAINS: bool = true;

    fn explain(&self, json: &mut Value) {
        explain_all(json, "/warnings", &self.warnings);
    }
}

impl Document for DebloatReport {
    fn document(&self) -> Report {
        let mut all = Report::new("Bloat of huge pages");
        all.summary.push(verdict(self));
        all.add(before_and_after(&self.processes));
        all.add(processes(&self.processes));
        all.add(Section::new("Method", method(self)));
        all.add(Section::new("Warnings", "").with_all(Notice::warnings(&self.warnings)));
        all
    }
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
    let text = match report.stopped {
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
    };
    text + "."
}

fn processes(all: &[ProcessDebloat]) -> Section {
    let columns = [
        "pid",
        "command",
        "stranded",
        "bloat",
        "bloat after",
        "freed",
        "split",
        "THP before",
        "THP after",
        "split heat",
    ];
    let row = |one: &ProcessDebloat| {
        let stranded = one.stranded_bytes.map(Bytes::as_f64);
        [
            one.pid.to_string().into(),
            one.command.clone().into(),
            Cell::of(stranded, Unit::Bytes, "page frames may not be read"),
            one.bloat_bytes_before.into(),
            one.bloat_bytes_after.into(),
            one.freed_bytes.into(),
            Cell::count(one.huge_pages_split),
            Cell::count(one.huge_pages_before),
            Cell::count(one.huge_pages_after),
            Cell::of(one.split_heat_ratio, Unit::Ratio, "no samples"),
        ]
    };
    let table = Table::of("", columns, all.iter().take(SHOWN).map(row));
    let more = Notice::of_omitted(all.len(), SHOWN, "process", "processes");
    Section::new("Processes", "").with(table).with_all(more)
}

/// Bars of the bloat of each process.
fn before_and_after(all: &[ProcessDebloat]) -> Section {
    let bars = all.iter().take(SHOWN).flat_map(|one| {
        [("before", one.bloat_bytes_before), ("after", one.bloat_bytes_after)].map(
            |(when, bytes)| {
                let name = format!("{} (pid {}), {when}", one.command, one.pid);
                Bar::new(name, Some(bytes.as_f64()))
            },
        )
    });
    let text = "Bloat is memory on huge pages that holds only zeros.";
    Section::detail("Bloat by process", text).with(Plot::bars("", "bloat", Unit::Bytes, bars))
}

fn method(report: &DebloatReport) -> String {
    let rate = report.scanned_bytes.as_f64() / f64::from(1 << 30) / report.scan_seconds.max(1e-9);
    let quantum = match report.fairness.as_str() {
        "round-robin" => format!(", quantum {}", report.quantum),
        _ => String::new(),
    };
    let [skipped, failed] = [("Skipped", &report.skipped), ("Failed", &report.failed)].map(counts);
    format!(
        "Order {}, fairness {}{quantum}; read {} in {:.2} s ({rate:.1} GiB/s).{skipped}{failed}",
        report.order, report.fairness, report.scanned_bytes, report.scan_seconds
    )
}

fn counts((what, counts): (&str, &BTreeMap<String, u64>)) -> String {
    let some: Vec<String> =
        counts.iter().filter(|&(_, &n)| n > 0).map(|(why, n)| format!("{why} {n}")).collect();
    if some.is_empty() { String::new() } else { format!(" {what}: {}.", some.join(", ")) }
}

#[cfg(test)]
pub(crate) mod tests {
    use hugepilot_record::{Pid, Prediction, Stop};
    use hugepilot_render::{Width, command_text};
    use hugepilot_testkit::assert_golden;

    use super::*;
    use crate::debloat::{DebloatWarning, SCHEMA};

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
        assert_golden(path, &command_text(&report(), Width::UNLIMITED));
    }

    #[test]
    fn a_dry_run_states_that_nothing_changed() {
        let text = command_text(&DebloatReport { dry_run: true, ..report() }, Width::UNLIMITED);
        assert!(text.lines().next().unwrap().ends_with("; nothing was changed."), "{text}");
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
            command_text(&report, Width::UNLIMITED).lines().next().unwrap().to_owned()
        };
        assert_eq!(
            first(Bytes::ZERO, Bytes::ZERO),
            "4GiB of bloat in 8,192 huge pages: 4GiB protected, 0B that may be freed; would free \
             0B by 0 splits; nothing was changed."
        );
        let one = first(Bytes::gib(2), Bytes::mib(512));
        let expected = "4GiB of bloat in 8,192 huge pages: 2GiB protected, 2GiB ± 512MiB that may";
        assert!(one.starts_with(expected), "{one}");
    }

    #[test]
    fn unread_huge_pages_make_the_bloat_a_lower_bound() {
        let text =
            command_text(&DebloatReport { unread_huge_pages: 32, ..report() }, Width::UNLIMITED);
        assert!(text.starts_with("at least 4GiB of bloat in"), "{text}");
        let stopped = Some(Stop::Interrupted);
        let text = command_text(
            &DebloatReport { unread_huge_pages: 32, stopped, dry_run: true, ..report() },
            Width::UNLIMITED,
        );
        assert_eq!(text.lines().next().unwrap().matches("at least").count(), 1, "{text}");
    }

    #[test]
    fn json_has_codes_facts_and_sentences_of_warnings() {
        let value: Value = serde_json::from_str(&hugepilot_render::json(&report())).unwrap();
        assert_eq!(value["warnings"][0]["code"], "unread");
        assert_eq!(value["warnings"][0]["huge_pages"], 32);
        assert!(value["warnings"][0]["text"].as_str().unwrap().contains("PROT_NONE"));
        let read: DebloatReport = serde_json::from_value(value).unwrap();
        assert_eq!(read, report());
    }

    #[test]
    fn an_estimate_shows_its_error() {
        let text = command_text(
            &DebloatReport { bloat_error_bytes: Bytes::mib(512), ..report() },
            Width::UNLIMITED,
        );
        assert!(text.contains("4GiB ± 512MiB of bloat"), "{text}");
        let bloat_error_bytes = Bytes::mib(512);
        let text = command_text(
            &DebloatReport { bloat_error_bytes, dry_run: true, ..report() },
            Width::UNLIMITED,
        );
        assert!(text.contains("would free about 2GiB by about 1,380 splits"), "{text}");
    }
}
